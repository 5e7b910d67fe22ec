//! One send creates one task.

use longshore_engine::Tasks;
use longshore_engine::port::{Append, ContextLocation, Create, Created, IdempotencyKey, RecordedSends};
use longshore_model::{ErrorKind, Timestamp};

use super::Fixture;
use super::make::{
    ada, append, appended, chunk, context_id, create, create_in, everything, existing, log, made, owner,
    session_id, submitted, task_id,
};

/// A send of `task` at `at`. All sends have one key, for which earlier sends count from `valid_since` on.
fn send(task: &str, at: i64, valid_since: i64) -> Create {
    let idempotency = Some(IdempotencyKey { digest: [7; 32], valid_since: Timestamp(valid_since) });
    Create { idempotency, ..create_in(task, "c", at) }
}

/// The same send, for which the gateway chose another context.
fn send_in(task: &str, context: &str, at: i64) -> Create {
    Create { idempotency: send(task, at, 0).idempotency, ..create_in(task, context, at) }
}

pub(super) async fn the_same_send_makes_one_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, send("first", 1, 0)).await;
    let again = store.create(send("second", 2, 0)).await.expect("a send may come twice");
    assert_eq!(again, existing("first"));
    assert_eq!(store.get(&ada(), &task_id("second")).await.expect("a read"), None);
    assert_eq!(log(&store, "first").await, [submitted("c", 1)]);

    // Nothing else is checked: neither the context that the gateway made up, nor an unknown session.
    let elsewhere = send_in("third", "made-up", 3);
    let again = store.create(Create { session: Some(session_id("unknown")), ..elsewhere }).await;
    assert_eq!(again.expect("a send may come twice"), existing("first"));
    let made_up = store.context_location(&ada(), &context_id("made-up")).await.expect("a read");
    assert_eq!(made_up, ContextLocation::default());
    // The directory is not checked either.
    let moved = Create { directory: "/elsewhere".to_owned(), directory_named: true, ..send("fourth", 4, 0) };
    assert_eq!(store.create(moved).await.expect("a send may come twice"), existing("first"));
}

pub(super) async fn a_noted_send_leads_to_its_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("task")).await;
    let key = |digest: u8| IdempotencyKey { digest: [digest; 32], valid_since: Timestamp(0) };
    let noted =
        RecordedSends { owner: ada(), task: task_id("task"), keys: vec![key(4), key(5)], at: Timestamp(5) };
    store.record_sends(noted.clone()).await.expect("a send can be noted");
    store.record_sends(noted.clone()).await.expect("a send can be noted twice");
    for noted in [
        RecordedSends { owner: owner("bob"), keys: vec![key(6)], ..noted.clone() },
        RecordedSends { task: task_id("unknown"), keys: vec![key(6)], ..noted },
    ] {
        let refused = store.record_sends(noted).await.expect_err("this owner has no such task");
        assert_eq!(refused.kind(), ErrorKind::TaskNotFound);
    }
    let store = fixture.reopen(store);
    for (digest, owner_name, expected) in [
        (4, "ada", Some("task")),
        (5, "ada", Some("task")),
        (6, "ada", None),
        (6, "bob", None),
        (4, "bob", None),
    ] {
        let found = store.earlier_send(&owner(owner_name), &key(digest)).await.expect("a read");
        assert_eq!(found, expected.map(task_id), "{digest} {owner_name}");
    }
    assert_eq!(log(&store, "task").await.len(), 1, "the log is unchanged");
}

pub(super) async fn a_joined_send_leads_to_its_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("task")).await;
    let key = |digest: u8, valid_since: i64| IdempotencyKey {
        digest: [digest; 32],
        valid_since: Timestamp(valid_since),
    };
    let joined = Append { at: Timestamp(5), joined: Some(key(9, 0)), ..append("task", 1, vec![chunk("x")]) };
    appended(&store, joined).await;
    // A refused append leaves no key.
    let refused = Append { joined: Some(key(8, 0)), ..append("task", 1, vec![chunk("y")]) };
    store.append(refused).await.expect("an answer");
    let store = fixture.reopen(store);
    for (key, owner_name, expected) in [
        (key(9, 5), "ada", Some("task")),
        (key(9, 6), "ada", None),
        (key(9, 0), "bob", None),
        (key(8, 0), "ada", None),
    ] {
        let found = store.earlier_send(&owner(owner_name), &key).await.expect("a read");
        assert_eq!(found, expected.map(task_id), "{key:?} {owner_name}");
    }
    // A withdrawal from another task does not remove the key.
    made(&store, create_in("other", "c", 6)).await;
    let elsewhere = Append { forgotten: Some(key(9, 0)), ..append("other", 1, vec![chunk("z")]) };
    appended(&store, elsewhere).await;
    assert_eq!(store.earlier_send(&ada(), &key(9, 0)).await.expect("a read"), Some(task_id("task")));
    // A caller that creates a task for the same send without checking first gets the existing task too.
    let again = Create { idempotency: Some(key(9, 0)), ..create_in("twin", "c", 6) };
    assert_eq!(store.create(again).await.expect("a send may come twice"), existing("task"));
    let withdrawn = Append { forgotten: Some(key(9, 0)), ..append("task", 2, vec![chunk("w")]) };
    appended(&store, withdrawn).await;
    assert_eq!(store.earlier_send(&ada(), &key(9, 0)).await.expect("a read"), None);
}

