//! A model that OpenCode does not have.

use longshore_testkit::gateway::Setup;
use longshore_testkit::raw;

use crate::client::message;
use crate::frames::{self, explanation, state_of, task_id};
use crate::harness::{Harness, LONGSHORE};
use crate::upstream;

#[tokio::test(flavor = "multi_thread")]
async fn long_an_unknown_model_fails_the_task_and_is_named() {
    let setup = Setup::demo(LONGSHORE).flag("--model").flag("demo/no-such-model");
    let harness = Harness::start(setup).await;

    for prompt in ["scn:text n=1", "scn:text n=2"] {
        let frames = harness.client.stream(&message(prompt)).await.rest().await;
        frames::check_log(prompt, &frames);
        let task = harness.client.get(&task_id(&frames[0])).await;
        assert_eq!(
            raw::fold(&frames),
            raw::plain_text(&task),
            "{prompt}: the stream does not fold into the stored task"
        );
        assert_eq!(state_of(&task), "FAILED", "{prompt}: {task:#}");
        assert!(explanation(&task).contains("no-such-model"), "{prompt}: {task:#}");
        // OpenCode may or may not store the prompt; there is no answer to it.
        for turn in upstream::turns(&harness.opencode, prompt).await {
            assert_eq!(upstream::blocks_of_opencode(&turn), [], "{prompt}");
        }
    }
}
