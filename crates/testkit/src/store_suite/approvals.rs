//! Approvals that the gateway keeps: one principal, one session.

use std::sync::Arc;

use longshore_engine::port::{MAX_APPROVALS, Retention, Store};
use longshore_model::{Action, Approval, Principal, TaskState, Timestamp};

use super::Fixture;
use super::make::{
    ada, append, appended, context_id, create_in, made, owner, request_id, session_id, status,
};
use super::retention::retained;

fn approval(request: &str, session: &str, at: i64) -> Approval {
    Approval {
        request_id: request_id(request),
        owner: ada(),
        session: session_id(session),
        context: context_id("c"),
        permission: "bash".to_owned(),
        patterns: vec!["rm *".to_owned(), "\"x\"\n".to_owned()],
        action: Action {
            tool: Some("bash".to_owned()),
            kind: Some("execute".to_owned()),
            command: Some("rm \"x\"\n".to_owned()),
            paths: vec!["x".to_owned()],
        },
        at: Timestamp(at),
    }
}

async fn kept(store: &Arc<dyn Store>, approval: &Approval) {
    store.keep_approval(approval.clone()).await.expect("a write");
}

async fn names(store: &Arc<dyn Store>, owner: &Principal, session: Option<&str>) -> Vec<String> {
    let session = session.map(session_id);
    let found = store.approvals(owner, session.as_ref()).await.expect("a read");
    found.iter().map(|approval| approval.request_id.to_string()).collect()
}

pub(super) async fn approvals_are_kept_for_their_owner_and_session_until_they_are_revoked(
    fixture: &dyn Fixture,
) {
    let store = fixture.open();
    let bob = owner("bob");
    let first = approval("r1", "s1", 1);
    for approval in [
        first.clone(),
        approval("r2", "s1", 2),
        approval("r3", "s2", 2),
        Approval { owner: bob.clone(), ..approval("r1", "s1", 3) },
    ] {
        kept(&store, &approval).await;
    }
    let store = fixture.reopen(store);
    assert_eq!(names(&store, &ada(), None).await, ["r2", "r3", "r1"]);
    assert_eq!(names(&store, &ada(), Some("s1")).await, ["r2", "r1"]);
    assert_eq!(names(&store, &bob, Some("s1")).await, ["r1"]);
    assert_eq!(names(&store, &bob, Some("s2")).await, [""; 0]);
    let read = store.approvals(&ada(), Some(&session_id("s1"))).await.expect("a read");
    assert_eq!(read.last(), Some(&first));
    // The same answer, given again after a lost response.
    kept(&store, &Approval { at: Timestamp(9), ..first }).await;
    assert_eq!(names(&store, &ada(), Some("s1")).await, ["r1", "r2"]);

    assert!(store.revoke_approval(&ada(), &request_id("r1")).await.expect("a write"));
    assert!(!store.revoke_approval(&ada(), &request_id("r1")).await.expect("a write"));
    assert!(!store.revoke_approval(&bob, &request_id("r2")).await.expect("a write"));
    assert_eq!(names(&store, &ada(), None).await, ["r2", "r3"]);
    assert_eq!(names(&store, &bob, None).await, ["r1"]);
}

pub(super) async fn the_newest_approvals_of_a_session_are_kept(fixture: &dyn Fixture) {
    let store = fixture.open();
    kept(&store, &approval("other", "s2", 0)).await;
    for number in 0..=MAX_APPROVALS {
        let at = i64::try_from(number).expect("a small number");
        kept(&store, &approval(&format!("r{number}"), "s1", at)).await;
    }
    let found = names(&store, &ada(), Some("s1")).await;
    assert_eq!((found.len(), found.last().map(String::as_str)), (MAX_APPROVALS, Some("r1")));
    assert_eq!(names(&store, &ada(), Some("s2")).await, ["other"]);
}

pub(super) async fn approvals_are_forgotten_with_their_context(fixture: &dyn Fixture) {
    let store = fixture.open();
    for (task, context) in [("t1", "c"), ("t2", "other")] {
        made(&store, create_in(task, context, 1)).await;
        let kept_one = Approval { context: context_id(context), ..approval(task, "s", 1) };
        kept(&store, &kept_one).await;
    }
    appended(&store, append("t1", 1, vec![status(TaskState::Completed, 10)])).await;
    let before = Some(Timestamp(50));
    let retention =
        Retention { now: Timestamp(50), fold_before: before, drop_before: before, keys_before: Timestamp(0) };
    retained(&store, retention).await;
    assert_eq!(names(&store, &ada(), None).await, ["t2"]);
}
