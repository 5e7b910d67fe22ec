//! Claims of unowned sessions: once, completely, even if the caller hangs up.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{Outcome, SessionGuard};
use longshore_model::{Error, ErrorKind, OfferedAgent, Offers};
use longshore_testkit::scripted_control::Call;

use crate::control_stage::{Stage, ada, bob, note, prompt, queries, ses, share, stage};
use crate::harness::message;

/// Waits until the agent has a command and has not responded.
async fn acting(s: &Stage) {
    while !s.control.take_calls().iter().any(|call| matches!(call, Call::ControlCommand(..))) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_session_is_reserved_until_its_owner_is_decided() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.acts.hold();
    let (first, ()) = tokio::join!(s.call(&ada(), share("ses_n")), async {
        acting(&s).await;
        assert_eq!(s.owner_of("ses_n").await, None);
        assert_eq!(s.refusal(&bob(), share("ses_n")).await, Some(ErrorKind::SessionForbidden));
        assert_eq!(s.refusal(&bob(), prompt("ses_n", "go")).await, Some(ErrorKind::SessionForbidden));
        let mut send = message("c", "m1");
        (send.options.session, send.may_claim) = (Some(ses("ses_n")), true);
        s.h.agent.add_foreign_session(longshore_testkit::scripted_control::session("ses_n"));
        let refused = s.h.engine.send(&bob().principal, send).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidParams);
        assert_eq!(s.refusal(&bob(), queries("ses_n").remove(0)).await, None, "looking takes nothing");
        s.control.acts.release(1);
    });
    first.unwrap();
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("alice"));
}

/// A later external turn there must become a task.
#[tokio::test]
async fn a_claimed_session_is_watched_however_it_was_claimed() {
    let mut s = stage(SessionGuard::Owner);
    for id in ["ses_acted", "ses_ordered", "ses_noted", "ses_messaged"] {
        s.control.add(id);
    }
    s.call(&ada(), share("ses_acted")).await.unwrap();
    let ordering = s.call(&ada(), prompt("ses_ordered", "go"));
    let (ordered, turn) = tokio::join!(ordering, s.h.turn());
    ordered.unwrap();
    turn.complete().await;
    s.call(&ada(), note("ses_noted", "go")).await.unwrap();
    s.h.agent.add_foreign_session(longshore_testkit::scripted_control::session("ses_messaged"));
    let mut send = message("c", "m1");
    (send.options.session, send.may_claim) = (Some(ses("ses_messaged")), true);
    s.h.engine.send(&ada().principal, send).await.unwrap();
    s.h.turn().await.complete().await;
    let watched = s.control.watched();
    for id in ["ses_acted", "ses_ordered", "ses_noted", "ses_messaged"] {
        assert!(watched.iter().any(|session| session.id == ses(id)), "{id} is not among {watched:?}");
        assert_eq!(s.owner_of(id).await.as_deref(), Some("alice"), "{id}");
    }
}

#[tokio::test]
async fn a_failed_command_claims_nothing() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.refuse_next_command(Error::new(ErrorKind::UpstreamHttpError, "No."));
    assert_eq!(s.refusal(&ada(), share("ses_n")).await, Some(ErrorKind::UpstreamHttpError));
    assert_eq!(s.owner_of("ses_n").await, None);
    assert_eq!(s.refusal(&bob(), share("ses_n")).await, None);
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("bob"));
    assert_eq!(s.outcomes(), [Outcome::UpstreamHttpError, Outcome::Success]);
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_nothing_half_done() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.acts.hold();
    {
        let call = s.call(&ada(), share("ses_n"));
        tokio::pin!(call);
        tokio::select! {
            result = &mut call => panic!("{result:?}"),
            () = acting(&s) => {}
        }
    }
    assert_eq!(s.outcomes(), []);
    s.control.acts.release(1);
    let outcome = loop {
        match s.outcomes().pop() {
            Some(outcome) => break outcome,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(outcome, Outcome::Success);
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("alice"));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_takes_too_long_loses_the_session_to_the_next() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.acts.hold();
    let (first, ()) = tokio::join!(s.call(&ada(), share("ses_n")), async {
        acting(&s).await;
        tokio::time::advance(Duration::from_secs(30)).await;
        let (second, ()) = tokio::join!(s.call(&bob(), share("ses_n")), async {
            acting(&s).await;
            // Both commands run, and the second ends first.
            s.h.store
                .claim(longshore_engine::port::Claim {
                    owner: bob().principal,
                    session: longshore_testkit::scripted_control::session("ses_n"),
                    at: s.h.engine.now(),
                })
                .await
                .unwrap();
            s.control.acts.release(2);
        });
        second.unwrap();
    });
    let error = first.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionForbidden);
    assert!(error.message().contains("may have had its effect"), "{error}");
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("bob"));
}

