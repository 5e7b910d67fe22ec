//! One round: a world is started, a storm breaks its parts, the storm ends, and the result is checked.

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

use super::checker::{self, Fault, Finding, Verdict};
use super::client::{self, ClientTarget, Tally};
use super::planned_messages::plan_message;
use super::proxy::{Counts, Plan as Breaks};
use super::record::{PlannedMessage, Record};
use super::speaker::{ClientProtocol, Transport};
use super::storm::{self, StormResult};
use super::world::{Kind, World};

pub use super::storm::Deaths;

/// How long the clients may take to finish after the storm. The gateway gives up a turn of a killed agent within seconds.
const CALM: Duration = Duration::from_mins(1);
/// How long reading the log of an ended task may take.
const READING: Duration = Duration::from_secs(20);
/// The life of a gateway that is to see other parts die, in milliseconds.
const STEADY: Range<u64> = 5_000..20_000;

/// What is broken in a round, and how often. Everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub world: Kind,
    /// How long things break.
    pub storm: Duration,
    /// What must have happened before the storm ends, and how long that may take at most.
    pub at_least: AtLeast,
    pub longest: Duration,
    /// How long the clients may take after the storm.
    pub calm: Duration,
    /// Clients that run at the same time, each sending one message after the other.
    pub clients: usize,
    /// The protocol versions and bindings that the clients use in turn.
    pub speakers: &'static [ClientProtocol],
    /// Of a hundred messages, those that make the agent ask.
    pub asking_of_100: u32,
    /// Those whose task is to be canceled. Some of these tasks end before.
    pub canceling_of_100: u32,
    /// Connections are cut, stalled and slowed.
    pub breaks: bool,
    /// The life of a gateway, in milliseconds.
    pub life: Range<u64>,
    /// Fail points at which half of the gateways die. The others die at random moments.
    pub points: Vec<&'static str>,
    /// Gateways die only at fail points, and only so often.
    pub deaths_at_points: Option<u64>,
    pub agent_kills: usize,
}

