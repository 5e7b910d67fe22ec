//! The owners of sessions, claims to unowned sessions, and the use of sessions.

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{
    Append, Binding, Claim, Claimed, Create, Created, MAX_CONTEXTS, MAX_OWNERS, OwnedSession, Session, Store,
};
use longshore_model::{ErrorKind, SessionId, TaskState, Timestamp};

use super::Fixture;
use super::make::{
    ada, append, appended, binding, context_id, create_in, made, owner, session, session_id, status, turn,
};

fn claim(who: &str, name: &str) -> Claim {
    Claim { owner: owner(who), session: session(name), at: Timestamp(1) }
}

fn owned(who: &str, name: &str) -> OwnedSession {
    OwnedSession { owner: owner(who), session: session(name) }
}

async fn owner_of(store: &Arc<dyn Store>, name: &str) -> Option<OwnedSession> {
    let id = session_id(name);
    let found = store.owner_of(None, &id).await.expect("a read");
    // The answer is the same for the owner, for another caller and for the gateway.
    for who in ["ada", "bob"] {
        assert_eq!(store.owner_of(Some(&owner(who)), &id).await.expect("a read"), found, "{name}");
    }
    found
}

pub(super) async fn a_session_has_an_owner(fixture: &dyn Fixture) {
    let store = fixture.open();
    assert_eq!(owner_of(&store, "bound").await, None);
    store.bind(binding("ada", "c", "bound")).await.expect("the session is free");
    store.bind(binding("bob", "c", "bobs")).await.expect("the session is free");
    let named = Create {
        owner: owner("bob"),
        session: Some(session_id("named")),
        claim: Some(session("named")),
        ..create_in("t", "d", 1)
    };
    made(&store, named).await;
    assert_eq!(store.claim(claim("ada", "claimed")).await.expect("an answer"), Claimed::Now);
    // A replaced session keeps its owner, and a moved one has its new directory.
    let replacing = Binding { replaces: Some(session_id("bound")), ..binding("ada", "c", "later") };
    store.bind(replacing).await.expect("the session is free");
    let elsewhere = Session { directory: "/elsewhere".to_owned(), ..session("later") };
    let replaces = Some(session_id("later"));
    let moving = Binding { session: elsewhere.clone(), replaces, ..binding("ada", "c", "later") };
    store.bind(moving).await.expect("it is ada's");

    let store = fixture.reopen(store);
    for (name, who) in [("bound", "ada"), ("bobs", "bob"), ("named", "bob"), ("claimed", "ada")] {
        assert_eq!(owner_of(&store, name).await, Some(owned(who, name)));
    }
    assert_eq!(owner_of(&store, "later").await, Some(OwnedSession { owner: ada(), session: elsewhere }));
    assert_eq!(owner_of(&store, "BOUND").await, None);
}

pub(super) async fn the_owners_of_many_sessions_are_read_at_once(fixture: &dyn Fixture) {
    let store = fixture.open();
    for (who, name) in [("ada", "s-0"), ("bob", "s-7"), ("ada", "s-9999"), ("bob", "not-asked-for")] {
        store.claim(claim(who, name)).await.expect("an answer");
    }
    let asked =
        |count: usize| -> Vec<SessionId> { (0..count).map(|n| session_id(&format!("s-{n}"))).collect() };
    let expected = [("s-0", "ada"), ("s-7", "bob"), ("s-9999", "ada")];
    let expected = expected.map(|(name, who)| (session_id(name), owner(who))).into();
    for who in ["ada", "bob", "somebody"] {
        let owners = store.owners(&owner(who), asked(MAX_OWNERS)).await.expect("a read");
        assert_eq!(owners, expected, "{who}");
    }
    let twice = vec![session_id("s-7"), session_id("s-7"), session_id("none")];
    let owners = store.owners(&ada(), twice).await.expect("a read");
    assert_eq!(owners, [(session_id("s-7"), owner("bob"))].into());
    assert!(store.owners(&ada(), Vec::new()).await.expect("a read").is_empty());
    let refused = store.owners(&ada(), asked(MAX_OWNERS + 1)).await.expect_err("they are too many");
    assert_eq!(refused.kind(), ErrorKind::Internal);
}

