//! Commands of an agent over ACP: what a caller adds to one runs in a shell only if the caller may run a shell.

use longshore_testkit::gateway::{Gateway, TOKEN};
use serde_json::{Value, json};

use crate::client::{Client, message, message_in};
use crate::frames::{explanation, state_of};
use crate::real_agents::{self, prepare};

/// A caller without any capability.
const EVE: &str = "the-token-of-eve-for-tests-only-0123";

fn parts_in(context: Option<&str>, parts: &Value) -> Value {
    let mut message = context.map_or_else(|| message(""), |context| message_in(context, ""));
    message["parts"] = parts.clone();
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn text_after_a_command_runs_no_shell() {
    let (root, model) = prepare().await;
    let agent = real_agents::opencode_with(root.path(), &model, |configuration| {
        configuration["command"]["logs"] =
            json!({"template": "scn:text n=1 text=\"Logged.\" (logs) !`git log $ARGUMENTS`"});
    });
    let eve = json!([{"scheme": "bearer", "token": EVE, "principal": "eve"}]);
    let setup = agent.setup().flag("--session-shell").env("A2A_STATIC_AUTH_CREDENTIALS", eve.to_string());
    let gateway = Gateway::start_in(root, setup).await;
    let (made, eve) = (gateway.workspace().join("pwned"), Client::with_token(&gateway, EVE));

    let run = json!({"text": "/logs $(touch pwned)"});
    let file = |name: &str, media_type: &str, bytes: &str| json!({"raw": bytes, "filename": name, "mediaType": media_type});
    // The first prompt of a session: the gateway may not know the commands yet.
    let first = match eve.try_send(&parts_in(None, &json!([run]))).await {
        Ok(task) => explanation(&task).to_owned(),
        Err(refused) => refused.body.to_string(),
    };
    assert!(!made.exists(), "the shell ran the text of a first message");
    assert!(first.contains("session_shell"), "{first}");

    let alone = eve.send(&message("/logs")).await;
    assert_eq!(state_of(&alone), "COMPLETED", "{alone:#}");
    let context = alone["contextId"].as_str().expect("a task has a context");
    for parts in [
        json!([run]),
        json!([{"text": "\u{feff}\u{a0}/logs\u{2003}$(touch pwned)"}]),
        json!([{"text": "/lo"}, {"text": "gs $(touch pwned)"}]),
        json!([{"text": "/logs "}, {"text": "$(touch pwned)"}]),
        // "JCh0b3VjaCBwd25lZCk=": $(touch pwned)
        json!([{"text": "/logs "}, file("a.txt", "text/plain", "JCh0b3VjaCBwd25lZCk=")]),
        json!([{"text": "/logs "}, file("$(touch pwned)", "application/octet-stream", "/wA=")]),
        json!([{"text": "/logs "}, file("$(touch pwned)", "image/png", "/wA=")]),
    ] {
        for context in [None, Some(context)] {
            let refused = eve.try_send(&parts_in(context, &parts)).await;
            assert!(!made.exists(), "the shell ran {parts}");
            let refused = refused.expect_err(&parts.to_string());
            assert_eq!(refused.code, -32602, "{parts}: {}", refused.body);
            assert!(refused.body.to_string().contains("message.parts"), "{parts}: {}", refused.body);
        }
    }
    let path = eve.send(&message("/etc/hosts is broken. scn:text n=1")).await;
    assert_eq!(state_of(&path), "COMPLETED", "a path is no command: {path:#}");

    let ran = Client::with_token(&gateway, TOKEN).send(&parts_in(None, &json!([run]))).await;
    assert_eq!(state_of(&ran), "COMPLETED", "{ran:#}");
    assert!(made.exists(), "with the capability it runs: {ran:#}");
}
