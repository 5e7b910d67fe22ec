//! What retention folds and removes of finished tasks, and what stays.

use std::sync::Arc;

use longshore_engine::port::{
    Append, Appended, ContextLocation, Create, Created, IdempotencyKey, Retention, RetentionStep, Store,
};
use longshore_model::{ErrorKind, Resolution, Seq, TaskState, Timestamp};

use super::Fixture;
use super::make::{
    ada, append, appended, asking, binding, child, chunk, closed, closes, context_id, create, create_in,
    everything, file, file_id, interrupt, made, opens, owner, request_id, session, session_id, status,
    task_id,
};

/// A retention for which nothing is old.
const NOTHING: Retention = Retention {
    now: Timestamp(i64::MIN),
    fold_before: None,
    drop_before: None,
    keys_before: Timestamp(i64::MIN),
};

fn folding(before: i64) -> Retention {
    Retention { fold_before: Some(Timestamp(before)), ..NOTHING }
}

fn dropping(before: i64) -> Retention {
    Retention { drop_before: Some(Timestamp(before)), ..NOTHING }
}

/// Runs retention step by step until nothing is left to do.
pub(super) async fn retained(store: &Arc<dyn Store>, what: Retention) -> RetentionStep {
    let mut all = RetentionStep::default();
    for _ in 0..1000 {
        let step = store.retain(what).await.expect("the store can be tidied");
        all.folded += step.folded;
        all.dropped += step.dropped;
        if !step.more {
            return all;
        }
    }
    panic!("retention does not end: {all:?}");
}

/// A task of three events that ended at `at`.
async fn ended(store: &Arc<dyn Store>, create: Create, at: i64) {
    let name = create.task.to_string();
    made(store, create).await;
    appended(store, append(&name, 1, vec![chunk("x"), status(TaskState::Completed, at)])).await;
}

async fn first(store: &Arc<dyn Store>, task: &str) -> u64 {
    let head = store.head(&ada(), &task_id(task)).await.expect("a read");
    head.expect("the task is there").first.0
}

async fn is_there(store: &Arc<dyn Store>, task: &str) -> bool {
    let id = task_id(task);
    let found = store.get(&ada(), &id).await.expect("a read").is_some();
    assert_eq!(store.head(&ada(), &id).await.expect("a read").is_some(), found);
    match store.read(&ada(), &id, Seq::START, 9).await {
        Ok(entries) => assert!(found && !entries.is_empty(), "{task}"),
        Err(error) => assert_eq!((found, error.kind()), (false, ErrorKind::TaskNotFound), "{task}"),
    }
    found
}

pub(super) async fn folding_a_log_does_not_change_the_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    for (name, at) in [("old", 10), ("young", 20)] {
        ended(&store, create(name), at).await;
    }
    made(&store, create("open")).await;
    appended(&store, append("open", 1, vec![chunk("y"), status(TaskState::Working, 2)])).await;
    let id = task_id("old");
    let before = store.get(&ada(), &id).await.expect("a read");
    let listed = store.list(everything()).await.expect("a list");

    assert_eq!(retained(&store, NOTHING).await, RetentionStep::default());
    assert_eq!(retained(&store, folding(10)).await, RetentionStep::default(), "that moment does not count");
    assert_eq!(retained(&store, folding(20)).await, RetentionStep { folded: 1, ..RetentionStep::default() });
    assert_eq!(retained(&store, folding(20)).await, RetentionStep::default(), "once is enough");

    let mut store = store;
    for is_restarted in [false, true] {
        if is_restarted {
            store = fixture.reopen(store);
        }
        assert_eq!(store.get(&ada(), &id).await.expect("a read"), before);
        assert_eq!(store.list(everything()).await.expect("a list"), listed);
        for (name, expected) in [("old", 3), ("young", 1), ("open", 1)] {
            assert_eq!(first(&store, name).await, expected, "{name}");
        }
        // A reader with an older cursor gets the last event.
        for (after, expected) in [(0, &[3][..]), (1, &[3]), (2, &[3]), (3, &[]), (9, &[])] {
            let entries = store.read(&ada(), &id, Seq(after), 9).await.expect("a read");
            assert_eq!(entries.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), expected, "{after}");
            assert!(entries.iter().all(|entry| entry.event.is_terminal()));
        }
        // The task is still finished.
        let late = store.append(append("old", 3, vec![chunk("z")])).await.expect("an answer");
        assert_eq!(late, Appended::Terminal);
        assert_eq!(retained(&store, folding(20)).await, RetentionStep::default());
    }
}

