//! One round: a world is made, a storm goes over it, it calms down, and what is left is checked.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use longshore_engine::fail_point;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::checker::{self, Fault, Finding, Testimony, Verdict};
use super::client::{self, Tally, Way};
use super::errands::errand;
use super::proxy::{Counts, Plan as Breaks};
use super::record::Record;
use super::world::{Kind, World};
use crate::gateway::TOKEN;

/// How long the clients may take when nothing is broken any more. A turn whose agent died is given up after some seconds.
const CALM: Duration = Duration::from_mins(1);
/// How long reading the log of a task that is over may take.
const READING: Duration = Duration::from_secs(20);
/// A gateway that is armed and does not come to its fail point is killed after this.
const ARMED: Duration = Duration::from_millis(900);
/// Nothing outside tells when a process ends, so it is looked for this often.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What is broken in a round, and how often. Everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub world: Kind,
    /// How long things break.
    pub storm: Duration,
    /// What must have happened before that is over, and how long it may take at most.
    pub at_least: AtLeast,
    pub longest: Duration,
    /// How long the clients may take when nothing is broken any more.
    pub calm: Duration,
    /// Clients that send at the same time, one message after the other.
    pub lanes: usize,
    /// Of a hundred messages, those that make the agent ask.
    pub asking_of_100: u32,
    /// Connections are cut, stalled and slowed.
    pub breaks: bool,
    /// How long a gateway lives, in milliseconds.
    pub life: Range<u64>,
    /// Where gateways die besides anywhere. Half of them do.
    pub points: Vec<&'static str>,
    /// Only there, and only so often.
    pub deaths_at_points: Option<u64>,
    pub agent_kills: usize,
}

/// What a storm must have brought. On a slow machine it goes on until it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtLeast {
    pub gateway_kills: u64,
    /// At fail points.
    pub deaths_at_points: u64,
    pub agent_kills: u64,
    /// Streams of clients that were cut.
    pub cuts: u64,
    /// Tasks that asked, that a client tried to cancel, and that completed.
    pub asked: u64,
    pub canceling: u64,
    pub completed: u64,
}

impl Plan {
    /// Everything at once.
    pub fn storm(seed: u64, storm: Duration) -> Self {
        Self {
            seed,
            world: Kind::Fake,
            storm,
            at_least: AtLeast::default(),
            longest: storm,
            calm: CALM,
            lanes: 8,
            // More than a fifth, since many a turn dies before it asks.
            asking_of_100: 40,
            breaks: true,
            life: 250..900,
            points: fail_point::POINTS.to_vec(),
            deaths_at_points: None,
            agent_kills: 3,
        }
    }

    /// The same with the real OpenCode, which needs seconds where the fake needs none.
    pub fn real_storm(seed: u64, world: Kind) -> Self {
        let mut points = fail_point::POINTS.to_vec();
        if world == Kind::Managed {
            points.extend(fail_point::MANAGED_POINTS.iter().cycle().take(12));
        }
        Self {
            world,
            calm: CALM * 2,
            lanes: 4,
            // Fewer tasks, of which a fifth must ask all the same.
            asking_of_100: 50,
            life: 1_000..4_000,
            points,
            agent_kills: 2,
            ..Self::storm(seed, Duration::from_secs(28))
        }
    }

    /// Nothing but deaths at one fail point.
    pub fn at_point(seed: u64, point: &'static str) -> Self {
        Self {
            lanes: 3,
            asking_of_100: 60,
            breaks: false,
            life: 4_000..4_001,
            points: vec![point],
            deaths_at_points: Some(2),
            agent_kills: 0,
            ..Self::storm(seed, Duration::from_secs(20))
        }
    }

    pub(super) fn rng(&self, what: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ what)
    }
}

/// How a gateway died.
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

    fn at_any_point(&self) -> u64 {
        self.at_points.values().sum()
    }

    pub fn all(&self) -> u64 {
        self.at_random + self.at_any_point()
    }
}

