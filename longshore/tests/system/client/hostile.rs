//! Agents that try to control the terminal of the person who calls them.

use std::sync::{Mutex, mpsc};

use longshore_testkit::stub_agent::{Reply, StubAgent};
use longshore_testkit::terminal::Terminal;
use serde_json::{Value, json};

use super::fixture::{command, finish};

/// Sets the title of the window, clears the screen, and turns the order of the text.
const HOSTILE: &str = "X\u{1b}]0;X\u{7}\u{9b}2J\u{202e}";

fn is_harmless(text: &str) -> bool {
    !text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}'])
}

fn task(id: &str, state: &str) -> Value {
    json!({"task": {"id": id, "contextId": "c", "status": {"state": format!("TASK_STATE_{state}")}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_an_agent_in_a_message_or_in_json_controls_the_terminal() {
    let home = tempfile::tempdir().unwrap();
    let unusable = |url: &str| {
        let mut card = StubAgent::card(url);
        card["name"] = HOSTILE.into();
        card["supportedInterfaces"][0]["protocolVersion"] = "9.0".into();
        card
    };
    for (what, card, reply) in [
        ("the name of an agent", Some(unusable as fn(&str) -> Value), Reply::new(500, "", "")),
        ("the id of a task", None, Reply::stream(&[(None, task(HOSTILE, "WORKING")), (None, json!(7))])),
        ("the id of a task that asks", None, Reply::stream(&[(None, task(HOSTILE, "INPUT_REQUIRED"))])),
    ] {
        let stub =
            StubAgent::start(move |request, url| match (request.method.as_str(), request.rpc(), card) {
                ("GET", _, Some(card)) => Reply::json(&card(url)),
                ("GET", _, None) => Reply::json(&StubAgent::card(url)),
                (_, "SendStreamingMessage", _) => reply.clone(),
                _ => Reply::error(-32001, "No."),
            });
        let run = finish(command(home.path(), &["call", &stub.url(), "hi"])).await;
        assert!(run.stderr.contains('X'), "{what}: {run:?}");
        assert!(is_harmless(&run.stderr), "{what}: {run:?}");
        let run = finish(command(home.path(), &["call", &stub.url(), "hi", "--output", "jsonl"])).await;
        assert!(is_harmless(&run.stdout) && is_harmless(&run.stderr), "{what}: {run:?}");
        let event = run.stdout.lines().next().map(|line| serde_json::from_str::<Value>(line).unwrap());
        if let Some(event) = event {
            assert_eq!(event["task"]["id"], HOSTILE, "JSON loses nothing");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_tool_does_not_control_the_terminal() {
    let home = tempfile::tempdir().unwrap();
    let (go_on, shown) = mpsc::sync_channel(1);
    let shown = Mutex::new(shown);
    let stub = StubAgent::start(move |request, url| match request.rpc() {
        "" => Reply::json(&StubAgent::card(url)),
        "SendStreamingMessage" => {
            let call = json!({"call_id": "1", "tool": format!("tool {HOSTILE}\nname"), "status": "running"});
            let metadata = json!({"shared": {"stream": {"block_type": "tool_call"}}});
            let artifact = json!({"artifactId": "a", "parts": [{"data": call}], "metadata": metadata});
            let update = json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact}});
            Reply::stream(&[(Some("1.1"), task("t", "WORKING")), (Some("2.1"), update)]).broken()
        }
        _ => {
            shown.lock().unwrap().recv().unwrap();
            let update =
                json!({"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}});
            Reply::stream(&[(Some("3.1"), json!({"statusUpdate": update}))])
        }
    });
    let mut call = command(home.path(), &["call", &stub.url(), "hi"]);
    call.env("NO_COLOR", "1");
    let (text, code) = tokio::task::spawn_blocking(move || {
        let mut terminal = Terminal::start(call);
        terminal.wait_for("running tool ");
        go_on.send(()).unwrap();
        terminal.end()
    })
    .await
    .unwrap();
    assert_eq!(code, Some(0), "{text:?}");
    // The status line itself goes back to its beginning and clears the rest of the line.
    let status = text.replace("\r\u{1b}[K", "");
    assert!(is_harmless(&status) && !text.contains("\nname"), "{text:?}");
}
