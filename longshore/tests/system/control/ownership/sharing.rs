//! The setting for deployments whose callers trust each other: looks are for all, or changes too. Turns stay with the owner.

use longshore_engine::{ControlRules, SessionGuard};
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::json;

use super::answering;
use crate::control::calls::{asked, first_message, forbidden, id_of, on_session, row, rows, works};
use crate::control::fixture::{Rules, Stage, call};

async fn stage(session_guard: SessionGuard) -> Stage {
    let control = ControlRules { session_guard, ..ControlRules::default() };
    let stage = Stage::start_with(Rules { control, ..Rules::default() }).await;
    answering(&stage);
    stage
}

fn of_effect(is_look: bool) -> impl Iterator<Item = &'static Method> {
    rows().into_iter().filter(move |method| (method.effect == Effect::Read) == is_look)
}

/// Whether a row has the agent work in a turn.
fn is_order(method: &Method) -> bool {
    matches!(method.key, "prompt_async" | "command")
}

/// What everybody sees wherever looks are shared.
async fn check_looks(stage: &Stage, hers: &str) {
    stage.session("ses_free");
    let message = first_message(stage, hers);
    for line in ProtocolVersion::ALL {
        for (who, caller) in [("ada", &stage.ada), ("bob", &stage.bob), ("eve", &stage.eve)] {
            for method in of_effect(true) {
                works(caller, line, method, &on_session(method, hers, id_of(&message))).await;
            }
            let get = row("opencode.sessions.get");
            works(caller, line, get, &json!({"session_id": "ses_free"})).await;
            let list = works(caller, line, row("opencode.sessions.list"), &json!({})).await;
            let list = list.result()["items"].to_string();
            assert!(list.contains(hers) && list.contains("ses_free"), "{who} {line:?} {list}");
        }
    }
}

#[tokio::test]
async fn shared_reads_let_all_look_and_the_owner_change() {
    let stage = stage(SessionGuard::SharedReads).await;
    let hers = stage.session_of(&stage.ada, "hers").await;
    stage.fake.quiet().await;
    check_looks(&stage, &hers).await;
    let before = stage.fake.messages(&hers);
    let mut seen = 0;
    asked(&stage, &mut seen);
    for line in ProtocolVersion::ALL {
        for method in of_effect(false) {
            let about = format!("{} {line:?}", method.name);
            let params = on_session(method, &hers, id_of(&before[0]));
            forbidden(&call(&stage.bob, line, method, &params).await, line, &hers, &about);
            assert_eq!(asked(&stage, &mut seen), [""; 0], "{about}");
            // Looks are shared, and taking is not.
            let params = on_session(method, "ses_free", "msg_1");
            forbidden(&call(&stage.bob, line, method, &params).await, line, "ses_free", &about);
            let asked = asked(&stage, &mut seen);
            assert!(asked.iter().all(|line| line == "GET /session/ses_free"), "{about}: {asked:?}");
        }
    }
    assert_eq!(stage.fake.messages(&hers), before);
    stage.stop().await;
}

#[tokio::test]
async fn shared_lets_all_change_and_the_owner_prompt() {
    let stage = stage(SessionGuard::Shared).await;
    let hers = stage.session_of(&stage.ada, "hers").await;
    stage.fake.quiet().await;
    check_looks(&stage, &hers).await;
    let mut seen = 0;
    for line in ProtocolVersion::ALL {
        for method in of_effect(false) {
            let message = first_message(&stage, &hers);
            let params = on_session(method, &hers, id_of(&message));
            if is_order(method) {
                asked(&stage, &mut seen);
                let refused = call(&stage.bob, line, method, &params).await;
                forbidden(&refused, line, &hers, &format!("{} {line:?}", method.name));
                assert_eq!(asked(&stage, &mut seen), [""; 0], "{} {line:?}", method.name);
            } else {
                works(&stage.bob, line, method, &params).await;
            }
        }
        for method in of_effect(false).filter(|method| is_order(method)) {
            let message = first_message(&stage, &hers);
            works(&stage.ada, line, method, &on_session(method, &hers, id_of(&message))).await;
            stage.fake.quiet().await;
        }
    }
    stage.stop().await;
}

/// Who changes it first has it from then on, and may prompt there; others may change it all the same.
#[tokio::test]
async fn where_all_is_shared_the_first_to_change_what_is_nobodys_owns_it() {
    let stage = stage(SessionGuard::Shared).await;
    stage.session("ses_free");
    let (unshare, prompt) = (row("opencode.sessions.unshare"), row("opencode.sessions.prompt_async"));
    let params = json!({"session_id": "ses_free"});
    works(&stage.eve, ProtocolVersion::V1, unshare, &params).await;
    works(&stage.bob, ProtocolVersion::V1, unshare, &params).await;
    let order = on_session(prompt, "ses_free", "msg_1");
    for caller in [&stage.ada, &stage.bob] {
        forbidden(
            &call(caller, ProtocolVersion::V1, prompt, &order).await,
            ProtocolVersion::V1,
            "ses_free",
            "not the first",
        );
    }
    works(&stage.eve, ProtocolVersion::V1, prompt, &order).await;
    stage.stop().await;
}
