//! The log: numbered, guarded, read by cursor.

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{Append, Appended};
use longshore_model::{ErrorKind, Seq, TaskState};

use super::Fixture;
use super::make::{ada, append, appended, chunk, create, log, made, status, submitted, task_id};

pub(super) async fn events_are_numbered_without_gaps(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let mut expected = vec![submitted("c", 1)];
    for size in [1, 3, 2] {
        let batch: Vec<_> = (0..size).map(|n| chunk(&format!("{size}.{n} "))).collect();
        appended(&store, append("t", expected.len() as u64, batch.clone())).await;
        expected.extend(batch);
    }
    assert_eq!(log(&store, "t").await, expected);
}

pub(super) async fn a_wrong_expected_number_writes_nothing(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    appended(&store, append("t", 1, vec![chunk("x")])).await;
    for wrong in [0, 1, 3, u64::MAX] {
        let batch = append("t", wrong, vec![status(TaskState::Completed, 9)]);
        let outcome = store.append(batch).await.expect("a conflict is no error");
        assert_eq!(outcome, Appended::Conflict { head: Seq(2) }, "{wrong}");
    }
    assert_eq!(log(&store, "t").await, [submitted("c", 1), chunk("x")]);
    let head = store.head(&ada(), &task_id("t")).await.expect("a read").expect("the task is there");
    assert_eq!((head.seq, head.state), (Seq(2), TaskState::Submitted));
}

pub(super) async fn one_of_concurrent_writers_wins(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let tasks = Tasks::new();
    let writers: Vec<_> = (0..32)
        .map(|n| {
            let (store, event) = (store.clone(), chunk(&format!("writer {n}")));
            tasks.spawn("writer", async move {
                (store.append(append("t", 1, vec![event.clone()])).await.expect("an answer"), event)
            })
        })
        .collect();
    let mut winners = Vec::new();
    for writer in writers {
        match writer.await.expect("no writer panics") {
            (Appended::Head(head), event) => winners.push((head, event)),
            (outcome, _) => assert_eq!(outcome, Appended::Conflict { head: Seq(2) }),
        }
    }
    let [(head, event)] = winners.as_slice() else { panic!("{} writers won", winners.len()) };
    assert_eq!(*head, Seq(2));
    assert_eq!(log(&store, "t").await, [submitted("c", 1), event.clone()]);
}

pub(super) async fn nothing_follows_a_terminal_event(fixture: &dyn Fixture) {
    let store = fixture.open();
    for state in TaskState::ALL.into_iter().filter(|state| state.is_terminal()) {
        let name = state.as_str();
        made(&store, create(name)).await;
        appended(&store, append(name, 1, vec![chunk("x"), status(state, 2)])).await;
        // Whatever head its writer expects.
        for expected in [0, 2, 3, 4] {
            let late = append(name, expected, vec![status(TaskState::Working, 3)]);
            assert_eq!(store.append(late).await.expect("an answer"), Appended::Terminal, "{name} {expected}");
        }
        assert_eq!(log(&store, name).await.len(), 3, "{name}");
    }
}

pub(super) async fn an_invalid_batch_is_refused(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    made(&store, create("u")).await;
    let other = store.get(&ada(), &task_id("u")).await.expect("a read").expect("the task is there").task;
    let wrong = [
        ("empty", append("t", 1, Vec::new())),
        ("after the end", append("t", 1, vec![status(TaskState::Failed, 2), chunk("more")])),
        ("two ends", append("t", 1, vec![status(TaskState::Failed, 2), status(TaskState::Failed, 2)])),
        ("submitted again", append("t", 1, vec![chunk("x"), submitted("c", 2)])),
        (
            "a foreign snapshot",
            Append { snapshot: Some(Arc::new(other)), ..append("t", 1, vec![chunk("x")]) },
        ),
    ];
    for (name, batch) in wrong {
        let refused = store.append(batch).await.err().unwrap_or_else(|| panic!("{name} was accepted"));
        assert_eq!(refused.kind(), ErrorKind::Internal, "{name}");
    }
    assert_eq!(log(&store, "t").await, [submitted("c", 1)]);
}

pub(super) async fn an_unknown_task_is_not_found(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let append = store.append(append("none", 0, vec![chunk("x")])).await;
    assert_eq!(append.expect_err("no such task").kind(), ErrorKind::TaskNotFound);
    let read = store.read(&ada(), &task_id("none"), Seq::START, 10).await;
    assert_eq!(read.expect_err("no such task").kind(), ErrorKind::TaskNotFound);
}

pub(super) async fn many_tasks_are_written_at_once(fixture: &dyn Fixture) {
    const BATCHES: u64 = 20;
    let store = fixture.open();
    let tasks = Tasks::new();
    let event = |task: usize, n: u64| chunk(&format!("{task}:{n} "));
    let writers: Vec<_> = (0..16)
        .map(|task| {
            let store = store.clone();
            tasks.spawn("writer", async move {
                let name = format!("task-{task}");
                made(&store, create(&name)).await;
                for n in 0..BATCHES {
                    appended(
                        &store,
                        append(&name, 1 + 2 * n, vec![event(task, 2 * n), event(task, 2 * n + 1)]),
                    )
                    .await;
                }
            })
        })
        .collect();
    for (task, writer) in writers.into_iter().enumerate() {
        writer.await.expect("every append succeeds");
        let mut expected = vec![submitted("c", 1)];
        expected.extend((0..2 * BATCHES).map(|n| event(task, n)));
        assert_eq!(log(&store, &format!("task-{task}")).await, expected);
    }
}

pub(super) async fn a_reader_gets_the_events_after_its_cursor(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    // A neighbour, whose events would show a wrong range.
    made(&store, create("u")).await;
    appended(&store, append("u", 1, vec![chunk("not yours")])).await;
    appended(&store, append("t", 1, (2..=6).map(|n| chunk(&n.to_string())).collect())).await;
    let cases: [(u64, usize, &[u64]); 9] = [
        (0, 100, &[1, 2, 3, 4, 5, 6]),
        (0, 1, &[1]),
        (2, 3, &[3, 4, 5]),
        (4, 2, &[5, 6]),
        (5, 100, &[6]),
        (6, 100, &[]),
        (7, 100, &[]),
        (u64::MAX, usize::MAX, &[]),
        (0, 0, &[]),
    ];
    for (after, limit, expected) in cases {
        let entries = store.read(&ada(), &task_id("t"), Seq(after), limit).await.expect("a read");
        let numbers: Vec<_> = entries.iter().map(|entry| entry.seq.0).collect();
        assert_eq!(numbers, expected, "after {after}, at most {limit}");
        for entry in entries.iter().filter(|entry| entry.seq.0 > 1) {
            assert_eq!(entry.event, chunk(&entry.seq.to_string()));
        }
    }
}
