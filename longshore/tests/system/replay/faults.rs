//! OpenCode or the connection to it fails: the fault is invisible, or the task fails with the true reason.

use std::time::Duration;

use longshore_testkit::fake_opencode::{Cut, CutKind, FakeOpenCode, Fault, Tool, Turn};
use longshore_testkit::raw::message;
use serde_json::{Value, json};

use crate::common::{Options, TestGateway};
use crate::replay::fixture::{CheckedStream, Fixture, check};
use crate::replay::stable_names::Names;

const TEXT: &str = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima";

/// A turn with everything that can be lost, duplicated or reordered.
fn rich_turn() -> Turn {
    Turn::new()
        .reasoning("first this, then that", 4)
        .tool(Tool::bash("ls", "README.md\n"))
        .text(TEXT, 12)
        .tool(Tool::new("read", json!({"filePath": "nope"}), "").failing("File not found"))
        .text("mike november oscar", 3)
        .finish("stop")
}

/// The names and contents of the artifacts of a turn.
fn outline(seen: &CheckedStream) -> Vec<(String, Value)> {
    let artifacts = seen.task["artifacts"].as_array().into_iter().flatten();
    artifacts
        .map(|artifact| (artifact["name"].as_str().unwrap_or_default().to_owned(), artifact["parts"].clone()))
        .collect()
}

#[tokio::test]
async fn a_cut_of_the_event_stream_loses_doubles_and_reorders_nothing() {
    cut_event_stream(&[usize::MAX], &[22]).await;
}

#[tokio::test]
async fn long_cuts_of_the_event_stream_lose_double_and_reorder_nothing() {
    cut_event_stream(&[0, 1, 5, usize::MAX], &[1, 4, 9, 15, 22, 30, 40, 47]).await;
}

/// `/event` breaks off in every way, after these numbers of events. These numbers of further events are lost.
async fn cut_event_stream(losses: &[usize], positions: &[usize]) {
    let whole = {
        let fixture = Fixture::new().await;
        fixture.fake.queue(rich_turn());
        outline(&fixture.send("go").await)
    };
    assert_eq!(whole.len(), 5);
    for how in [CutKind::CleanEnd, CutKind::MidLine, CutKind::Reset] {
        for &lose in losses {
            for &after in positions {
                let fixture = Fixture::new().await;
                fixture.fake.queue(rich_turn());
                fixture.fake.cut_events(Cut { after, how, lose });
                let seen = fixture.send("go").await;
                let about = format!("{how:?} after {after}, {lose} lost");
                assert_eq!(seen.state(), "COMPLETED", "{about}: {}", seen.reason());
                assert_eq!(outline(&seen), whole, "{about}");
                assert_eq!(fixture.fake.prompts().len(), 1, "{about}");
                fixture.fake.wait_for_streams(2).await;
            }
        }
    }
}

/// The prompt never arrived: the task says that its outcome is unknown, and the prompt is not sent twice.
#[tokio::test]
async fn a_lost_prompt_fails_the_task() {
    let fixture = Fixture::new().await;
    fixture.fake.fault_once("POST", "/prompt_async", Fault::CutBefore);
    let seen = fixture.send("go").await;
    assert_eq!(seen.state(), "FAILED");
    assert_eq!(
        seen.reason(),
        "It is not known whether OpenCode took the prompt; look at the session before you send it again."
    );
    assert_eq!(fixture.fake.prompts().len(), 0);
    assert_eq!(fixture.send_in(Some(seen.context()), "message-2", "go").await.state(), "COMPLETED");
}

/// Control calls that fail once during a turn are repeated.
#[tokio::test]
async fn a_failed_read_of_the_message_list_is_retried() {
    for fault in [
        Fault::Status(500),
        Fault::CutBefore,
        Fault::Html,
        Fault::Body("{\"not\":\"a list\"}"),
        Fault::Status(401),
    ] {
        let fixture = Fixture::new().await;
        let said = format!("{fault:?}");
        fixture.fake.queue(Turn::new().text("alpha bravo charlie", 6));
        fixture.fake.cut_events(Cut { after: 9, how: CutKind::Reset, lose: usize::MAX });
        fixture.fake.fault_once("GET", "/message", fault);
        let seen = fixture.send("go").await;
        assert_eq!(
            (seen.state(), seen.text().as_str()),
            ("COMPLETED", "alpha bravo charlie"),
            "{said}: {}",
            seen.reason()
        );
    }
}

