//! Folding the log gives the task, and the changes give the asks: for any log, in any batches, with any snapshots.

use std::slice;
use std::sync::Arc;

use longshore_engine::Events;
use longshore_engine::port::{
    Append, AskChange, Create, ListQuery, Retention, Store, StoredTask, TurnRecord,
};
use longshore_model::{
    AskKind, Epoch, Interrupt, OutputModes, Principal, Resolution, Seq, Task, TaskEvent, TaskId, TaskState,
    Timestamp,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::make::{append, appended, closed, create, everything, folded, made, prompt_id, status, turn};
use super::{Fixture, retention};
use crate::arbitrary;

/// The time of every write: before any closed ask is old.
const NOW: Timestamp = Timestamp(i64::MIN);

/// The life of a task, to be written to a store.
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
    asks: Vec<AskChange>,
}

/// Any script.
pub fn script() -> impl Strategy<Value = Script> {
    let number = proptest::option::weighted(0.2, any::<u8>());
    let cuts = vec((1..5_usize, any::<bool>(), number, vec(ask_change(), 0..3)), 1..8);
    let ids = (arbitrary::principal(), arbitrary::task_id());
    (ids, arbitrary::submitted(), arbitrary::events_of_a_turn(24), cuts).prop_map(
        |((owner, task), mut first, mut events, cuts)| {
            let TaskEvent::Submitted { context_id, parent, .. } = &mut first else {
                unreachable!("the strategy says so")
            };
            // A task is not its own root.
            parent.take_if(|parent| parent.root == task);
            let mut batches = Vec::new();
            // The sizes repeat until every event is in a batch.
            for (size, with_snapshot, turn_number, mut asks) in cuts.into_iter().cycle() {
                if events.is_empty() {
                    break;
                }
                for change in &mut asks {
                    if let AskChange::Opened(interrupt) = change {
                        (interrupt.owner, interrupt.task) = (owner.clone(), task.clone());
                        interrupt.context = context_id.clone();
                    }
                }
                let rest = events.split_off(size.min(events.len()));
                let turn = turn_number.map(|n| TurnRecord {
                    joined: (0..n % 3).map(|joined| prompt_id(&format!("msg_{n}_{joined}"))).collect(),
                    ..turn(&format!("ses_{n}"), &format!("msg_{n}"))
                });
                batches.push(Batch {
                    events: std::mem::replace(&mut events, rest),
                    with_snapshot,
                    turn,
                    asks,
                });
            }
            Script { owner, task, first, batches }
        },
    )
}

/// A change of any ask.
fn ask_change() -> impl Strategy<Value = AskChange> {
    prop_oneof![
        arbitrary::interrupt().prop_map(|interrupt| AskChange::Opened(Box::new(interrupt))),
        (arbitrary::request_id(), arbitrary::closed())
            .prop_map(|(request_id, closed)| AskChange::Closed { request_id, closed }),
    ]
}

/// Writes the script, and compares every read of the task with a plain fold: after each batch, and again after a restart.
pub async fn replay(fixture: &dyn Fixture, script: Script) {
    let store = fixture.open();
    let Script { owner, task, first, batches } = script;
    let TaskEvent::Submitted { context_id, parent, options, .. } = &first else {
        panic!("a script begins with a submission")
    };
    let wanted =
        Create { owner: owner.clone(), task: task.clone(), context: context_id.clone(), ..create("any") };
    let root = parent.as_ref().map(|parent| parent.root.clone());
    if let Some(root) = &root {
        make_root(&store, Create { task: root.clone(), idempotency: None, ..wanted.clone() }).await;
    }
    made(&store, Create { first: first.clone(), ..wanted }).await;

    let (output, epoch) = (options.output.clone(), store.epoch());
    let mut expected = Expected {
        owner,
        task,
        root,
        output,
        epoch,
        events: vec![first],
        turn: None,
        asks: Vec::new(),
        is_folded: false,
    };
    expected.check(&store).await;
    for batch in batches {
        let head = expected.head();
        expected.events.extend(batch.events.iter().cloned());
        expected.turn = batch.turn.clone().or(expected.turn);
        expected.change_asks(&batch.asks);
        let append = Append {
            owner: expected.owner.clone(),
            task: expected.task.clone(),
            expected: head,
            at: NOW,
            events: Events::number(head.next(), epoch, batch.events),
            snapshot: batch.with_snapshot.then(|| Arc::new(expected.folded())),
            turn: batch.turn,
            asks: batch.asks,
            joined: None,
            forgotten: None,
        };
        appended(&store, append).await;
        expected.check(&store).await;
    }
    let store = fixture.reopen(store);
    expected.check(&store).await;

    // Folding the log of a finished task changes only the log.
    let everything =
        Retention { now: NOW, fold_before: Some(Timestamp(i64::MAX)), drop_before: None, keys_before: NOW };
    retention::retained(&store, everything).await;
    expected.is_folded = true;
    expected.check(&store).await;
}

/// Creates a finished task as the root of another.
async fn make_root(store: &Arc<dyn Store>, create: Create) {
    let (owner, task, context_id) = (create.owner.clone(), create.task.clone(), create.context.clone());
    let message = match create.first {
        TaskEvent::Submitted { message, .. } => message,
        other => panic!("a log cannot begin with {other:?}"),
    };
    let first = TaskEvent::submitted(context_id, message, Timestamp(1));
    made(store, Create { first, ..create }).await;
    appended(store, Append { owner, task, ..append("any", 1, vec![status(TaskState::Completed, 2)]) }).await;
}

