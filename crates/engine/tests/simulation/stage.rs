//! What all players of one simulation share: chance, the time, the trace, and what was found to be wrong.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use longshore_engine::port::Clock;
use longshore_engine::simulation::{Flaw, Simulation};
use longshore_model::{Error, ErrorKind, Result, Timestamp};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::chance::Chance;

/// How much of the trace is kept for the report of a seed that failed.
const KEPT_LINES: usize = 250;

/// More steps than any seed needs: whoever takes more runs in a circle.
const MAX_STEPS: u64 = 2_000_000;

/// When the simulated day begins.
const FIRST_MOMENT: i64 = 1_800_000_000_000;

#[derive(Debug)]
pub(crate) struct Stage {
    seed: u64,
    flaw: Option<Flaw>,
    started: Instant,
    kept: Mutex<Kept>,
    /// Something was found: there is no need to go on.
    pub(crate) has_failed: CancellationToken,
}

#[derive(Debug)]
struct Kept {
    chance: Chance,
    temper: Temper,
    is_calm: bool,
    is_store_away: bool,
    trace: VecDeque<String>,
    /// Of the whole trace: two runs of a seed must agree in it.
    digest: u64,
    findings: Vec<String>,
    ids: u64,
    ticks: u64,
    turns: Turns,
}

/// Whose turn it is. One task takes a step at a time.
#[derive(Debug, Default)]
struct Turns {
    tasks: u64,
    steps: u64,
    ready: BTreeMap<u64, Waker>,
    chosen: Option<u64>,
    conductor: Option<Waker>,
    /// Those that the last step woke have not come forward yet.
    is_settling: bool,
}

/// What kind of day it is. Each means "once in so many times"; 0 is never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Temper {
    order: Order,
    pub(crate) store_is_slow: u64,
    pub(crate) store_fails: u64,
    pub(crate) answer_is_lost: u64,
    pub(crate) connection_breaks: u64,
    pub(crate) agent_fails: u64,
    pub(crate) stream_breaks: u64,
}

/// Who goes first of those that could, most of the time.
#[derive(Clone, Copy, Debug)]
enum Order {
    Any,
    OldestFirst,
    NewestFirst,
}

impl Temper {
    fn of(chance: &mut Chance) -> Self {
        Self {
            order: *chance.pick(&[Order::Any, Order::Any, Order::OldestFirst, Order::NewestFirst]),
            store_is_slow: *chance.pick(&[0, 3, 10]),
            store_fails: *chance.pick(&[0, 0, 12, 50]),
            answer_is_lost: *chance.pick(&[0, 0, 12, 50]),
            connection_breaks: *chance.pick(&[0, 4, 15]),
            agent_fails: *chance.pick(&[0, 0, 10, 40]),
            stream_breaks: *chance.pick(&[0, 8, 30]),
        }
    }
}

