//! The tasks of sub-agents.

use std::sync::Arc;

use longshore_engine::port::{Append, Appended, Create, Created, Store};
use longshore_model::{ErrorKind, TaskState};

use super::Fixture;
use super::make::{
    ada, append, appended, asking, child, chunk, context_id, create, everything, interrupt, log, made, opens,
    owner, status, task_id, turn,
};

async fn children_of(store: &Arc<dyn Store>, root: &str) -> Vec<String> {
    let children = store.children(&task_id(root)).await.expect("a read");
    children.into_iter().map(|stored| stored.task.id.to_string()).collect()
}

pub(super) async fn children_come_in_the_order_of_creation(fixture: &dyn Fixture) {
    let store = fixture.open();
    for root in ["root", "other", "alone"] {
        made(&store, create(root)).await;
    }
    // Sorted neither by name nor by depth; some have ended.
    let tree = [
        ("z", "root", "root", true),
        ("m", "other", "other", false),
        ("a", "root", "z", false),
        ("k", "root", "root", true),
        ("b", "root", "a", false),
    ];
    for (name, root, caller, is_over) in tree {
        made(&store, child(name, root, caller)).await;
        if is_over {
            appended(&store, append(name, 1, vec![chunk("x"), status(TaskState::Completed, 2)])).await;
        }
    }
    let store = fixture.reopen(store);
    let cases: [(&str, &[&str]); 5] = [
        ("root", &["z", "a", "k", "b"]),
        ("other", &["m"]),
        ("alone", &[]),
        // Only a root has descendants.
        ("z", &[]),
        ("none", &[]),
    ];
    for (root, expected) in cases {
        assert_eq!(children_of(&store, root).await, expected, "{root}");
    }
    for stored in store.children(&task_id("root")).await.expect("a read") {
        // Complete, as its owner would get it.
        let found = store.get(&ada(), &stored.task.id).await.expect("a read");
        assert_eq!(found.as_ref(), Some(&stored));
        let parent = stored.task.parent.expect("it has one");
        assert_eq!((parent.root, parent.call.as_deref()), (task_id("root"), Some("call")));
    }
    let unfinished: Vec<_> = store
        .unfinished()
        .await
        .expect("a read")
        .into_iter()
        .map(|stored| stored.task.id.to_string())
        .collect();
    assert_eq!(unfinished, ["root", "other", "alone", "m", "a", "b"]);
}

pub(super) async fn a_child_is_a_task_like_any_other(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("root")).await;
    made(&store, child("below", "root", "root")).await;
    let batch = Append {
        turn: Some(turn("ses", "msg")),
        ..asking("below", 1, vec![opens(&interrupt("below", "r"))])
    };
    appended(&store, batch).await;
    let stored = store.get(&ada(), &task_id("below")).await.expect("a read").expect("it is there");
    assert_eq!((stored.turn, stored.open_asks), (Some(turn("ses", "msg")), vec![interrupt("below", "r")]));
    assert_eq!(store.get(&owner("bob"), &task_id("below")).await.expect("a read"), None);
    appended(&store, append("below", 2, vec![status(TaskState::Canceled, 2)])).await;
    let late = store.append(append("below", 3, vec![chunk("x")])).await.expect("an answer");
    assert_eq!(late, Appended::Terminal);
    assert_eq!(log(&store, "below").await.len(), 3);
    // The end of the root does not end its descendants.
    appended(&store, append("root", 1, vec![status(TaskState::Completed, 3)])).await;
    // A sub-agent that is called after the end of its root is stored too: the log shows what happened.
    made(&store, child("late", "root", "root")).await;
    assert_eq!(children_of(&store, "root").await, ["below", "late"]);
    // A key leads to the existing task.
    let key = create("keyed").idempotency;
    made(&store, Create { idempotency: key.clone(), ..child("keyed", "root", "root") }).await;
    let again =
        store.create(Create { idempotency: key, ..child("again", "root", "root") }).await.expect("an answer");
    assert_eq!(again, Created::Existing { task: task_id("keyed"), context: context_id("c") });
}

pub(super) async fn a_child_belongs_to_a_root_of_its_owner_and_context(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("root")).await;
    made(&store, child("below", "root", "root")).await;
    made(&store, Create { owner: owner("bob"), ..create("bobs") }).await;
    let elsewhere = super::make::create_in("elsewhere", "d", 1);
    made(&store, elsewhere).await;
    for root in ["none", "below", "bobs", "elsewhere", "t"] {
        let refused = store.create(child("t", root, root)).await.expect_err("no such root");
        assert_eq!(refused.kind(), ErrorKind::Internal, "{root}");
    }
    assert_eq!(store.get(&ada(), &task_id("t")).await.expect("a read"), None);
    assert_eq!(children_of(&store, "root").await, ["below"]);
    assert_eq!(store.list(everything()).await.expect("a list").total, 3);
}
