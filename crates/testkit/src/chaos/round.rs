//! One round: a world is made, a storm goes over it, it calms down, and what is left is checked.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use longshore_engine::fail_point;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use tokio::time::{Instant, sleep, sleep_until};

use super::checker::{self, Testimony, Verdict};
use super::client::{self, Way};
use super::proxy::{Counts, Plan as Breaks};
use super::record::{Errand, Record};
use super::speaker::{Answering, Speaker};
use super::world::World;
use crate::gateway::TOKEN;

/// How long the clients may take when nothing is broken any more. A turn whose agent died is given up after some seconds.
const CALM: Duration = Duration::from_secs(60);
/// A gateway that is armed and does not come to its fail point is killed after this.
const ARMED: Duration = Duration::from_millis(900);
/// Nothing outside tells when a process ends, so it is looked for this often.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What is broken in a round, and how often. Everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// How long things break.
    pub storm: Duration,
    /// Clients that send at the same time, one message after the other.
    pub lanes: usize,
    /// Connections are cut, stalled and slowed.
    pub breaks: bool,
    /// Where gateways die besides anywhere.
    pub points: Vec<&'static str>,
    /// The gateway is killed at a random time, over and over.
    pub kills_at_random: bool,
    pub agent_kills: usize,
}

impl Plan {
    /// Everything at once.
    pub fn storm(seed: u64, storm: Duration) -> Self {
        let points = fail_point::POINTS.to_vec();
        Self { seed, storm, lanes: 8, breaks: true, points, kills_at_random: true, agent_kills: 2 }
    }

    /// Nothing but deaths at one fail point.
    pub fn at_point(seed: u64, point: &'static str) -> Self {
        let (storm, points) = (Duration::from_secs(4), vec![point]);
        Self { seed, storm, lanes: 3, breaks: false, points, kills_at_random: false, agent_kills: 0 }
    }

    fn rng(&self, what: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ what)
    }

    /// The next message of a lane.
    fn errand(&self, lane: usize, number: usize) -> Errand {
        let place = (lane * 1000 + number) as u64;
        let mut rng = self.rng(1_000_000 + place);
        let id = format!("{:x}-{lane}-{number}", self.seed);
        let speaker = Speaker::ALL[(lane + number) % Speaker::ALL.len()];
        let answering = if rng.random_bool(0.5) { Answering::ByMessage } else { Answering::ByCall };
        // The last two lanes share a context, so that one always waits for the other.
        let context = (lane + 2 >= self.lanes && lane > 0).then(|| format!("shared-{:x}", self.seed));
        Errand { words: format!("errand {id}"), id, speaker, answering, context, seed: rng.random() }
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
    pub fn all(&self) -> u64 {
        self.at_random + self.at_points.values().sum::<u64>()
    }
}

/// What a round broke, and what came of it.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub world: &'static str,
    pub gateway: Deaths,
    pub agent_kills: u64,
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
    let storm_end = began + plan.storm;
    let way = Way { base: world.client_url(), token: TOKEN.to_owned(), deadline: storm_end + CALM };
    if plan.breaks {
        world.set_breaks(&Breaks::storm());
    }
    let clients = join_all((0..plan.lanes).map(|lane| visit(plan, lane, &way, storm_end)));
    let mut gateway = Deaths::default();
    let (records, stormed) = tokio::join!(clients, async {
        let killed = storm(plan, &mut world, &mut gateway, storm_end).await?;
        world.set_breaks(&Breaks::calm());
        Ok::<u64, String>(killed)
    });
    let agent_kills = stormed?;
    let records: Vec<Record> = records.into_iter().flatten().collect();
    let direct = Way { base: world.gateway_url(), deadline: Instant::now() + CALM, ..way };
    let mut testimonies = Vec::new();
    for record in records {
        testimonies.push(testimony(record, &direct).await);
    }
    let upstream = world.upstream(&testimonies).await?;
    let verdict = checker::check(&testimonies, &upstream);
    let evidence = (!verdict.findings.is_empty()).then(|| {
        let findings: Vec<String> = verdict.findings.iter().map(ToString::to_string).collect();
        let log = world.log();
        format!("{findings:#?}\n\n{upstream:#?}\n\n{testimonies:#?}\n\n{log}")
    });
    let (client_side, agent_side) = world.counts();
    world.end().await?;
    Ok(Report {
        seed: plan.seed,
        world: world.name(),
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
async fn visit(plan: &Plan, lane: usize, way: &Way, storm_end: Instant) -> Vec<Record> {
    let mut records = Vec::new();
    while Instant::now() < storm_end {
        let record = client::run(plan.errand(lane, records.len()), way).await;
        let gave_up = !record.ended;
        records.push(record);
        if gave_up {
            break;
        }
    }
    records
}

async fn testimony(record: Record, way: &Way) -> Testimony {
    let Some(task) = record.task.clone() else {
        let nothing = "no task is known".to_owned();
        return Testimony { record, log: Err(nothing.clone()), stored: Err(nothing) };
    };
    let log = client::uncut(&record.errand, &task, way).await;
    let stored = client::stored(&record.errand, &task, way).await;
    Testimony { record, log, stored }
}

/// Kills until the storm is over, and leaves a gateway and an agent that live. Gives how often the agent was killed.
async fn storm(
    plan: &Plan,
    world: &mut World,
    deaths: &mut Deaths,
    storm_end: Instant,
) -> Result<u64, String> {
    let mut rng = plan.rng(1);
    let mut agent_rng = plan.rng(2);
    let began = Instant::now();
    // When the agent dies, the first one last.
    let mut agent_deaths: Vec<Instant> = (0..plan.agent_kills)
        .map(|_| began + plan.storm.mul_f64(agent_rng.random_range(0.05..0.9)))
        .collect();
    agent_deaths.sort_by(|one, other| other.cmp(one));
    let mut killed = 0;
    let mut next_point =
        plan.points.iter().copied().cycle().skip(rng.random_range(0..plan.points.len().max(1)));
    while Instant::now() < storm_end {
        if agent_deaths.last().is_some_and(|death| *death <= Instant::now()) {
            agent_deaths.pop();
            world.kill_agent().await?;
            killed += 1;
            sleep(Duration::from_millis(agent_rng.random_range(20..800))).await;
            world.revive_agent().await?;
        }
        let point = match (plan.kills_at_random, rng.random_bool(0.5)) {
            (false, _) | (true, false) => next_point.next(),
            (true, true) => None,
        };
        let life = Duration::from_millis(rng.random_range(250..900));
        match point {
            None => {
                sleep_until((Instant::now() + life).min(storm_end)).await;
                world.kill_gateway();
                deaths.at_random += 1;
                world.start_gateway(None).await?;
            }
            Some(point) => {
                let count = rng.random_range(1..if plan.kills_at_random { 6 } else { 3 });
                let armed = format!("{point}:{count}");
                world.kill_gateway();
                deaths.at_random += 1;
                let started = world.start_gateway(Some(&armed)).await?;
                let died = !started || dies(world, ARMED).await;
                if died {
                    *deaths.at_points.entry(point).or_default() += 1;
                    world.start_gateway(None).await?;
                }
            }
        }
    }
    // Nobody is left with a fail point, or without an agent.
    world.kill_gateway();
    deaths.at_random += 1;
    world.start_gateway(None).await?;
    Ok(killed)
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
