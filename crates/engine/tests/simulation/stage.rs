//! The state that all participants of one simulation share: randomness, time, trace and findings.

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

/// The number of trace lines in the report of a failed seed.
const KEPT_LINES: usize = 250;

/// More steps than any seed needs: more means an endless loop.
const MAX_STEPS: u64 = 2_000_000;

/// The start of the simulated time.
const FIRST_MOMENT: i64 = 1_800_000_000_000;

#[derive(Debug)]
pub(crate) struct Stage {
    seed: u64,
    flaw: Option<Flaw>,
    started: Instant,
    shared: Mutex<Shared>,
    /// Something was found: the simulation can end.
    pub(crate) has_failed: CancellationToken,
}

#[derive(Debug)]
struct Shared {
    chance: Chance,
    fault_rates: FaultRates,
    is_calm: bool,
    is_store_away: bool,
    trace: VecDeque<String>,
    /// A hash of the whole trace: two runs of a seed must have the same.
    digest: u64,
    findings: Vec<String>,
    ids: u64,
    ticks: u64,
    turns: Turns,
}

/// Which task may run. One task takes a step at a time.
#[derive(Debug, Default)]
struct Turns {
    tasks: u64,
    steps: u64,
    ready: BTreeMap<u64, Waker>,
    chosen: Option<u64>,
    conductor: Option<Waker>,
    /// The tasks that the last step woke have not come forward yet.
    is_settling: bool,
}

/// How often each fault happens: once in so many times; 0 is never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultRates {
    order: WakeOrder,
    pub(crate) store_is_slow: u64,
    pub(crate) store_fails: u64,
    pub(crate) answer_is_lost: u64,
    pub(crate) connection_breaks: u64,
    pub(crate) agent_fails: u64,
    pub(crate) stream_breaks: u64,
}

/// Which of the runnable tasks goes first, most of the time.
#[derive(Clone, Copy, Debug)]
enum WakeOrder {
    Any,
    OldestFirst,
    NewestFirst,
}

