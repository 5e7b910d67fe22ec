//! Kills the gateway and the agent by independent clocks, so that each death meets the other process in every state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::fail_point;
use longshore_engine::port::{Clock as _, SystemClock};
use longshore_model::Timestamp;
use rand::RngExt as _;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::checker::StormFacts;
use super::client::Tally;
use super::round::{AtLeast, Plan};
use super::world::{AgentSide, GatewaySide, Kind, Started, World, is_killed};

/// A gateway that does not reach its fail point is killed after this time.
const ARMED: Duration = Duration::from_millis(900);
/// The same for one that has to start an OpenCode first.
const ARMED_AND_MANAGED: Duration = Duration::from_secs(25);
/// How many times longer gateways live in a storm that goes on because its minimums are not reached: on such a slow machine a
/// short life ends before anything can break.
const SLOW: u32 = 5;
/// Nothing signals the end of the process, so that it is polled this often.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// A gateway that lives this long after its agent is back has reconnected, and has compared its turns with the agent.
const FOUND: Duration = Duration::from_secs(2);
/// The same for a gateway that has to start the agent first.
const FOUND_AND_STARTED: Duration = Duration::from_secs(8);

/// How gateways died.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Deaths {
    /// Killed from outside.
    pub at_random: u64,
    /// Killed at a fail point.
    pub at_points: BTreeMap<&'static str, u64>,
}

impl Deaths {
    fn at(&mut self, point: &'static str) {
        *self.at_points.entry(point).or_default() += 1;
    }

    pub(super) fn at_any_point(&self) -> u64 {
        self.at_points.values().sum()
    }

    pub fn all(&self) -> u64 {
        self.at_random + self.at_any_point()
    }
}

/// The result of a storm.
#[derive(Debug, Default)]
pub(super) struct StormResult {
    pub(super) deaths: Deaths,
    pub(super) agent_kills: u64,
    /// Kills of the agent that the same gateway survived long enough to reconnect.
    pub(super) survived: u64,
    pub(super) broken: StormFacts,
    /// Gateways that ended by themselves.
    pub(super) surprises: Vec<String>,
}

/// The state that the two killers share.
#[derive(Debug, Default)]
struct Shared {
    agent_kills: AtomicU64,
    /// When the agent died, in which life of the gateway, and when it was back.
    agent: Mutex<Vec<AgentDeath>>,
    /// The number of the current life of the gateway.
    life: AtomicU64,
    over: CancellationToken,
}

#[derive(Clone, Copy, Debug)]
struct AgentDeath {
    at: Timestamp,
    life: u64,
    back: Instant,
}

impl Shared {
    fn agent(&self) -> MutexGuard<'_, Vec<AgentDeath>> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn killed_agent(&self, at: Timestamp, life: u64) {
        self.agent_kills.fetch_add(1, Ordering::Relaxed);
        self.agent().push(AgentDeath { at, life, back: Instant::now() });
    }
}

/// Kills until the storm is over. A running gateway and a running agent remain.
pub(super) async fn storm(plan: &Plan, world: &mut World, tally: &Tally) -> Result<StormResult, String> {
    let shared = Shared::default();
    let (gateway, agent) = world.sides();
    let mut killer =
        Killer { plan, gateway, shared: &shared, result: StormResult::default(), ends: Vec::new() };
    let (gateway, agent) = tokio::join!(
        async {
            let run = killer.run(tally).await;
            shared.over.cancel();
            run
        },
        kill_agent(plan, agent, &shared),
    );
    gateway.and(agent)?;
    let Killer { mut result, ends, .. } = killer;
    result.agent_kills = shared.agent_kills.load(Ordering::Relaxed);
    let found = if plan.world == Kind::Managed { FOUND_AND_STARTED } else { FOUND };
    for death in shared.agent().iter() {
        result.broken.agent.push(death.at);
        // The last gateway is still running.
        let end = usize::try_from(death.life).ok().and_then(|life| ends.get(life));
        result.survived += u64::from(end.is_none_or(|end| *end >= death.back + found));
    }
    (result.broken.connections, result.broken.is_real) = (plan.breaks, plan.world.is_real());
    Ok(result)
}

struct Killer<'a> {
    plan: &'a Plan,
    gateway: GatewaySide<'a>,
    shared: &'a Shared,
    result: StormResult,
    /// When each life of the gateway ended.
    ends: Vec<Instant>,
}

