//! Lists show the sessions of the caller with their child sessions, and unowned sessions to callers that may claim
//! them.

use std::collections::BTreeSet;

use longshore_testkit::raw::RawClient;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{
    assert_forbidden, call_ok, client_of_cal, error_code, error_fields, method_named, requests_since,
    session_methods, session_params,
};
use crate::control::fixture::{Fixture, call};

/// The ids of the listed items.
fn listed(items: &Value, name: &str) -> BTreeSet<String> {
    let items = items.as_array().into_iter().flatten();
    items.filter_map(|item| Some(item[name].as_str()?.to_owned())).collect()
}

async fn seen_by(client: &RawClient, version: ProtocolVersion, method: &'static Method) -> BTreeSet<String> {
    let answer = call_ok(client, version, method, &json!({})).await;
    let name = if method.key == "status" { "session_id" } else { "id" };
    listed(&answer.result()["items"], name)
}

/// Adds a child and a grandchild of a session. Returns the ids of all three.
async fn family(fixture: &Fixture, root: &str, name: &str) -> BTreeSet<String> {
    let [child, grandchild] = [format!("ses_{name}_child"), format!("ses_{name}_grandchild")];
    fixture.session_like(&child, &json!({"parentID": root}));
    fixture.session_like(&grandchild, &json!({"parentID": child}));
    let all = [root.to_owned(), child, grandchild];
    for session in &all {
        let message = session.replace("ses_", "msg_");
        fixture.message(session, &message, json!({}), &[json!({"type": "text", "text": "a task"})]).await;
        let busy = json!({"sessionID": session, "status": {"type": "busy"}});
        fixture.fake.emit("session.status", busy).await;
    }
    all.into()
}

#[tokio::test]
async fn lists_show_own_sessions_and_those_that_may_be_claimed() {
    let fixture = Fixture::start().await;
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    let his = fixture.session_of(&fixture.bob, "his").await;
    fixture.session("ses_free");
    fixture.fake.wait_until_idle().await;
    let hers = family(&fixture, &hers, "hers").await;
    let his = family(&fixture, &his, "his").await;
    let free = family(&fixture, "ses_free", "free").await;
    for method in [method_named("opencode.sessions.list"), method_named("opencode.sessions.status")] {
        for version in ProtocolVersion::ALL {
            let about = format!("{} {version:?}", method.name);
            let with_free = &hers | &free;
            assert_eq!(seen_by(&fixture.ada, version, method).await, with_free, "ada {about}");
            assert_eq!(seen_by(&fixture.bob, version, method).await, his, "bob {about}");
            assert_eq!(seen_by(&client_of_cal(&fixture), version, method).await, free, "cal {about}");
            assert_eq!(seen_by(&fixture.eve, version, method).await, BTreeSet::new(), "eve {about}");
        }
    }
    fixture.stop().await;
}

/// The sessions of others are left out before the limit is applied.
#[tokio::test]
async fn own_sessions_are_found_behind_many_of_others() {
    let fixture = Fixture::start().await;
    let his = fixture.session_of(&fixture.bob, "his").await;
    for number in 0..450 {
        let later = json!({"time": {"created": 1, "updated": 9_000_000_000_000_i64 + number}});
        fixture.session_like(&format!("ses_later_{number}"), &later);
    }
    let list = method_named("opencode.sessions.list");
    for version in ProtocolVersion::ALL {
        let answer = call_ok(&fixture.bob, version, list, &json!({"limit": 1})).await;
        assert_eq!(listed(&answer.result()["items"], "id"), BTreeSet::from([his.clone()]), "{version:?}");
        let answer = call_ok(&client_of_cal(&fixture), version, list, &json!({"limit": 100})).await;
        assert_eq!(listed(&answer.result()["items"], "id").len(), 100, "{version:?}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_child_session_belongs_to_the_owner_of_its_root() {
    let fixture = Fixture::start().await;
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    fixture.fake.wait_until_idle().await;
    let family = family(&fixture, &hers, "hers").await;
    for session in &family {
        fixture.fake.emit("session.status", json!({"sessionID": session, "status": {"type": "idle"}})).await;
    }
    let cal = client_of_cal(&fixture);
    let mut seen = 0;
    for session in family.iter().filter(|session| **session != hers) {
        let message = session.replace("ses_", "msg_");
        let before = fixture.fake.messages(session);
        for method in session_methods() {
            for version in ProtocolVersion::ALL {
                let params = session_params(method, session, &message);
                requests_since(&fixture, &mut seen);
                for (who, caller) in [("bob", &fixture.bob), ("cal", &cal)] {
                    let about = format!("{who} {} {version:?} {session}", method.name);
                    assert_forbidden(&call(caller, version, method, &params).await, version, session, &about);
                    // OpenCode is asked only for the parents of the session.
                    let asked = requests_since(&fixture, &mut seen);
                    let finds =
                        |entry: &String| family.iter().any(|one| *entry == format!("GET /session/{one}"));
                    assert!(asked.iter().all(finds), "{about}: {asked:?}");
                }
            }
        }
        assert_eq!(fixture.fake.messages(session), before);
        for method in session_methods() {
            for version in ProtocolVersion::ALL {
                let params = session_params(method, session, &message);
                if matches!(method.key, "prompt_async" | "command") {
                    let refused = call(&fixture.ada, version, method, &params).await;
                    assert_eq!(
                        (error_code(&refused), error_fields(&refused)),
                        (-32602, vec!["session_id".to_owned()])
                    );
                } else {
                    call_ok(&fixture.ada, version, method, &params).await;
                }
            }
        }
    }
    // Her changes did not change the owner.
    let children = method_named("opencode.sessions.children");
    for version in ProtocolVersion::ALL {
        let reported = call_ok(&fixture.ada, version, children, &json!({"session_id": hers})).await;
        let child = BTreeSet::from(["ses_hers_child".to_owned()]);
        assert_eq!(listed(&reported.result()["items"], "id"), child, "{version:?}");
    }
    assert!(session_methods().iter().any(|method| method.effect != Effect::Read));
    fixture.stop().await;
}
