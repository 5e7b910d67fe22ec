//! Contexts, the sessions that they are bound to, and who owns those.

use longshore_engine::port::{Binding, OwnedSession, Session};
use longshore_model::{ErrorKind, Result, Timestamp};

use super::Fixture;
use super::make::{ada, context_id, owner, session, session_id};

fn binding(who: &str, context: &str, name: &str) -> Binding {
    Binding { owner: owner(who), context: context_id(context), session: session(name), at: Timestamp(1) }
}

fn owned(name: &str) -> OwnedSession {
    OwnedSession { owner: ada(), session: session(name) }
}

pub(super) async fn a_context_is_bound_until_it_is_bound_again(fixture: &dyn Fixture) {
    let store = fixture.open();
    let bound = async || store.binding(&ada(), &context_id("c")).await.expect("a read");
    assert_eq!(bound().await, None);
    assert_eq!(store.session(&session_id("ses_1")).await.expect("a read"), None);
    for name in ["ses_1", "ses_2"] {
        store.bind(binding("ada", "c", name)).await.expect("the session is free");
        assert_eq!(bound().await, Some(session(name)));
        assert_eq!(store.session(&session_id(name)).await.expect("a read"), Some(owned(name)));
    }
    // The first is bound no more, but still ada's.
    assert_eq!(store.session(&session_id("ses_1")).await.expect("a read"), Some(owned("ses_1")));
    // The same session, elsewhere: the newest place counts.
    let moved = Session { directory: "/elsewhere".to_owned(), ..session("ses_2") };
    store
        .bind(Binding { session: moved.clone(), ..binding("ada", "c", "ses_2") })
        .await
        .expect("it is ada's");
    assert_eq!(bound().await, Some(moved.clone()));
    let known = store.session(&session_id("ses_2")).await.expect("a read");
    assert_eq!(known, Some(OwnedSession { owner: ada(), session: moved }));
}

pub(super) async fn a_context_name_is_unique_per_owner_only(fixture: &dyn Fixture) {
    let store = fixture.open();
    store.bind(binding("ada", "c", "ses_a")).await.expect("the session is free");
    assert_eq!(store.binding(&owner("bob"), &context_id("c")).await.expect("a read"), None);
    store.bind(binding("bob", "c", "ses_b")).await.expect("the session is free");
    for (who, expected) in [("ada", "ses_a"), ("bob", "ses_b")] {
        let bound = store.binding(&owner(who), &context_id("c")).await.expect("a read");
        assert_eq!(bound, Some(session(expected)), "{who}");
    }
}

pub(super) async fn a_session_stays_with_its_first_owner(fixture: &dyn Fixture) {
    let store = fixture.open();
    store.bind(binding("ada", "c", "ses")).await.expect("the session is free");
    let stolen: Result<()> = store.bind(binding("bob", "c", "ses")).await;
    assert_eq!(stolen.expect_err("it is ada's").kind(), ErrorKind::PermissionDenied);
    assert_eq!(store.session(&session_id("ses")).await.expect("a read"), Some(owned("ses")));
    assert_eq!(store.binding(&owner("bob"), &context_id("c")).await.expect("a read"), None);
}

pub(super) async fn contexts_may_share_a_session(fixture: &dyn Fixture) {
    let store = fixture.open();
    for context in ["c", "d"] {
        store.bind(binding("ada", context, "ses")).await.expect("the session is free, or ada's");
    }
    store.bind(binding("ada", "c", "another")).await.expect("the session is free");
    for (context, expected) in [("c", "another"), ("d", "ses")] {
        let bound = store.binding(&ada(), &context_id(context)).await.expect("a read");
        assert_eq!(bound, Some(session(expected)), "{context}");
    }
}
