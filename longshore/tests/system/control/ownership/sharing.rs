//! The setting for deployments whose callers trust each other: reads, or reads and changes, are shared. Prompts stay
//! with the owner.

use longshore_engine::{ControlRules, SessionGuard};
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::json;

use super::answer_every_prompt;
use crate::control::calls::{
    assert_forbidden, call_ok, first_message, message_id, method_named, requests_since, session_methods,
    session_params,
};
use crate::control::fixture::{Fixture, Settings, call};

async fn fixture(session_guard: SessionGuard) -> Fixture {
    let control = ControlRules { session_guard, ..ControlRules::default() };
    let fixture = Fixture::start_with(Settings { control, ..Settings::default() }).await;
    answer_every_prompt(&fixture);
    fixture
}

fn of_effect(is_look: bool) -> impl Iterator<Item = &'static Method> {
    session_methods().into_iter().filter(move |method| (method.effect == Effect::Read) == is_look)
}

/// Whether a method starts a turn.
fn is_order(method: &Method) -> bool {
    matches!(method.key, "prompt_async" | "command")
}

/// Fails unless every caller can read everything.
async fn check_looks(fixture: &Fixture, hers: &str) {
    fixture.session("ses_free");
    let message = first_message(fixture, hers);
    for version in ProtocolVersion::ALL {
        for (who, caller) in [("ada", &fixture.ada), ("bob", &fixture.bob), ("eve", &fixture.eve)] {
            for method in of_effect(true) {
                call_ok(caller, version, method, &session_params(method, hers, message_id(&message))).await;
            }
            let get = method_named("opencode.sessions.get");
            call_ok(caller, version, get, &json!({"session_id": "ses_free"})).await;
            let list = call_ok(caller, version, method_named("opencode.sessions.list"), &json!({})).await;
            let list = list.result()["items"].to_string();
            assert!(list.contains(hers) && list.contains("ses_free"), "{who} {version:?} {list}");
        }
    }
}

#[tokio::test]
async fn shared_reads_let_all_read_and_the_owner_change() {
    let fixture = fixture(SessionGuard::SharedReads).await;
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    fixture.fake.wait_until_idle().await;
    check_looks(&fixture, &hers).await;
    let before = fixture.fake.messages(&hers);
    let mut seen = 0;
    requests_since(&fixture, &mut seen);
    for version in ProtocolVersion::ALL {
        for method in of_effect(false) {
            let about = format!("{} {version:?}", method.name);
            let params = session_params(method, &hers, message_id(&before[0]));
            assert_forbidden(&call(&fixture.bob, version, method, &params).await, version, &hers, &about);
            assert_eq!(requests_since(&fixture, &mut seen), [""; 0], "{about}");
            // Reads are shared, claiming is not.
            let params = session_params(method, "ses_free", "msg_1");
            assert_forbidden(
                &call(&fixture.bob, version, method, &params).await,
                version,
                "ses_free",
                &about,
            );
            let asked = requests_since(&fixture, &mut seen);
            assert!(asked.iter().all(|entry| entry == "GET /session/ses_free"), "{about}: {asked:?}");
        }
    }
    assert_eq!(fixture.fake.messages(&hers), before);
    fixture.stop().await;
}

#[tokio::test]
async fn shared_lets_all_change_and_the_owner_prompt() {
    let fixture = fixture(SessionGuard::Shared).await;
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    fixture.fake.wait_until_idle().await;
    check_looks(&fixture, &hers).await;
    let mut seen = 0;
    for version in ProtocolVersion::ALL {
        for method in of_effect(false) {
            let message = first_message(&fixture, &hers);
            let params = session_params(method, &hers, message_id(&message));
            if is_order(method) {
                requests_since(&fixture, &mut seen);
                let refused = call(&fixture.bob, version, method, &params).await;
                assert_forbidden(&refused, version, &hers, &format!("{} {version:?}", method.name));
                assert_eq!(requests_since(&fixture, &mut seen), [""; 0], "{} {version:?}", method.name);
            } else {
                call_ok(&fixture.bob, version, method, &params).await;
            }
        }
        for method in of_effect(false).filter(|method| is_order(method)) {
            let message = first_message(&fixture, &hers);
            call_ok(&fixture.ada, version, method, &session_params(method, &hers, message_id(&message)))
                .await;
            fixture.fake.wait_until_idle().await;
        }
    }
    fixture.stop().await;
}

/// The first caller that changes the session owns it and may prompt there. Others may still change it.
#[tokio::test]
async fn where_all_is_shared_the_first_change_claims_an_unowned_session() {
    let fixture = fixture(SessionGuard::Shared).await;
    fixture.session("ses_free");
    let (unrevert, prompt) =
        (method_named("opencode.sessions.unrevert"), method_named("opencode.sessions.prompt_async"));
    let params = json!({"session_id": "ses_free"});
    call_ok(&fixture.eve, ProtocolVersion::V1, unrevert, &params).await;
    call_ok(&fixture.bob, ProtocolVersion::V1, unrevert, &params).await;
    let order = session_params(prompt, "ses_free", "msg_1");
    for caller in [&fixture.ada, &fixture.bob] {
        assert_forbidden(
            &call(caller, ProtocolVersion::V1, prompt, &order).await,
            ProtocolVersion::V1,
            "ses_free",
            "not the first",
        );
    }
    call_ok(&fixture.eve, ProtocolVersion::V1, prompt, &order).await;
    fixture.stop().await;
}
