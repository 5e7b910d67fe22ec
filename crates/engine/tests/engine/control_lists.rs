//! Lists and statuses: a caller finds all of its own sessions, and none of others.

use longshore_engine::SessionGuard;
use longshore_model::{
    ContextId, Control, ControlQuery, ControlResult, ErrorKind, ListTasks, SessionQuery, Task, TaskId,
    TaskState, Timestamp,
};
use longshore_testkit::scripted_control::Call;

use crate::control_stage::{Stage, ada, bob, ses, stage, without_claim};
use crate::harness::{all_tasks, message};
use longshore_engine::ControlCaller;

fn list(limit: u32) -> Control {
    Control::Query(ControlQuery::Sessions(SessionQuery { limit, roots: None, start: None, search: None }))
}

async fn listed(s: &Stage, caller: &ControlCaller, limit: u32) -> Vec<String> {
    let ControlResult::Sessions(found) = s.call(caller, list(limit)).await.expect("a look") else {
        panic!("no list")
    };
    found.into_iter().map(|session| session.id.as_str().to_owned()).collect()
}

async fn busy(s: &Stage, caller: &ControlCaller) -> Vec<String> {
    let ControlResult::Statuses(found) =
        s.call(caller, Control::Query(ControlQuery::Statuses)).await.expect("a look")
    else {
        panic!("no statuses")
    };
    found.into_iter().map(|status| status.session.as_str().to_owned()).collect()
}

async fn session_trees() -> Stage {
    session_trees_with(SessionGuard::Owner).await
}

async fn session_trees_with(guard: SessionGuard) -> Stage {
    let s = stage(guard);
    s.owned("alice", "ses_1a").await;
    s.owned("bob", "ses_2b").await;
    s.control.add("ses_3n");
    s.control.add_child("ses_4a", "ses_1a");
    s.control.add_child("ses_5a", "ses_4a");
    s.control.add_child("ses_6b", "ses_2b");
    s.control.add_child("ses_7n", "ses_3n");
    for id in ["ses_7n", "ses_6b", "ses_5a", "ses_4a", "ses_3n", "ses_2b", "ses_1a"] {
        s.control.make_busy(&ses(id));
    }
    s
}

#[tokio::test]
async fn a_caller_sees_its_own_session_trees_and_unowned_ones_if_it_may_claim() {
    let s = session_trees().await;
    assert_eq!(listed(&s, &without_claim(ada()), 20).await, ["ses_5a", "ses_4a", "ses_1a"]);
    assert_eq!(listed(&s, &ada(), 20).await, ["ses_7n", "ses_5a", "ses_4a", "ses_3n", "ses_1a"]);
    assert_eq!(listed(&s, &without_claim(bob()), 20).await, ["ses_6b", "ses_2b"]);
    assert_eq!(busy(&s, &without_claim(ada())).await, ["ses_1a", "ses_4a", "ses_5a"]);
    assert_eq!(busy(&s, &ada()).await, ["ses_1a", "ses_3n", "ses_4a", "ses_5a", "ses_7n"]);
    assert_eq!(busy(&s, &without_claim(bob())).await, ["ses_2b", "ses_6b"]);
}

#[tokio::test]
async fn with_shared_reads_everybody_sees_all() {
    for guard in [SessionGuard::SharedReads, SessionGuard::Shared] {
        let s = session_trees_with(guard).await;
        assert_eq!(listed(&s, &without_claim(bob()), 20).await.len(), 7);
        assert_eq!(busy(&s, &without_claim(bob())).await.len(), 7);
        assert_eq!(listed(&s, &without_claim(bob()), 2).await, ["ses_7n", "ses_6b"]);
    }
}