impl FaultRates {
    fn of(chance: &mut Chance) -> Self {
        Self {
            order: *chance.pick(&[
                WakeOrder::Any,
                WakeOrder::Any,
                WakeOrder::OldestFirst,
                WakeOrder::NewestFirst,
            ]),
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
        let mut chance = Chance::from_seed(seed);
        let fault_rates = FaultRates::of(&mut chance);
        let shared = Shared {
            chance,
            fault_rates,
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
            shared: Mutex::new(shared),
            has_failed: CancellationToken::new(),
        })
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn flaw(&self) -> Option<Flaw> {
        self.flaw
    }

    /// Draws a random value.
    pub(crate) fn draw<T>(&self, ask: impl FnOnce(&mut Chance) -> T) -> T {
        ask(&mut self.lock().chance)
    }

    /// Whether a fault happens now. None does after `calm_down`.
    pub(crate) fn strikes(&self, fault: impl FnOnce(&FaultRates) -> u64) -> bool {
        let mut shared = self.lock();
        let times = fault(&shared.fault_rates);
        !shared.is_calm && shared.chance.one_in(times)
    }

    pub(crate) fn is_store_away(&self) -> bool {
        self.lock().is_store_away
    }

    pub(crate) fn let_store_be_away(&self, is_away: bool) {
        self.note(format_args!("store: {}", if is_away { "away" } else { "back" }));
        self.lock().is_store_away = is_away;
    }

    /// No fault happens from now on.
    pub(crate) fn calm_down(&self) {
        self.lock().is_calm = true;
    }

    /// A number that grows with each call: the order of events.
    pub(crate) fn tick(&self) -> u64 {
        let mut shared = self.lock();
        shared.ticks += 1;
        shared.ticks
    }

    /// Lets some time pass, or only lets other tasks go first, or neither.
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

    /// Ends when a connection breaks that is made now; most never do.
    pub(crate) async fn connection_breaks(&self) {
        if !self.strikes(|fault_rates| fault_rates.connection_breaks) {
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

    /// The simulated time after this long.
    pub(crate) fn time_of_day(passed: Duration) -> Timestamp {
        let passed = i64::try_from(passed.as_millis()).expect("a simulated day is short");
        Timestamp(FIRST_MOMENT + passed)
    }

    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let line = format!("{:>8} ms  {line}", self.now().as_millis());
        let mut shared = self.lock();
        for byte in line.bytes() {
            shared.digest = (shared.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if shared.trace.len() >= KEPT_LINES {
            shared.trace.pop_front();
        }
        shared.trace.push_back(line);
    }

    /// Records a violated rule.
    pub(crate) fn find(&self, what: fmt::Arguments<'_>) {
        self.note(format_args!("!!! {what}"));
        self.lock().findings.push(what.to_string());
        self.has_failed.cancel();
    }

    pub(crate) fn findings(&self) -> Vec<String> {
        self.lock().findings.clone()
    }

    /// The findings and the trace that led to them. `None`: no findings.
    pub(crate) fn report(&self) -> Option<String> {
        let shared = self.lock();
        if shared.findings.is_empty() {
            return None;
        }
        let lines: Vec<&str> = shared.trace.iter().map(String::as_str).collect();
        Some(format!(
            "The last steps of seed {seed}:\n{lines}\n\nSeed {seed} found:\n- {findings}\n\n\
             Play it again: make seed SEED={seed}\n",
            seed = self.seed,
            lines = lines.join("\n"),
            findings = shared.findings.join("\n- "),
        ))
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        self.lock().trace.iter().cloned().collect()
    }

    pub(crate) fn digest(&self) -> u64 {
        self.lock().digest
    }
}

/// The error of something that is away.
pub(crate) fn away<T>(kind: ErrorKind, text: &str) -> Result<T> {
    Err(Error::new(kind, text))
}

/// A clock that moves with the runtime's clock.
#[derive(Debug)]
pub(crate) struct DayClock(pub(crate) Arc<Stage>);

impl Clock for DayClock {
    fn now(&self) -> Timestamp {
        Stage::time_of_day(self.0.now())
    }
}

/// The tasks of one participant, or of one gateway: they can be killed together.
#[derive(Debug)]
pub(crate) struct TaskGroup {
    stage: Arc<Stage>,
    running: Mutex<Vec<AbortHandle>>,
}

impl TaskGroup {
    pub(crate) fn new(stage: &Arc<Stage>) -> Arc<Self> {
        Arc::new(Self { stage: Arc::clone(stage), running: Mutex::default() })
    }

    /// None of the tasks takes another step.
    pub(crate) fn kill(&self) {
        for task in self.running.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

impl Simulation for TaskGroup {
    fn new_task(&self) -> u64 {
        let turns = &mut self.stage.lock().turns;
        turns.tasks += 1;
        turns.tasks
    }

    fn may_run(&self, task: u64, waker: &Waker) -> bool {
        let mut shared = self.stage.lock();
        let turns = &mut shared.turns;
        if turns.chosen == Some(task) {
            turns.chosen = None;
            turns.steps += 1;
            if turns.steps == MAX_STEPS {
                drop(shared);
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
        let mut shared = self.stage.lock();
        shared.ids += 1;
        format!("id-{:04}", shared.ids)
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.stage.flaw == Some(flaw)
    }
}

/// Lets one runnable task take a step, again and again. The scheduler itself is last in the runtime's queue, so that all
/// runnable tasks have come forward: then the choice does not depend on the order in which they were woken, which the runtime
/// partly leaves to chance.
pub(crate) async fn conduct(stage: Arc<Stage>) {
    poll_fn(|context| {
        let shared = &mut *stage.lock();
        shared.turns.conductor = Some(context.waker().clone());
        if std::mem::take(&mut shared.turns.is_settling) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(chosen) = shared.choose()
            && let Some(waker) = shared.turns.ready.remove(&chosen)
        {
            shared.turns.chosen = Some(chosen);
            shared.turns.is_settling = true;
            waker.wake();
            context.waker().wake_by_ref();
        }
        Poll::<()>::Pending
    })
    .await;
}

impl Shared {
    fn choose(&mut self) -> Option<u64> {
        let ready = &self.turns.ready;
        if ready.is_empty() {
            return None;
        }
        let order = if self.chance.one_in(4) { WakeOrder::Any } else { self.fault_rates.order };
        match order {
            WakeOrder::OldestFirst => ready.first_key_value().map(|(task, _)| *task),
            WakeOrder::NewestFirst => ready.last_key_value().map(|(task, _)| *task),
            WakeOrder::Any => {
                let place = usize::try_from(self.chance.below(ready.len() as u64)).ok()?;
                ready.keys().nth(place).copied()
            }
        }
    }
}
