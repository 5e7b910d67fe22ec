//! Slows down principals that send very many requests while the machine is at its limit, so that others are not slowed down.
//!
//! Every event passes several tokio tasks, and in each it waits behind all other work. Therefore, while several principals send
//! requests and the runtime's threads are busy, the requests of the principals with the most recent requests are started with a
//! gap between them. The gap of a principal grows while it is one of the heaviest and the threads stay busy. It shrinks when the
//! principal is not one of the heaviest, or when the threads have time again. A principal with much less traffic than another does
//! not wait. Each request counts the same, however much work it causes.
//!
//! A principal that is the only active one is never slowed down.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::Principal;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

/// How often the load of the threads is sampled while requests arrive.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// The age from which a sample says nothing about the current load.
const STALE_AFTER: Duration = Duration::from_secs(1);

/// A principal counts as active for this long after its last request.
const ACTIVE_FOR: Duration = Duration::from_mins(1);

/// The percentage of time that the runtime's threads may work. Above it they are too busy, and the heaviest principals are slowed
/// down.
///
/// The percentage is low because the store's threads use the same cores: while the runtime's threads work for one second, the
/// store's threads work for more than half a second.
const BUSY_PERCENT: u128 = 30;
/// The percentage of time below which the gaps of the slowed principals shrink again.
const FREE_PERCENT: u128 = 20;

/// The first gap between two requests of a principal. `MAX_GAP` is the longest.
const MIN_GAP: Duration = Duration::from_micros(200);
const MAX_GAP: Duration = Duration::from_millis(50);

/// The weight of one admitted request. Large enough that integer division by 16 still reduces it.
const REQUEST_WEIGHT: u64 = 1024;

/// The longest wait of a request, whatever the gap. Other limits bound how many requests a principal has in flight.
const MAX_WAIT: Duration = Duration::from_secs(2);

pub(crate) struct FairThrottle {
    state: Mutex<State>,
    /// Returns how long all threads together have been busy since their start.
    busy_time: Box<dyn Fn() -> Duration + Send + Sync>,
    threads: u32,
}

struct State {
    sampled_at: Instant,
    busy_time: Duration,
    /// The active principals.
    callers: HashMap<Principal, Caller>,
}

struct Caller {
    /// The time between two requests of the principal.
    gap: Duration,
    /// The earliest start of the principal's next request.
    next: Instant,
    /// The weight of the recently started requests. Loses a sixteenth with each sample.
    recent: u64,
}

impl FairThrottle {
    /// A throttle that watches the load of the current runtime.
    pub(crate) fn for_current_runtime() -> Self {
        let metrics = Handle::current().metrics();
        let threads = metrics.num_workers();
        let busy_time = move || (0..threads).map(|thread| metrics.worker_total_busy_duration(thread)).sum();
        Self::new(Box::new(busy_time), u32::try_from(threads).unwrap_or(u32::MAX))
    }

    fn new(busy_time: Box<dyn Fn() -> Duration + Send + Sync>, threads: u32) -> Self {
        let state = State { sampled_at: Instant::now(), busy_time: busy_time(), callers: HashMap::new() };
        Self { state: Mutex::new(state), busy_time, threads }
    }

    /// Waits until a request of this principal may start.
    pub(crate) async fn wait(&self, principal: &Principal) {
        if let Some(time) = self.start_time(principal) {
            let mut waiting = WaitingRequest { throttle: self, principal, is_admitted: false };
            sleep_until(time).await;
            waiting.is_admitted = true;
        }
    }

    /// The time at which the next request may start. `None`: at once.
    fn start_time(&self, principal: &Principal) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.lock();
        if now - state.sampled_at >= SAMPLE_EVERY {
            state.sample(now, (self.busy_time)(), self.threads);
        }
        let caller = match state.callers.get_mut(principal) {
            Some(caller) => caller,
            None => state.callers.entry(principal.clone()).or_insert(Caller::new(now)),
        };
        // Without a gap a new request starts at once, even if older requests of this principal are still waiting.
        let time = if caller.gap.is_zero() { now } else { caller.next.clamp(now, now + MAX_WAIT) };
        caller.next = time + caller.gap;
        if time > now {
            return Some(time);
        }
        caller.recent += REQUEST_WEIGHT;
        None
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for its start. If it is dropped before that, its time slot goes to later requests.
struct WaitingRequest<'a> {
    throttle: &'a FairThrottle,
    principal: &'a Principal,
    is_admitted: bool,
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        let mut state = self.throttle.lock();
        let Some(caller) = state.callers.get_mut(self.principal) else { return };
        if self.is_admitted {
            caller.recent += REQUEST_WEIGHT;
        } else {
            caller.next = caller.next.checked_sub(caller.gap).unwrap_or(caller.next);
        }
    }
}