#[tokio::test]
async fn children_that_another_caller_owns_are_left_out() {
    let s = session_trees().await;
    let children = Control::Query(ControlQuery::Children(ses("ses_1a")));
    s.control.add_child("ses_8", "ses_1a");
    let count = |result: ControlResult| match result {
        ControlResult::Sessions(found) => found.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(count(s.call(&ada(), children.clone()).await.unwrap()), 2);
    let at = s.h.engine.now();
    let session = longshore_testkit::scripted_control::session("ses_8");
    let claim = longshore_engine::port::Claim { owner: bob().principal, session, at };
    s.h.store.claim(claim).await.unwrap();
    assert_eq!(count(s.call(&ada(), children.clone()).await.unwrap()), 1);
    assert_eq!(s.refusal(&bob(), children).await, Some(ErrorKind::SessionForbidden));
}

#[tokio::test]
async fn sessions_of_others_are_removed_before_the_list_is_cut() {
    let s = stage(SessionGuard::Owner);
    // The caller's sessions are the oldest.
    for number in 0..3 {
        s.owned("alice", &format!("ses_0{number}")).await;
    }
    for number in 1000..1300 {
        s.owned("bob", &format!("ses_{number}")).await;
    }
    assert_eq!(listed(&s, &ada(), 2).await, ["ses_02", "ses_01"]);
    let asked: Vec<_> = s
        .control
        .take_calls()
        .into_iter()
        .filter_map(|call| match call {
            Call::ControlQuery(_, _, ControlQuery::Sessions(query)) => Some(query.limit),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [200, 1000]);
    assert_eq!(listed(&s, &ada(), 20).await.len(), 3, "the list ends");
}

const OF_SESSION: &str = "ctx:session:ses_a";

/// Every page of the caller's tasks under the name of the session, and the reported total.
async fn pages(
    s: &Stage,
    caller: &ControlCaller,
    page_size: u32,
    state: Option<TaskState>,
) -> (Vec<Task>, u64) {
    let (mut found, mut page_token) = (Vec::new(), None);
    loop {
        let query = ListTasks {
            context_id: Some(ContextId::parse(OF_SESSION).expect("a context")),
            state,
            page_size,
            page_token,
            ..all_tasks(None)
        };
        let listing = s.h.engine.list(&caller.principal, query).await.expect("a list");
        assert!(listing.tasks.len() <= page_size as usize);
        found.extend(listing.tasks);
        if listing.next_page_token.is_empty() {
            return (found, listing.total);
        }
        page_token = Some(listing.next_page_token);
    }
}

#[tokio::test]
async fn the_name_of_a_session_lists_the_tasks_of_all_its_contexts() {
    let mut s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    s.owned("alice", "ses_b").await;
    let mut expected: Vec<(Timestamp, TaskId)> = Vec::new();
    let sends = [
        ("c", "ses_a"),
        ("d", "ses_a"),
        ("c", "ses_a"),
        (OF_SESSION, "ses_a"),
        ("e", "ses_b"),
        ("d", "ses_a"),
    ];
    for (number, (context, session)) in sends.into_iter().enumerate() {
        let mut command = message(context, &format!("m{number}"));
        command.options.session = Some(ses(session));
        let sent = s.h.engine.send(&ada().principal, command).await.unwrap();
        s.h.turn().await.complete().await;
        let task = s.h.reaches(&sent.task, TaskState::Completed).await;
        if session == "ses_a" {
            expected.push((task.status.at, task.id));
        }
    }
    expected.sort_unstable();
    expected.reverse();
    for page_size in 1..=6 {
        let (found, total) = pages(&s, &ada(), page_size, None).await;
        let found: Vec<(Timestamp, TaskId)> =
            found.into_iter().map(|task| (task.status.at, task.id)).collect();
        assert_eq!((found, total), (expected.clone(), 5), "in pages of {page_size}");
    }
    assert_eq!(pages(&s, &ada(), 2, Some(TaskState::Working)).await, (Vec::new(), 0));
    assert_eq!(pages(&s, &bob(), 2, None).await, (Vec::new(), 0), "another owner's tasks are not listed");
}