impl Stage {
    pub(crate) fn new(seed: u64, flaw: Option<Flaw>) -> Arc<Self> {
        let mut chance = Chance::of(seed);
        let temper = Temper::of(&mut chance);
        let kept = Kept {
            chance,
            temper,
            is_calm: false,
            is_store_away: false,
            trace: VecDeque::new(),
            digest: 0xcbf2_9ce4_8422_2325,
            findings: Vec::new(),
            ids: 0,
            ticks: 0,
            turns: Turns::default(),
        };
        Arc::new(Self {
            seed,
            flaw,
            started: Instant::now(),
            kept: Mutex::new(kept),
            has_failed: CancellationToken::new(),
        })
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn flaw(&self) -> Option<Flaw> {
        self.flaw
    }

    /// Asks chance.
    pub(crate) fn draw<T>(&self, ask: impl FnOnce(&mut Chance) -> T) -> T {
        ask(&mut self.lock().chance)
    }

    /// Whether one of the faults of the day happens now. None does once it is calm.
    pub(crate) fn strikes(&self, fault: impl FnOnce(&Temper) -> u64) -> bool {
        let mut kept = self.lock();
        let times = fault(&kept.temper);
        !kept.is_calm && kept.chance.one_in(times)
    }

    pub(crate) fn is_store_away(&self) -> bool {
        self.lock().is_store_away
    }

    pub(crate) fn let_store_be_away(&self, is_away: bool) {
        self.note(format_args!("store: {}", if is_away { "away" } else { "back" }));
        self.lock().is_store_away = is_away;
    }

    /// From now on nothing breaks any more.
    pub(crate) fn calm_down(&self) {
        self.lock().is_calm = true;
    }

    /// A number that is greater each time: the order in which things happened.
    pub(crate) fn tick(&self) -> u64 {
        let mut kept = self.lock();
        kept.ticks += 1;
        kept.ticks
    }

    /// Lets some time pass, or only lets others go first, or neither.
    pub(crate) async fn pause(&self) {
        match self.draw(|chance| chance.below(8)) {
            0 => {
                let time = self.draw(|chance| chance.millis(1, 20));
                tokio::time::sleep(time).await;
            }
            1 | 2 => tokio::task::yield_now().await,
            _ => {}
        }
    }

    pub(crate) async fn wait(&self, low: u64, high: u64) {
        let time = self.draw(|chance| chance.millis(low, high));
        tokio::time::sleep(time).await;
    }

    /// Ends when a connection breaks that is made now, which most do not.
    pub(crate) async fn connection_breaks(&self) {
        if !self.strikes(|temper| temper.connection_breaks) {
            return std::future::pending().await;
        }
        if self.draw(|chance| chance.one_in(2)) {
            for _ in 0..self.draw(|chance| chance.below(6)) {
                tokio::task::yield_now().await;
            }
        } else {
            self.wait(0, 300).await;
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time of day after so long.
    pub(crate) fn time_of_day(passed: Duration) -> Timestamp {
        let passed = i64::try_from(passed.as_millis()).expect("a simulated day is short");
        Timestamp(FIRST_MOMENT + passed)
    }

    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let line = format!("{:>8} ms  {line}", self.now().as_millis());
        let mut kept = self.lock();
        for byte in line.bytes() {
            kept.digest = (kept.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if kept.trace.len() >= KEPT_LINES {
            kept.trace.pop_front();
        }
        kept.trace.push_back(line);
    }

    /// Something is wrong.
    pub(crate) fn find(&self, what: fmt::Arguments<'_>) {
        self.note(format_args!("!!! {what}"));
        self.lock().findings.push(what.to_string());
        self.has_failed.cancel();
    }

    pub(crate) fn findings(&self) -> Vec<String> {
        self.lock().findings.clone()
    }

    /// What was found, and how it came to that. `None`: nothing.
    pub(crate) fn report(&self) -> Option<String> {
        let kept = self.lock();
        if kept.findings.is_empty() {
            return None;
        }
        let lines: Vec<&str> = kept.trace.iter().map(String::as_str).collect();
        Some(format!(
            "The last steps of seed {seed}:\n{lines}\n\nSeed {seed} found:\n- {findings}\n\n\
             Play it again: make seed SEED={seed}\n",
            seed = self.seed,
            lines = lines.join("\n"),
            findings = kept.findings.join("\n- "),
        ))
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        self.lock().trace.iter().cloned().collect()
    }

    pub(crate) fn digest(&self) -> u64 {
        self.lock().digest
    }
}

/// The answer of something that is away.
pub(crate) fn away<T>(kind: ErrorKind, text: &str) -> Result<T> {
    Err(Error::new(kind, text))
}

/// The time of day, which moves with the runtime's clock.
#[derive(Debug)]
pub(crate) struct DayClock(pub(crate) Arc<Stage>);

impl Clock for DayClock {
    fn now(&self) -> Timestamp {
        Stage::time_of_day(self.0.now())
    }
}

/// The tasks of one player, or of one life of the engine: they can be killed together.
#[derive(Debug)]
pub(crate) struct Cast {
    stage: Arc<Stage>,
    running: Mutex<Vec<AbortHandle>>,
}

impl Cast {
    pub(crate) fn new(stage: &Arc<Stage>) -> Arc<Self> {
        Arc::new(Self { stage: Arc::clone(stage), running: Mutex::default() })
    }

    /// None of them takes another step.
    pub(crate) fn kill(&self) {
        for task in self.running.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

impl Simulation for Cast {
    fn new_task(&self) -> u64 {
        let turns = &mut self.stage.lock().turns;
        turns.tasks += 1;
        turns.tasks
    }

    fn may_run(&self, task: u64, waker: &Waker) -> bool {
        let mut kept = self.stage.lock();
        let turns = &mut kept.turns;
        if turns.chosen == Some(task) {
            turns.chosen = None;
            turns.steps += 1;
            if turns.steps == MAX_STEPS {
                drop(kept);
                self.stage.find(format_args!("this does not come to rest"));
            }
            return true;
        }
        turns.ready.insert(task, waker.clone());
        if let Some(conductor) = &turns.conductor {
            conductor.wake_by_ref();
        }
        false
    }

    fn has_ended(&self, task: u64) {
        let turns = &mut self.stage.lock().turns;
        turns.ready.remove(&task);
        turns.chosen.take_if(|chosen| *chosen == task);
    }

    fn has_panicked(&self, name: &'static str) {
        self.stage.find(format_args!("the task {name:?} panicked"));
    }

    fn spawned(&self, task: AbortHandle) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|other| !other.is_finished());
        running.push(task);
    }

    fn new_id(&self) -> String {
        let mut kept = self.stage.lock();
        kept.ids += 1;
        format!("id-{:04}", kept.ids)
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.stage.flaw == Some(flaw)
    }
}

/// Lets one of the tasks that could take a step do so, again and again. It is itself the last in the runtime's queue, so
/// that all who could come forward have done so: then the choice does not depend on the order in which they were woken,
/// some of which the runtime leaves to chance.
pub(crate) async fn conduct(stage: Arc<Stage>) {
    poll_fn(|context| {
        let kept = &mut *stage.lock();
        kept.turns.conductor = Some(context.waker().clone());
        if std::mem::take(&mut kept.turns.is_settling) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(chosen) = kept.choose()
            && let Some(waker) = kept.turns.ready.remove(&chosen)
        {
            kept.turns.chosen = Some(chosen);
            kept.turns.is_settling = true;
            waker.wake();
            context.waker().wake_by_ref();
        }
        Poll::<()>::Pending
    })
    .await;
}

impl Kept {
    fn choose(&mut self) -> Option<u64> {
        let ready = &self.turns.ready;
        if ready.is_empty() {
            return None;
        }
        let order = if self.chance.one_in(4) { Order::Any } else { self.temper.order };
        match order {
            Order::OldestFirst => ready.first_key_value().map(|(task, _)| *task),
            Order::NewestFirst => ready.last_key_value().map(|(task, _)| *task),
            Order::Any => {
                let place = usize::try_from(self.chance.below(ready.len() as u64)).ok()?;
                ready.keys().nth(place).copied()
            }
        }
    }
}