impl State {
    fn sample(&mut self, now: Instant, busy_time: Duration, threads: u32) {
        let passed = now - self.sampled_at;
        let share = (busy_time.saturating_sub(self.busy_time)).as_nanos() * 100
            / (passed * threads).as_nanos().max(1);
        (self.sampled_at, self.busy_time) = (now, busy_time);
        self.callers.retain(|_, caller| now.saturating_duration_since(caller.next) < ACTIVE_FOR);
        let is_free = passed > STALE_AFTER || self.callers.len() < 2;
        // All principals with at least half of the largest weight count as heavy.
        let heavy = self.callers.values().map(|caller| caller.recent).max().unwrap_or_default() / 2;
        for caller in self.callers.values_mut() {
            let is_heavy = caller.recent >= heavy;
            caller.gap = if is_free {
                Duration::ZERO
            } else if share > BUSY_PERCENT && is_heavy {
                (caller.gap * 5 / 4).clamp(MIN_GAP, MAX_GAP)
            } else if share < FREE_PERCENT || !is_heavy {
                Some(caller.gap * 9 / 10).filter(|gap| *gap >= MIN_GAP).unwrap_or_default()
            } else {
                caller.gap
            };
            caller.recent -= caller.recent / 16;
        }
    }
}

impl Caller {
    fn new(now: Instant) -> Self {
        Self { gap: Duration::ZERO, next: now, recent: 0 }
    }
}

