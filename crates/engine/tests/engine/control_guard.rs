//! Who may query and change a session.

use longshore_engine::{Outcome, SessionGuard};
use longshore_model::{
    Control, ControlQuery, ControlResult, Error, ErrorKind, RequestedDirectory, RequestedLocation,
};
use longshore_testkit::scripted_control::Call;

use crate::control_stage::{
    ada, bob, command, commands, delete, fork, make_worktree, note, prompt, queries, remove_worktree, ses,
    share, shell, stage, without_claim,
};
use crate::harness::message;

/// Every control request about a session.
fn all(id: &str) -> Vec<Control> {
    let mut all = queries(id);
    all.extend(commands(id));
    all.extend([prompt(id, "go"), note(id, "go"), command(id, "go")]);
    all
}

#[tokio::test]
async fn nothing_about_another_owners_session_is_sent_to_the_agent() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    for caller in [bob(), without_claim(bob())] {
        for control in all("ses_a") {
            let result = s.refusal(&caller, control.clone()).await;
            assert_eq!(result, Some(ErrorKind::SessionForbidden), "{control:?}");
        }
    }
    assert_eq!(s.control.take_calls(), []);
    assert!(s.outcomes().iter().all(|outcome| *outcome == Outcome::Forbidden));
    assert!(s.h.agent.log().prompted.is_empty());
}

#[tokio::test]
async fn an_owner_may_query_and_change_without_the_claim_capability() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    let controls: Vec<_> =
        queries("ses_a").into_iter().chain(commands("ses_a")).chain([note("ses_a", "go")]).collect();
    let count = controls.len();
    for control in controls {
        assert_eq!(s.refusal(&without_claim(ada()), control.clone()).await, None, "{control:?}");
    }
    assert_eq!(s.outcomes(), vec![Outcome::Success; count]);
}

#[tokio::test]
async fn an_unowned_session_is_for_callers_who_may_claim_and_only_a_change_claims_it() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    for control in all("ses_n") {
        let result = s.refusal(&without_claim(ada()), control.clone()).await;
        assert_eq!(result, Some(ErrorKind::SessionForbidden), "{control:?}");
    }
    for look in queries("ses_n") {
        assert_eq!(s.refusal(&bob(), look).await, None);
    }
    assert_eq!(s.owner_of("ses_n").await, None, "who only queries takes nothing");
    for (number, act) in commands("x").into_iter().enumerate() {
        let id = format!("ses_{number}");
        s.control.add(&id);
        let act = commands(&id).into_iter().nth(number).unwrap_or(act);
        assert_eq!(s.refusal(&ada(), act.clone()).await, None, "{act:?}");
        assert_eq!(s.owner_of(&id).await.as_deref(), Some("alice"), "{act:?}");
        assert!(s.control.watched().contains(&longshore_testkit::scripted_control::session(&id)));
    }
}

#[tokio::test]
async fn a_missing_session_and_one_outside_the_bounds_are_refused() {
    let s = stage(SessionGuard::Shared);
    s.control.add_out_of_bounds("ses_out");
    for (id, kind) in [("ses_none", ErrorKind::SessionNotFound), ("ses_out", ErrorKind::SessionForbidden)] {
        for control in all(id) {
            assert_eq!(s.refusal(&ada(), control.clone()).await, Some(kind), "{control:?}");
        }
    }
    // A session that the gateway knows and the agent does not.
    let gone = s.owned("alice", "ses_gone").await;
    s.control.forget(&gone.id);
    assert_eq!(s.refusal(&ada(), queries("ses_gone").remove(0)).await, Some(ErrorKind::SessionNotFound));
    assert_eq!(s.refusal(&ada(), prompt("ses_gone", "go")).await, Some(ErrorKind::SessionNotFound));
}

#[tokio::test]
async fn a_sub_agents_session_belongs_to_the_owner_of_its_root() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    s.control.add_child("ses_b", "ses_a");
    s.control.add_child("ses_c", "ses_b");
    for control in queries("ses_c").into_iter().chain([share("ses_c")]) {
        assert_eq!(s.refusal(&without_claim(ada()), control.clone()).await, None);
        assert_eq!(s.refusal(&bob(), control).await, Some(ErrorKind::SessionForbidden));
    }
    // In an unowned session tree, the root is claimed.
    s.control.add("ses_r");
    s.control.add_child("ses_s", "ses_r");
    assert_eq!(s.refusal(&bob(), share("ses_s")).await, None);
    assert_eq!(s.owner_of("ses_r").await.as_deref(), Some("bob"));
    assert_eq!(s.refusal(&ada(), share("ses_s")).await, Some(ErrorKind::SessionForbidden));
    // A sub-agent's session is prompted only by its caller.
    assert_eq!(s.refusal(&bob(), prompt("ses_s", "go")).await, Some(ErrorKind::InvalidParams));
}

