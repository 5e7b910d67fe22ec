//! Short seeded storms: clients, the gateway and a fake OpenCode are killed and cut at random. `make chaos` runs the full
//! campaign.

mod lost_aborts;

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use longshore_engine::fail_point;
use longshore_testkit::chaos::round::{self, AtLeast, Plan, Report};
use longshore_testkit::chaos::{ClientProtocol, World};

const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");

async fn run_round(plan: Plan) -> Report {
    let world = World::with_fake(Path::new(LONGSHORE), plan.seed).await.expect("a world can be made");
    let report = round::play(&plan, world).await;
    let report = report.unwrap_or_else(|problem| panic!("seed {}: {problem}", plan.seed));
    if let Some(evidence) = &report.evidence {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{}.txt", plan.seed));
        std::fs::write(file, evidence).expect("the target directory can be written to");
    }
    report
}

fn check(reports: &[Report]) {
    let findings_of = |report: &Report| {
        let findings: Vec<String> = report.verdict.findings.iter().map(ToString::to_string).collect();
        (!findings.is_empty()).then_some((report.seed, findings))
    };
    let findings: Vec<(u64, Vec<String>)> = reports.iter().filter_map(findings_of).collect();
    assert!(findings.is_empty(), "by seed: {findings:#?}");
}

/// How long a storm may take on a slow machine.
const LONGEST: Duration = Duration::from_secs(75);

/// The faults that each long storm must contain: a storm that breaks little proves little.
const AT_LEAST: AtLeast = AtLeast {
    gateway_kills: 12,
    deaths_at_points: 2,
    agent_kills: 2,
    cuts: 60,
    asked: 3,
    canceling: 2,
    completed: 2,
};

/// The bindings beside HTTP, each in both versions.
const OTHER_BINDINGS: [&[ClientProtocol]; 3] =
    [&ClientProtocol::WEBSOCKET, &ClientProtocol::GRPC, &ClientProtocol::UNIX_SOCKET];

#[tokio::test(flavor = "multi_thread")]
async fn a_short_storm_loses_nothing() {
    let at_least = AtLeast { gateway_kills: 3, agent_kills: 1, cuts: 15, completed: 1, ..AtLeast::default() };
    storm([(5, &ClientProtocol::ALL)], Duration::from_secs(4), at_least).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_storm_over_each_other_binding_loses_nothing() {
    let at_least = AtLeast { gateway_kills: 2, cuts: 10, completed: 1, ..AtLeast::default() };
    let [websocket, grpc, unix_socket] = OTHER_BINDINGS;
    storm([(7, websocket), (8, grpc), (9, unix_socket)], Duration::from_secs(3), at_least).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_storms_lose_nothing() {
    storm([(5, &ClientProtocol::EVERY), (6, &ClientProtocol::EVERY)], Duration::from_secs(12), AT_LEAST)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_storms_over_each_other_binding_lose_nothing() {
    // Three storms at once, so that each of them makes fewer connections in its time.
    let at_least = AtLeast { cuts: 15, ..AT_LEAST };
    let [websocket, grpc, unix_socket] = OTHER_BINDINGS;
    storm([(10, websocket), (20, grpc), (30, unix_socket)], Duration::from_secs(12), at_least).await;
}

/// Plays one round for each seed, with clients of these protocol versions and bindings.
async fn storm<const N: usize>(
    rounds: [(u64, &'static [ClientProtocol]); N],
    duration: Duration,
    at_least: AtLeast,
) {
    let plan =
        |(seed, speakers)| Plan { speakers, at_least, longest: LONGEST, ..Plan::storm(seed, duration) };
    let reports = join_all(rounds.map(plan).map(run_round)).await;
    check(&reports);
    for report in &reports {
        assert!(!at_least.is_more_than(&report.came), "too little was broken: {:?}", report.came);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_death_at_any_fail_point_loses_nothing() {
    let at_least = AtLeast { deaths_at_points: 1, ..AtLeast::default() };
    let plans = fail_point::POINTS.iter().zip(100..).map(|(point, seed)| Plan {
        at_least,
        longest: LONGEST,
        ..Plan::at_point(seed, point)
    });
    let reports = join_all(plans.map(run_round)).await;
    check(&reports);
    for (report, point) in reports.iter().zip(fail_point::POINTS) {
        assert!(report.gateway.at_points.contains_key(point), "no gateway died at {point}");
    }
}
