//! Asks of the agent: the task fails by name instead of hanging, and the session can be used again.

use crate::client::message_in;
use crate::harness::{Harness, context, wait_until_idle};
use crate::upstream::Agreement;

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_fails_the_task_by_name_and_frees_the_session() {
    let harness = Harness::demo().await;
    // The rules of the demo's configuration ask before `touch`.
    let asks = [
        ("scn:bash cmd=\"touch forbidden\" scn:text n=1", ["permission", "touch forbidden"]),
        (
            "scn:question q=\"Which way?\" options=\"Left|Right\" scn:text n=1",
            ["question", "Which way? (Left, Right)"],
        ),
        (
            "scn:task desc=errand prompt=\"scn:bash cmd=\\\"touch hidden\\\" scn:text n=1\" scn:text n=1",
            ["A sub-agent asks for permission", "touch hidden"],
        ),
    ];
    for (prompt, words) in asks {
        let asked = harness.play_stopped(prompt).await;
        for words in words {
            asked.ended("FAILED", words);
        }
        let next = format!("scn:text n=1 text=\"after {}\"", words[0]);
        let next = harness.play_message(&message_in(&context(&asked), &next), Agreement::Whole).await;
        next.ended("COMPLETED", "");
        assert_eq!(
            next.turn.session, asked.turn.session,
            "{prompt}: the conversation went to another session"
        );
        wait_until_idle(&harness, &asked.turn.session).await;
    }
    for file in ["forbidden", "hidden"] {
        assert!(!harness.gateway.workspace().join(file).exists(), "{file} was made though nobody allowed it");
    }
}
