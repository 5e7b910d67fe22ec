//! A workspace is removed with its sessions: not with those of others, and not while something runs there.

use longshore_engine::SessionGuard;
use longshore_engine::port::Session;
use longshore_model::{ControlResult, ErrorKind, TaskState};
use longshore_testkit::scripted_control::Call;

use crate::control_stage::{Stage, ada, bob, remove_workspace, ses, share, shell, stage, without_claim};
use crate::harness::message;

const FORBIDDEN: Option<ErrorKind> = Some(ErrorKind::SessionForbidden);
const BUSY: Option<ErrorKind> = Some(ErrorKind::SessionBusy);

/// A workspace.
fn with_workspace(guard: SessionGuard) -> Stage {
    let s = stage(guard);
    s.control.add_workspace("wrk_1", "trees/one");
    s
}

/// A session in the workspace, optionally with a parent.
fn inside(s: &Stage, id: &str, parent: Option<&str>) -> Session {
    let session = Session { id: ses(id), directory: "trees/one".to_owned() };
    s.control.add_to_workspace("wrk_1", session, parent.map(ses))
}

async fn claim(s: &Stage, owner: &str, session: &Session) {
    let (owner, at) = (longshore_model::Principal::new(owner), s.h.engine.now());
    let claim = longshore_engine::port::Claim { owner, session: session.clone(), at };
    s.h.store.claim(claim).await.expect("the store is there");
}

/// Whether the agent got any command.
fn was_called(s: &Stage) -> bool {
    s.control.take_calls().iter().any(|call| matches!(call, Call::ControlCommand(..)))
}

#[tokio::test]
async fn a_workspace_with_sessions_of_others_is_not_removed() {
    let s = with_workspace(SessionGuard::Owner);
    let hers = inside(&s, "ses_hers", None);
    inside(&s, "ses_below", Some("ses_hers"));
    claim(&s, "alice", &hers).await;
    let error = s.call(&bob(), remove_workspace("wrk_1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionForbidden);
    assert!(!format!("{error:?}").contains("ses_"), "which sessions it has is not shown: {error:?}");
    assert!(!was_called(&s));
    // The owner of all sessions needs no other right.
    let result = s.call(&without_claim(ada()), remove_workspace("wrk_1")).await.unwrap();
    assert!(matches!(result, ControlResult::Workspace(Some(_))), "{result:?}");
    // The workspace is gone now.
    assert_eq!(s.call(&bob(), remove_workspace("wrk_1")).await.unwrap(), ControlResult::Workspace(None));
}

#[tokio::test]
async fn unowned_sessions_are_removed_for_callers_who_may_claim() {
    let s = with_workspace(SessionGuard::Owner);
    inside(&s, "ses_n", None);
    assert_eq!(s.refusal(&without_claim(bob()), remove_workspace("wrk_1")).await, FORBIDDEN);
    assert!(!was_called(&s));
    // No caller can claim the session meanwhile.
    s.control.acts.hold();
    let (removed, taken) = tokio::join!(s.call(&bob(), remove_workspace("wrk_1")), async {
        while !was_called(&s) {
            tokio::task::yield_now().await;
        }
        let taken = s.refusal(&ada(), share("ses_n")).await;
        s.control.acts.release(1);
        taken
    });
    assert_eq!(taken, FORBIDDEN);
    removed.unwrap();
    assert_eq!(s.owner_of("ses_n").await, None);
}

#[tokio::test]
async fn with_full_sharing_all_sessions_are_removed_with_the_workspace() {
    for (guard, expected) in [(SessionGuard::SharedReads, FORBIDDEN), (SessionGuard::Shared, None)] {
        let s = with_workspace(guard);
        let hers = inside(&s, "ses_hers", None);
        inside(&s, "ses_n", None);
        claim(&s, "alice", &hers).await;
        assert_eq!(s.refusal(&without_claim(bob()), remove_workspace("wrk_1")).await, expected, "{guard:?}");
    }
}

#[tokio::test]
async fn a_workspace_with_running_work_stays() {
    let mut s = with_workspace(SessionGuard::Owner);
    // A turn in the workspace's directory, though its session is not in the workspace.
    let mut request = message("c", "m1");
    request.options.directory = Some("trees/one/below".to_owned());
    let sent = s.h.engine.send(&ada().principal, request).await.unwrap();
    let turn = s.h.turn().await;
    assert_eq!(s.refusal(&ada(), remove_workspace("wrk_1")).await, BUSY);
    turn.complete().await;
    s.h.reaches(&sent.task, TaskState::Completed).await;
    // Work of another client in a session of the workspace.
    let own = inside(&s, "ses_own", None);
    claim(&s, "alice", &own).await;
    s.control.make_busy(&own.id);
    assert_eq!(s.refusal(&ada(), remove_workspace("wrk_1")).await, BUSY);
    assert!(!was_called(&s));
}

#[tokio::test]
async fn nothing_begins_in_the_sessions_of_a_workspace_during_its_removal() {
    let mut s = with_workspace(SessionGuard::Owner);
    // A session that works elsewhere.
    let own = s.control.add_in_workspace("ses_own");
    claim(&s, "alice", &own).await;
    s.control.acts.hold();
    let removing = s.call(&ada(), remove_workspace("wrk_1"));
    let coming = async {
        while !was_called(&s) {
            tokio::task::yield_now().await;
        }
        assert_eq!(s.refusal(&ada(), shell("ses_own")).await, BUSY);
        let mut request = message("c", "m1");
        request.options.session = Some(own.id.clone());
        let sent = s.h.engine.send(&ada().principal, request).await.unwrap();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        let state = s.h.task(&sent.task).await.status.state;
        let prompted = s.h.agent.log().prompted.len();
        s.control.acts.release(1);
        (sent.task, state, prompted)
    };
    let (removed, (task, state, prompted)) = tokio::join!(removing, coming);
    removed.unwrap();
    assert_eq!((state, prompted), (TaskState::Submitted, 0), "it began meanwhile");
    assert_eq!(s.h.turn().await.request.task, task);
}
