//! Contexts, their sessions, and the owners of the sessions.

mod named;

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{Binding, Bound, Create, Session, Store};
use longshore_model::ErrorKind;

use super::Fixture;
use super::make::{binding, context_id, create_in, made, owner, session, session_id};

pub(super) async fn a_context_is_bound_until_it_is_bound_again(fixture: &dyn Fixture) {
    let store = fixture.open();
    assert_eq!(bound(&store, "ada", "c").await, None);
    let mut before = None;
    for name in ["ses_1", "ses_2", "ses_3"] {
        let replacing = Binding { replaces: before, ..binding("ada", "c", name) };
        assert_eq!(store.bind(replacing).await.expect("the session is free"), unnamed(name));
        assert_eq!(bound(&store, "ada", "c").await, Some(unnamed(name)));
        before = Some(session_id(name));
    }
    // The same session in another directory: the newest directory counts.
    let moved = Session { directory: "/elsewhere".to_owned(), ..session("ses_3") };
    let moving = Binding { session: moved.clone(), replaces: before, ..binding("ada", "c", "ses_3") };
    let moved = Bound { session: moved, named: false };
    assert_eq!(store.bind(moving).await.expect("it is ada's"), moved);
    assert_eq!(bound(&store, "ada", "c").await, Some(moved.clone()));
    // The new directory also counts for sends that name the session.
    let found = async |who: &str| store.session(&owner(who), &session_id("ses_3")).await.expect("a read");
    assert_eq!(found("ada").await, Some(moved.session.clone()));
    assert_eq!(found("bob").await, None, "only ada can find it");
    made(&store, Create { session: Some(session_id("ses_3")), ..create_in("t", "d", 1) }).await;
    assert_eq!(bound(&store, "ada", "d").await, Some(Bound { named: true, ..moved }));

    a_stale_writer_cannot_replace_a_binding(&store).await;
    one_of_concurrent_bindings_wins(&store, None).await;
    one_of_concurrent_bindings_wins(&store, Some("replaced")).await;
    named::a_named_session_can_be_replaced(&store).await;
}

pub(super) async fn a_context_name_is_unique_per_owner_only(fixture: &dyn Fixture) {
    let store = fixture.open();
    store.bind(binding("ada", "c", "ses_a")).await.expect("the session is free");
    assert_eq!(bound(&store, "bob", "c").await, None);
    store.bind(binding("bob", "c", "ses_b")).await.expect("the session is free");
    for (who, expected) in [("ada", "ses_a"), ("bob", "ses_b")] {
        assert_eq!(bound(&store, who, "c").await, Some(unnamed(expected)), "{who}");
    }
}

pub(super) async fn a_session_stays_with_its_first_owner(fixture: &dyn Fixture) {
    let store = fixture.open();
    store.bind(binding("ada", "c", "ses")).await.expect("the session is free");
    store.bind(binding("bob", "d", "bobs")).await.expect("the session is free");
    // Neither a new nor a bound context can take the session, even after ada got another one.
    let replaces = Some(session_id("bobs"));
    let thefts = [binding("bob", "c", "ses"), Binding { replaces, ..binding("bob", "d", "ses") }];
    for replaced in [None, Some(session_id("ses"))] {
        if replaced.is_some() {
            let replacing = Binding { replaces: replaced, ..binding("ada", "c", "another") };
            store.bind(replacing).await.expect("the session is free");
        }
        for theft in thefts.clone() {
            let stolen = store.bind(theft).await;
            assert_eq!(stolen.expect_err("it is ada's").kind(), ErrorKind::PermissionDenied);
        }
    }
    assert_eq!(bound(&store, "bob", "c").await, None);
    assert_eq!(bound(&store, "bob", "d").await, Some(unnamed("bobs")));

    named::only_its_owner_can_name_a_session(&store).await;
    named::an_unowned_session_can_be_claimed(&store).await;
    named::one_of_concurrent_claims_wins(&store).await;
}

pub(super) async fn contexts_may_share_a_session(fixture: &dyn Fixture) {
    let store = fixture.open();
    for context in ["c", "d"] {
        store.bind(binding("ada", context, "ses")).await.expect("the session is free, or ada's");
    }
    let replaces = Some(session_id("ses"));
    let replacing = Binding { replaces, ..binding("ada", "c", "another") };
    store.bind(replacing).await.expect("the session is free");
    for (context, expected) in [("c", "another"), ("d", "ses")] {
        assert_eq!(bound(&store, "ada", context).await, Some(unnamed(expected)), "{context}");
    }

    named::an_unbound_context_gets_the_named_session(&store).await;
    named::a_bound_context_keeps_its_session(&store).await;
    named::one_of_concurrent_names_wins(&store).await;
}

async fn a_stale_writer_cannot_replace_a_binding(store: &Arc<dyn Store>) {
    // An unbound context is not bound to another session, whatever the writer expects.
    let first = Binding { replaces: Some(session_id("never")), ..binding("ada", "stands", "stands_1") };
    assert_eq!(store.bind(first).await.expect("the session is free"), unnamed("stands_1"));
    for unaware in [None, Some("never"), Some("stands_2")] {
        let late = Binding { replaces: unaware.map(session_id), ..binding("ada", "stands", "stands_2") };
        assert_eq!(store.bind(late).await.expect("an answer"), unnamed("stands_1"), "{unaware:?}");
        assert_eq!(bound(store, "ada", "stands").await, Some(unnamed("stands_1")), "{unaware:?}");
    }
    // The directory of the session is unchanged too.
    let moved = Session { directory: "/elsewhere".to_owned(), ..session("stands_1") };
    let late = Binding { session: moved, ..binding("ada", "stands", "stands_1") };
    assert_eq!(store.bind(late).await.expect("an answer"), unnamed("stands_1"));
    // A session that was refused has no owner.
    store.bind(binding("bob", "stands", "stands_2")).await.expect("the session is free");
}

/// Many writers bind one context, and all know the same current binding.
async fn one_of_concurrent_bindings_wins(store: &Arc<dyn Store>, known: Option<&'static str>) {
    let context = format!("at-once-{}", known.unwrap_or("new"));
    if let Some(known) = known {
        store.bind(binding("ada", &context, known)).await.expect("the session is free");
    }
    let tasks = Tasks::new();
    let writers: Vec<_> = (0..32)
        .map(|n| {
            let (store, replaces) = (store.clone(), known.map(session_id));
            let binding = Binding { replaces, ..binding("ada", &context, &format!("{context}-{n}")) };
            tasks.spawn("writer", async move { store.bind(binding).await.expect("an answer") })
        })
        .collect();
    let mut answers = Vec::new();
    for writer in writers {
        answers.push(writer.await.expect("no writer panics"));
    }
    let stands = bound(store, "ada", &context).await.expect("the context is bound");
    assert_ne!(Some(stands.session.id.as_str()), known);
    assert!(answers.iter().all(|answer| *answer == stands), "{stands:?} stands, but {answers:?}");
}

pub(super) use named::check_refused;

async fn bound(store: &Arc<dyn Store>, who: &str, context: &str) -> Option<Bound> {
    store.context_location(&owner(who), &context_id(context)).await.expect("a read").bound
}

fn unnamed(name: &str) -> Bound {
    Bound { session: session(name), named: false }
}
