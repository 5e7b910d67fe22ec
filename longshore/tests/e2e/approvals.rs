//! The answer `always` on the real OpenCode: it holds for the principal and the session that gave it.

use longshore_testkit::gateway::Setup;
use serde_json::json;

use crate::client::{Client, message, message_in, message_on};
use crate::frames::state_of;
use crate::harness::{Harness, LONGSHORE};

const BOB_TOKEN: &str = "bob-token-0123456789abcdef";

#[tokio::test(flavor = "multi_thread")]
async fn the_approval_of_one_principal_does_not_let_the_agent_act_for_another() {
    let bob = json!([{"scheme": "bearer", "token": BOB_TOKEN, "principal": "bob"}]);
    let setup = Setup::demo(LONGSHORE).env("A2A_STATIC_AUTH_CREDENTIALS", bob.to_string());
    let harness = Harness::start(setup).await;
    let (ada, bob) = (&harness.client, Client::with_token(&harness.gateway, BOB_TOKEN));
    let workspace = harness.gateway.workspace();
    for file in ["seven", "eight", "base1", "base2"] {
        std::fs::write(workspace.join(file), "kept").expect("a test can write a file");
    }
    let asked = ada.send(&message("scn:bash cmd=\"rm -f seven\" scn:text n=1")).await;
    assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
    let task = asked["id"].as_str().expect("a task has an id");
    let done = ada.send(&message_on(task, &json!({"text": "always"}))).await;
    assert_eq!(state_of(&done), "COMPLETED", "{done:#}");
    assert!(!workspace.join("seven").exists(), "the approved command did not run");

    // Another principal in the same directory is asked, and so is the same principal in another session.
    for client in [&bob, ada] {
        let asked = client.send(&message("scn:bash cmd=\"rm -rf base1\" scn:text n=1")).await;
        assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
        assert!(workspace.join("base1").exists(), "the command ran unasked");
    }
    // The same principal in the same session is not asked, nor are its sub-agents.
    let context = done["contextId"].as_str().expect("a task has a context");
    let prompt = "scn:bash cmd=\"rm -f eight\" \
                  scn:task desc=errand prompt=\"scn:bash cmd=\\\"rm -f base2\\\" scn:text n=1\" scn:text n=1";
    let done = ada.send(&message_in(context, prompt)).await;
    assert_eq!(state_of(&done), "COMPLETED", "{done:#}");
    assert!(!workspace.join("eight").exists() && !workspace.join("base2").exists());
    // A chain is covered only if each of its commands is.
    let chain = "scn:bash cmd=\"rm -f base1 && touch nine\" scn:text n=1";
    let asked = ada.send(&message_in(context, chain)).await;
    assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
    assert!(workspace.join("base1").exists(), "half of the chain ran unasked");
}
