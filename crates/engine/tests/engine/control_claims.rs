//! Sessions of nobody's, taken by what is done there: once, wholly, and whoever hangs up.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{Outcome, SessionGuard};
use longshore_model::{Error, ErrorKind, OfferedAgent, Offers};
use longshore_testkit::scripted_control::Call;

use crate::control_stage::{Stage, ada, bob, looks, note, prompt, ses, share, stage};
use crate::harness::message;

/// Waits until the agent is asked to act, and has not answered.
async fn acting(s: &Stage) {
    while !s.control.take_calls().iter().any(|call| matches!(call, Call::ControlCommand(..))) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_session_is_kept_from_others_until_it_is_known_whose_it_becomes() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.acts.hold();
    let (first, ()) = tokio::join!(s.call(&ada(), share("ses_n")), async {
        acting(&s).await;
        assert_eq!(s.owner_of("ses_n").await, None);
        assert_eq!(s.refusal(&bob(), share("ses_n")).await, Some(ErrorKind::SessionForbidden));
        assert_eq!(s.refusal(&bob(), prompt("ses_n", "go")).await, Some(ErrorKind::SessionForbidden));
        let mut send = message("c", "m1");
        (send.wishes.session, send.may_claim) = (Some(ses("ses_n")), true);
        s.h.agent.add_stranger(longshore_testkit::scripted_control::session("ses_n"));
        let refused = s.h.engine.send(&bob().principal, send).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidParams);
        assert_eq!(s.refusal(&bob(), looks("ses_n").remove(0)).await, None, "looking takes nothing");
        s.control.acts.release(1);
    });
    first.unwrap();
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("alice"));
}

/// What somebody types there later is to become a task.
#[tokio::test]
async fn what_becomes_somebodys_is_watched_however_it_does() {
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
    s.h.agent.add_stranger(longshore_testkit::scripted_control::session("ses_messaged"));
    let mut send = message("c", "m1");
    (send.wishes.session, send.may_claim) = (Some(ses("ses_messaged")), true);
    s.h.engine.send(&ada().principal, send).await.unwrap();
    s.h.turn().await.complete().await;
    let watched = s.control.watched();
    for id in ["ses_acted", "ses_ordered", "ses_noted", "ses_messaged"] {
        assert!(watched.iter().any(|session| session.id == ses(id)), "{id} is not among {watched:?}");
        assert_eq!(s.owner_of(id).await.as_deref(), Some("alice"), "{id}");
    }
}

#[tokio::test]
async fn what_fails_takes_nothing() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.refuse_next_act(Error::new(ErrorKind::UpstreamHttpError, "No."));
    assert_eq!(s.refusal(&ada(), share("ses_n")).await, Some(ErrorKind::UpstreamHttpError));
    assert_eq!(s.owner_of("ses_n").await, None);
    assert_eq!(s.refusal(&bob(), share("ses_n")).await, None);
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("bob"));
    assert_eq!(s.outcomes(), [Outcome::UpstreamHttpError, Outcome::Success]);
}

#[tokio::test]
async fn one_who_hangs_up_leaves_nothing_half_done() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.acts.hold();
    {
        let call = s.call(&ada(), share("ses_n"));
        tokio::pin!(call);
        tokio::select! {
            told = &mut call => panic!("{told:?}"),
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
async fn one_who_takes_too_long_loses_it_to_the_next() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.acts.hold();
    let (first, ()) = tokio::join!(s.call(&ada(), share("ses_n")), async {
        acting(&s).await;
        tokio::time::advance(Duration::from_secs(30)).await;
        let (second, ()) = tokio::join!(s.call(&bob(), share("ses_n")), async {
            acting(&s).await;
            // Both are at it, and the second comes first.
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
    assert!(error.message().contains("may have been done"), "{error}");
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("bob"));
}

/// Waits until so many have asked the agent for the session, and have not been told.
async fn finding(s: &Stage, count: usize) {
    let mut found = 0;
    while found < count {
        tokio::task::yield_now().await;
        found += s.control.take_calls().iter().filter(|call| matches!(call, Call::Find(_))).count();
    }
}

#[tokio::test]
async fn who_found_it_nobodys_a_moment_before_it_was_taken_does_nothing_there() {
    let s = stage(SessionGuard::Owner);
    s.control.add("ses_n");
    s.control.finds.hold();
    s.control.acts.hold();
    let (ada_1, ada_2, bob) = (ada(), ada(), bob());
    // All three see a session of nobody's. Ada's first takes it; the others learn only afterwards that it is there.
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
    let acts =
        s.control.take_calls().into_iter().filter(|call| matches!(call, Call::ControlCommand(..))).count();
    assert_eq!(acts, 1, "her second, and nothing of bob's");
    assert_eq!(s.owner_of("ses_n").await.as_deref(), Some("alice"));
}

fn offers(name: &str) -> Offers {
    let agent = OfferedAgent { name: name.to_owned(), mode: None, description: None };
    Offers { agents: vec![agent], commands: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn what_is_offered_is_asked_once_in_a_while_and_known_for_longer() {
    let s = stage(SessionGuard::Owner);
    s.control.offer_next(Ok(offers("one")));
    let (first, second) = tokio::join!(s.h.engine.offers(), s.h.engine.offers());
    assert_eq!((&*first, &*second), (&offers("one"), &offers("one")));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(Arc::ptr_eq(&first, &s.h.engine.offers().await));
    assert_eq!(s.control.take_calls(), [Call::Offers]);
    // An agent that fails is asked again soon, and what was known is told meanwhile.
    tokio::time::advance(Duration::from_secs(1)).await;
    s.control.offer_next(Err(Error::new(ErrorKind::UpstreamUnreachable, "Away.")));
    assert_eq!(*s.h.engine.offers().await, offers("one"));
    tokio::time::advance(Duration::from_secs(5)).await;
    // One that takes long is not waited for.
    s.control.asked_offers.hold();
    s.control.offer_next(Ok(offers("two")));
    let asked = tokio::time::Instant::now();
    assert_eq!(*s.h.engine.offers().await, offers("one"));
    assert_eq!(asked.elapsed(), Duration::from_secs(2));
    s.control.asked_offers.release(1);
    assert_eq!(*s.h.engine.offers().await, offers("two"));
    assert_eq!(s.control.take_calls(), [Call::Offers, Call::Offers]);
}
