//! The directory of a context: that of its first task, whatever comes after.

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{Binding, Bound, ContextPlace, Create, Created, Session, Store};

use super::Fixture;
use super::make::{
    DIRECTORY, binding, child, context_id, create_in, everything, made, owner, session, session_id, task_id,
};
use super::sessions::check_refused;

/// A send to a context, of a task with the name of the context and a number. It wishes for the directory, if any.
fn send(context: &str, number: u32, wish: Option<&str>) -> Create {
    let create = create_in(&format!("{context}-{number}"), context, 1);
    match wish {
        Some(directory) => Create { directory: directory.to_owned(), directory_named: true, ..create },
        None => create,
    }
}

/// The same, with a session that is named.
fn send_with(context: &str, number: u32, wish: Option<&str>, name: &str) -> Create {
    Create { session: Some(session_id(name)), ..send(context, number, wish) }
}

async fn place(store: &Arc<dyn Store>, who: &str, context: &str) -> ContextPlace {
    store.place(&owner(who), &context_id(context)).await.expect("a read")
}

async fn directory(store: &Arc<dyn Store>, context: &str) -> Option<String> {
    place(store, "ada", context).await.directory
}

pub(super) async fn a_context_keeps_the_directory_of_its_first_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    assert_eq!(place(&store, "ada", "c").await, ContextPlace::default());
    for (context, wish, kept) in [("plain", None, DIRECTORY), ("wished", Some("/a"), "/a")] {
        made(&store, send(context, 1, wish)).await;
        let place_then = ContextPlace { directory: Some(kept.to_owned()), bound: None };
        assert_eq!(place(&store, "ada", context).await, place_then);
        // A gateway whose default is another by now does not move it, nor does a wish.
        made(&store, Create { directory: "/default".to_owned(), ..send(context, 2, None) }).await;
        made(&store, send(context, 3, Some(kept))).await;
        for other in ["/b", "/A", ""] {
            check_refused(&store, send(context, 4, Some(other)), Created::OtherDirectory).await;
        }
        assert_eq!(directory(&store, context).await.as_deref(), Some(kept));
    }
    // Another owner's context of the same name is another context.
    made(&store, Create { owner: owner("bob"), task: task_id("bobs"), ..send("wished", 9, Some("/b")) })
        .await;
    assert_eq!(place(&store, "bob", "wished").await.directory.as_deref(), Some("/b"));
    // What binds the context does not move it.
    store.bind(binding("ada", "wished", "ses")).await.expect("the session is free");
    assert_eq!(directory(&store, "wished").await.as_deref(), Some("/a"));
    check_refused(&store, send("wished", 5, Some("/projects/ses")), Created::OtherDirectory).await;
    // A sub-agent wishes for nothing.
    made(&store, send("c", 1, Some("/a"))).await;
    made(&store, child("below", "c-1", "c-1")).await;
    assert_eq!(directory(&store, "c").await.as_deref(), Some("/a"));

    let store = fixture.reopen(store);
    for (context, kept) in [("plain", DIRECTORY), ("wished", "/a"), ("c", "/a")] {
        assert_eq!(directory(&store, context).await.as_deref(), Some(kept), "{context}");
    }
}

pub(super) async fn a_session_brings_its_directory(fixture: &dyn Fixture) {
    let store = fixture.open();
    store.bind(binding("ada", "first", "ses")).await.expect("the session is free");
    // Bound, but without a task: nothing was fixed.
    assert_eq!(directory(&store, "first").await, None);
    for (context, wish) in [("named", None), ("named-and-wished", Some("/projects/ses"))] {
        check_refused(&store, send_with(context, 1, Some("/a"), "ses"), Created::OtherDirectory).await;
        made(&store, send_with(context, 2, wish, "ses")).await;
        let kept = ContextPlace {
            directory: Some("/projects/ses".to_owned()),
            bound: Some(Bound { session: session("ses"), named: true }),
        };
        assert_eq!(place(&store, "ada", context).await, kept);
        check_refused(&store, send_with(context, 3, Some("/a"), "ses"), Created::OtherDirectory).await;
    }
    // So does one that is bound already, and one that is claimed.
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
    // What is wrong with the session is told before what is wrong with the directory.
    check_refused(&store, send_with("new", 1, Some("/a"), "unknown"), Created::UnknownSession).await;
    check_refused(&store, send_with("first", 3, Some("/a"), "other"), Created::OtherSession).await;
}

pub(super) async fn a_context_is_not_moved_by_a_session(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, send("c", 1, Some("/a"))).await;
    let there = Session { directory: "/a".to_owned(), ..session("there") };
    store.bind(Binding { session: there, ..binding("ada", "d", "there") }).await.expect("it is free");
    store.bind(binding("ada", "e", "elsewhere")).await.expect("the session is free");
    // Whoever names a session wishes for the place where it works.
    for wish in [None, Some("/a")] {
        check_refused(&store, send_with("c", 2, wish, "elsewhere"), Created::OtherDirectory).await;
    }
    made(&store, send_with("c", 3, None, "there")).await;
    // One that the context has may have moved since.
    let moved = Session { directory: "/moved".to_owned(), ..session("there") };
    let replaces = Some(session_id("there"));
    let moving = Binding { session: moved, replaces, ..binding("ada", "c", "there") };
    store.bind(moving).await.expect("it is ada's");
    made(&store, send_with("c", 4, Some("/a"), "there")).await;
    assert_eq!(directory(&store, "c").await.as_deref(), Some("/a"));
}

/// Many sends to one new context, half of which wish for one directory and half for another.
pub(super) async fn of_directories_at_once_one_stands(fixture: &dyn Fixture) {
    let store = fixture.open();
    let tasks = Tasks::new();
    let sends: Vec<_> = (0..32)
        .zip(["/a", "/b"].into_iter().cycle())
        .map(|(n, wish)| {
            let (store, send) = (store.clone(), send("once", n, Some(wish)));
            tasks.spawn("send", async move { (wish, store.create(send).await.expect("an answer")) })
        })
        .collect();
    let mut answers = Vec::new();
    for send in sends {
        answers.push(send.await.expect("no send panics"));
    }
    let stands = directory(&store, "once").await.expect("the first send fixed it");
    for (wish, answer) in answers {
        let expected = if wish == stands { Created::New } else { Created::OtherDirectory };
        assert_eq!(answer, expected, "{wish}");
    }
    assert_eq!(store.list(everything()).await.expect("a list").total, 16);
}
