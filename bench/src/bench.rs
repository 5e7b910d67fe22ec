//! The context of a phase: the programs, a stand-in of its own, and the time scale.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use longshore_engine::Tasks;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};

use crate::clock;
use crate::number::float;
use crate::proc::CpuSample;
use crate::results::Costs;
use crate::servers::{Agent, AgentProtocol, Kind, Limits, Programs, Server, StandIn};

#[derive(Debug)]
pub struct Bench {
    pub programs: Programs,
    pub stand_in: StandIn,
    /// The parent of the servers' data directories.
    pub work: PathBuf,
    pub quick: bool,
    tasks: Tasks,
    /// Background tasks, which end with this: a phase that takes too long leaves nothing to the next.
    spawned: Mutex<Vec<AbortHandle>>,
    made: AtomicU64,
}

/// Processor time of all processes of the bench, at one moment.
#[derive(Clone, Debug)]
pub struct Meter {
    at_ns: u64,
    server: CpuSample,
    driver: CpuSample,
    stand_in: CpuSample,
}

impl Bench {
    pub fn new(programs: Programs, stand_in: StandIn, work: PathBuf, quick: bool) -> Self {
        let (tasks, spawned) = (Tasks::new(), Mutex::default());
        Self { programs, stand_in, work, quick, tasks, spawned, made: AtomicU64::new(0) }
    }

    /// Runs a future in the background until this phase ends.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let spawned = self.tasks.spawn(name, future);
        self.spawned.lock().unwrap_or_else(PoisonError::into_inner).push(spawned.abort_handle());
        spawned
    }

    /// The first value in a full run, the second in a quick one.
    pub fn scaled<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    pub fn seconds(&self, full: u64, quick: u64) -> Duration {
        Duration::from_secs(self.scaled(full, quick))
    }

    pub async fn server(&self, kind: Kind) -> Result<Server> {
        self.server_with(kind, Limits::Off, &[]).await
    }

    /// A new server with a new database.
    pub async fn server_with(&self, kind: Kind, limits: Limits, more: &[(&str, &str)]) -> Result<Server> {
        let agent = Agent::OpenCode(self.stand_in.address);
        Server::start(kind, &self.programs, agent, self.home(), limits, more).await
    }

    /// A new Longshore without limits, before an agent that speaks this protocol.
    pub async fn server_before(&self, agent: AgentProtocol) -> Result<Server> {
        let agent = match agent {
            AgentProtocol::OpenCode => Agent::OpenCode(self.stand_in.address),
            AgentProtocol::Acp => Agent::Acp(std::env::current_exe()?),
        };
        Server::start(Kind::Longshore, &self.programs, agent, self.home(), Limits::Off, &[]).await
    }

    fn home(&self) -> PathBuf {
        self.work.join(format!("server-{}", self.number()))
    }

    /// A key that no other prompt of this run has.
    pub fn key(&self) -> String {
        format!("k{}x{}", std::process::id(), self.number())
    }

    pub fn meter(&self, server: &Server) -> Result<Meter> {
        Ok(Meter {
            at_ns: clock::monotonic_ns(),
            server: CpuSample::of(server.pid())?,
            driver: CpuSample::of(std::process::id())?,
            stand_in: CpuSample::of(server.own_stand_in.unwrap_or(self.stand_in.pid()))?,
        })
    }

    fn number(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for spawned in self.spawned.get_mut().unwrap_or_else(PoisonError::into_inner) {
            spawned.abort();
        }
    }
}

impl Meter {
    /// The costs since an earlier moment.
    pub fn since(&self, earlier: &Self) -> Costs {
        let ms = |now: &CpuSample, then: &CpuSample| float(now.since(then)) / 1e6;
        Costs {
            window_s: float(self.at_ns - earlier.at_ns) / 1e9,
            server_ms: ms(&self.server, &earlier.server),
            driver_ms: ms(&self.driver, &earlier.driver),
            stand_in_ms: ms(&self.stand_in, &earlier.stand_in),
        }
    }
}

/// Waits until a moment of the monotonic clock.
pub async fn until_ns(at_ns: u64) {
    let left = at_ns.saturating_sub(clock::monotonic_ns());
    sleep_until(Instant::now() + Duration::from_nanos(left)).await;
}