pub(super) async fn a_session_is_claimed_once(fixture: &dyn Fixture) {
    let store = fixture.open();
    let claimed = async |store: &Arc<dyn Store>, claim| store.claim(claim).await.expect("an answer");
    assert_eq!(claimed(&store, claim("ada", "ses")).await, Claimed::Now);
    store.bind(binding("bob", "c", "bobs")).await.expect("the session is free");
    let mut store = store;
    for is_restarted in [false, true] {
        if is_restarted {
            store = fixture.reopen(store);
        }
        // The session keeps its owner and its directory.
        let elsewhere = Session { directory: "/elsewhere".to_owned(), ..session("ses") };
        let again = Claim { session: elsewhere, ..claim("ada", "ses") };
        assert_eq!(claimed(&store, again.clone()).await, Claimed::Yours);
        assert_eq!(claimed(&store, Claim { owner: owner("bob"), ..again }).await, Claimed::Others);
        assert_eq!(claimed(&store, claim("ada", "bobs")).await, Claimed::Others);
        assert_eq!(claimed(&store, claim("bob", "bobs")).await, Claimed::Yours);
        assert_eq!(owner_of(&store, "ses").await, Some(owned("ada", "ses")));
        assert_eq!(owner_of(&store, "bobs").await, Some(owned("bob", "bobs")));
    }
    // The claim also counts for bindings and tasks.
    let theft = store.bind(binding("bob", "d", "ses")).await.expect_err("it is ada's");
    assert_eq!(theft.kind(), ErrorKind::PermissionDenied);
    let named = Create { session: Some(session_id("ses")), ..create_in("t", "d", 1) };
    let bobs = Create { owner: owner("bob"), claim: Some(session("ses")), ..named.clone() };
    assert_eq!(store.create(bobs).await.expect("an answer"), Created::ForeignSession);
    made(&store, named).await;
}

/// Many owners want one session at once: by a claim, by a binding, or by a task.
pub(super) async fn one_of_concurrent_claims_and_bindings_wins(fixture: &dyn Fixture) {
    let store = fixture.open();
    for round in 0..4 {
        let name = format!("ses-{round}");
        let tasks = Tasks::new();
        let attempts: Vec<_> = (0..24)
            .map(|n| {
                let (store, name, who) = (store.clone(), name.clone(), format!("owner-{round}-{n}"));
                tasks.spawn("attempt", async move {
                    let is_granted = match n % 3 {
                        0 => store.claim(claim(&who, &name)).await.expect("an answer") == Claimed::Now,
                        1 => store.bind(binding(&who, "c", &name)).await.is_ok(),
                        _ => {
                            let create = Create {
                                owner: owner(&who),
                                session: Some(session_id(&name)),
                                claim: Some(session(&name)),
                                ..create_in(&format!("t-{round}-{n}"), "d", 1)
                            };
                            store.create(create).await.expect("an answer") == Created::New
                        }
                    };
                    is_granted.then_some(who)
                })
            })
            .collect();
        let mut winners = Vec::new();
        for attempt in attempts {
            winners.extend(attempt.await.expect("no attempt panics"));
        }
        let [winner] = winners.as_slice() else { panic!("{winners:?}") };
        assert_eq!(owner_of(&store, &name).await, Some(owned(winner, &name)));
    }
}

pub(super) async fn the_contexts_of_a_session_come_newest_first(fixture: &dyn Fixture) {
    let store = fixture.open();
    let contexts = async |store: &Arc<dyn Store>, who: &str, name: &str| -> Vec<String> {
        let contexts = store.contexts_of(&owner(who), &session_id(name)).await.expect("a read");
        contexts.iter().map(ToString::to_string).collect()
    };
    let bind = async |who, context, name, at| {
        let binding = Binding { at: Timestamp(at), ..binding(who, context, name) };
        store.bind(binding).await.expect("the session is theirs");
    };
    bind("ada", "late", "ses", 30).await;
    bind("ada", "early", "ses", 10).await;
    bind("ada", "at-once-a", "ses", 20).await;
    bind("ada", "at-once-b", "ses", 20).await;
    bind("ada", "other", "adas", 40).await;
    bind("bob", "late", "bobs", 50).await;
    assert_eq!(contexts(&store, "ada", "ses").await, ["late", "at-once-b", "at-once-a", "early"]);
    // A caller sees no contexts of another owner's session or of an unknown one.
    assert_eq!(contexts(&store, "bob", "bobs").await, ["late"]);
    for (who, name) in [("bob", "ses"), ("ada", "bobs"), ("ada", "none")] {
        assert!(contexts(&store, who, name).await.is_empty(), "{who} {name}");
    }
    // A context whose session is replaced is gone, and a context that names its session again is the newest.
    let replaces = Some(session_id("ses"));
    let replacing = Binding { replaces, at: Timestamp(60), ..binding("ada", "late", "adas") };
    store.bind(replacing).await.expect("it is ada's");
    made(&store, Create { session: Some(session_id("ses")), ..create_in("names", "early", 70) }).await;
    // A session that was only claimed has no contexts.
    store.claim(claim("ada", "claimed")).await.expect("an answer");
    let store = fixture.reopen(store);
    assert_eq!(contexts(&store, "ada", "ses").await, ["early", "at-once-b", "at-once-a"]);
    assert_eq!(contexts(&store, "ada", "adas").await, ["late", "other"]);
    assert!(contexts(&store, "ada", "claimed").await.is_empty());
}