struct Expected {
    owner: Principal,
    task: TaskId,
    /// The root of its tree.
    root: Option<TaskId>,
    output: OutputModes,
    epoch: Epoch,
    events: Vec<TaskEvent>,
    turn: Option<TurnRecord>,
    /// All asks, in the order in which they were opened.
    asks: Vec<Interrupt>,
    is_folded: bool,
}

impl Expected {
    fn head(&self) -> Seq {
        Seq::START.plus(self.events.len())
    }

    fn folded(&self) -> Task {
        folded(&self.task, &self.events)
    }

    fn change_asks(&mut self, changes: &[AskChange]) {
        for change in changes {
            match change {
                AskChange::Opened(interrupt) => {
                    self.asks.retain(|known| known.ask.request_id != interrupt.ask.request_id);
                    self.asks.push((**interrupt).clone());
                }
                AskChange::Closed { request_id, closed } => {
                    let open = self.asks.iter_mut().filter(|known| known.is_open());
                    for known in open.filter(|known| known.ask.request_id == *request_id) {
                        known.closed = Some(closed.clone());
                    }
                }
            }
        }
        if self.events.last().is_some_and(TaskEvent::is_terminal) {
            for open in self.asks.iter_mut().filter(|known| known.is_open()) {
                open.closed = Some(closed(Resolution::Dropped, NOW.0));
            }
        }
    }

    fn open_asks(&self) -> Vec<Interrupt> {
        let mut open: Vec<_> = self.asks.iter().filter(|known| known.is_open()).cloned().collect();
        open.sort_by_key(|interrupt| interrupt.asked_at);
        open
    }

    async fn check(&self, store: &Arc<dyn Store>) {
        self.check_task(store).await;
        self.check_asks(store).await;
    }

    async fn check_asks(&self, store: &Arc<dyn Store>) {
        for known in &self.asks {
            let found = store.interrupt(&self.owner, &known.ask.request_id).await.expect("a read");
            assert_eq!(found.as_ref(), Some(known));
        }
        for kind in [AskKind::Permission, AskKind::Question] {
            let mut open = self.open_asks();
            open.retain(|interrupt| interrupt.ask.kind == kind);
            open.sort_by_key(|interrupt| {
                let deadline = interrupt.expires_at.map_or(i64::MAX, |at| at.0);
                (deadline, interrupt.ask.request_id.clone())
            });
            assert_eq!(store.open_interrupts(&self.owner, kind).await.expect("a read"), open);
        }
    }

    async fn check_task(&self, store: &Arc<dyn Store>) {
        let entries = store.read(&self.owner, &self.task, Seq::START, usize::MAX).await.expect("a read");
        assert!(entries.iter().all(|entry| entry.epoch == self.epoch));
        let (numbers, events): (Vec<_>, Vec<_>) =
            entries.into_iter().map(|entry| (entry.seq.0, entry.event)).unzip();
        let task = self.folded();
        let is_whole = !(self.is_folded && task.status.state.is_terminal());
        let first = if is_whole { 1 } else { self.head().0 };
        assert_eq!(numbers, (first..=self.head().0).collect::<Vec<_>>());
        assert_eq!(events, self.events[self.events.len() - numbers.len()..]);

        let stored = StoredTask {
            owner: self.owner.clone(),
            task: task.clone(),
            seq: self.head(),
            epoch: self.epoch,
            turn: self.turn.clone(),
            open_asks: self.open_asks(),
        };
        assert_eq!(store.get(&self.owner, &self.task).await.expect("a read").as_ref(), Some(&stored));
        let head = store.head(&self.owner, &self.task).await.expect("a read").expect("the task is there");
        assert_eq!((head.seq, head.state, &head.output), (stored.seq, task.status.state, &self.output));
        assert_eq!(head.first, Seq(first));
        if let Some(root) = &self.root {
            assert_eq!(store.children(root).await.expect("a read"), slice::from_ref(&stored));
        }
        let unfinished = store.unfinished().await.expect("a read");
        assert_eq!(unfinished, if task.status.state.is_terminal() { vec![] } else { vec![stored] });

        for state in [None, Some(task.status.state)] {
            let query = ListQuery { owner: self.owner.clone(), state, ..everything() };
            let lean = ListQuery { with_artifacts: false, ..query.clone() };
            assert_eq!(self.listed(store, lean).await, [Task { artifacts: Vec::new(), ..task.clone() }]);
            assert_eq!(self.listed(store, query.clone()).await, slice::from_ref(&task));
            let roots = self.listed(store, ListQuery { roots_only: true, ..query }).await;
            assert_eq!(roots.len(), usize::from(self.root.is_none()));
        }
        let other = TaskState::ALL.into_iter().find(|state| *state != task.status.state);
        let query = ListQuery { owner: self.owner.clone(), state: other, ..everything() };
        assert_eq!(self.listed(store, query).await, []);
    }

    /// A list without the root.
    async fn listed(&self, store: &Arc<dyn Store>, query: ListQuery) -> Vec<Task> {
        let mut page = store.list(query).await.expect("a list");
        assert_eq!(page.total, page.tasks.len() as u64);
        page.tasks.retain(|task| Some(&task.id) != self.root.as_ref());
        page.tasks
    }
}
