//! Sessions that the caller names with a send. The checks of the parent module call these functions.

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{Binding, Bound, Create, Created, Session, Store};

use super::super::make::{binding, create_in, everything, made, owner, session, session_id, task_id};
use super::{bound, unnamed};

/// A send to a context. The task is named after the context and a number.
fn send(who: &str, context: &str, number: u32, name: &str) -> Create {
    let task = format!("{context}-{number}");
    Create { owner: owner(who), session: Some(session_id(name)), ..create_in(&task, context, 1) }
}

fn named(name: &str) -> Bound {
    Bound { session: session(name), named: true }
}

/// The send is refused and leaves nothing: no task, no key, and the context is unchanged.
pub(in super::super) async fn check_refused(store: &Arc<dyn Store>, send: Create, expected: Created) {
    let (who, context) = (send.owner.clone(), send.context.clone());
    let before = store.context_location(&who, &context).await.expect("a read");
    assert_eq!(store.create(send.clone()).await.expect("an answer"), expected, "{send:?}");
    assert_eq!(store.context_location(&who, &context).await.expect("a read"), before, "{send:?}");
    assert_eq!(store.get(&who, &send.task).await.expect("a read"), None, "{send:?}");
    // If a key had been left, this would return `Existing`.
    assert_eq!(store.create(send.clone()).await.expect("an answer"), expected, "{send:?}");
    let unfinished = store.unfinished().await.expect("a read");
    assert!(unfinished.iter().all(|stored| stored.task.id != send.task), "{send:?}");
}

pub(super) async fn an_unbound_context_gets_the_named_session(store: &Arc<dyn Store>) {
    let elsewhere = Session { directory: "/elsewhere".to_owned(), ..session("gets_ses") };
    let first = Binding { session: elsewhere.clone(), ..binding("ada", "gets-first", "gets_ses") };
    store.bind(first).await.expect("the session is free");
    made(store, send("ada", "gets", 1, "gets_ses")).await;
    // With the directory in which the session was bound.
    let expected = Bound { session: elsewhere.clone(), named: true };
    assert_eq!(bound(store, "ada", "gets").await, Some(expected.clone()));
    let first = Bound { session: elsewhere, named: false };
    assert_eq!(bound(store, "ada", "gets-first").await, Some(first));
    // A concurrent binding by the gateway is refused with the named session.
    let late = binding("ada", "gets", "gets_late");
    assert_eq!(store.bind(late).await.expect("an answer"), expected);
    // A send without a session uses the bound one.
    made(store, Create { session: None, ..send("ada", "gets", 2, "gets_ses") }).await;
    assert_eq!(bound(store, "ada", "gets").await, Some(expected));
    // A session that was replaced still belongs to its owner.
    store.bind(binding("ada", "gets-old", "gets_old")).await.expect("the session is free");
    let replaces = Some(session_id("gets_old"));
    let replacing = Binding { replaces, ..binding("ada", "gets-old", "gets_new") };
    store.bind(replacing).await.expect("the session is free");
    made(store, send("ada", "gets-back", 1, "gets_old")).await;
    assert_eq!(bound(store, "ada", "gets-back").await, Some(named("gets_old")));
}

pub(super) async fn a_bound_context_keeps_its_session(store: &Arc<dyn Store>) {
    for name in ["keeps_1", "keeps_2"] {
        store.bind(binding("ada", name, name)).await.expect("the session is free");
    }
    let by_name = send("ada", "keeps-named", 1, "keeps_1");
    made(store, by_name.clone()).await;
    for (context, before) in [("keeps_1", unnamed("keeps_1")), ("keeps-named", named("keeps_1"))] {
        assert_eq!(bound(store, "ada", context).await, Some(before), "{context}");
        made(store, send("ada", context, 2, "keeps_1")).await;
        // From now on the session counts as named, also if the gateway chose it first.
        let stands = named("keeps_1");
        assert_eq!(bound(store, "ada", context).await, Some(stands.clone()), "{context}");
        // Another session of the caller, or an unknown one: the context keeps its session.
        for other in ["keeps_2", "keeps_unknown"] {
            check_refused(store, send("ada", context, 3, other), Created::OtherSession).await;
        }
        assert_eq!(bound(store, "ada", context).await, Some(stands), "{context}");
    }
    // A repeated send is recognized although the context has another session by now.
    let replaces = Some(session_id("keeps_1"));
    let replacing = Binding { replaces, ..binding("ada", "keeps-named", "keeps_3") };
    store.bind(replacing).await.expect("the session is free");
    let again = store.create(by_name.clone()).await.expect("a send may come twice");
    assert_eq!(again, Created::Existing { task: by_name.task, context: by_name.context });
}

pub(super) async fn only_its_owner_can_name_a_session(store: &Arc<dyn Store>) {
    store.bind(binding("ada", "names", "names_adas")).await.expect("the session is free");
    store.bind(binding("bob", "names", "names_bobs")).await.expect("the session is free");
    let cases = [
        ("ada", "names_bobs", Created::ForeignSession),
        ("bob", "names_adas", Created::ForeignSession),
        ("ADA", "names_adas", Created::ForeignSession),
        ("ada", "names_none", Created::UnknownSession),
    ];
    for (who, name, expected) in cases {
        check_refused(store, send(who, "names-new", 1, name), expected).await;
    }
    // A refused session is still free.
    store.bind(binding("bob", "names-later", "names_none")).await.expect("the session is free");
    // A task that is refused for its id binds nothing either.
    made(store, create_in("names-taken", "names", 1)).await;
    let taken = Create { task: task_id("names-taken"), ..send("ada", "names-new", 2, "names_adas") };
    store.create(taken).await.expect_err("the id is taken");
    assert_eq!(bound(store, "ada", "names-new").await, None);
}

