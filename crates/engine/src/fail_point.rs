//! Points where a test may kill the process with SIGKILL, in the middle of its work, as a crash would.
//!
//! Test builds switch the feature `fail-points` on. When Cargo builds the whole workspace, every program gets the feature, so
//! builds without debug assertions leave the checks out. The remaining builds do nothing either, unless the environment names
//! a point: `LONGSHORE_FAIL_POINT=turn.recorded:2` kills the process when it reaches that point for the second time.

/// The environment variable that names a point, and on which pass through that point the process is killed.
pub const VARIABLE: &str = "LONGSHORE_FAIL_POINT";

/// The points that a gateway with an attached agent passes in ordinary work. The points `adopt.*` are not listed: only
/// an external turn reaches them.
pub const POINTS: [&str; 19] = [
    // The store: a group of writes.
    "commit.before",
    "commit.after",
    // The log of a task: the entry becomes durable, and readers see it.
    "append.before",
    "append.after",
    "publish.after",
    // A message becomes a task.
    "create.before",
    "create.after",
    // A task becomes a turn.
    "session.made",
    "turn.recorded",
    "prompt.before",
    "prompt.after",
    // A turn is compared with what the agent has stored.
    "reconcile.before",
    "reconcile.after",
    // An ask is answered.
    "reply.before",
    "reply.after",
    // A task has ended, and the gateway stops the agent's turn.
    "abort.before",
    "abort.after",
    // A start resumes the tasks of the last run.
    "recover.each",
    "recover.done",
];

/// The additional points of a gateway that starts the agent itself.
pub const MANAGED_POINTS: [&str; 3] = ["managed.recorded", "managed.spawned", "managed.ready"];

/// Does nothing: this build has no fail points.
#[cfg(not(all(feature = "fail-points", debug_assertions)))]
#[inline]
pub fn hit(_point: &'static str) {}

#[cfg(all(feature = "fail-points", debug_assertions))]
pub use armed::hit;

#[cfg(all(feature = "fail-points", debug_assertions))]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    struct Armed {
        point: String,
        left: AtomicU64,
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let named = std::env::var(super::VARIABLE).ok()?;
        let (point, count) = named.split_once(':').unwrap_or((&named, "1"));
        Some(Armed { point: point.to_owned(), left: AtomicU64::new(count.parse().unwrap_or(1)) })
    });

    /// Kills the process if the environment names this point and the count of passes is reached.
    pub fn hit(point: &'static str) {
        let Some(armed) = &*ARMED else { return };
        if armed.point == point && armed.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Nothing runs after this: no destructor, no other thread, no log line.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}