pub(super) async fn only_the_newest_contexts_of_a_session_are_listed(fixture: &dyn Fixture) {
    let store = fixture.open();
    let bindings = (0..=MAX_CONTEXTS).map(|n| {
        let at = Timestamp(i64::try_from(n).expect("they are few"));
        store.bind(Binding { at, ..binding("ada", &format!("c-{n}"), "ses") })
    });
    for bound in futures_util::future::join_all(bindings).await {
        bound.expect("the session is ada's");
    }
    let contexts = store.contexts_of(&ada(), &session_id("ses")).await.expect("a read");
    let expected: Vec<_> = (1..=MAX_CONTEXTS).rev().map(|n| context_id(&format!("c-{n}"))).collect();
    assert_eq!(contexts, expected);
}

pub(super) async fn recently_used_sessions_come_first(fixture: &dyn Fixture) {
    let store = fixture.open();
    let recent = async |store: &Arc<dyn Store>, since: i64, limit: usize| -> Vec<String> {
        let sessions = store.recent_sessions(Timestamp(since), limit).await.expect("a read");
        sessions
            .into_iter()
            .map(|Session { id, directory }| {
                assert_eq!(directory, session(id.as_str()).directory);
                id.to_string()
            })
            .collect()
    };
    assert!(recent(&store, i64::MIN, 9).await.is_empty());
    let bind = async |who, context, name, at| {
        store.bind(Binding { at: Timestamp(at), ..binding(who, context, name) }).await.expect("a binding");
    };
    bind("ada", "c", "prompted", 10).await;
    bind("bob", "c", "bobs", 20).await;
    bind("ada", "d", "bound", 30).await;
    store.claim(Claim { at: Timestamp(40), ..claim("bob", "claimed") }).await.expect("an answer");
    store.claim(Claim { at: Timestamp(40), ..claim("ada", "claimed-too") }).await.expect("an answer");
    let all = ["claimed-too", "claimed", "bound", "bobs", "prompted"];
    assert_eq!(recent(&store, i64::MIN, 9).await, all);
    assert_eq!(recent(&store, 20, 9).await, all[..4], "a use at this moment counts");
    assert_eq!(recent(&store, 20, 3).await, all[..3]);
    assert!(recent(&store, 41, 9).await.is_empty());
    assert!(recent(&store, 0, 0).await.is_empty());

    // A prompt and a new binding are uses of a session. A claim to an owned session and output are not.
    made(&store, create_in("t", "c", 50)).await;
    let working = append("t", 1, vec![status(TaskState::Working, 60)]);
    let turn = |name| Some(turn(name, "msg"));
    appended(&store, Append { at: Timestamp(60), turn: turn("prompted"), ..working }).await;
    let output = append("t", 2, vec![status(TaskState::Working, 90)]);
    appended(&store, Append { at: Timestamp(90), ..output }).await;
    bind("ada", "e", "bound", 70).await;
    for who in ["ada", "bob"] {
        store.claim(Claim { at: Timestamp(99), ..claim(who, "bobs") }).await.expect("an answer");
    }
    // A later use may have an older time, and a turn of a sub-agent runs in an unowned session.
    bind("bob", "f", "claimed", 15).await;
    let older = append("t", 3, vec![status(TaskState::Working, 90)]);
    appended(&store, Append { at: Timestamp(15), turn: turn("prompted"), ..older }).await;
    made(&store, create_in("below", "g", 80)).await;
    let unowned = append("below", 1, vec![status(TaskState::Working, 80)]);
    appended(&store, Append { at: Timestamp(80), turn: turn("unowned"), ..unowned }).await;
    let store = fixture.reopen(store);
    let all = ["bound", "prompted", "claimed-too", "claimed", "bobs"];
    assert_eq!(recent(&store, i64::MIN, 9).await, all);
}
