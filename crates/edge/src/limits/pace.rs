//! Lets requests in one by one while the machine is at its limit, so that one who floods does not slow others down.
//!
//! Every event passes several tasks, and at each it waits behind whatever else is to be done. So while several principals
//! call and the threads of the runtime are busy, the requests of those who had most of late are let in with a gap between
//! them. The gap of each grows while it is one of these and the threads stay busy, and shrinks when it is not, or when they
//! have time again. Whoever has much less than another does not wait. A request counts as one, however much work it makes.
//!
//! One who is alone has the whole machine.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::Principal;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

/// How often is looked at how busy the threads are, while requests come.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What was looked at so long ago says nothing about now.
const STALE: Duration = Duration::from_secs(1);

/// A principal that asked so lately is one that others may slow down.
const LATELY: Duration = Duration::from_mins(1);

/// Above this share of their time the threads are too busy, and below that they have time again, in percent. Below a
/// third, what comes mostly finds nobody before it; and the store's threads, which need the same cores, work more than half as
/// long as these.
const BUSY: u128 = 30;
const FREE: u128 = 20;

/// The first gap, and the longest.
const FIRST: Duration = Duration::from_micros(200);
const LONGEST: Duration = Duration::from_millis(50);

/// One request that was let in, in a unit that is small enough to forget a part of it.
const ONE: u64 = 1024;

/// Nobody waits longer than this, be the gaps as they may: what somebody may have under way is bounded elsewhere.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Pace {
    state: Mutex<State>,
    /// How long all threads together have worked so far.
    worked: Box<dyn Fn() -> Duration + Send + Sync>,
    threads: u32,
}

struct State {
    looked: Instant,
    worked: Duration,
    /// Those that asked lately.
    callers: HashMap<Principal, Caller>,
}

struct Caller {
    /// Between two of its requests.
    gap: Duration,
    /// When its next request may go on.
    next: Instant,
    /// How many were let in of late: those since the last look, and of what there was before less with each look.
    had: u64,
}

impl Pace {
    /// Of the runtime that this is called in.
    pub(crate) fn of_runtime() -> Self {
        let metrics = Handle::current().metrics();
        let threads = metrics.num_workers();
        let worked = move || (0..threads).map(|thread| metrics.worker_total_busy_duration(thread)).sum();
        Self::new(Box::new(worked), u32::try_from(threads).unwrap_or(u32::MAX))
    }

    fn new(worked: Box<dyn Fn() -> Duration + Send + Sync>, threads: u32) -> Self {
        let state = State { looked: Instant::now(), worked: worked(), callers: HashMap::new() };
        Self { state: Mutex::new(state), worked, threads }
    }

    /// Waits until a request of this principal may go on.
    pub(crate) async fn keep(&self, principal: &Principal) {
        if let Some(time) = self.time_of(principal) {
            let mut place = Place { pace: self, principal, is_taken: false };
            sleep_until(time).await;
            place.is_taken = true;
        }
    }

    /// When it may, if not now.
    fn time_of(&self, principal: &Principal) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.lock();
        if now - state.looked >= LOOK_EVERY {
            state.look(now, (self.worked)(), self.threads);
        }
        let caller = match state.callers.get_mut(principal) {
            Some(caller) => caller,
            None => state.callers.entry(principal.clone()).or_insert(Caller::new(now)),
        };
        // Once its gap is over, those that come wait for none that still do.
        let time = if caller.gap.is_zero() { now } else { caller.next.clamp(now, now + PATIENCE) };
        caller.next = time + caller.gap;
        if time > now {
            return Some(time);
        }
        caller.had += ONE;
        None
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among those of a principal that wait. One who gives up gives it to those who come after.
struct Place<'a> {
    pace: &'a Pace,
    principal: &'a Principal,
    is_taken: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.pace.lock();
        let Some(caller) = state.callers.get_mut(self.principal) else { return };
        if self.is_taken {
            caller.had += ONE;
        } else {
            caller.next = caller.next.checked_sub(caller.gap).unwrap_or(caller.next);
        }
    }
}