/// The minimums of a storm. On a slow machine the storm goes on until they are reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtLeast {
    pub gateway_kills: u64,
    /// Gateway deaths at fail points.
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
    /// Breaks everything at once.
    pub fn storm(seed: u64, storm: Duration) -> Self {
        Self {
            seed,
            world: Kind::Fake,
            storm,
            at_least: AtLeast::default(),
            longest: storm,
            calm: CALM,
            clients: 8,
            speakers: &ClientProtocol::EVERY,
            // More than a fifth, because many turns die before they ask.
            asking_of_100: 40,
            canceling_of_100: 24,
            breaks: true,
            life: 250..900,
            points: fail_point::POINTS.to_vec(),
            deaths_at_points: None,
            agent_kills: 3,
        }
    }

    /// The same with the real OpenCode, which needs seconds to start where the fake needs none.
    pub fn real_storm(seed: u64, world: Kind) -> Self {
        // Some gateways live long enough to see their OpenCode die and start again.
        let life = if seed % 4 == 3 { STEADY } else { 1_000..4_000 };
        Self {
            world,
            calm: CALM * 2,
            clients: 4,
            // There are fewer tasks, of which a fifth must still ask.
            asking_of_100: 50,
            life,
            agent_kills: 2,
            ..Self::storm(seed, Duration::from_secs(28))
        }
    }

    /// Gateways keep running while their agent dies and connections break: they have to reconnect, and to find out how the
    /// interrupted turns ended.
    pub fn steady(seed: u64, storm: Duration) -> Self {
        Self { life: STEADY, points: Vec::new(), agent_kills: 5, ..Self::storm(seed, storm) }
    }

    /// Only deaths at one fail point.
    pub fn at_point(seed: u64, point: &'static str) -> Self {
        Self {
            clients: 3,
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

/// The breaks of a round, and their result.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub world: Kind,
    pub gateway: Deaths,
    pub agent_kills: u64,
    /// Kills of the agent that the same gateway survived until it was connected again.
    pub survived: u64,
    /// What happened in the storm and in the calm after it.
    pub came: AtLeast,
    /// Between the clients and the gateway, and between the gateway and the agent.
    pub client_side: Counts,
    pub agent_side: Counts,
    pub records: Vec<Record>,
    pub verdict: Verdict,
    /// All details, if there are findings.
    pub evidence: Option<String>,
    pub took: Duration,
}

/// Plays a round. `Err`: the world could not be started or failed itself, which proves nothing about the gateway.
pub async fn play(plan: &Plan, mut world: World) -> Result<Report, String> {
    let began = Instant::now();
    let deadline = began + plan.storm.max(plan.longest) + plan.calm;
    let tally = Arc::new(Tally::default());
    let on_port =
        ClientTarget { base: world.client_url(), token: world.token(), deadline, tally: Arc::clone(&tally) };
    let on_socket = ClientTarget { base: world.socket_url(), ..on_port.clone() };
    let targets = Targets { on_port, on_socket };
    if plan.breaks {
        world.set_breaks(&Breaks::storm());
    }
    let over = CancellationToken::new();
    let clients =
        join_all((0..plan.clients).map(|client_number| visit(plan, client_number, &targets, &over)));
    let (records, result) = tokio::join!(clients, async {
        let result = storm::storm(plan, &mut world, &tally).await;
        over.cancel();
        world.set_breaks(&Breaks::calm());
        result
    });
    let StormResult { deaths: gateway, agent_kills, survived, broken, surprises } = result?;
    let records: Vec<Record> = records.into_iter().flatten().collect();
    let mut observations = Vec::new();
    for record in records {
        let target = targets.of(&record.planned).clone();
        // In the calm, the proxy in front of the unix socket breaks nothing.
        let base = match record.planned.speaker.transport {
            Transport::UnixSocket => target.base,
            Transport::Http | Transport::WebSocket | Transport::Grpc => world.gateway_url(),
        };
        let direct = ClientTarget { base, deadline: Instant::now() + READING, ..target };
        observations.push(client::observe(record, &direct).await);
    }
    let agent_records = world.agent_records().await?;
    let mut verdict = checker::check(&observations, &agent_records, &broken);
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
    // A kill of the agent hits at most one turn of each client.
    let (forgotten, most) = (verdict.forgotten, plan.clients as u64 * agent_kills);
    if forgotten > most {
        let detail =
            format!("{forgotten} tasks report text that a killed OpenCode lost, and at most {most} can");
        verdict.findings.push(Finding { fault: Fault::Untrue, whose, detail });
    }
    let evidence = (!verdict.findings.is_empty()).then(|| {
        let findings: Vec<String> = verdict.findings.iter().map(ToString::to_string).collect();
        format!("{findings:#?}\n\n{broken:#?}\n\n{agent_records:#?}\n\n{observations:#?}\n\n{log}")
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
        records: observations.into_iter().map(|observation| observation.record).collect(),
        verdict,
        evidence,
        took: began.elapsed(),
    })
}

/// The gateway as clients reach it, through the proxies.
#[derive(Debug)]
struct Targets {
    on_port: ClientTarget,
    on_socket: ClientTarget,
}

impl Targets {
    fn of(&self, planned: &PlannedMessage) -> &ClientTarget {
        match planned.speaker.transport {
            Transport::UnixSocket => &self.on_socket,
            Transport::Http | Transport::WebSocket | Transport::Grpc => &self.on_port,
        }
    }

    async fn run(&self, planned: PlannedMessage, begun: Option<oneshot::Sender<()>>) -> Record {
        let target = self.of(&planned);
        client::run(planned, target, begun).await
    }
}

/// The messages of one client.
async fn visit(
    plan: &Plan,
    client_number: usize,
    targets: &Targets,
    over: &CancellationToken,
) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let tally = &targets.on_port.tally;
    let lacks_turns = || plan.at_least.lacks_turns(&AtLeast::of(&Deaths::default(), 0, tally));
    while (!over.is_cancelled() || lacks_turns()) && records.iter().all(|record| record.ended) {
        let first = plan_message(plan, client_number, records.len());
        let second = plan_message(plan, client_number, records.len() + 1);
        if second.follows.as_ref() != Some(&first.id) {
            records.push(targets.run(first, None).await);
            continue;
        }
        let (begun, has_begun) = oneshot::channel();
        let second = async {
            // A first turn that never starts ends without a signal.
            let _ = has_begun.await;
            targets.run(second, None).await
        };
        let (first, second) = tokio::join!(targets.run(first, Some(begun)), second);
        records.extend([first, second]);
    }
    records
}

impl AtLeast {
    /// What has happened so far.
    pub(super) fn of(deaths: &Deaths, agent_kills: u64, tally: &Tally) -> Self {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            gateway_kills: deaths.all(),
            deaths_at_points: deaths.at_any_point(),
            agent_kills,
            cuts: read(&tally.cuts),
            asked: read(&tally.asked),
            canceling: read(&tally.canceling),
            completed: read(&tally.completed),
        }
    }

    /// Whether some minimum is not reached.
    pub fn is_more_than(&self, came: &Self) -> bool {
        self.lacks_breaks(came) || self.lacks_turns(came)
    }

    /// Whether too few things were broken.
    pub(super) fn lacks_breaks(&self, came: &Self) -> bool {
        self.gateway_kills > came.gateway_kills
            || self.deaths_at_points > came.deaths_at_points
            || self.agent_kills > came.agent_kills
            || self.cuts > came.cuts
    }

    /// Whether too few turns ran. The clients continue after the storm until enough have.
    fn lacks_turns(&self, came: &Self) -> bool {
        self.asked > came.asked || self.canceling > came.canceling || self.completed > came.completed
    }
}