#[tokio::test]
async fn the_search_for_the_root_session_is_bounded() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_0").await;
    for level in 1..=10 {
        s.control.add_child(&format!("ses_{level}"), &format!("ses_{}", level - 1));
    }
    assert_eq!(s.refusal(&ada(), share("ses_8")).await, None);
    assert_eq!(s.refusal(&ada(), share("ses_10")).await, Some(ErrorKind::SessionForbidden));
    // A cycle of parents ends too.
    s.control.add_child("ses_x", "ses_y");
    s.control.add_child("ses_y", "ses_x");
    assert_eq!(s.refusal(&ada(), share("ses_x")).await, Some(ErrorKind::SessionForbidden));
}

#[tokio::test]
async fn sharing_follows_the_setting() {
    for (guard, may_look, may_act) in [
        (SessionGuard::Owner, false, false),
        (SessionGuard::SharedReads, true, false),
        (SessionGuard::Shared, true, true),
    ] {
        let s = stage(guard);
        s.owned("alice", "ses_a").await;
        s.control.add("ses_n");
        let stranger = without_claim(bob());
        for id in ["ses_a", "ses_n"] {
            for look in queries(id) {
                assert_eq!(s.refusal(&stranger, look).await.is_none(), may_look, "{guard:?} {id}");
            }
            for act in commands(id) {
                assert_eq!(s.refusal(&stranger, act.clone()).await.is_none(), may_act, "{guard:?} {act:?}");
            }
        }
        // The first caller who changes a shared session still claims it, and turns belong to the owner.
        assert_eq!(s.owner_of("ses_n").await.is_some(), may_act);
        assert_eq!(s.refusal(&stranger, prompt("ses_a", "go")).await, Some(ErrorKind::SessionForbidden));
        assert_eq!(
            s.refusal(&stranger, delete("ses_a")).await,
            Some(ErrorKind::SessionForbidden),
            "{guard:?}"
        );
    }
    for guard in SessionGuard::ALL {
        assert_eq!(SessionGuard::parse(guard.as_str()), Some(guard));
    }
}

#[tokio::test]
async fn a_location_is_checked_and_the_session_keeps_its_own() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    let request = |path: &str| RequestedLocation {
        directory: Some(RequestedDirectory { path: path.to_owned(), field: "directory" }),
        workspace: None,
    };
    let error = s.call_at(&ada(), share("ses_a"), request("/etc")).await.unwrap_err();
    assert_eq!(error.violations()[0].field, "directory");
    s.control.take_calls();
    s.call_at(&ada(), share("ses_a"), request("sub")).await.unwrap();
    let calls = s.control.take_calls();
    let Some(Call::ControlCommand(at, Some(session), _)) = calls.last() else { panic!("{calls:?}") };
    assert_eq!((at.as_str(), session.directory.as_str()), ("sub", "workspace"));
}

#[tokio::test]
async fn a_fork_is_claimed_before_it_is_returned() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    let ControlResult::Session(made) = s.call(&ada(), fork("ses_a")).await.unwrap() else {
        panic!("no session")
    };
    assert_eq!(s.owner_of(made.id.as_str()).await.as_deref(), Some("alice"));
    assert_eq!(s.refusal(&bob(), share(made.id.as_str())).await, Some(ErrorKind::SessionForbidden));
    assert!(s.control.watched().iter().any(|watched| watched.id == made.id));
}

#[tokio::test(start_paused = true)]
async fn a_fork_whose_response_was_lost_is_claimed_if_it_is_found() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    // A fork that ada owns already is not the lost one.
    s.call(&ada(), fork("ses_a")).await.unwrap();
    let lost = Error::new(ErrorKind::UpstreamUnreachable, "It did not answer.").detail("detail", "cut");
    s.control.lose_next_command(lost.clone().mark_maybe_applied());
    let result = s.call(&ada(), fork("ses_a")).await.unwrap_err();
    assert_eq!(result.kind(), ErrorKind::UpstreamUnreachable);
    let expected = [("detail", "cut"), ("forkedSessionId", "ses_a_fork_2")];
    assert_eq!(result.details(), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(s.owner_of("ses_a_fork_2").await.as_deref(), Some("alice"));
    assert_eq!(s.refusal(&bob(), share("ses_a_fork_2")).await, Some(ErrorKind::SessionForbidden));
    assert!(s.control.watched().iter().any(|watched| watched.id == ses("ses_a_fork_2")));
    // After a certain failure no search is made, and a missing fork is not found.
    s.control.lose_next_command(lost.clone());
    assert_eq!(s.call(&ada(), fork("ses_a")).await.unwrap_err().details(), lost.details());
    assert_eq!(s.owner_of("ses_a_fork_3").await, None);
    s.control.forget(&ses("ses_a_fork_3"));
    s.control.refuse_next_command(lost.clone().mark_maybe_applied());
    assert_eq!(s.call(&ada(), fork("ses_a")).await.unwrap_err().details(), lost.details());
}