pub(super) async fn a_named_session_can_be_replaced(store: &Arc<dyn Store>) {
    store.bind(binding("ada", "replaced-first", "replaced_1")).await.expect("the session is free");
    made(store, send("ada", "replaced", 1, "replaced_1")).await;
    assert_eq!(bound(store, "ada", "replaced").await, Some(named("replaced_1")));
    let replaces = Some(session_id("replaced_1"));
    let replacing = Binding { replaces, ..binding("ada", "replaced", "replaced_2") };
    assert_eq!(store.bind(replacing).await.expect("the session is free"), unnamed("replaced_2"));
    assert_eq!(bound(store, "ada", "replaced").await, Some(unnamed("replaced_2")));
}

pub(super) async fn an_unowned_session_can_be_claimed(store: &Arc<dyn Store>) {
    let claiming = |who, context, number, name| {
        let claimed = Session { directory: "/claimed".to_owned(), ..session(name) };
        Create { claim: Some(claimed), ..send(who, context, number, name) }
    };
    made(store, claiming("ada", "claims", 1, "claims_1")).await;
    let claimed = Session { directory: "/claimed".to_owned(), ..session("claims_1") };
    let stands = Some(Bound { session: claimed.clone(), named: true });
    assert_eq!(bound(store, "ada", "claims").await, stands);
    // The session is ada's now: no other owner can claim, name or bind it, and ada need not claim it again.
    check_refused(store, claiming("bob", "claims", 2, "claims_1"), Created::ForeignSession).await;
    check_refused(store, send("bob", "claims", 2, "claims_1"), Created::ForeignSession).await;
    store.bind(binding("bob", "claims", "claims_1")).await.expect_err("it is ada's");
    made(store, send("ada", "claims-too", 1, "claims_1")).await;
    assert_eq!(bound(store, "ada", "claims-too").await, stands);
    // A claim changes no owned session: bindings and directories stay.
    store.bind(binding("bob", "claims", "claims_bobs")).await.expect("the session is free");
    check_refused(store, claiming("ada", "claims-new", 1, "claims_bobs"), Created::ForeignSession).await;
    check_refused(store, claiming("ada", "claims", 3, "claims_2"), Created::OtherSession).await;
    store.bind(binding("bob", "claims-free", "claims_2")).await.expect("the session is free");
    store.bind(binding("ada", "claims-own", "claims_own")).await.expect("the session is free");
    made(store, claiming("ada", "claims-again", 1, "claims_own")).await;
    assert_eq!(bound(store, "ada", "claims-again").await, Some(named("claims_own")));
    // The claimed session must be the named one.
    let wrong = [
        Create { claim: Some(session("claims_4")), ..send("ada", "claims-wrong", 1, "claims_3") },
        Create { session: None, ..claiming("ada", "claims-wrong", 1, "claims_3") },
    ];
    for wrong in wrong {
        store.create(wrong).await.expect_err("two sessions");
    }
    store.bind(binding("bob", "claims-3", "claims_3")).await.expect("the session is free");
    store.bind(binding("bob", "claims-4", "claims_4")).await.expect("the session is free");
}

/// Many owners claim one session at once.
pub(super) async fn one_of_concurrent_claims_wins(store: &Arc<dyn Store>) {
    let tasks = Tasks::new();
    let sends: Vec<_> = (0..32)
        .map(|n| {
            let (store, who) = (store.clone(), format!("owner-{n}"));
            let send = send(&who, &format!("claimed-{n}"), 1, "claimed");
            let send = Create { claim: Some(session("claimed")), ..send };
            tasks.spawn("send", async move { store.create(send).await.expect("an answer") })
        })
        .collect();
    let mut winners = 0;
    for send in sends {
        match send.await.expect("no send panics") {
            Created::New => winners += 1,
            other => assert_eq!(other, Created::ForeignSession),
        }
    }
    assert_eq!(winners, 1);
}

/// Many sends to one new context: half of them name one session, half another.
pub(super) async fn one_of_concurrent_names_wins(store: &Arc<dyn Store>) {
    const NAMES: [&str; 2] = ["once_1", "once_2"];
    for name in NAMES {
        store.bind(binding("ada", name, name)).await.expect("the session is free");
    }
    let before = store.list(everything()).await.expect("a list").total;
    let tasks = Tasks::new();
    let sends: Vec<_> = (0..32)
        .zip(NAMES.into_iter().cycle())
        .map(|(n, name)| {
            let (store, send) = (store.clone(), send("ada", "once", n, name));
            tasks.spawn("send", async move { (name, store.create(send).await.expect("an answer")) })
        })
        .collect();
    let mut answers = Vec::new();
    for send in sends {
        answers.push(send.await.expect("no send panics"));
    }
    let stands = bound(store, "ada", "once").await.expect("the context is bound");
    for (name, answer) in answers {
        let expected = if stands == named(name) { Created::New } else { Created::OtherSession };
        assert_eq!(answer, expected, "{name}");
    }
    let after = store.list(everything()).await.expect("a list").total;
    assert_eq!((stands.named, after - before), (true, 16));
}
