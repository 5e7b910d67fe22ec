//! Native prompts and commands that the gateway refuses although OpenCode works: the error says why, and nothing is sent.

use longshore_testkit::gateway::Setup;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::every_method::number;
use crate::client::PATIENCE;
use crate::control::caller::{Caller, Kind, Refusal};
use crate::control::fixture::{OwnedSession, Fixture};
use crate::frames::state_of;

const COMMAND: &str = "opencode.sessions.command";
const PROMPT: &str = "opencode.sessions.prompt_async";

/// Two tasks for each caller, and a short wait for a session that another client keeps busy.
fn strict(setup: Setup) -> Setup {
    setup.env("LONGSHORE_MAX_UNFINISHED_PER_PRINCIPAL", "2").env("LONGSHORE_TURN_WAIT_FOR_OTHERS", "1")
}

#[tokio::test(flavor = "multi_thread")]
async fn long_refused_native_prompts_say_why_in_both_versions() {
    let fixture = Fixture::prepared(&ProtocolVersion::ALL, strict, |_| {}).await;
    let own = fixture.session("scn:text n=1 (nothing else is said)").await;
    let others = [
        fixture.session("scn:text n=1 (somewhere else)").await,
        fixture.session("scn:text n=1 (and somewhere else)").await,
    ];
    let before = fixture.content(&own.session).await;
    let asked = fixture.model.journal().turns().len();

    files_that_no_model_reads(&fixture, &own).await;
    assert_eq!(fixture.content(&own.session).await, before, "something was said");
    assert_eq!(fixture.model.journal().turns().len(), asked, "somebody was prompted");

    more_tasks_than_a_caller_may_have(&fixture, &own, &others).await;
    assert_eq!(fixture.content(&own.session).await, before, "something was said");

    a_session_that_somebody_else_keeps(&fixture, &own).await;
}

/// The valid parameters of both methods.
fn native_prompts(own: &OwnedSession) -> [(&'static str, Value); 2] {
    let parts = json!([{"type": "text", "text": "scn:text n=1"}]);
    [
        (PROMPT, json!({"session_id": own.session, "request": {"parts": parts}})),
        (
            COMMAND,
            json!({"session_id": own.session, "request": {"command": "review", "arguments": "scn:text n=1"}}),
        ),
    ]
}

fn says_when_to_come_again(refusal: &Refusal) {
    let again = number(&refusal.detail("retry_after_seconds"));
    assert!(
        again.is_some_and(|seconds| seconds > 0),
        "it is not said when to come again: {:#}",
        refusal.body
    );
}

async fn files_that_no_model_reads(fixture: &Fixture, own: &OwnedSession) {
    let file = json!({"type": "file", "mime": "application/zip", "url": "data:application/zip;base64,UEs="});
    for ada in fixture.ada() {
        for (method, mut params) in native_prompts(own) {
            params["request"]["parts"] = json!([file]);
            let refusal = ada.refused(method, params, Kind::UNSUPPORTED).await;
            refusal.assert_says("application/zip");
            assert!(refusal.detail("retry_after_seconds").is_null(), "{:#}", refusal.body);
        }
    }
}

async fn more_tasks_than_a_caller_may_have(fixture: &Fixture, own: &OwnedSession, others: &[OwnedSession; 2]) {
    let running = [fixture.running(&others[0]).await, fixture.running(&others[1]).await];
    for ada in fixture.ada() {
        for (method, params) in native_prompts(own) {
            says_when_to_come_again(&ada.refused(method, params, Kind::TOO_MANY).await);
        }
    }
    for task in &running {
        fixture.harness.client.cancel(task).await.unwrap_or_else(|error| panic!("{}", error.body));
    }
    fixture.idle().await;
}

/// Another client of OpenCode runs a shell in the session. A command waits for its end, but not for ever.
async fn a_session_that_somebody_else_keeps(fixture: &Fixture, own: &OwnedSession) {
    let opencode = &fixture.harness.opencode;
    let go = fixture.harness.gateway.workspace().join("go.txt");
    // The shell also ends when the directory is removed, so a failed test leaves nothing running.
    let waits = "while test -e README.md -a ! -e go.txt; do sleep 0.1; done";
    let shell = json!({"agent": "build", "command": waits});
    let path = format!("/session/{}/shell", own.session);
    let others = async {
        let deadline = Instant::now() + PATIENCE;
        while opencode.busy().await != [own.session.as_str()] {
            assert!(Instant::now() < deadline, "the shell never kept the session");
        }
        for ada in fixture.ada() {
            let refusal = command(&ada, own).await.expect_err("somebody else has the session");
            refusal.assert_kind(Kind::BUSY);
            says_when_to_come_again(&refusal);
            assert_eq!(refusal.detail("session_id"), own.session.as_str(), "{:#}", refusal.body);
            refusal.assert_says("Nothing was sent");
            let task = refusal.detail("task_id");
            let task = fixture.harness.client.get(task.as_str().expect("it was a task")).await;
            assert_eq!(state_of(&task), "FAILED", "{task:#}");
        }
        assert_eq!(opencode.busy().await, [own.session.as_str()], "the shell was disturbed");
        std::fs::write(&go, "").expect("a file can be written");
    };
    let (ran, ()) = tokio::join!(opencode.post_json_within(&path, &shell, PATIENCE * 4), others);
    assert!(ran.to_string().contains("completed"), "{ran:#}");
    // As soon as it is free again.
    fixture.idle().await;
    for ada in fixture.ada() {
        let reported = command(&ada, own).await.unwrap_or_else(|refusal| panic!("{:#}", refusal.body));
        assert!(reported["task_id"].is_string(), "{reported:#}");
        fixture.idle().await;
    }
}

async fn command(ada: &Caller, own: &OwnedSession) -> Result<Value, Refusal> {
    let [_, (method, params)] = native_prompts(own);
    ada.call(method, params).await
}
