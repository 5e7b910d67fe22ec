//! Sessions that their owners delete.

use longshore_engine::SessionGuard;
use longshore_model::{Action, Approval, ContextId, ControlResult, Error, ErrorKind, RequestId, TaskState};

use crate::control_stage::{Stage, ada, bob, delete, prompt, queries, ses, stage, without_claim};
use crate::harness::{alice, message};

async fn approve(s: &Stage, id: &str, request: &str) {
    let approval = Approval {
        owner: alice(),
        session: ses(id),
        context: ContextId::parse("c").expect("an id"),
        request_id: RequestId::parse(request).expect("an id"),
        permission: "bash".to_owned(),
        patterns: vec!["rm *".to_owned()],
        action: Action::default(),
        at: s.h.engine.now(),
    };
    s.h.store.keep_approval(approval).await.expect("the store is there");
}

async fn approved(s: &Stage) -> Vec<String> {
    let kept = s.h.engine.approvals(&alice()).await.expect("the store is there");
    kept.into_iter().map(|approval| approval.request_id.as_str().to_owned()).collect()
}

#[tokio::test]
async fn a_deleted_session_is_gone_with_its_sub_agents_and_approvals_and_keeps_its_owner() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    s.owned("alice", "ses_b").await;
    s.control.add_child("ses_c", "ses_a");
    approve(&s, "ses_a", "per_a").await;
    approve(&s, "ses_b", "per_b").await;
    assert_eq!(s.refusal(&bob(), delete("ses_a")).await, Some(ErrorKind::SessionForbidden));
    let deleted = s.call(&without_claim(ada()), delete("ses_a")).await.unwrap();
    assert_eq!(deleted, ControlResult::Done { session: ses("ses_a"), ok: true, begun: None });
    assert_eq!(approved(&s).await, ["per_b"]);
    for control in [delete("ses_a"), prompt("ses_a", "go"), queries("ses_a").remove(0), delete("ses_c")] {
        assert_eq!(s.refusal(&ada(), control.clone()).await, Some(ErrorKind::SessionNotFound), "{control:?}");
    }
    assert_eq!(s.refusal(&bob(), queries("ses_a").remove(0)).await, Some(ErrorKind::SessionForbidden));
}

#[tokio::test]
async fn deleting_an_unowned_session_needs_the_right_to_claim_it_and_claims_nothing() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    assert_eq!(s.refusal(&without_claim(bob()), delete("ses_n")).await, Some(ErrorKind::SessionForbidden));
    assert_eq!(s.refusal(&bob(), delete("ses_n")).await, None);
    assert_eq!(s.owner_of("ses_n").await, None);
    assert_eq!(s.control.watched(), []);
}

/// The turn of the root session may use it.
#[tokio::test]
async fn the_session_of_a_sub_agent_is_not_deleted_alone() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    s.control.add_child("ses_c", "ses_a");
    let error = s.call(&ada(), delete("ses_c")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.violations()[0].field.as_str()),
        (ErrorKind::InvalidParams, "session_id")
    );
    assert_eq!(s.refusal(&ada(), queries("ses_c").remove(0)).await, None);
}

#[tokio::test]
async fn a_session_is_deleted_only_while_it_is_idle_and_its_context_goes_on_in_a_new_one() {
    let mut s = stage(SessionGuard::Owner);
    let running = s.h.send("c", "m1").await;
    let turn = s.h.turn().await;
    let first = turn.request.session.id.as_str().to_owned();
    s.control.add(&first);
    assert_eq!(s.refusal(&ada(), delete(&first)).await, Some(ErrorKind::SessionBusy));
    turn.complete().await;
    s.h.reaches(&running.task, TaskState::Completed).await;
    assert_eq!(s.refusal(&ada(), delete(&first)).await, None);
    s.owned("alice", "ses_tui").await;
    s.h.agent.make_busy(&ses("ses_tui"));
    assert_eq!(s.refusal(&ada(), delete("ses_tui")).await, Some(ErrorKind::SessionBusy), "another client");
    s.owned("alice", "ses_unknown").await;
    s.h.agent.set_down(true);
    let unknown = s.refusal(&ada(), delete("ses_unknown")).await;
    assert_eq!(unknown, Some(ErrorKind::AgentUnavailable), "the agent cannot tell whether it is idle");
    s.h.agent.set_down(false);

    let gone = || Error::new(ErrorKind::SessionGone, "Gone.");
    s.h.agent.refuse_next(gone());
    s.h.send("c", "m2").await;
    let turn = s.h.turn().await;
    assert_ne!(turn.request.session.id, ses(&first));
    turn.complete().await;
    // A message that names the session does not go to another one.
    s.h.agent.refuse_next(gone());
    let mut named = message("c2", "m3");
    named.options.session = Some(ses(&first));
    let sent = s.h.engine.send(&alice(), named).await.unwrap();
    s.h.reaches(&sent.task, TaskState::Failed).await;
}

/// The session may be gone, and then nothing asks in it any more.
#[tokio::test]
async fn a_deletion_without_an_answer_forgets_the_approvals_and_a_refused_one_does_not() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    approve(&s, "ses_a", "per_a").await;
    let failed = || Error::new(ErrorKind::UpstreamUnreachable, "No answer.");
    s.control.refuse_next_command(failed());
    assert_eq!(s.refusal(&ada(), delete("ses_a")).await, Some(ErrorKind::UpstreamUnreachable));
    assert_eq!(approved(&s).await, ["per_a"]);
    s.control.lose_next_command(failed().mark_maybe_applied());
    assert_eq!(s.refusal(&ada(), delete("ses_a")).await, Some(ErrorKind::UpstreamUnreachable));
    assert_eq!(approved(&s).await, [""; 0]);
}