/// What a round broke, and what came of it.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub world: Kind,
    pub gateway: Deaths,
    pub agent_kills: u64,
    /// What the storm brought, and the calm after it.
    pub came: AtLeast,
    /// Between the clients and the gateway, and between the gateway and the agent.
    pub client_side: Counts,
    pub agent_side: Counts,
    pub records: Vec<Record>,
    pub verdict: Verdict,
    /// Everything that is known, where something was found.
    pub evidence: Option<String>,
    pub took: Duration,
}

/// Plays a round. `Err`: the world itself could not be made or went wrong, which says nothing of the gateway's promises.
pub async fn play(plan: &Plan, mut world: World) -> Result<Report, String> {
    let began = Instant::now();
    let deadline = began + plan.storm.max(plan.longest) + plan.calm;
    let tally = Arc::new(Tally::default());
    let way = Way { base: world.client_url(), token: TOKEN.to_owned(), deadline, tally: Arc::clone(&tally) };
    if plan.breaks {
        world.set_breaks(&Breaks::storm());
    }
    let over = CancellationToken::new();
    let clients = join_all((0..plan.lanes).map(|lane| visit(plan, lane, &way, &over)));
    let mut gateway = Deaths::default();
    let (records, stormed) = tokio::join!(clients, async {
        let killed = storm(plan, &mut world, &mut gateway, &tally).await;
        over.cancel();
        world.set_breaks(&Breaks::calm());
        killed
    });
    let agent_kills = stormed?;
    let records: Vec<Record> = records.into_iter().flatten().collect();
    let mut testimonies = Vec::new();
    for record in records {
        let direct = Way { base: world.gateway_url(), deadline: Instant::now() + READING, ..way.clone() };
        testimonies.push(testimony(record, &direct).await);
    }
    let upstream = world.upstream().await?;
    let mut verdict = checker::check(&testimonies, &upstream);
    let (client_side, agent_side) = world.counts();
    for detail in world.end().await? {
        let whose = format!("the {} world", world.kind().name());
        verdict.findings.push(Finding { fault: Fault::LeftBehind, whose, detail });
    }
    let evidence = (!verdict.findings.is_empty()).then(|| {
        let findings: Vec<String> = verdict.findings.iter().map(ToString::to_string).collect();
        let log = world.log();
        format!("{findings:#?}\n\n{upstream:#?}\n\n{testimonies:#?}\n\n{log}")
    });
    Ok(Report {
        seed: plan.seed,
        world: world.kind(),
        came: AtLeast::of(&gateway, agent_kills, &tally),
        gateway,
        agent_kills,
        client_side,
        agent_side,
        records: testimonies.into_iter().map(|testimony| testimony.record).collect(),
        verdict,
        evidence,
        took: began.elapsed(),
    })
}

/// The messages of one lane.
async fn visit(plan: &Plan, lane: usize, way: &Way, over: &CancellationToken) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    while !over.is_cancelled() && records.iter().all(|record| record.ended) {
        let first = errand(plan, lane, records.len());
        let second = errand(plan, lane, records.len() + 1);
        if second.follows.as_ref() != Some(&first.id) {
            records.push(client::run(first, way, None).await);
            continue;
        }
        let (begun, has_begun) = oneshot::channel();
        let second = async {
            // One that never begins is over without.
            let _ = has_begun.await;
            client::run(second, way, None).await
        };
        let (first, second) = tokio::join!(client::run(first, way, Some(begun)), second);
        records.extend([first, second]);
    }
    records
}

async fn testimony(record: Record, way: &Way) -> Testimony {
    let Some(task) = record.task.clone().filter(|_| !record.joined) else {
        let nothing = "no task of its own is known".to_owned();
        return Testimony { record, log: Err(nothing.clone()), stored: Err(nothing) };
    };
    let log = client::uncut(&record.errand, &task, way).await;
    let stored = client::stored(&record.errand, &task, way).await;
    Testimony { record, log, stored }
}