pub(super) async fn a_task_without_a_send_has_no_key(fixture: &dyn Fixture) {
    let store = fixture.open();
    for name in ["first", "second"] {
        made(&store, Create { idempotency: None, ..send(name, 1, 0) }).await;
    }
    made(&store, send("third", 1, 0)).await;
}

pub(super) async fn the_same_send_at_the_same_time_makes_one_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    let tasks = Tasks::new();
    let sends: Vec<_> = (0..32)
        .map(|n| {
            let (store, name) = (store.clone(), format!("task-{n}"));
            tasks.spawn("send", async move { (store.create(send(&name, 1, 0)).await, task_id(&name)) })
        })
        .collect();
    let mut outcomes = Vec::new();
    for send in sends {
        outcomes.push(send.await.expect("no send panics"));
    }
    let made: Vec<_> = outcomes.iter().filter(|(made, _)| matches!(made, Ok(Created::New))).collect();
    let [(_, winner)] = made.as_slice() else { panic!("{} tasks were made", made.len()) };
    for (outcome, id) in &outcomes {
        let expected = if id == winner { Created::New } else { existing(winner.as_str()) };
        assert_eq!(*outcome.as_ref().expect("a send"), expected);
    }
    assert_eq!(store.list(everything()).await.expect("a list").total, 1);
}

pub(super) async fn a_key_counts_until_its_window_ends(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, send("first", 100, 0)).await;
    let cases = [
        ("at-the-edge", 200, 100, existing("first")),
        ("beyond", 201, 101, Created::New),
        // From here on the key belongs to the newer task, with the newer time.
        ("again", 300, 201, existing("beyond")),
        ("much-later", 400, 202, Created::New),
    ];
    for (task, at, valid_since, expected) in cases {
        let outcome = store.create(send(task, at, valid_since)).await.expect("a send");
        assert_eq!(outcome, expected, "{task}");
    }
    assert_eq!(store.list(everything()).await.expect("a list").total, 3);
}

pub(super) async fn the_same_key_of_another_owner_makes_another_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, send("adas", 1, 0)).await;
    made(&store, Create { owner: owner("bob"), ..send("bobs", 1, 0) }).await;
    let again = store.create(Create { owner: owner("bob"), ..send("more", 1, 0) }).await.expect("a send");
    assert_eq!(again, existing("bobs"));
}

pub(super) async fn a_task_id_is_used_once(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let mut twin = create_in("t", "other", 2);
    twin.owner = owner("bob");
    twin.idempotency = Some(IdempotencyKey { digest: [9; 32], valid_since: Timestamp(0) });
    let refused = store.create(twin.clone()).await.expect_err("the id is taken");
    assert_eq!(refused.kind(), ErrorKind::Internal);
    assert_eq!(log(&store, "t").await, [submitted("c", 1)]);
    assert_eq!(store.get(&owner("bob"), &task_id("t")).await.expect("a read"), None);
    let place = store.context_location(&owner("bob"), &context_id("other")).await.expect("a read");
    assert_eq!(place, ContextLocation::default());
    // The refused send left no key behind.
    twin.task = task_id("u");
    made(&store, twin).await;
}

pub(super) async fn a_task_begins_with_its_submission(fixture: &dyn Fixture) {
    let store = fixture.open();
    let wrong = [
        Create { first: chunk("x"), ..create("t") },
        Create { first: submitted("another-context", 1), ..create("t") },
    ];
    for create in wrong {
        let refused = store.create(create).await.expect_err("no log can begin so");
        assert_eq!(refused.kind(), ErrorKind::Internal);
    }
    assert_eq!(store.list(everything()).await.expect("a list").total, 0);
}
