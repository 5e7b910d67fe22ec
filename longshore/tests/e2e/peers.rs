//! Agents that call agents: gateway A, whose agent calls the agent behind gateway B.

use longshore_demo_model::DemoModel;
use longshore_engine::Tasks;
use longshore_testkit::gateway::{Gateway, Setup, TOKEN};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::asking::INTERRUPT;
use crate::client::{Client, PATIENCE, message, message_on};
use crate::frames::{explanation, state_of};
use crate::harness::{Harness, LONGSHORE, scenario};
use crate::real_agents::{self, prepare};

/// The extensions that show usage.
const USAGE: &str = "urn:opencode-a2a:extension:stream-hints:v1";

#[tokio::test(flavor = "multi_thread")]
async fn opencode_calls_the_agent_behind_another_gateway() {
    let b = Harness::demo().await;
    let peers = peers(&[("b", b.gateway.url())]);
    let (mut a, _model) = Harness::configured_with(|setup| setup.env("LONGSHORE_PEERS", peers), |_| {}).await;
    scenario("answer", the_answer_comes_back(&a.client, &b, "longshore_a2a_call")).await;
    scenario("refusals", what_a_model_may_not_do_is_refused(&a, &b)).await;
    scenario("cancel", a_cancel_reaches_the_callee(&a.client, &b)).await;
    scenario("kill", a_call_survives_the_end_of_its_gateway(&mut a, &b, End::Killed)).await;
    scenario("stop", a_call_survives_the_end_of_its_gateway(&mut a, &b, End::Stopped)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_over_acp_calls_the_agent_behind_another_gateway() {
    let b = Harness::demo().await;
    let (root, model) = prepare().await;
    let agent = real_agents::opencode(root.path(), &model);
    let setup = agent.setup().env("LONGSHORE_PEERS", peers(&[("b", b.gateway.url())]));
    let gateway = Gateway::start_in(root, setup).await;
    let client = Client::of(&gateway);
    the_answer_comes_back(&client, &b, "longshore_a2a_call").await;
    // The sessions share one MCP server.
    two_sessions_are_told_apart(&client, &b).await;
    a_cancel_reaches_the_callee(&client, &b).await;
}

/// The agents that have one MCP server for each session.
#[tokio::test(flavor = "multi_thread")]
async fn long_other_acp_agents_call_the_agent_behind_another_gateway() {
    let b = Harness::demo().await;
    for make in [real_agents::claude as fn(&_, &DemoModel) -> _, real_agents::qwen] {
        let (root, model) = prepare().await;
        let agent = make(root.path(), &model);
        let setup = agent.setup().env("LONGSHORE_PEERS", peers(&[("b", b.gateway.url())]));
        let gateway = Gateway::start_in(root, setup).await;
        let client = Client::of(&gateway);
        let before = tasks(&b.client).await.len();
        let prompt = call("mcp__longshore__a2a_call", "b", "scn:text n=1 text=\"from b\"");
        let mut task = client.send(&message(&prompt)).await;
        // These agents ask before they use a tool of an MCP server.
        while state_of(&task) == "INPUT_REQUIRED" {
            task = client.send(&message_on(id(&task), &json!({"text": "once"}))).await;
        }
        assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
        assert!(task["artifacts"].to_string().contains("from b"), "{task:#}");
        assert_eq!(tasks(&b.client).await.len(), before + 1, "{}", agent.title);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_sub_agent_of_opencode_calls_for_the_task_of_its_caller() {
    let b = Harness::demo().await;
    let peers = peers(&[("b", b.gateway.url())]);
    let a = Harness::start(Setup::demo(LONGSHORE).env("LONGSHORE_PEERS", peers)).await;
    let errand = Value::from(call("longshore_a2a_call", "b", "scn:bash cmd=\"touch made\" scn:text n=1"));
    let prompt = format!("scn:task agent=general desc=errand prompt={errand} scn:text n=1");
    let asked = a.client.send(&message(&prompt)).await;
    assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
    assert!(
        explanation(&asked).contains("The agent b, which this task called, asks for a permission"),
        "{asked:#}"
    );
    let done = a.client.send(&message_on(id(&asked), &json!({"text": "once"}))).await;
    assert_eq!(state_of(&done), "COMPLETED", "{done:#}");
    assert!(b.gateway.workspace().join("made").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_loop_of_agents_ends_with_an_error_that_names_the_chain() {
    // Each gateway must know the other's address before that runs.
    let (to_a, to_b) = (Relay::open().await, Relay::open().await);
    let start = async |own: &Relay, peer: &str, other: &Relay| {
        let setup = Setup::demo(LONGSHORE).flag("--public-url").flag(own.url());
        Harness::start(setup.env("LONGSHORE_PEERS", peers(&[(peer, &other.url())]))).await
    };
    let (a, b) = (start(&to_a, "b", &to_b).await, start(&to_b, "a", &to_a).await);
    let tasks_of_relays = Tasks::new();
    to_a.relay(&a.gateway, &tasks_of_relays);
    to_b.relay(&b.gateway, &tasks_of_relays);

    let back = call("longshore_a2a_call", "a", "scn:text n=1 text=\"the loop is closed\"");
    let task = a.client.send(&message(&call("longshore_a2a_call", "b", &back))).await;
    assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
    let of_b = tasks(&b.client).await;
    assert_eq!(of_b.len(), 1, "A called B: {task:#}");
    let shown = of_b[0]["artifacts"].to_string();
    assert!(shown.contains("agents call each other in a loop") && shown.contains(" -> "), "{of_b:#?}");
    assert_eq!(tasks(&a.client).await.len(), 1, "A refused the call of B");
}

/// The callee's permission is asked on the caller's task and answered there, and the callee's usage is part of the caller's.
async fn the_answer_comes_back(a: &Client, b: &Harness, tool: &str) {
    let a = a.activating(&[USAGE, INTERRUPT]);
    let before = tasks(&b.client).await.len();
    let prompt = call(tool, "b", "scn:bash cmd=\"touch made\" scn:text n=1 text=\"from b\"");
    let asked = a.send(&message(&prompt)).await;
    assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
    let words = "The agent b, which this task called, asks for a permission";
    assert!(explanation(&asked).contains(words), "{asked:#}");
    assert!(asked.to_string().contains(r#""type":"permission""#), "the model may not answer it: {asked:#}");
    let done = a.send(&message_on(id(&asked), &json!({"text": "once"}))).await;
    assert_eq!(state_of(&done), "COMPLETED", "{done:#}");
    let shown = done["artifacts"].to_string();
    assert!(shown.contains("from b") && shown.contains("from a"), "{done:#}");
    assert!(!shown.contains("_longshore"), "callers see no proof: {done:#}");
    assert!(b.gateway.workspace().join("made").exists());
    std::fs::remove_file(b.gateway.workspace().join("made")).expect("the file is there");

    let of_b = tasks(&b.client.activating(&[USAGE])).await;
    assert_eq!(of_b.len(), before + 1, "the message was sent once: {of_b:#?}");
    let task = b.client.activating(&[USAGE]).get(id(&of_b[0])).await;
    assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
    let done = a.get(id(&done)).await;
    let (all, of_callee) = (total(&done), total(&task));
    assert!(all > of_callee && of_callee > 0, "{all} with {of_callee} of the callee: {done:#}");
    assert!(shown.contains(&format!("\"total_tokens\":{of_callee}")), "told apart: {done:#}");
}

/// A URL, an internal address, another's call, and a session that the model makes up.
async fn what_a_model_may_not_do_is_refused(a: &Harness, b: &Harness) {
    let before = tasks(&b.client).await.len();
    let made_up = json!({"session": "ses_other", "call": "c", "proof": "AAAA"});
    for (tool, arguments, expected) in [
        ("a2a_call", json!({"agent": b.gateway.url(), "message": "scn:text"}), "URLs cannot be called"),
        (
            "a2a_call",
            json!({"agent": "http://169.254.169.254/", "message": "scn:text"}),
            "URLs cannot be called",
        ),
        ("a2a_call", json!({"agent": "c", "message": "scn:text"}), "There is no agent"),
        ("a2a_status", json!({"call": "call-of-another", "wait_seconds": 0}), "There is no call"),
        // The plugin replaces what the model wrote, so the call counts as one of its own session.
        ("a2a_status", json!({"call": "c1", "_longshore": made_up}), "There is no call"),
    ] {
        let prompt = format!("scn:tool name=longshore_{tool} args={arguments} scn:text n=1 text=\"went on\"");
        let task = a.client.send(&message(&prompt)).await;
        assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
        let refused = task["artifacts"].as_array().into_iter().flatten();
        let refused: Vec<_> =
            refused.map(Value::to_string).filter(|text| text.contains("\"error\"")).collect();
        assert!(refused.iter().any(|text| text.contains(expected)), "{tool} {arguments}: {task:#}");
    }
    assert_eq!(tasks(&b.client).await.len(), before, "nothing was sent");
    let log = a.gateway.log();
    let audited = |line: &&str| line.contains("a call of a peer was refused");
    assert_eq!(log.lines().filter(audited).count(), 5, "one line for each refusal: {log}");
}

async fn a_cancel_reaches_the_callee(a: &Client, b: &Harness) {
    let asked = a.send(&message(&call("longshore_a2a_call", "b", "scn:bash cmd=\"touch never\""))).await;
    assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
    a.cancel(id(&asked)).await.expect("the task can be canceled");
    until_newest_is(&b.client, "CANCELED").await;
    assert!(!b.gateway.workspace().join("never").exists());
}

/// How a gateway ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    /// With SIGTERM, while OpenCode goes on.
    Stopped,
}

async fn a_call_survives_the_end_of_its_gateway(a: &mut Harness, b: &Harness, end: End) {
    let before = tasks(&b.client).await.len();
    let prompt =
        call("longshore_a2a_call", "b", "scn:bash cmd=\"touch survived\" scn:text n=1 text=\"from b\"");
    let asked = a.client.send(&message(&prompt)).await;
    assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
    match end {
        End::Killed => a.gateway.kill(),
        End::Stopped => drop(a.gateway.terminate().await),
    }
    a.restart().await;
    let task = a.client.get(id(&asked)).await;
    assert_eq!(state_of(&task), "INPUT_REQUIRED", "{task:#}");
    let done = a.client.send(&message_on(id(&asked), &json!({"text": "once"}))).await;
    assert_eq!(state_of(&done), "COMPLETED", "{done:#}");
    assert!(done["artifacts"].to_string().contains("from b"), "{done:#}");
    assert_eq!(tasks(&b.client).await.len(), before + 1, "the message was sent once");
}

/// Both turns run at the same time, and each shows its own call only.
async fn two_sessions_are_told_apart(a: &Client, b: &Harness) {
    let prompt =
        |file: &str| call("longshore_a2a_call", "b", &format!("scn:bash cmd=\"touch {file}\" scn:text n=1"));
    let first = a.send(&message(&prompt("first"))).await;
    let second = a.send(&message(&prompt("second"))).await;
    for (task, own, other) in
        [(&first, "touch first", "touch second"), (&second, "touch second", "touch first")]
    {
        assert_eq!(state_of(task), "INPUT_REQUIRED", "{task:#}");
        let shown = a.get(id(task)).await.to_string();
        assert!(shown.contains(own) && !shown.contains(other), "{task:#}");
    }
    for task in [&first, &second] {
        let done = a.send(&message_on(id(task), &json!({"text": "once"}))).await;
        assert_eq!(state_of(&done), "COMPLETED", "{done:#}");
    }
    for file in ["first", "second"] {
        assert!(b.gateway.workspace().join(file).exists(), "{file}");
    }
}

/// The setting of a gateway whose agent may call these.
fn peers(peers: &[(&str, &str)]) -> String {
    let peer = |(name, url): &(&str, &str)| json!({"name": name, "url": url, "bearer_token": TOKEN});
    Value::Array(peers.iter().map(peer).collect()).to_string()
}

/// A prompt that makes the model call an agent, and then say something.
fn call(tool: &str, agent: &str, text: &str) -> String {
    // Long, because a busy machine needs time between the ask and its answer.
    let arguments = json!({"agent": agent, "message": text, "wait_seconds": 300});
    format!("scn:tool name={tool} args={arguments} scn:text n=1 text=\"from a\"")
}

/// The newest first.
async fn tasks(client: &Client) -> Vec<Value> {
    let list = client.call("ListTasks", json!({"includeArtifacts": true, "pageSize": 100})).await;
    list["tasks"].as_array().cloned().unwrap_or_default()
}

async fn until_newest_is(client: &Client, state: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let all = tasks(client).await;
        if all.first().is_some_and(|task| state_of(task) == state) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "the newest task is not {state}: {all:#?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn id(task: &Value) -> &str {
    task["id"].as_str().expect("a task has an id")
}

fn total(task: &Value) -> u64 {
    let usage = &task["metadata"]["shared"]["usage"];
    usage["total_tokens"].as_u64().unwrap_or_else(|| panic!("no usage in {task:#}"))
}

/// A port that leads to a gateway which is started later.
struct Relay(TcpListener);

impl Relay {
    async fn open() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback"))
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("a listener has an address"))
    }

    /// The URL of the gateway is that of the relay. Its own address is in its data directory.
    fn relay(self, gateway: &Gateway, tasks: &Tasks) {
        let own = std::fs::read_to_string(gateway.data_dir().join("address")).expect("the gateway runs");
        let address = own.trim().trim_start_matches("http://").to_owned();
        let connections = tasks.clone();
        tasks.spawn("relay", async move {
            while let Ok((mut from, _)) = self.0.accept().await {
                let mut to = TcpStream::connect(&address).await.expect("the gateway listens");
                connections.spawn("relayed connection", async move {
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                });
            }
        });
    }
}