#[tokio::test]
async fn exclusive_commands_are_refused_while_something_runs_in_the_session() {
    let mut s = stage(SessionGuard::Owner);
    s.h.send("c", "m1").await;
    let turn = s.h.turn().await;
    let id = turn.request.session.id.as_str().to_owned();
    s.control.add(&id);
    let is_exclusive = |index: usize| index >= 3;
    for (index, act) in commands(&id).into_iter().enumerate() {
        let expected = is_exclusive(index).then_some(ErrorKind::SessionBusy);
        assert_eq!(s.refusal(&ada(), act.clone()).await, expected, "{act:?}");
    }
    let error = s.call(&ada(), note(&id, "go")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after_seconds()), (ErrorKind::SessionBusy, Some(1)));
    turn.complete().await;
    // Work of another client counts too.
    s.owned("alice", "ses_tui").await;
    s.h.agent.make_busy(&ses("ses_tui"));
    assert_eq!(s.refusal(&ada(), shell("ses_tui")).await, Some(ErrorKind::SessionBusy));
    assert_eq!(s.refusal(&ada(), share("ses_tui")).await, None);
}

#[tokio::test]
async fn a_turn_waits_for_an_exclusive_command() {
    let mut s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    s.control.acts.hold();
    let shelling = s.call(&ada(), shell("ses_a"));
    tokio::pin!(shelling);
    // The session queue is taken before the agent is asked.
    while !s.control.take_calls().iter().any(|call| matches!(call, Call::ControlCommand(..))) {
        tokio::select! {
            result = &mut shelling => panic!("{result:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(s.refusal(&ada(), shell("ses_a")).await, Some(ErrorKind::SessionBusy));
    let mut send = message("c", "m1");
    send.options.session = Some(ses("ses_a"));
    s.h.engine.send(&ada().principal, send).await.unwrap();
    tokio::task::yield_now().await;
    assert!(s.h.agent.log().prompted.is_empty());
    s.control.acts.release(1);
    shelling.await.unwrap();
    assert_eq!(s.h.turns.recv().await.unwrap().request.session.id, ses("ses_a"));
}

#[tokio::test]
async fn a_worktree_with_a_working_session_stays() {
    let mut s = stage(SessionGuard::Owner);
    s.control.add_worktree("busy", "trees/busy");
    s.control.add_worktree("idle", "trees/bus");
    let mut send = message("c", "m1");
    send.options.directory = Some("trees/busy/below".to_owned());
    s.h.engine.send(&ada().principal, send).await.unwrap();
    let turn = s.h.turn().await;
    assert_eq!(s.refusal(&bob(), remove_worktree("busy")).await, Some(ErrorKind::SessionBusy));
    assert_eq!(s.refusal(&bob(), remove_worktree("idle")).await, None);
    assert_eq!(s.refusal(&bob(), remove_worktree("none")).await, Some(ErrorKind::InvalidParams));
    assert_eq!(s.refusal(&bob(), make_worktree()).await, None);
    let task = turn.request.task.clone();
    turn.complete().await;
    s.h.reaches(&task, longshore_model::TaskState::Completed).await;
    while s.refusal(&bob(), remove_worktree("busy")).await.is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn no_turn_begins_in_a_worktree_during_its_removal() {
    let mut s = stage(SessionGuard::Owner);
    s.control.add_worktree("going", "trees/going");
    s.control.acts.hold();
    let removing = s.call(&bob(), remove_worktree("going"));
    let coming = async {
        while !s.control.take_calls().iter().any(|call| matches!(call, Call::ControlCommand(..))) {
            tokio::task::yield_now().await;
        }
        let mut request = message("c", "m1");
        request.options.directory = Some("trees/going/below".to_owned());
        let sent = s.h.engine.send(&ada().principal, request).await.unwrap();
        while s.h.agent.log().opened.is_empty() {
            tokio::task::yield_now().await;
        }
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
    assert_eq!((state, prompted), (longshore_model::TaskState::Submitted, 0), "it began meanwhile");
    assert_eq!(s.h.turn().await.request.task, task);
}

#[tokio::test]
async fn an_agent_without_a_control_surface_says_so() {
    let h = crate::harness::start();
    let request = longshore_model::ControlRequest {
        control: Control::Query(ControlQuery::Projects),
        location: RequestedLocation::default(),
    };
    let error = h.engine.control(&ada(), request, |_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    assert_eq!(*h.engine.offers().await, longshore_model::Offers::default());
}

/// The limits for each caller, such as that of directories, apply only to calls with a caller.
#[tokio::test]
async fn every_query_and_command_reaches_the_agent_with_its_caller() {
    let s = stage(SessionGuard::Owner);
    s.owned("alice", "ses_a").await;
    let calls = queries("ses_a").into_iter().chain([share("ses_a")]);
    for call in calls {
        s.call(&ada(), call.clone()).await.unwrap_or_else(|error| panic!("{call:?}: {error:?}"));
        let callers = s.control.take_callers();
        assert!(!callers.is_empty());
        assert!(callers.iter().all(|caller| *caller == Some(ada().principal)), "{call:?}: {callers:?}");
    }
}