impl State {
    fn look(&mut self, now: Instant, worked: Duration, threads: u32) {
        let passed = now - self.looked;
        let share =
            (worked.saturating_sub(self.worked)).as_nanos() * 100 / (passed * threads).as_nanos().max(1);
        (self.looked, self.worked) = (now, worked);
        self.callers.retain(|_, caller| now.saturating_duration_since(caller.next) < LATELY);
        let is_free = passed > STALE || self.callers.len() < 2;
        // Of those who had about the most, nobody is better than another.
        let much = self.callers.values().map(|caller| caller.had).max().unwrap_or_default() / 2;
        for caller in self.callers.values_mut() {
            let had_much = caller.had >= much;
            caller.gap = if is_free {
                Duration::ZERO
            } else if share > BUSY && had_much {
                (caller.gap * 5 / 4).clamp(FIRST, LONGEST)
            } else if share < FREE || !had_much {
                Some(caller.gap * 9 / 10).filter(|gap| *gap >= FIRST).unwrap_or_default()
            } else {
                caller.gap
            };
            caller.had -= caller.had / 16;
        }
    }
}

impl Caller {
    fn new(now: Instant) -> Self {
        Self { gap: Duration::ZERO, next: now, had: 0 }
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("callers", &self.lock().callers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A runtime with one thread, which works for a millisecond on each request, one by one.
    struct Machine {
        pace: Pace,
        worked: Arc<AtomicU64>,
        free_at: Mutex<Instant>,
    }

    /// What came of the requests of one.
    #[derive(Debug, Default)]
    struct Had {
        requests: u32,
        longest: Duration,
    }

    impl Machine {
        fn new() -> Self {
            let worked = Arc::new(AtomicU64::new(0));
            let told = Arc::clone(&worked);
            let told = move || Duration::from_millis(told.load(Ordering::Relaxed));
            Self { pace: Pace::new(Box::new(told), 1), worked, free_at: Mutex::new(Instant::now()) }
        }

        async fn work(&self) {
            let done = {
                let mut free_at = self.free_at.lock().expect("nobody panics here");
                *free_at = (*free_at).max(Instant::now()) + Duration::from_millis(1);
                *free_at
            };
            sleep_until(done).await;
            self.worked.fetch_add(1, Ordering::Relaxed);
        }

        /// So many clients of one principal, of which each asks again when it was answered and has paused.
        async fn serve(&self, name: &str, clients: usize, pause: Duration, end: Instant) -> Had {
            let who = Principal::new(name);
            let one = || async {
                let mut had = Had::default();
                while Instant::now() < end {
                    let asked = Instant::now();
                    self.pace.keep(&who).await;
                    had.longest = had.longest.max(asked.elapsed());
                    had.requests += 1;
                    self.work().await;
                    tokio::time::sleep(pause).await;
                }
                had
            };
            let all = futures_util::future::join_all((0..clients).map(|_| one())).await;
            let longest = all.iter().map(|had| had.longest).max().unwrap_or_default();
            Had { requests: all.iter().map(|had| had.requests).sum(), longest }
        }
    }

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    const NO_PAUSE: Duration = Duration::ZERO;
    const PAUSE: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn one_who_floods_is_let_in_with_gaps_and_another_at_once() {
        let machine = Machine::new();
        let end = after(10);
        let (flood, quiet) =
            tokio::join!(machine.serve("flood", 64, NO_PAUSE, end), machine.serve("quiet", 8, PAUSE, end));
        // All clients of the quiet one ask at once, and however long the gap of the other has become.
        assert_eq!(quiet.longest, Duration::ZERO, "{quiet:?} {flood:?}");
        let per_second = (flood.requests + quiet.requests) / 10;
        assert!((200..600).contains(&per_second), "a machine for 1000: {quiet:?} {flood:?}");
        // It is over with the flood.
        machine.serve("flood", 1, PAUSE, after(5)).await;
        let end = after(1);
        let (some, _) =
            tokio::join!(machine.serve("flood", 8, PAUSE, end), machine.serve("quiet", 8, PAUSE, end));
        assert_eq!(some.longest, Duration::ZERO);
    }

    /// Nobody is favoured because somebody else is a little worse.
    #[tokio::test(start_paused = true)]
    async fn of_two_who_flood_both_are_let_in_with_gaps() {
        let machine = Machine::new();
        let end = after(10);
        let (more, less, quiet) = tokio::join!(
            machine.serve("more", 64, NO_PAUSE, end),
            machine.serve("less", 32, NO_PAUSE, end),
            machine.serve("quiet", 4, PAUSE, end)
        );
        let told = format!("{more:?} {less:?} {quiet:?}");
        assert_eq!(quiet.longest, Duration::ZERO, "{told}");
        assert!(more.requests + less.requests + quiet.requests < 6000, "a machine for 10000: {told}");
        assert!(more.requests < less.requests * 3 && less.requests < more.requests * 3, "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_is_alone_never_waits() {
        let machine = Machine::new();
        let alone = machine.serve("flood", 64, NO_PAUSE, after(5)).await;
        assert_eq!(alone.longest, Duration::ZERO);
        // Nor when the other has not asked for long.
        machine.serve("gone", 1, PAUSE, after(1)).await;
        let beside = machine.serve("flood", 64, NO_PAUSE, after(5)).await;
        assert!(beside.longest > Duration::ZERO);
        tokio::time::sleep(LATELY).await;
        machine.serve("flood", 64, NO_PAUSE, after(1)).await;
        let alone = machine.serve("flood", 64, NO_PAUSE, after(5)).await;
        assert_eq!(alone.longest, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_long() {
        let machine = Machine::new();
        let end = after(20);
        let (flood, quiet) =
            tokio::join!(machine.serve("flood", 2000, NO_PAUSE, end), machine.serve("quiet", 1, PAUSE, end));
        assert!(flood.longest > Duration::from_millis(100) && flood.longest <= PATIENCE, "{flood:?}");
        assert_eq!(quiet.longest, Duration::ZERO, "{quiet:?}");
    }

    /// The threads are busy with something else, and the other hardly calls, so that the gap stays as long as it can be.
    #[tokio::test(start_paused = true)]
    async fn those_who_give_up_keep_no_place() {
        let machine = Machine::new();
        let (who, grown, end) = (Principal::new("impatient"), after(5), after(20));
        let busy = async {
            while Instant::now() < end {
                machine.work().await;
            }
        };
        let one = || async {
            let mut had = 0;
            while Instant::now() < end {
                let in_time = tokio::time::timeout(Duration::from_secs(1), machine.pace.keep(&who)).await;
                had += u32::from(in_time.is_ok() && Instant::now() > grown);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            had
        };
        let all = futures_util::future::join_all((0..64).map(|_| one()));
        let ((), all, _) = tokio::join!(busy, all, machine.serve("quiet", 1, PAUSE * 200, end));
        // One in each gap, or nearly.
        let had: u32 = all.iter().sum();
        assert!((200..400).contains(&had), "{had} in 15 seconds, with gaps of {LONGEST:?}");
    }

    /// What the runtime says is what this believes: a thread that works without a pause is busy.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_runtime_tells_how_long_it_worked() {
        let pace = Pace::of_runtime();
        let before = (pace.worked)();
        let tasks = longshore_engine::Tasks::new();
        let work = tasks.spawn("work", async {
            let end = std::time::Instant::now() + Duration::from_millis(100);
            while std::time::Instant::now() < end {
                std::hint::spin_loop();
            }
        });
        work.await.expect("it ends");
        // The thread says it when it has nothing more to do, which may be a moment after the end of the work.
        let told = async {
            while (pace.worked)().saturating_sub(before) < Duration::from_millis(50) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), told).await.expect("the runtime tells that it worked");
    }
}
