//! Lets requests in one by one while the machine is at its limit, so that one who floods does not slow others down.
//!
//! Every event passes several tasks, and at each it waits behind whatever else is to be done. So while several principals
//! call and the threads of the runtime are busy, the requests of each are let in with a gap between them. Whoever asks
//! seldom never notices: the gap is over when the next request comes. The gap grows while the threads stay busy, and
//! shrinks when they have time again.
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
/// half, what comes mostly finds nobody before it.
const BUSY: u128 = 40;
const FREE: u128 = 25;

/// The first gap, and the longest.
const FIRST: Duration = Duration::from_micros(200);
const LONGEST: Duration = Duration::from_millis(50);

/// Nobody waits longer than this. Who would is let in at once: what it may have under way is bounded elsewhere.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Pace {
    state: Mutex<State>,
    /// How long all threads together have worked so far.
    worked: Box<dyn Fn() -> Duration + Send + Sync>,
    threads: u32,
}

struct State {
    gap: Duration,
    looked: Instant,
    worked: Duration,
    /// When the next request of a principal may go on, of those that asked lately.
    next: HashMap<Principal, Instant>,
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
        let state =
            State { gap: Duration::ZERO, looked: Instant::now(), worked: worked(), next: HashMap::new() };
        Self { state: Mutex::new(state), worked, threads }
    }

    /// Waits until a request of this principal may go on.
    pub(crate) async fn keep(&self, principal: &Principal) {
        if let Some(time) = self.time_of(principal) {
            sleep_until(time).await;
        }
    }

    /// When it may, if not now.
    fn time_of(&self, principal: &Principal) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.lock();
        if now - state.looked >= LOOK_EVERY {
            state.look(now, (self.worked)(), self.threads);
        }
        let gap = state.gap;
        let next = match state.next.get_mut(principal) {
            Some(next) => next,
            None => state.next.entry(principal.clone()).or_insert(now),
        };
        let time = (*next).max(now);
        if gap.is_zero() || time > now + PATIENCE {
            *next = now;
            return None;
        }
        *next = time + gap;
        (time > now).then_some(time)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look(&mut self, now: Instant, worked: Duration, threads: u32) {
        let passed = now - self.looked;
        let share =
            (worked.saturating_sub(self.worked)).as_nanos() * 100 / (passed * threads).as_nanos().max(1);
        (self.looked, self.worked) = (now, worked);
        self.next.retain(|_, next| now.saturating_duration_since(*next) < LATELY);
        self.gap = if passed > STALE || self.next.len() < 2 {
            Duration::ZERO
        } else if share > BUSY {
            (self.gap * 5 / 4).clamp(FIRST, LONGEST)
        } else if share < FREE {
            Some(self.gap * 9 / 10).filter(|gap| *gap >= FIRST).unwrap_or_default()
        } else {
            self.gap
        };
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("gap", &self.lock().gap).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A runtime whose one thread worked for so many milliseconds.
    fn paced() -> (Pace, Arc<AtomicU64>) {
        let worked = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&worked);
        (Pace::new(Box::new(move || Duration::from_millis(told.load(Ordering::Relaxed))), 1), worked)
    }

    /// Lets time pass in steps, in which the thread works for so many of their 20 ms, and one asks so often in each. Says
    /// how long its last request would wait.
    async fn pass(
        (pace, worked): &(Pace, Arc<AtomicU64>),
        who: &Principal,
        steps: u64,
        work: u64,
        asks: u64,
    ) -> Duration {
        let mut wait = Duration::ZERO;
        for _ in 0..steps {
            tokio::time::sleep(LOOK_EVERY).await;
            worked.fetch_add(work, Ordering::Relaxed);
            for _ in 0..asks {
                let time = pace.time_of(who);
                wait = time.map_or(Duration::ZERO, |time| time - Instant::now());
            }
        }
        wait
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_floods_is_let_in_with_gaps_and_another_at_once() {
        let paced = paced();
        let (flood, quiet) = (Principal::new("flood"), Principal::new("quiet"));
        paced.0.keep(&quiet).await;
        assert!(pass(&paced, &flood, 50, 20, 100).await > LOOK_EVERY);
        // Its own request is seldom enough.
        let begun = Instant::now();
        paced.0.keep(&quiet).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        // The gap is over when there is time again.
        pass(&paced, &flood, 100, 2, 1).await;
        assert_eq!(pass(&paced, &flood, 1, 2, 10).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_is_alone_never_waits() {
        let paced = paced();
        let (flood, gone) = (Principal::new("flood"), Principal::new("gone"));
        assert_eq!(pass(&paced, &flood, 100, 20, 100).await, Duration::ZERO);
        // Nor when the other has not asked for long.
        paced.0.keep(&gone).await;
        assert!(pass(&paced, &flood, 10, 20, 100).await > Duration::ZERO);
        pass(&paced, &flood, 60 * 50 + 1, 20, 0).await;
        pass(&paced, &flood, 2, 20, 1).await;
        assert_eq!(pass(&paced, &flood, 10, 20, 100).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_long() {
        let paced = paced();
        let (flood, quiet) = (Principal::new("flood"), Principal::new("quiet"));
        paced.0.keep(&quiet).await;
        let mut longest = Duration::ZERO;
        for _ in 0..50 {
            longest = longest.max(pass(&paced, &flood, 1, 20, 500).await);
        }
        assert!(longest > Duration::from_millis(100) && longest <= PATIENCE, "{longest:?}");
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