impl fmt::Debug for FairThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairThrottle").field("callers", &self.lock().callers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A simulated runtime with one thread, which works for a millisecond on each request, one after the other.
    struct Machine {
        throttle: FairThrottle,
        busy_time: Arc<AtomicU64>,
        idle_at: Mutex<Instant>,
    }

    /// The served requests of one principal.
    #[derive(Debug, Default)]
    struct Served {
        requests: u32,
        longest: Duration,
    }

    impl Machine {
        fn new() -> Self {
            let busy_time = Arc::new(AtomicU64::new(0));
            let total = Arc::clone(&busy_time);
            let total = move || Duration::from_millis(total.load(Ordering::Relaxed));
            Self {
                throttle: FairThrottle::new(Box::new(total), 1),
                busy_time,
                idle_at: Mutex::new(Instant::now()),
            }
        }

        async fn work(&self) {
            let done = {
                let mut idle_at = self.idle_at.lock().expect("the lock is not poisoned");
                *idle_at = (*idle_at).max(Instant::now()) + Duration::from_millis(1);
                *idle_at
            };
            sleep_until(done).await;
            self.busy_time.fetch_add(1, Ordering::Relaxed);
        }

        /// Runs this many clients of one principal. Each client sends its next request after the response and a pause.
        async fn serve(&self, name: &str, clients: usize, pause: Duration, end: Instant) -> Served {
            let who = Principal::new(name);
            let one = || async {
                let mut served = Served::default();
                while Instant::now() < end {
                    let asked = Instant::now();
                    self.throttle.wait(&who).await;
                    served.longest = served.longest.max(asked.elapsed());
                    served.requests += 1;
                    self.work().await;
                    tokio::time::sleep(pause).await;
                }
                served
            };
            let all = futures_util::future::join_all((0..clients).map(|_| one())).await;
            let longest = all.iter().map(|served| served.longest).max().unwrap_or_default();
            Served { requests: all.iter().map(|served| served.requests).sum(), longest }
        }
    }

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    const NO_PAUSE: Duration = Duration::ZERO;
    const PAUSE: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn a_flooding_principal_is_slowed_down_and_a_quiet_one_is_not() {
        let machine = Machine::new();
        let end = after(10);
        let (flood, quiet) =
            tokio::join!(machine.serve("flood", 64, NO_PAUSE, end), machine.serve("quiet", 8, PAUSE, end));
        // All clients of the quiet principal send at the same time, and none waits, however long the gap of the flooding one is.
        assert_eq!(quiet.longest, Duration::ZERO, "{quiet:?} {flood:?}");
        let per_second = (flood.requests + quiet.requests) / 10;
        assert!((200..600).contains(&per_second), "a machine for 1000: {quiet:?} {flood:?}");
        // The gap disappears when the flood is over.
        machine.serve("flood", 1, PAUSE, after(5)).await;
        let end = after(1);
        let (some, _) =
            tokio::join!(machine.serve("flood", 8, PAUSE, end), machine.serve("quiet", 8, PAUSE, end));
        assert_eq!(some.longest, Duration::ZERO);
    }

    /// A flooding principal gets no advantage from another one that floods a little more.
    #[tokio::test(start_paused = true)]
    async fn of_two_flooding_principals_both_are_slowed_down() {
        let machine = Machine::new();
        let end = after(10);
        let (more, less, quiet) = tokio::join!(
            machine.serve("more", 64, NO_PAUSE, end),
            machine.serve("less", 32, NO_PAUSE, end),
            machine.serve("quiet", 4, PAUSE, end)
        );
        let summary = format!("{more:?} {less:?} {quiet:?}");
        assert_eq!(quiet.longest, Duration::ZERO, "{summary}");
        assert!(more.requests + less.requests + quiet.requests < 6000, "a machine for 10000: {summary}");
        assert!(more.requests < less.requests * 3 && less.requests < more.requests * 3, "{summary}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_that_is_alone_never_waits() {
        let machine = Machine::new();
        let alone = machine.serve("flood", 64, NO_PAUSE, after(5)).await;
        assert_eq!(alone.longest, Duration::ZERO);
        // It is not slowed down either when the other principal has sent nothing for long.
        machine.serve("gone", 1, PAUSE, after(1)).await;
        let beside = machine.serve("flood", 64, NO_PAUSE, after(5)).await;
        assert!(beside.longest > Duration::ZERO);
        tokio::time::sleep(ACTIVE_FOR).await;
        machine.serve("flood", 64, NO_PAUSE, after(1)).await;
        let alone = machine.serve("flood", 64, NO_PAUSE, after(5)).await;
        assert_eq!(alone.longest, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_the_maximum() {
        let machine = Machine::new();
        let end = after(20);
        let (flood, quiet) =
            tokio::join!(machine.serve("flood", 2000, NO_PAUSE, end), machine.serve("quiet", 1, PAUSE, end));
        assert!(flood.longest > Duration::from_millis(100) && flood.longest <= MAX_WAIT, "{flood:?}");
        assert_eq!(quiet.longest, Duration::ZERO, "{quiet:?}");
    }

    /// The threads are busy with other work and the other principal sends little, so the gap stays at its maximum.
    #[tokio::test(start_paused = true)]
    async fn requests_that_give_up_waiting_free_their_time_slot() {
        let machine = Machine::new();
        let (who, grown, end) = (Principal::new("impatient"), after(5), after(20));
        let busy = async {
            while Instant::now() < end {
                machine.work().await;
            }
        };
        let one = || async {
            let mut admitted = 0;
            while Instant::now() < end {
                let in_time = tokio::time::timeout(Duration::from_secs(1), machine.throttle.wait(&who)).await;
                admitted += u32::from(in_time.is_ok() && Instant::now() > grown);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            admitted
        };
        let all = futures_util::future::join_all((0..64).map(|_| one()));
        let ((), all, _) = tokio::join!(busy, all, machine.serve("quiet", 1, PAUSE * 200, end));
        // About one request starts in each gap.
        let admitted: u32 = all.iter().sum();
        assert!((200..400).contains(&admitted), "{admitted} in 15 seconds, with gaps of {MAX_GAP:?}");
    }

    /// The throttle relies on the runtime's metrics: a thread that works without a pause must be reported as busy.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_runtime_reports_how_long_it_was_busy() {
        let throttle = FairThrottle::for_current_runtime();
        let before = (throttle.busy_time)();
        let tasks = longshore_engine::Tasks::new();
        let work = tasks.spawn("work", async {
            let end = std::time::Instant::now() + Duration::from_millis(100);
            while std::time::Instant::now() < end {
                std::hint::spin_loop();
            }
        });
        work.await.expect("the work ends");
        // The thread updates the metric when it becomes idle, which may be shortly after the end of the work.
        let reported = async {
            while (throttle.busy_time)().saturating_sub(before) < Duration::from_millis(50) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), reported).await.expect("the runtime reports busy time");
    }
}