/// The answers of both bindings when OpenCode cannot be used: the status, and the task or error.
async fn answers(fixture: &Fixture) -> Value {
    let rpc = fixture.client().rpc("SendMessage", message("message-1", "go")).await;
    let rest = fixture.client().rest("POST", "/message:send", Some(&message("message-2", "go"))).await;
    let stream = fixture.send_in(None, "message-3", "go").await;
    assert_eq!(stream.state(), "FAILED");
    assert_eq!(fixture.fake.prompts().len(), 0, "nothing was prompted");
    let mut reported = Vec::new();
    for (binding, answer) in [("JSONRPC", rpc), ("HTTP+JSON", rest)] {
        let task = if binding == "JSONRPC" {
            answer.body["result"]["task"].clone()
        } else {
            answer.body["task"].clone()
        };
        let mut names = Names::default();
        names.call(task["id"].as_str().unwrap_or_default(), "<task>");
        names.call(task["contextId"].as_str().unwrap_or_default(), "<context>");
        reported
            .push(json!({"binding": binding, "status": answer.status, "body": names.value(&answer.body)}));
    }
    reported.into()
}

fn assert_snapshot(name: &str, reported: &Value) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_json_snapshot!(name, reported);
    });
}

/// A gateway with short timeouts.
async fn impatient_fixture() -> Fixture {
    let fake = FakeOpenCode::start();
    let mut options = Options { control_timeout: Duration::from_millis(500), ..Options::default() };
    options.engine.start_patience = Duration::from_secs(1);
    Fixture { gateway: TestGateway::start_with(&fake, options).await, fake }
}

#[tokio::test]
async fn opencode_is_down() {
    let fixture = impatient_fixture().await;
    fixture.fake.kill().await;
    assert_snapshot("opencode_down", &answers(&fixture).await);
}

/// Errors of OpenCode contain the address, headers and body of the provider; the gateway removes them.
#[tokio::test]
async fn secrets_in_provider_errors_are_removed() {
    let fixture = Fixture::new().await;
    let data = json!({
        "message": "no credit for key sk-proj-4242424242424242424242 at https://provider.example/v1/chat?key=hunter2 \
                    (from /home/user/.config/opencode/auth.json)",
        "statusCode": 402, "isRetryable": false, "responseHeaders": {"set-cookie": "session=cookie-secret"},
        "responseBody": "{\"detail\":\"body-secret\"}", "metadata": {"url": "https://provider.example/v1"},
    });
    fixture.fake.queue(Turn::new().error("APIError", &data));
    let seen = fixture.send("go").await;
    assert_eq!(seen.state(), "FAILED");
    let reported = seen.task.to_string();
    for secret in ["sk-proj-42", "hunter2", "provider.example", "cookie-secret", "body-secret", "/home/user"]
    {
        assert!(!reported.contains(secret), "{secret} in {reported}");
    }
    assert!(seen.reason().contains("402"), "{}", seen.reason());
}

/// The gateway reads the stream even while no client reads, so the memory of OpenCode does not grow.
#[tokio::test]
async fn the_event_stream_is_drained_while_the_client_does_not_read() {
    let fixture = Fixture::new().await;
    let text: Vec<String> = (0..4_000).map(|word| format!("word {word} of many ").repeat(5)).collect();
    fixture.fake.queue(Turn::new().deltas(text.clone()));
    // This client opens a stream and does not read it.
    let stalled = fixture.open("go").await;
    fixture.fake.wait_for_request("POST", "/prompt_async", 1).await;
    fixture.fake.wait_until_idle().await;
    let seen = check(fixture.client(), stalled.all().await).await;
    assert_eq!((seen.state(), seen.text()), ("COMPLETED", text.concat()));
}
