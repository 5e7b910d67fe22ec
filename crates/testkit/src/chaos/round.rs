//! One round: a world is made, a storm goes over it, it calms down, and what is left is checked.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use longshore_engine::fail_point;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::checker::{self, Fault, Finding, Testimony, Verdict};
use super::client::{self, Tally, Way};
use super::errands::errand;
use super::proxy::{Counts, Plan as Breaks};
use super::record::Record;
use super::storm::{self, Stormed};
use super::world::{Kind, World};

pub use super::storm::Deaths;

/// How long the clients may take when nothing is broken any more. A turn whose agent died is given up after some seconds.
const CALM: Duration = Duration::from_mins(1);
/// How long reading the log of a task that is over may take.
const READING: Duration = Duration::from_secs(20);
/// How long a gateway lives that is to see other things die, in milliseconds.
const STEADY: Range<u64> = 5_000..20_000;

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
    /// Those whose task is to be canceled. Some of these are over before it comes to that.
    pub canceling_of_100: u32,
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
            canceling_of_100: 24,
            breaks: true,
            life: 250..900,
            points: fail_point::POINTS.to_vec(),
            deaths_at_points: None,
            agent_kills: 3,
        }
    }

    /// The same with the real OpenCode, which needs seconds where the fake needs none.
    pub fn real_storm(seed: u64, world: Kind) -> Self {
        // Some gateways live long enough to see their OpenCode die and come back.
        let life = if seed % 4 == 3 { STEADY } else { 1_000..4_000 };
        Self {
            world,
            calm: CALM * 2,
            lanes: 4,
            // Fewer tasks, of which a fifth must ask all the same.
            asking_of_100: 50,
            life,
            agent_kills: 2,
            ..Self::storm(seed, Duration::from_secs(28))
        }
    }

    /// Gateways live on while their agent dies under them and connections break: they have to find it again, and the end of
    /// the turns that it was at.
    pub fn steady(seed: u64, storm: Duration) -> Self {
        Self { life: STEADY, points: Vec::new(), agent_kills: 5, ..Self::storm(seed, storm) }
    }

    /// Nothing but deaths at one fail point.
    pub fn at_point(seed: u64, point: &'static str) -> Self {
        Self {
            lanes: 3,
            asking_of_100: 60,
            canceling_of_100: if point.starts_with("abort.") { 70 } else { 24 },
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

/// What a round broke, and what came of it.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub world: Kind,
    pub gateway: Deaths,
    pub agent_kills: u64,
    /// Kills of the agent that the same gateway lived through until it had found it again.
    pub survived: u64,
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
    let way = Way { base: world.client_url(), token: world.token(), deadline, tally: Arc::clone(&tally) };
    if plan.breaks {
        world.set_breaks(&Breaks::storm());
    }
    let over = CancellationToken::new();
    let clients = join_all((0..plan.lanes).map(|lane| visit(plan, lane, &way, &over)));
    let (records, stormed) = tokio::join!(clients, async {
        let stormed = storm::storm(plan, &mut world, &tally).await;
        over.cancel();
        world.set_breaks(&Breaks::calm());
        stormed
    });
    let Stormed { deaths: gateway, agent_kills, survived, broken, surprises } = stormed?;
    let records: Vec<Record> = records.into_iter().flatten().collect();
    let mut testimonies = Vec::new();
    for record in records {
        let direct = Way { base: world.gateway_url(), deadline: Instant::now() + READING, ..way.clone() };
        testimonies.push(testimony(record, &direct).await);
    }
    let upstream = world.upstream().await?;
    let mut verdict = checker::check(&testimonies, &upstream, &broken);
    let (client_side, agent_side) = world.counts();
    let whose = format!("the {} world", world.kind().name());
    let mut found = |fault, detail| verdict.findings.push(Finding { fault, whose: whose.clone(), detail });
    for surprise in surprises {
        found(Fault::Surprise, surprise);
    }
    for detail in world.end().await? {
        found(Fault::LeftBehind, detail);
    }
    let log = world.log();
    for line in log.lines().filter(|line| line.contains("panicked")) {
        found(Fault::Surprise, format!("the gateway's log says: {line}"));
    }
    // A kill of the agent meets one turn of each lane.
    let (forgotten, most) = (verdict.forgotten, plan.lanes as u64 * agent_kills);
    if forgotten > most {
        let detail =
            format!("{forgotten} tasks say that a killed OpenCode forgot text, and at most {most} can");
        verdict.findings.push(Finding { fault: Fault::Untrue, whose, detail });
    }
    let evidence = (!verdict.findings.is_empty()).then(|| {
        let findings: Vec<String> = verdict.findings.iter().map(ToString::to_string).collect();
        format!("{findings:#?}\n\n{broken:#?}\n\n{upstream:#?}\n\n{testimonies:#?}\n\n{log}")
    });
    Ok(Report {
        seed: plan.seed,
        world: world.kind(),
        came: AtLeast::of(&gateway, agent_kills, &tally),
        gateway,
        agent_kills,
        survived,
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
    let lacks_turns = || plan.at_least.lacks_turns(&AtLeast::of(&Deaths::default(), 0, &way.tally));
    while (!over.is_cancelled() || lacks_turns()) && records.iter().all(|record| record.ended) {
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

impl AtLeast {
    /// What has happened so far, in the same words.
    pub(super) fn of(deaths: &Deaths, agent_kills: u64, tally: &Tally) -> Self {
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
        self.lacks_breaks(came) || self.lacks_turns(came)
    }

    /// Too little is broken so far.
    pub(super) fn lacks_breaks(&self, came: &Self) -> bool {
        self.gateway_kills > came.gateway_kills
            || self.deaths_at_points > came.deaths_at_points
            || self.agent_kills > came.agent_kills
            || self.cuts > came.cuts
    }

    /// Too few turns came so far. For these the clients go on when nothing is broken any more.
    fn lacks_turns(&self, came: &Self) -> bool {
        self.asked > came.asked || self.canceling > came.canceling || self.completed > came.completed
    }
}
