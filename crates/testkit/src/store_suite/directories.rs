//! The directory of a context is that of its first task.

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{Binding, Bound, ContextLocation, Create, Created, Session, Store};

use super::Fixture;
use super::make::{
    DIRECTORY, binding, child, context_id, create_in, everything, made, owner, session, session_id, task_id,
};
use super::sessions::check_refused;

/// A send to a context. The task is named after the context and a number. The send may request a directory.
fn send(context: &str, number: u32, requested: Option<&str>) -> Create {
    let create = create_in(&format!("{context}-{number}"), context, 1);
    match requested {
        Some(directory) => Create { directory: directory.to_owned(), directory_named: true, ..create },
        None => create,
    }
}

/// The same, naming a session.
fn send_with(context: &str, number: u32, requested: Option<&str>, name: &str) -> Create {
    Create { session: Some(session_id(name)), ..send(context, number, requested) }
}

async fn place(store: &Arc<dyn Store>, who: &str, context: &str) -> ContextLocation {
    store.context_location(&owner(who), &context_id(context)).await.expect("a read")
}

async fn directory(store: &Arc<dyn Store>, context: &str) -> Option<String> {
    place(store, "ada", context).await.directory
}

pub(super) async fn a_context_keeps_the_directory_of_its_first_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    assert_eq!(place(&store, "ada", "c").await, ContextLocation::default());
    for (context, requested, kept) in [("plain", None, DIRECTORY), ("requested", Some("/a"), "/a")] {
        made(&store, send(context, 1, requested)).await;
        let expected = ContextLocation { directory: Some(kept.to_owned()), bound: None };
        assert_eq!(place(&store, "ada", context).await, expected);
        // Neither a new default of the gateway nor a requested directory moves the context.
        made(&store, Create { directory: "/default".to_owned(), ..send(context, 2, None) }).await;
        made(&store, send(context, 3, Some(kept))).await;
        for other in ["/b", "/A", ""] {
            check_refused(&store, send(context, 4, Some(other)), Created::OtherDirectory).await;
        }
        assert_eq!(directory(&store, context).await.as_deref(), Some(kept));
    }
    // A context of another owner with the same name is another context.
    made(&store, Create { owner: owner("bob"), task: task_id("bobs"), ..send("requested", 9, Some("/b")) })
        .await;
    assert_eq!(place(&store, "bob", "requested").await.directory.as_deref(), Some("/b"));
    // A binding does not move the context.
    store.bind(binding("ada", "requested", "ses")).await.expect("the session is free");
    assert_eq!(directory(&store, "requested").await.as_deref(), Some("/a"));
    check_refused(&store, send("requested", 5, Some("/projects/ses")), Created::OtherDirectory).await;
    // A sub-agent requests no directory.
    made(&store, send("c", 1, Some("/a"))).await;
    made(&store, child("below", "c-1", "c-1")).await;
    assert_eq!(directory(&store, "c").await.as_deref(), Some("/a"));

    let store = fixture.reopen(store);
    for (context, kept) in [("plain", DIRECTORY), ("requested", "/a"), ("c", "/a")] {
        assert_eq!(directory(&store, context).await.as_deref(), Some(kept), "{context}");
    }
}

pub(super) async fn a_session_brings_its_directory(fixture: &dyn Fixture) {
    let store = fixture.open();
    store.bind(binding("ada", "first", "ses")).await.expect("the session is free");
    // A bound context without a task has no directory yet.
    assert_eq!(directory(&store, "first").await, None);
    for (context, requested) in [("named", None), ("named-and-requested", Some("/projects/ses"))] {
        check_refused(&store, send_with(context, 1, Some("/a"), "ses"), Created::OtherDirectory).await;
        made(&store, send_with(context, 2, requested, "ses")).await;
        let kept = ContextLocation {
            directory: Some("/projects/ses".to_owned()),
            bound: Some(Bound { session: session("ses"), named: true }),
        };
        assert_eq!(place(&store, "ada", context).await, kept);
        check_refused(&store, send_with(context, 3, Some("/a"), "ses"), Created::OtherDirectory).await;
    }
    // A session that is bound already, or claimed, brings its directory too.
    check_refused(&store, send("first", 1, Some("/a")), Created::OtherDirectory).await;
    made(&store, send("first", 2, None)).await;
    assert_eq!(directory(&store, "first").await.as_deref(), Some("/projects/ses"));
    let claim = Some(session("claimed"));
    let elsewhere = Create { claim: claim.clone(), ..send_with("claims", 1, Some("/a"), "claimed") };
    check_refused(&store, elsewhere, Created::OtherDirectory).await;
    // A refused claim left the session free.
    let unclaimed = send_with("claims", 2, None, "claimed");
    check_refused(&store, unclaimed.clone(), Created::UnknownSession).await;
    made(&store, Create { claim, ..unclaimed }).await;
    assert_eq!(directory(&store, "claims").await.as_deref(), Some("/projects/claimed"));
    // Errors about the session come before errors about the directory.
    check_refused(&store, send_with("new", 1, Some("/a"), "unknown"), Created::UnknownSession).await;
    check_refused(&store, send_with("first", 3, Some("/a"), "other"), Created::OtherSession).await;
}

pub(super) async fn a_session_does_not_move_its_context(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, send("c", 1, Some("/a"))).await;
    let there = Session { directory: "/a".to_owned(), ..session("there") };
    store.bind(Binding { session: there, ..binding("ada", "d", "there") }).await.expect("it is free");
    store.bind(binding("ada", "e", "elsewhere")).await.expect("the session is free");
    // A send that names a session requests the directory of that session.
    for requested in [None, Some("/a")] {
        check_refused(&store, send_with("c", 2, requested, "elsewhere"), Created::OtherDirectory).await;
    }
    made(&store, send_with("c", 3, None, "there")).await;
    // The session of the context may have moved since.
    let moved = Session { directory: "/moved".to_owned(), ..session("there") };
    let replaces = Some(session_id("there"));
    let moving = Binding { session: moved, replaces, ..binding("ada", "c", "there") };
    store.bind(moving).await.expect("it is ada's");
    made(&store, send_with("c", 4, Some("/a"), "there")).await;
    assert_eq!(directory(&store, "c").await.as_deref(), Some("/a"));
}

/// Many sends to one new context: half of them request one directory, half another.
pub(super) async fn one_of_concurrent_directories_wins(fixture: &dyn Fixture) {
    let store = fixture.open();
    let tasks = Tasks::new();
    let sends: Vec<_> = (0..32)
        .zip(["/a", "/b"].into_iter().cycle())
        .map(|(n, requested)| {
            let (store, send) = (store.clone(), send("once", n, Some(requested)));
            tasks.spawn("send", async move { (requested, store.create(send).await.expect("an answer")) })
        })
        .collect();
    let mut answers = Vec::new();
    for send in sends {
        answers.push(send.await.expect("no send panics"));
    }
    let stands = directory(&store, "once").await.expect("the first send fixed it");
    for (requested, answer) in answers {
        let expected = if requested == stands { Created::New } else { Created::OtherDirectory };
        assert_eq!(answer, expected, "{requested}");
    }
    assert_eq!(store.list(everything()).await.expect("a list").total, 16);
}