/// Kills until the storm is over, and leaves a gateway and an agent that live. Gives how often the agent was killed.
async fn storm(plan: &Plan, world: &mut World, deaths: &mut Deaths, tally: &Tally) -> Result<u64, String> {
    let mut rng = plan.rng(1);
    let (storm_end, last) = (Instant::now() + plan.storm, Instant::now() + plan.longest);
    let mut agent = AgentDeaths::of(plan);
    let mut points = plan.points.iter().copied().cycle().skip(rng.random_range(0..plan.points.len().max(1)));
    let mut armed: Option<&'static str> = None;
    loop {
        let now = Instant::now();
        let is_missing = plan.at_least.is_more_than(&AtLeast::of(deaths, agent.killed, tally));
        let is_enough = plan.deaths_at_points.is_some_and(|limit| deaths.at_any_point() >= limit);
        if is_enough || now >= storm_end && (now >= last || !is_missing) {
            break;
        }
        agent.come(world).await?;
        let life = Duration::from_millis(rng.random_range(plan.life.clone()));
        match armed {
            Some(point) if dies(world, life.max(ARMED)).await => deaths.at(point),
            _ => {
                if armed.is_none() && plan.deaths_at_points.is_none() {
                    sleep_until((Instant::now() + life).min(storm_end.max(last))).await;
                }
                world.kill_gateway();
                deaths.at_random += 1;
            }
        }
        let at_point = plan.deaths_at_points.is_some() || rng.random_bool(0.5);
        armed = points.next().filter(|_| at_point);
        let count = rng.random_range(1..if plan.deaths_at_points.is_some() { 3 } else { 6 });
        let variable = armed.map(|point| format!("{point}:{count}"));
        if !world.start_gateway(variable.as_deref()).await? {
            armed.take().into_iter().for_each(|point| deaths.at(point));
            world.start_gateway(None).await?;
        }
    }
    // Nobody is left with a fail point.
    if armed.is_some() {
        world.kill_gateway();
        deaths.at_random += 1;
        world.start_gateway(None).await?;
    }
    Ok(agent.killed)
}

impl AtLeast {
    /// What has happened so far, in the same words.
    fn of(deaths: &Deaths, agent_kills: u64, tally: &Tally) -> Self {
        let told = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            gateway_kills: deaths.all(),
            deaths_at_points: deaths.at_any_point(),
            agent_kills,
            cuts: told(&tally.cuts),
            asked: told(&tally.asked),
            canceling: told(&tally.canceling),
            completed: told(&tally.completed),
        }
    }

    /// Some of it is missing in what came.
    pub fn is_more_than(&self, came: &Self) -> bool {
        let Self { gateway_kills, deaths_at_points, agent_kills, cuts, asked, canceling, completed } = *self;
        gateway_kills > came.gateway_kills
            || deaths_at_points > came.deaths_at_points
            || agent_kills > came.agent_kills
            || cuts > came.cuts
            || asked > came.asked
            || canceling > came.canceling
            || completed > came.completed
    }
}

/// When the agent dies.
struct AgentDeaths {
    rng: StdRng,
    /// The first one last.
    due: Vec<Instant>,
    killed: u64,
}

impl AgentDeaths {
    fn of(plan: &Plan) -> Self {
        let mut rng = plan.rng(2);
        let began = Instant::now();
        let moment = |_| began + plan.storm.mul_f64(rng.random_range(0.05..0.9));
        let mut due: Vec<Instant> = (0..plan.agent_kills).map(moment).collect();
        due.sort_by(|one, other| other.cmp(one));
        Self { rng, due, killed: 0 }
    }

    /// Kills it, and starts it again after a while, if its time has come.
    async fn come(&mut self, world: &mut World) -> Result<(), String> {
        if self.due.last().is_none_or(|due| *due > Instant::now()) || !world.kill_agent().await {
            return Ok(());
        }
        self.due.pop();
        self.killed += 1;
        sleep(Duration::from_millis(self.rng.random_range(20..800))).await;
        world.revive_agent().await
    }
}

async fn dies(world: &mut World, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        if world.gateway_has_ended() {
            return true;
        }
        sleep(LOOK_AGAIN).await;
    }
    false
}
