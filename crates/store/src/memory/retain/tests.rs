use futures_util::FutureExt as _;
use longshore_engine::port::{Create, Created, Store as _};
use longshore_model::{Resolution, TaskState};
use longshore_testkit::store_suite::make::{
    append, asking, child, closed, closes, create, create_in, interrupt, opens, status, task_id,
};

use super::super::MemoryStore;
use super::*;

/// A retention that considers nothing old.
const NOTHING: Retention = Retention {
    now: Timestamp(i64::MIN),
    fold_before: None,
    drop_before: None,
    keys_before: Timestamp(i64::MIN),
};

/// Runs one step. The future of a memory store is ready at once.
fn step(store: &MemoryStore, retention: Retention) -> RetentionStep {
    store.retain(retention).now_or_never().unwrap().unwrap()
}

fn make(store: &MemoryStore, create: Create) {
    assert_eq!(store.create(create).now_or_never().unwrap().unwrap(), Created::New);
}

fn end(store: &MemoryStore, name: &str, at: i64) {
    let end = append(name, 1, vec![status(TaskState::Completed, at)]);
    store.append(end).now_or_never().unwrap().unwrap();
}

#[test]
fn a_step_stays_within_its_limit() {
    let many = STEP as usize * 2 + 1;
    let store = MemoryStore::default();
    make(&store, create("asks"));
    for number in 0..many {
        let name = format!("t{number}");
        make(&store, create(&name));
        end(&store, &name, 2);
        let ask = vec![opens(&interrupt("asks", &name)), closes(&name, closed(Resolution::Replied, 1))];
        store.append(asking("asks", number as u64 + 1, ask)).now_or_never().unwrap().unwrap();
    }
    let keys = || store.state().keys.values().map(crate::memory::keys::Keys::len).sum::<usize>();
    let asks = || store.state().asks.len();
    let tasks = || store.state().tasks.len();
    let folded = || store.state().tasks.values().filter(|row| row.first.0 > 1).count();
    // The kind of work, how many items there are before, and how many after each step.
    let later = Timestamp(i64::MAX);
    let cases: [(_, &dyn Fn() -> usize, _); 4] = [
        (Retention { keys_before: later, ..NOTHING }, &keys, [130, 66, 2, 0]),
        (Retention { now: later, ..NOTHING }, &asks, [129, 65, 1, 0]),
        (Retention { fold_before: Some(later), ..NOTHING }, &folded, [0, 64, 128, 129]),
        (Retention { drop_before: Some(later), ..NOTHING }, &tasks, [130, 66, 2, 1]),
    ];
    for (retention, count, expected) in cases {
        assert_eq!(count(), expected[0]);
        for left in &expected[1..] {
            assert!(step(&store, retention).more);
            assert_eq!(count(), *left, "{retention:?}");
        }
        assert_eq!(step(&store, retention), RetentionStep::default(), "{retention:?}");
    }
}

/// Checks that [`EndedTasks`] has exactly the tasks that a scan of all tasks finds.
fn check(store: &MemoryStore) {
    let state = store.state();
    let ended = || state.tasks.values().filter(|row| row.state().is_terminal());
    let unfolded =
        ended().filter(|row| row.log.len() > 1).map(|row| (row.task.status.at, row.task.id.clone()));
    assert_eq!(state.ended.unfolded, unfolded.collect());
    let trees = ended().filter(|row| row.task.parent.is_none()).filter_map(|root| {
        let id = &root.task.id;
        let tree = state.tasks.values().filter(|row| {
            row.task.id == *id || row.task.parent.as_ref().is_some_and(|parent| parent.root == *id)
        });
        let ends = tree.map(|row| row.state().is_terminal().then_some(row.task.status.at));
        Some((ends.collect::<Option<Vec<_>>>()?.into_iter().max()?, id.clone()))
    });
    assert_eq!(state.ended.trees, trees.collect());
    assert!(state.created.values().eq({
        let mut rows: Vec<_> = state.tasks.values().collect();
        rows.sort_by_key(|row| row.number);
        rows.into_iter().map(|row| &row.task.id).collect::<Vec<_>>()
    }));
    assert_eq!(state.contexts.values().map(|context| context.tasks).sum::<usize>(), state.tasks.len());
}

#[test]
fn the_index_of_ended_tasks_matches_a_full_scan() {
    let store = MemoryStore::default();
    let changes: [&dyn Fn(); 12] = [
        &|| make(&store, create("a")),
        &|| make(&store, create_in("b", "d", 1)),
        &|| make(&store, child("a-1", "a", "a")),
        &|| end(&store, "b", 5),
        &|| end(&store, "a", 6),
        // The tree of `a` grows after its root has ended.
        &|| make(&store, child("a-2", "a", "a")),
        &|| end(&store, "a-1", 9),
        &|| end(&store, "a-2", 7),
        &|| make(&store, child("a-3", "a", "a")),
        &|| {
            let fold = Retention { fold_before: Some(Timestamp(7)), ..NOTHING };
            assert_eq!(step(&store, fold), RetentionStep { folded: 2, more: true, dropped: 0 });
        },
        &|| {
            let drop = Retention { drop_before: Some(Timestamp(99)), ..NOTHING };
            assert_eq!(step(&store, drop), RetentionStep { dropped: 1, more: true, folded: 0 });
        },
        &|| end(&store, "a-3", 8),
    ];
    for (index, change) in changes.iter().enumerate() {
        change();
        check(&store);
        // As long as a descendant is unfinished, the root is not removed.
        assert!(store.state().tasks.contains_key(&task_id("a")), "after {index}");
    }
    let all = Retention { drop_before: Some(Timestamp(9)), ..NOTHING };
    assert_eq!(step(&store, all), RetentionStep::default(), "the last end counts");
    let all = Retention { drop_before: Some(Timestamp(10)), ..NOTHING };
    assert_eq!(step(&store, all), RetentionStep { dropped: 4, more: true, folded: 0 });
    check(&store);
    let state = store.state();
    assert!(state.tasks.is_empty() && state.descendants.is_empty() && state.ended.unfolded.is_empty());
}
