//! Folding the log gives the task: for any log, in any batches, with any snapshots.

use std::slice;
use std::sync::Arc;

use longshore_engine::port::{Append, Create, IdempotencyKey, ListQuery, Store, StoredTask, TurnRecord};
use longshore_model::{Principal, Seq, Task, TaskEvent, TaskId, TaskState, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

use super::Fixture;
use super::make::{appended, everything, folded, made, turn};
use crate::arbitrary;

/// A task's life as it is written.
#[derive(Clone, Debug)]
pub struct Script {
    owner: Principal,
    task: TaskId,
    first: TaskEvent,
    batches: Vec<Batch>,
}

#[derive(Clone, Debug)]
struct Batch {
    events: Vec<TaskEvent>,
    with_snapshot: bool,
    turn: Option<TurnRecord>,
}

/// Any script.
pub fn script() -> impl Strategy<Value = Script> {
    let cuts = vec((1..5_usize, any::<bool>(), proptest::option::weighted(0.2, any::<u8>())), 1..8);
    let ids = (arbitrary::principal(), arbitrary::task_id());
    (ids, arbitrary::submitted(), arbitrary::events_of_a_turn(24), cuts).prop_map(
        |((owner, task), first, mut events, cuts)| {
            let mut batches = Vec::new();
            // Round and round until all events stand in some batch.
            for (size, with_snapshot, turn_number) in cuts.into_iter().cycle() {
                if events.is_empty() {
                    break;
                }
                let rest = events.split_off(size.min(events.len()));
                let turn = turn_number.map(|n| turn(&format!("ses_{n}"), &format!("msg_{n}")));
                batches.push(Batch { events: std::mem::replace(&mut events, rest), with_snapshot, turn });
            }
            Script { owner, task, first, batches }
        },
    )
}

/// Writes the script, and compares all that can be asked of the task with a plain fold: after each batch, and
/// once more after a restart.
pub async fn replay(fixture: &dyn Fixture, script: Script) {
    let store = fixture.open();
    let Script { owner, task, first, batches } = script;
    let TaskEvent::Submitted { context_id, .. } = &first else { panic!("a script begins with a submission") };
    let create = Create {
        owner: owner.clone(),
        task: task.clone(),
        context: context_id.clone(),
        first: first.clone(),
        at: Timestamp(1),
        idempotency: IdempotencyKey { digest: [0; 32], valid_since: Timestamp(0) },
        session: None,
    };
    made(&store, create).await;

    let mut expected = Expected { owner, task, events: vec![first], turn: None };
    expected.check(&store).await;
    for batch in batches {
        let head = expected.head();
        expected.events.extend(batch.events.iter().cloned());
        expected.turn = batch.turn.clone().or(expected.turn);
        let append = Append {
            task: expected.task.clone(),
            expected: head,
            at: Timestamp(1),
            events: batch.events,
            snapshot: batch.with_snapshot.then(|| Arc::new(expected.folded())),
            turn: batch.turn,
        };
        appended(&store, append).await;
        expected.check(&store).await;
    }
    let store = fixture.reopen(store);
    expected.check(&store).await;
}

struct Expected {
    owner: Principal,
    task: TaskId,
    events: Vec<TaskEvent>,
    turn: Option<TurnRecord>,
}

impl Expected {
    fn head(&self) -> Seq {
        Seq::START.plus(self.events.len())
    }

    fn folded(&self) -> Task {
        folded(&self.task, &self.events)
    }

    async fn check(&self, store: &Arc<dyn Store>) {
        let entries = store.read(&self.task, Seq::START, usize::MAX).await.expect("a read");
        let (numbers, events): (Vec<_>, Vec<_>) =
            entries.into_iter().map(|entry| (entry.seq.0, entry.event)).unzip();
        assert_eq!(numbers, (1..=self.head().0).collect::<Vec<_>>());
        assert_eq!(events, self.events);

        let task = self.folded();
        let stored = StoredTask {
            owner: self.owner.clone(),
            task: task.clone(),
            seq: self.head(),
            turn: self.turn.clone(),
        };
        assert_eq!(store.get(&self.owner, &self.task).await.expect("a read").as_ref(), Some(&stored));
        let head = store.head(&self.owner, &self.task).await.expect("a read").expect("the task is there");
        assert_eq!((head.seq, head.state), (stored.seq, task.status.state));
        let unfinished = store.unfinished().await.expect("a read");
        assert_eq!(unfinished, if task.status.state.is_terminal() { vec![] } else { vec![stored] });

        for state in [None, Some(task.status.state)] {
            let query = ListQuery { owner: self.owner.clone(), state, ..everything() };
            let page =
                store.list(ListQuery { with_artifacts: false, ..query.clone() }).await.expect("a list");
            assert_eq!(page.tasks, [Task { artifacts: Vec::new(), ..task.clone() }]);
            assert_eq!(store.list(query).await.expect("a list").tasks, slice::from_ref(&task));
        }
        let other = TaskState::ALL.into_iter().find(|state| *state != task.status.state);
        let query = ListQuery { owner: self.owner.clone(), state: other, ..everything() };
        assert_eq!(store.list(query).await.expect("a list").total, 0);
    }
}
