//! Lists show what is the caller's own, with the sessions of the sub-agents that work for it, and what is nobody's to those who may
//! take it.

use std::collections::BTreeSet;

use longshore_testkit::raw::RawClient;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{asked, cal, code, fields, forbidden, on_session, row, rows, works};
use crate::control::fixture::{Stage, call};

/// The names of what is listed.
fn listed(items: &Value, name: &str) -> BTreeSet<String> {
    let items = items.as_array().into_iter().flatten();
    items.filter_map(|item| Some(item[name].as_str()?.to_owned())).collect()
}

async fn seen_by(client: &RawClient, line: ProtocolVersion, method: &'static Method) -> BTreeSet<String> {
    let answer = works(client, line, method, &json!({})).await;
    let name = if method.key == "status" { "session_id" } else { "id" };
    listed(&answer.result()["items"], name)
}

/// A child, and a child of that.
async fn family(stage: &Stage, root: &str, name: &str) -> BTreeSet<String> {
    let [child, grandchild] = [format!("ses_{name}_child"), format!("ses_{name}_grandchild")];
    stage.session_like(&child, &json!({"parentID": root}));
    stage.session_like(&grandchild, &json!({"parentID": child}));
    let all = [root.to_owned(), child, grandchild];
    for session in &all {
        let message = session.replace("ses_", "msg_");
        stage.message(session, &message, json!({}), &[json!({"type": "text", "text": "a task"})]).await;
        let busy = json!({"sessionID": session, "status": {"type": "busy"}});
        stage.fake.emit("session.status", busy).await;
    }
    all.into()
}

#[tokio::test]
async fn lists_and_statuses_show_ones_own_and_what_one_may_take() {
    let stage = Stage::start().await;
    let hers = stage.session_of(&stage.ada, "hers").await;
    let his = stage.session_of(&stage.bob, "his").await;
    stage.session("ses_free");
    stage.fake.quiet().await;
    let hers = family(&stage, &hers, "hers").await;
    let his = family(&stage, &his, "his").await;
    let free = family(&stage, "ses_free", "free").await;
    for method in [row("opencode.sessions.list"), row("opencode.sessions.status")] {
        for line in ProtocolVersion::ALL {
            let about = format!("{} {line:?}", method.name);
            let with_free = &hers | &free;
            assert_eq!(seen_by(&stage.ada, line, method).await, with_free, "ada {about}");
            assert_eq!(seen_by(&stage.bob, line, method).await, his, "bob {about}");
            assert_eq!(seen_by(&cal(&stage), line, method).await, free, "cal {about}");
            assert_eq!(seen_by(&stage.eve, line, method).await, BTreeSet::new(), "eve {about}");
        }
    }
    stage.stop().await;
}

/// What is others' is left out before the list is cut, so that one's own is found behind it.
#[tokio::test]
async fn ones_own_is_found_behind_many_of_others() {
    let stage = Stage::start().await;
    let his = stage.session_of(&stage.bob, "his").await;
    for number in 0..450 {
        let later = json!({"time": {"created": 1, "updated": 9_000_000_000_000_i64 + number}});
        stage.session_like(&format!("ses_later_{number}"), &later);
    }
    let list = row("opencode.sessions.list");
    for line in ProtocolVersion::ALL {
        let answer = works(&stage.bob, line, list, &json!({"limit": 1})).await;
        assert_eq!(listed(&answer.result()["items"], "id"), BTreeSet::from([his.clone()]), "{line:?}");
        let answer = works(&cal(&stage), line, list, &json!({"limit": 100})).await;
        assert_eq!(listed(&answer.result()["items"], "id").len(), 100, "{line:?}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn the_session_of_a_sub_agent_is_that_of_whom_it_works_for() {
    let stage = Stage::start().await;
    let hers = stage.session_of(&stage.ada, "hers").await;
    stage.fake.quiet().await;
    let family = family(&stage, &hers, "hers").await;
    for session in &family {
        stage.fake.emit("session.status", json!({"sessionID": session, "status": {"type": "idle"}})).await;
    }
    let cal = cal(&stage);
    let mut seen = 0;
    for session in family.iter().filter(|session| **session != hers) {
        let message = session.replace("ses_", "msg_");
        let before = stage.fake.messages(session);
        for method in rows() {
            for line in ProtocolVersion::ALL {
                let params = on_session(method, session, &message);
                asked(&stage, &mut seen);
                for (who, caller) in [("bob", &stage.bob), ("cal", &cal)] {
                    let about = format!("{who} {} {line:?} {session}", method.name);
                    forbidden(&call(caller, line, method, &params).await, line, session, &about);
                    // Whom it works for is asked of OpenCode, and nothing more.
                    let asked = asked(&stage, &mut seen);
                    let finds =
                        |line: &String| family.iter().any(|one| *line == format!("GET /session/{one}"));
                    assert!(asked.iter().all(finds), "{about}: {asked:?}");
                }
            }
        }
        assert_eq!(stage.fake.messages(session), before);
        for method in rows() {
            for line in ProtocolVersion::ALL {
                let params = on_session(method, session, &message);
                if matches!(method.key, "prompt_async" | "command") {
                    let refused = call(&stage.ada, line, method, &params).await;
                    assert_eq!((code(&refused), fields(&refused)), (-32602, vec!["session_id".to_owned()]));
                } else {
                    works(&stage.ada, line, method, &params).await;
                }
            }
        }
    }
    // What she did there made her its owner no more and no less than before.
    let children = row("opencode.sessions.children");
    for line in ProtocolVersion::ALL {
        let told = works(&stage.ada, line, children, &json!({"session_id": hers})).await;
        let child = BTreeSet::from(["ses_hers_child".to_owned()]);
        assert_eq!(listed(&told.result()["items"], "id"), child, "{line:?}");
    }
    assert!(rows().iter().any(|method| method.effect != Effect::Read));
    stage.stop().await;
}