/// Waits until this many callers have asked the agent for the session without a response.
async fn finding(s: &Stage, count: usize) {
    let mut found = 0;
    while found < count {
        tokio::task::yield_now().await;
        found += s.control.take_calls().iter().filter(|call| matches!(call, Call::Find(_))).count();
    }
}

#[tokio::test]
async fn a_caller_that_saw_the_session_unowned_before_its_claim_does_nothing_there() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.finds.hold();
    s.control.acts.hold();
    let (ada_1, ada_2, bob) = (ada(), ada(), bob());
    // All three callers see an unowned session. Ada's first call claims it; the others get their response only afterwards.
    let first = s.call(&ada_1, share("ses_n"));
    let late = async { tokio::join!(s.call(&bob, share("ses_n")), s.call(&ada_2, share("ses_n"))) };
    let (first, (bobs, second), ()) = tokio::join!(first, late, async {
        finding(&s, 3).await;
        s.control.finds.release(1);
        acting(&s).await;
        s.control.acts.release(1);
        while s.owner_of("ses_n").await.is_none() {
            tokio::task::yield_now().await;
        }
        s.control.finds.release(2);
        s.control.acts.release(2);
    });
    first.unwrap();
    assert_eq!(bobs.unwrap_err().kind(), ErrorKind::SessionForbidden);
    second.expect("it is hers");
    let commands =
        s.control.take_calls().into_iter().filter(|call| matches!(call, Call::ControlCommand(..))).count();
    assert_eq!(commands, 1, "her second, and nothing of bob's");
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("alice"));
}

fn offers(name: &str) -> Offers {
    let agent = OfferedAgent { name: name.to_owned(), mode: None, description: None };
    Offers { agents: vec![agent], commands: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn offers_are_cached_and_kept_while_the_agent_fails() {
    let s = stage(SessionGuard::Owner);
    s.control.offer_next(Ok(offers("one")));
    let (first, second) = tokio::join!(s.h.engine.offers(), s.h.engine.offers());
    assert_eq!((&*first, &*second), (&offers("one"), &offers("one")));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(Arc::ptr_eq(&first, &s.h.engine.offers().await));
    assert_eq!(s.control.take_calls(), [Call::Offers]);
    // An agent that fails is asked again soon; meanwhile the old offers are returned.
    tokio::time::advance(Duration::from_secs(1)).await;
    s.control.offer_next(Err(Error::new(ErrorKind::UpstreamUnreachable, "Away.")));
    assert_eq!(*s.h.engine.offers().await, offers("one"));
    tokio::time::advance(Duration::from_secs(5)).await;
    // A slow agent is not waited for.
    s.control.asked_offers.hold();
    s.control.offer_next(Ok(offers("two")));
    let asked = tokio::time::Instant::now();
    assert_eq!(*s.h.engine.offers().await, offers("one"));
    assert_eq!(asked.elapsed(), Duration::from_secs(2));
    s.control.asked_offers.release(1);
    assert_eq!(*s.h.engine.offers().await, offers("two"));
    assert_eq!(s.control.take_calls(), [Call::Offers, Call::Offers]);
}