pub(super) async fn a_long_log_is_folded_in_steps(fixture: &dyn Fixture) {
    const EVENTS: usize = 2000;
    let store = fixture.open();
    made(&store, create("t")).await;
    made(&store, create("other")).await;
    for batch in 0..EVENTS / 100 {
        let events = vec![chunk("x"); 100];
        appended(&store, append("t", (batch * 100 + 1) as u64, events)).await;
    }
    let head = EVENTS as u64 + 2;
    appended(&store, append("t", head - 1, vec![status(TaskState::Failed, 5)])).await;
    let before = store.get(&ada(), &task_id("t")).await.expect("a read");
    for step in 0.. {
        let done = store.retain(folding(9)).await.expect("a step");
        // Between the steps, a reader gets the end of the log without gaps, and other tasks can be written.
        let entries = store.read(&ada(), &task_id("t"), Seq::START, usize::MAX).await.expect("a read");
        let found: Vec<u64> = entries.iter().map(|entry| entry.seq.0).collect();
        assert_eq!(found, (first(&store, "t").await..=head).collect::<Vec<_>>());
        assert_eq!(store.get(&ada(), &task_id("t")).await.expect("a read"), before);
        appended(&store, append("other", step + 1, vec![chunk("y")])).await;
        if !done.more {
            break;
        }
    }
    assert_eq!(first(&store, "t").await, head);
}

pub(super) async fn an_unfinished_task_is_neither_folded_nor_removed(fixture: &dyn Fixture) {
    let store = fixture.open();
    let states = TaskState::ALL.into_iter().filter(|state| !state.is_terminal());
    for (index, state) in states.enumerate() {
        let name = format!("t{index}");
        made(&store, create(&name)).await;
        appended(&store, append(&name, 1, vec![chunk("x"), status(state, 2)])).await;
    }
    let all = Retention { fold_before: Some(Timestamp(i64::MAX)), ..dropping(i64::MAX) };
    let before = store.unfinished().await.expect("a read");
    assert_eq!(retained(&store, all).await, RetentionStep::default());
    assert_eq!(store.unfinished().await.expect("a read"), before);
}

pub(super) async fn removing_a_task_removes_everything_that_belongs_to_it(fixture: &dyn Fixture) {
    let store = fixture.open();
    // In a bound context of its own, with an ask, a large file, a key, and the key of a noted send.
    let lone = Create { session: Some(session_id("ses")), claim: Some(session("ses")), ..create("old") };
    made(&store, lone.clone()).await;
    appended(&store, asking("old", 1, vec![opens(&interrupt("old", "ask"))])).await;
    store.put_file(file("old", "f", &vec![7; 3_000_000])).await.expect("a file");
    store.put_file(file("old", "g", b"small")).await.expect("a file");
    appended(&store, append("old", 2, vec![status(TaskState::Canceled, 10)])).await;
    // In a context with another task, which stays.
    ended(&store, create_in("gone", "d", 1), 10).await;
    ended(&store, create_in("stays", "d", 1), 20).await;
    store.bind(binding("ada", "d", "ses_d")).await.expect("the session is free");

    assert_eq!(retained(&store, dropping(20)).await.dropped, 2);
    let mut store = store;
    for is_restarted in [false, true] {
        if is_restarted {
            store = fixture.reopen(store);
        }
        for (name, expected) in [("old", false), ("gone", false), ("stays", true)] {
            assert_eq!(is_there(&store, name).await, expected, "{name}");
        }
        let listed = store.list(everything()).await.expect("a list");
        assert_eq!((listed.total, listed.tasks.len()), (1, 1));
        assert_eq!(store.interrupt(&ada(), &request_id("ask")).await.expect("a read"), None);
        for name in ["f", "g"] {
            assert_eq!(store.file(&ada(), &file_id(name)).await.expect("a read"), None);
            assert_eq!(store.read_file(&ada(), &file_id(name), 0, 9).await.expect("a read"), None);
        }
        let key = lone.idempotency.clone().expect("it is a send");
        assert_eq!(store.earlier_send(&ada(), &key).await.expect("a read"), None);
        let place =
            async |context| store.context_location(&ada(), &context_id(context)).await.expect("a read");
        assert_eq!(place("c").await, ContextLocation::default());
        assert!(place("d").await.bound.is_some());
        let contexts = async |name| store.contexts_of(&ada(), &session_id(name)).await.expect("a read");
        assert_eq!((contexts("ses").await, contexts("ses_d").await), (vec![], vec![context_id("d")]));
        // The session keeps its owner, so that no other owner can get it.
        assert!(store.session(&ada(), &session_id("ses")).await.expect("a read").is_some());
        let known = store.owner_of(None, &session_id("ses")).await.expect("a read");
        assert_eq!(known.map(|known| known.owner), Some(ada()));
    }
    let bobs = Create { owner: owner("bob"), ..lone.clone() };
    assert_eq!(store.create(bobs).await.expect("an answer"), Created::ForeignSession);
    // The same send creates a new task, even with the same id.
    made(&store, Create { claim: None, ..lone }).await;
    assert_eq!(first(&store, "old").await, 1);
}