impl Killer<'_> {
    async fn run(&mut self, tally: &Tally) -> Result<(), String> {
        let plan = self.plan;
        let mut rng = plan.rng(1);
        let (storm_end, last) = (Instant::now() + plan.storm, Instant::now() + plan.longest);
        let skipped = rng.random_range(0..plan.points.len().max(1));
        let mut points = plan.points.iter().copied().cycle().skip(skipped);
        let mut armed: Option<&'static str> = None;
        loop {
            let now = Instant::now();
            let came =
                AtLeast::of(&self.result.deaths, self.shared.agent_kills.load(Ordering::Relaxed), tally);
            let is_missing = plan.at_least.lacks_breaks(&came);
            let deaths = &self.result.deaths;
            let is_enough = plan.deaths_at_points.is_some_and(|limit| deaths.at_any_point() >= limit);
            if is_enough || now >= storm_end && (now >= last || !is_missing) {
                break;
            }
            let slow = if now < storm_end { 1 } else { SLOW };
            let life = Duration::from_millis(rng.random_range(plan.life.clone())) * slow;
            let until = match armed {
                Some(point) if fail_point::MANAGED_POINTS.contains(&point) => now + ARMED_AND_MANAGED,
                Some(_) => now + life.max(ARMED * slow),
                None if plan.deaths_at_points.is_some() => now,
                None => (now + life).min(storm_end.max(last)),
            };
            let is_cut_short = armed.is_none() && now + life > until && plan.deaths_at_points.is_none();
            let ended = self.dies(until, armed).await;
            if !ended && is_cut_short {
                break;
            }
            if !ended {
                self.kill();
            }
            // A storm that goes on because of its minimums leaves less to chance.
            let is_late = Instant::now() >= storm_end;
            let at_point = rng.random_bool(0.5) || plan.deaths_at_points.is_some() || is_late;
            armed = points.next().filter(|_| at_point);
            let mut count = rng.random_range(1..if plan.deaths_at_points.is_some() { 3 } else { 6 });
            if plan.deaths_at_points.is_none() && (is_late || armed.is_some_and(is_seldom_passed)) {
                count = 1;
            }
            if let Some(point) = self.managed_point() {
                (armed, count) = (Some(point), 1);
            }
            armed = self.start(armed, count).await?;
        }
        // No gateway may keep a fail point after the storm.
        if let Some(point) = armed {
            if !self.dies(Instant::now(), Some(point)).await {
                self.kill();
            }
            self.start(None, 1).await?;
        }
        Ok(())
    }

    /// In a managed world, the first gateway that is started again also finds its OpenCode dead, and dies while it starts
    /// another one.
    fn managed_point(&self) -> Option<&'static str> {
        if self.plan.world != Kind::Managed || self.ends.len() != 1 || !self.gateway.kill_managed() {
            return None;
        }
        self.shared.killed_agent(now(), self.shared.life.load(Ordering::Relaxed));
        let points = fail_point::MANAGED_POINTS;
        usize::try_from(self.plan.seed).ok().map(|seed| points[seed % points.len()])
    }

    /// Starts a gateway and returns the fail point that the listening gateway is armed with.
    async fn start(
        &mut self,
        armed: Option<&'static str>,
        count: u64,
    ) -> Result<Option<&'static str>, String> {
        self.shared.life.fetch_add(1, Ordering::Relaxed);
        let variable = armed.map(|point| format!("{point}:{count}"));
        match (self.gateway.start(variable.as_deref()).await?, armed) {
            (Started::Died, Some(point)) => {
                self.result.deaths.at(point);
                self.has_ended();
                self.shared.life.fetch_add(1, Ordering::Relaxed);
                self.gateway.start(None).await?;
                Ok(None)
            }
            (_, armed) => Ok(armed),
        }
    }

    fn kill(&mut self) {
        self.gateway.kill();
        self.result.deaths.at_random += 1;
        self.has_ended();
    }

    fn has_ended(&mut self) {
        self.ends.push(Instant::now());
        self.result.broken.gateway.push(now());
    }

    /// True: the gateway has ended, at its fail point or, unexpectedly, for another reason.
    async fn dies(&mut self, until: Instant, armed: Option<&'static str>) -> bool {
        loop {
            match (self.gateway.end(), armed) {
                (Some(status), Some(point)) if is_killed(status) => self.result.deaths.at(point),
                (Some(status), _) => {
                    let armed = armed.map(|point| format!(", armed with {point},")).unwrap_or_default();
                    self.result.surprises.push(format!("a gateway{armed} ended by itself: {status}"));
                }
                (None, _) if Instant::now() >= until => return false,
                (None, _) => {
                    sleep(LOOK_AGAIN).await;
                    continue;
                }
            }
            self.has_ended();
            return true;
        }
    }
}

/// Kills the agent at random times, and starts it again after a while, whatever the gateway does meanwhile.
async fn kill_agent(plan: &Plan, mut agent: AgentSide<'_>, shared: &Shared) -> Result<(), String> {
    let mut rng = plan.rng(2);
    let began = Instant::now();
    let moment = |_| began + plan.storm.mul_f64(rng.random_range(0.05..0.9));
    let mut due: Vec<Instant> = (0..plan.agent_kills).map(moment).collect();
    due.sort();
    for due in due {
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            () = shared.over.cancelled() => return Ok(()),
        }
        let (at, life) = loop {
            let (at, life) = (now(), shared.life.load(Ordering::Relaxed));
            if agent.kill().await {
                break (at, life);
            }
            tokio::select! {
                () = sleep(LOOK_AGAIN * 10) => {}
                () = shared.over.cancelled() => return Ok(()),
            }
        };
        sleep(Duration::from_millis(rng.random_range(20..800))).await;
        agent.revive().await?;
        shared.killed_agent(at, life);
    }
    Ok(())
}

/// Most gateways pass such a fail point at most once in their life.
fn is_seldom_passed(point: &str) -> bool {
    point.starts_with("abort.") || point.starts_with("reply.")
}

fn now() -> Timestamp {
    SystemClock.now()
}
