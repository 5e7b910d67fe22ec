//! An ACP agent and the gateway in front of it are killed at random moments, while clients send one message after the other.
//!
//! The agent is the scripted one of the test kit: each message is the script of its own turn, so what the agent would have said is
//! known. A seed decides the scripts, the clients and the moments. `LONGSHORE_CAMPAIGN_SEED` chooses another one.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use longshore_model::{PartContent, Task, TaskState};
use longshore_testkit::chaos::checker::{Fault, check_reading};
use longshore_testkit::chaos::client::{self, ClientTarget};
use longshore_testkit::chaos::proxy::ChaosProxy;
use longshore_testkit::chaos::{Answering, CancelAt, ClientProtocol, PlannedMessage, Record};
use longshore_testkit::fake_acp::{Action, FakeAcp, Options};
use longshore_testkit::gateway::{Gateway, Setup, TOKEN, is_alive, kill, until};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");
const SEED_VARIABLE: &str = "LONGSHORE_CAMPAIGN_SEED";
const CLIENTS: usize = 6;
/// A whole campaign is done long before.
const DEADLINE: Duration = Duration::from_mins(20);
const PATIENCE: Duration = Duration::from_mins(1);

/// The reasons for which a turn may fail here. Any other reason is untrue.
const REASONS: [&str; 5] = [
    "The agent ended (signal: 9 (SIGKILL)).",
    "The agent ended, or closed its output.",
    "The agent closed its input.",
    "The gateway was restarted while the agent worked on the turn",
    "The gateway was restarted during the turn, and the agent with it, before the agent had reported anything.",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Agent,
    Gateway,
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_an_acp_agent_and_of_its_gateway_lose_nothing() {
    campaign(Victim::Agent, 3, 1).await;
    campaign(Victim::Gateway, 2, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_hundred_kills_of_an_acp_agent_lose_nothing() {
    campaign(Victim::Agent, 100, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_hundred_kills_of_the_gateway_of_an_acp_agent_lose_nothing() {
    campaign(Victim::Gateway, 100, 4).await;
}

/// A gateway with the scripted agent.
struct World {
    fake: FakeAcp,
    gateway: Gateway,
    proxy: ChaosProxy,
}

impl World {
    async fn start(seed: u64, victim: Victim) -> Self {
        let fake = FakeAcp::start();
        let options = Options {
            load: true,
            resume: seed.is_multiple_of(2),
            close: true,
            echoes_prompts: true,
            early_updates: true,
            // Nothing but the gateway can end such an agent.
            ignores_end_of_input: victim == Victim::Gateway,
            ..Options::default()
        };
        let binary = Path::new(LONGSHORE).with_file_name("fake-acp");
        assert!(binary.exists(), "the agent is not built: use --workspace");
        let variables =
            fake.environment(&options).into_iter().map(|(name, value)| format!("'{name}={value}'"));
        let words: Vec<String> = variables.chain([binary.display().to_string()]).collect();
        let setup = Setup::acp(LONGSHORE, &format!("env {}", words.join(" ")), BTreeMap::new());
        let gateway = Gateway::start(setup).await;
        let proxy = ChaosProxy::start(address(&gateway), seed).await.expect("a proxy");
        Self { fake, gateway, proxy }
    }

    /// The processes that the agent reported under this name.
    fn processes(&self, name: &str) -> Vec<u32> {
        let reports = self.fake.reports().into_iter();
        reports.filter_map(|report| report[name].as_u64()?.try_into().ok()).collect()
    }

    fn agent(&self) -> Option<u32> {
        self.processes("started").last().copied().filter(|pid| is_alive(*pid))
    }

    /// Kills the agent when it has lived for some time: it is started again after a pause only.
    async fn kill_agent(&self, life: Duration) {
        until(PATIENCE, "the agent is started again", || self.agent().is_some()).await;
        sleep(life).await;
        if let Some(agent) = self.agent() {
            kill(agent);
        }
    }

    async fn kill_gateway(&mut self, life: Duration) {
        sleep(life).await;
        let before = self.processes("started");
        self.proxy.lead_nowhere();
        self.gateway.kill();
        self.gateway.restart().await;
        // The gateway listens only when its agent runs, and that starts only when the old one is gone.
        let left: Vec<u32> = before.into_iter().filter(|pid| is_alive(*pid)).collect();
        assert_eq!(left, [] as [u32; 0], "the agent of the killed gateway still runs");
        self.proxy.retarget(address(&self.gateway));
    }

    /// How often the agent got each prompt.
    fn prompts(&self) -> BTreeMap<String, usize> {
        let mut prompts = BTreeMap::new();
        for report in self.fake.reports() {
            if let Some(text) = report["prompt"]["text"].as_str() {
                *prompts.entry(text.to_owned()).or_default() += 1;
            }
        }
        prompts
    }
}

fn address(gateway: &Gateway) -> std::net::SocketAddr {
    gateway.url().trim_start_matches("http://").parse().expect("an address")
}

async fn campaign(victim: Victim, kills: usize, seed: u64) {
    let seed = std::env::var(SEED_VARIABLE).map_or(seed, |seed| seed.parse().expect("a seed is a number"));
    let run = format!("{SEED_VARIABLE}={seed} repeats this run ({victim:?}, {kills} kills)");
    show(&run);
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::start(seed, victim).await;
    let target = ClientTarget {
        base: world.proxy.url(),
        token: TOKEN.to_owned(),
        deadline: Instant::now() + DEADLINE,
        tally: Arc::default(),
    };
    let over = CancellationToken::new();
    let clients = join_all((0..CLIENTS).map(|number| visit(seed, number, &target, &over)));
    let killing = async {
        for _ in 0..kills {
            // No event announces a random moment.
            let life = Duration::from_millis(random.random_range(0..900));
            match victim {
                Victim::Agent => world.kill_agent(life).await,
                Victim::Gateway => world.kill_gateway(life).await,
            }
        }
        over.cancel();
    };
    let (records, ()) = tokio::join!(clients, killing);

    let direct = ClientTarget { base: world.gateway.url().to_owned(), ..target };
    let prompts = world.prompts();
    let (mut findings, mut ends) = (Vec::new(), BTreeMap::<String, usize>::new());
    for record in records.into_iter().flatten() {
        let observation = client::observe(record, &direct).await;
        let (planned, wants_cancel) =
            (observation.record.planned.clone(), observation.record.planned.cancel.is_some());
        let mut report = |fault: Fault, detail: String| {
            findings.push(format!("{}: {}: {detail}", fault.name(), planned.id));
        };
        let task = check_reading(&observation, &mut report);
        let times = prompts.get(&planned.words).copied().unwrap_or_default();
        if times > 1 {
            report(Fault::DoublePrompt, format!("{times} times"));
        }
        if let Some(task) = task.filter(|_| observation.record.ended) {
            match end(&task, &planned.words, wants_cancel, times) {
                Ok(end) => *ends.entry(end).or_default() += 1,
                Err(problem) => report(Fault::Untrue, problem),
            }
        }
    }
    assert!(findings.is_empty(), "{run}:\n{}\n{}", findings.join("\n"), world.gateway.log());
    show(&format!("{ends:?}"));
    let of =
        |state: &str| ends.iter().filter(|(end, _)| end.starts_with(state)).map(|(_, count)| count).sum();
    let (completed, failed): (usize, usize) = (of("COMPLETED"), of("FAILED"));
    assert!(completed >= kills / 4 && failed >= kills / 8, "{run}: too little was broken: {ends:?}");

    let ended = world.gateway.terminate().await;
    assert!(ended.success(), "{run}: {ended}");
    for pid in world.processes("started").into_iter().chain(world.processes("forked")) {
        until(PATIENCE, &format!("{run}: no process is left, but {pid}"), || !is_alive(pid)).await;
    }
    assert!(!world.gateway.log().contains("panicked"), "{run}: {}", world.gateway.log());
    world.fake.stop().await;
}

fn show(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Sends one message after the other until the kills are over.
async fn visit(seed: u64, number: usize, target: &ClientTarget, over: &CancellationToken) -> Vec<Record> {
    let mut random = StdRng::seed_from_u64(seed ^ (number as u64 + 1) << 20);
    let mut records = Vec::new();
    while !over.is_cancelled() {
        let id = format!("{seed:x}-{number}-{}", records.len());
        let script = script(&id, &mut random);
        let asks = script.iter().any(|action| matches!(action, Action::Ask { .. }));
        let at = if asks && random.random_bool(0.5) {
            CancelAt::Ask
        } else {
            CancelAt::Frame(random.random_range(1..8))
        };
        let planned = PlannedMessage {
            words: serde_json::to_string(&script).expect("JSON"),
            speaker: ClientProtocol::ALL[(number + records.len()) % ClientProtocol::ALL.len()],
            answering: if random.random_bool(0.5) { Answering::ByMessage } else { Answering::ByCall },
            // Most turns continue a conversation, whose session must be opened again after a death.
            context: random.random_bool(0.7).then(|| format!("talk-{seed:x}-{number}")),
            cancel: random.random_bool(0.15).then_some(at),
            follows: None,
            steers: false,
            seed: random.random(),
            id,
        };
        records.push(client::run(planned, target, None).await);
    }
    records
}

/// A turn of a few hundred milliseconds.
fn script(id: &str, random: &mut StdRng) -> Vec<Action> {
    let mut script = vec![Action::Text(format!("{id}: "))];
    for number in 0..random.random_range(2..12) {
        let (call, command) = (format!("c{number}"), format!("make part-{number}"));
        match random.random_range(0..10) {
            0 => {
                script.push(Action::BeginTool { call: call.clone(), command });
                script.push(Action::Pause(random.random_range(0..60)));
                script.push(Action::EndTool { call, output: "done".to_owned(), is_failed: false });
            }
            1 => script.push(Action::Ask { call, command, skip: 0 }),
            2 => script.push(Action::Fork),
            _ => script.push(Action::Text(format!("word-{number} "))),
        }
        script.push(Action::Pause(random.random_range(0..40)));
    }
    script
}

/// How the task ended. `Err`: that is not true, or not possible.
fn end(task: &Task, words: &str, wants_cancel: bool, prompts: usize) -> Result<String, String> {
    let script: Vec<Action> = serde_json::from_str(words).expect("the script that was sent");
    let texts = script.iter().filter_map(|action| match action {
        Action::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let (whole, said): (String, String) = (texts.collect(), text(task));
    if !whole.starts_with(&said) {
        return Err(format!("the task says {said:?}, and the agent {whole:?}"));
    }
    let open = open_calls(task);
    if !open.is_empty() {
        return Err(format!("the task has ended, and these calls have not: {open:?}"));
    }
    let state = task.status.state;
    let explanation = task.status.message.iter().flat_map(|message| &message.parts);
    let explanation: String = explanation.filter_map(|part| part.as_text()).collect();
    match state {
        TaskState::Completed if said == whole && prompts == 1 => Ok("COMPLETED".to_owned()),
        TaskState::Canceled if wants_cancel => Ok("CANCELED".to_owned()),
        TaskState::Failed => match REASONS.iter().find(|reason| explanation.starts_with(**reason)) {
            Some(reason) => Ok(format!("FAILED: {reason}")),
            None => Err(format!("the task failed with {explanation:?}")),
        },
        _ => Err(format!("{state:?} after {prompts} prompts with {said:?} of {whole:?}: {explanation}")),
    }
}

fn text(task: &Task) -> String {
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    parts.filter_map(|part| part.as_text()).collect()
}

/// The tool calls that the task shows as not ended.
fn open_calls(task: &Task) -> Vec<Value> {
    let last = task.artifacts.iter().filter_map(|artifact| match &artifact.parts.last()?.content {
        PartContent::Data(data) => Some(data.to_value()),
        _ => None,
    });
    last.filter(|call| matches!(call["status"].as_str(), Some("pending" | "running"))).collect()
}