pub(super) async fn subagent_tasks_are_removed_with_their_root_when_all_are_old(fixture: &dyn Fixture) {
    let store = fixture.open();
    for (root, below_ended) in [("a", Some(5)), ("b", Some(30)), ("d", None)] {
        made(&store, create(root)).await;
        for number in 0..2 {
            let below = format!("{root}-{number}");
            made(&store, child(&below, root, root)).await;
            let events = match below_ended {
                Some(at) => vec![status(TaskState::Completed, at)],
                None => vec![status(TaskState::Working, 5)],
            };
            appended(&store, append(&below, 1, events)).await;
        }
        appended(&store, append(root, 1, vec![status(TaskState::Completed, 5)])).await;
    }
    assert_eq!(retained(&store, dropping(20)).await.dropped, 3);
    for (root, expected) in [("a", false), ("b", true), ("d", true)] {
        for name in [root.to_owned(), format!("{root}-0"), format!("{root}-1")] {
            assert_eq!(is_there(&store, &name).await, expected, "{name}");
        }
    }
    assert_eq!(retained(&store, dropping(31)).await.dropped, 3);
    assert_eq!((is_there(&store, "b").await, is_there(&store, "d").await), (false, true));
}

pub(super) async fn unreachable_keys_and_asks_are_removed(fixture: &dyn Fixture) {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let store = fixture.open();
    let key = |create: &Create| IdempotencyKey {
        valid_since: Timestamp(i64::MIN),
        ..create.idempotency.clone().expect("it is a send")
    };
    let (old, young) = (create_in("old", "c", 5), create_in("young", "c", 15));
    for create in [&old, &young] {
        made(&store, create.clone()).await;
    }
    let asks = ["old", "young", "open"].map(|request| opens(&interrupt("old", request)));
    appended(&store, asking("old", 1, asks.to_vec())).await;
    for (seq, (request, at)) in (2..).zip([("old", 5), ("young", 15)]) {
        let change = closes(request, closed(Resolution::Replied, at));
        appended(&store, Append { at: Timestamp(at), ..asking("old", seq, vec![change]) }).await;
    }
    let what = Retention { now: Timestamp(10 + DAY), keys_before: Timestamp(10), ..NOTHING };
    retained(&store, what).await;
    let sent = async |create: &Create| store.earlier_send(&ada(), &key(create)).await.expect("a read");
    assert_eq!((sent(&old).await, sent(&young).await), (None, Some(task_id("young"))));
    for (request, expected) in [("old", false), ("young", true), ("open", true)] {
        let found = store.interrupt(&ada(), &request_id(request)).await.expect("a read");
        assert_eq!(found.is_some(), expected, "{request}");
    }
    assert_eq!(first(&store, "old").await, 1);
}
