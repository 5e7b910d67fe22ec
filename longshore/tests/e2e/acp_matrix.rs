//! Every real agent that speaks ACP, with every official client, over every binding that it has: each plays the same path.
//!
//! A path: send, stream, read the rest of a lost stream, cancel, a permission allowed and one rejected by a plain message, a second
//! turn; then the gateway is restarted, and the same conversation goes on. The clients in other languages have their path in
//! `interop/`. In the end `longshore agents check` must print what `docs/agents.md` shows.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use a2a::{
    CancelTaskRequest, SendMessageConfiguration, StreamResponse, SubscribeToTaskRequest,
    TRANSPORT_PROTOCOL_GRPC, TRANSPORT_PROTOCOL_HTTP_JSON, TRANSPORT_PROTOCOL_JSONRPC, Task, TaskState,
};
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use longshore_demo_model::DemoModel;
use longshore_testkit::gateway::{Gateway, TOKEN, path_with_tools};
use serde_json::json;
use tokio::process::Command;

use crate::official_client::{
    Client, collect, connect, discover, fold, get, message, ok, request, send, task_of, within,
};
use crate::real_agents::{self, RealAgent, prepare};

/// A client in another language, which plays a path for each of its bindings.
struct Program {
    name: &'static str,
    /// On the PATH, or below the repository.
    executable: &'static str,
    /// `HALF` stands for the half of the paths that is to be played.
    arguments: &'static [&'static str],
    /// How many bindings it has.
    bindings: usize,
}

const PROGRAMS: [Program; 4] = [
    Program {
        name: "python-1.0",
        executable: ".tools/venv/bin/python",
        arguments: &["-m", "pytest", "-k", "HALF", "interop/python/path_of_agent.py"],
        bindings: 3,
    },
    Program {
        name: "python-0.3",
        executable: ".tools/venv03/bin/python",
        arguments: &["-m", "pytest", "-k", "HALF", "interop/python03/path_of_agent.py"],
        bindings: 3,
    },
    Program { name: "js-1.x", executable: "node", arguments: &node("HALF of @a2a-js/sdk 1.x,"), bindings: 2 },
    Program {
        name: "js-0.3",
        executable: "node",
        arguments: &node("HALF of @a2a-js/sdk 0.3.x,"),
        bindings: 2,
    },
];

/// Node plays the tests with such names.
const fn node(names: &'static str) -> [&'static str; 5] {
    ["--test", "--test-reporter=spec", "--test-name-pattern", names, "interop/js/path-of-agent.mjs"]
}

/// The bindings of the Rust client.
const BINDINGS: [&str; 3] =
    [TRANSPORT_PROTOCOL_JSONRPC, TRANSPORT_PROTOCOL_HTTP_JSON, TRANSPORT_PROTOCOL_GRPC];

/// How many clients play at the same time.
const AT_ONCE: usize = 3;

/// The file for a line about each agent.
const ROWS: &str = "LONGSHORE_MATRIX_ROWS";

#[tokio::test(flavor = "multi_thread")]
async fn long_opencode_over_acp_serves_every_client() {
    play(real_agents::opencode).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_qwen_code_serves_every_client() {
    play(real_agents::qwen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_claude_agent_serves_every_client() {
    play(real_agents::claude).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_mistral_vibe_serves_every_client() {
    play(real_agents::vibe).await;
}

async fn play(agent: fn(&Path, &DemoModel) -> RealAgent) {
    let begun = Instant::now();
    let (root, model) = prepare().await;
    let agent = agent(root.path(), &model);
    let mut gateway = Gateway::start_in(root, agent.setup()).await;
    let contexts = every_client(&gateway, &agent, "before_restart", &[]).await;
    gateway.terminate().await;
    gateway.restart().await;
    every_client(&gateway, &agent, "after_restart", &contexts).await;

    let printed = without_times(&agent.check(&gateway.workspace()).await);
    let page = std::fs::read_to_string(repository().join("docs/agents.md")).expect("the page of agents");
    assert!(without_times(&page).contains(&printed), "docs/agents.md shows another check than: {printed}");

    let turns = model.journal().turns();
    let later: Vec<_> = turns.iter().filter(|turn| turn.prompt.contains("after the restart")).collect();
    let paths = BINDINGS.len() + PROGRAMS.iter().map(|program| program.bindings).sum::<usize>();
    assert_eq!(later.len(), paths, "one prompt for each path: {later:#?}");
    let forgot: Vec<_> = later.iter().filter(|turn| turn.user_messages <= 2).collect();
    assert!(forgot.is_empty(), "the agent forgot conversations: {forgot:#?}");
    let row = format!(
        "ACP matrix: {}: {paths} paths (Rust, Python and JavaScript clients of 1.0 and 0.3, every binding) in {} s",
        agent.title,
        begun.elapsed().as_secs()
    );
    note(&row);
}

/// Plays this half of all paths. Returns the contexts of the paths of the Rust client.
async fn every_client(gateway: &Gateway, agent: &RealAgent, half: &str, contexts: &[String]) -> Vec<String> {
    let rust = BINDINGS.iter().enumerate().map(|(at, binding)| {
        let context = contexts.get(at);
        async move {
            let (http, card) = discover(gateway).await;
            let client = connect(&http, &card, binding, TOKEN).await;
            match context {
                None => before_restart(&client, gateway, agent, binding).await,
                Some(context) => after_restart(&client, context, binding).await,
            }
        }
        .boxed_local()
    });
    let others = PROGRAMS.iter().map(|program| {
        async move {
            run(gateway, agent, program, half).await;
            String::new()
        }
        .boxed_local()
    });
    let all: Vec<LocalBoxFuture<'_, String>> = rust.chain(others).collect();
    let mut contexts: Vec<String> = stream::iter(all).buffered(AT_ONCE).collect().await;
    contexts.truncate(BINDINGS.len());
    contexts
}

/// Runs a client in another language.
async fn run(gateway: &Gateway, agent: &RealAgent, client: &Program, half: &str) {
    let (root, name) = (repository(), client.name);
    let served = json!({
        "url": gateway.url(),
        "token": TOKEN,
        "workspace": gateway.workspace(),
        "touch": touch(agent, "FILE"),
        "notes": gateway.data_dir().with_file_name(format!("notes-{name}.json")),
    });
    let program = if client.executable.contains('/') {
        root.join(client.executable)
    } else {
        PathBuf::from(client.executable)
    };
    let mut command = Command::new(program);
    let arguments = client.arguments.iter().map(|argument| argument.replace("HALF", half));
    command
        .args(arguments)
        .current_dir(&root)
        .env("PATH", path_with_tools())
        .env("LONGSHORE_SERVED_AGENT", served.to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await.expect("the client can be started");
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{} with {name}: {told}", agent.title);
    let passed = [format!("{} passed", client.bindings), format!("pass {}", client.bindings)];
    let passed = passed.iter().any(|text| told.contains(text.as_str()));
    assert!(passed, "{} with {name}: expected one test for each binding: {told}", agent.title);
}

pub(crate) async fn before_restart(
    client: &Client,
    gateway: &Gateway,
    agent: &RealAgent,
    binding: &str,
) -> String {
    let sent = send(client, message("scn:text n=3 text=\"The tide turns at six.\"")).await;
    ended(binding, &sent, &TaskState::Completed, Some("The tide turns at six."));
    let context = sent.context_id;
    let say = |text: &str| a2a::Message { context_id: Some(context.clone()), ..message(text) };

    let prompt = request(say("scn:text n=6 text=\"Anchors aweigh, and off we go.\""));
    let events = collect(ok("SendStreamingMessage", client.send_streaming_message(&prompt).await)).await;
    let streamed = fold(&events);
    ended(binding, &streamed, &TaskState::Completed, Some("Anchors aweigh, and off we go."));
    let stored = ok("GetTask", client.get_task(&get(&streamed.id)).await);
    assert_eq!((said(&stored), &stored.status), (said(&streamed), &streamed.status), "{binding}");

    // A client that loses its stream reads the rest from a new one.
    let lost = leave(client.send_streaming_message(&request(say("scn:text n=60 delay=50"))).await).await;
    let subscribe = SubscribeToTaskRequest { id: lost.clone(), tenant: None };
    let rest = fold(&collect(ok("SubscribeToTask", client.subscribe_to_task(&subscribe).await)).await);
    let stored = ok("GetTask", client.get_task(&get(&lost)).await);
    ended(binding, &rest, &TaskState::Completed, Some(&said(&stored)));

    let mut endless = request(say("scn:forever delay=20"));
    endless.configuration = Some(SendMessageConfiguration {
        return_immediately: Some(true),
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: None,
    });
    let running = task_of(ok("SendMessage", within(client.send_message(&endless)).await));
    let subscribe = SubscribeToTaskRequest { id: running.id.clone(), tenant: None };
    leave(client.subscribe_to_task(&subscribe).await).await;
    let cancel = CancelTaskRequest { id: running.id.clone(), metadata: None, tenant: None };
    ended(binding, &ok("CancelTask", client.cancel_task(&cancel).await), &TaskState::Canceled, None);

    for (answer, is_allowed) in [("once", true), ("reject", false)] {
        let name = format!("rust-{}-{answer}", binding.len());
        let waiting = send(client, say(&touch(agent, &name))).await;
        ended(binding, &waiting, &TaskState::InputRequired, None);
        let file = gateway.workspace().join(&name);
        assert!(!file.exists(), "{binding}: the agent did not wait for the answer");
        let answer = a2a::Message { task_id: Some(waiting.id.clone()), ..message(answer) };
        let answered = send(client, answer).await;
        assert_eq!(answered.id, waiting.id, "{binding}");
        ended(binding, &answered, &TaskState::Completed, None);
        assert_eq!(file.exists(), is_allowed, "{binding}: {answered:#?}");
    }

    let again = send(client, say("scn:text n=2 text=\"once more\"")).await;
    ended(binding, &again, &TaskState::Completed, Some("once more"));
    context
}

pub(crate) async fn after_restart(client: &Client, context: &str, binding: &str) -> String {
    let words = message("scn:text n=2 text=\"after the restart\"");
    let task = send(client, a2a::Message { context_id: Some(context.to_owned()), ..words }).await;
    assert_eq!(task.context_id, context, "{binding}");
    ended(binding, &task, &TaskState::Completed, Some("after the restart"));
    task.context_id
}

/// Reads a stream up to its first text, and leaves it. Returns the id of its task.
async fn leave(
    opened: Result<a2a_client::BoxStream<'static, Result<StreamResponse, a2a::A2AError>>, a2a::A2AError>,
) -> String {
    let mut events = ok("a stream", opened);
    loop {
        match within(events.next()).await {
            Some(Ok(StreamResponse::ArtifactUpdate(update))) => return update.task_id,
            Some(Ok(_)) => {}
            other => panic!("expected some text, got {other:#?}"),
        }
    }
}

fn ended(binding: &str, task: &Task, state: &TaskState, words: Option<&str>) {
    assert_eq!(&task.status.state, state, "{binding}: {task:#?}");
    if let Some(words) = words {
        assert_eq!(said(task), words, "{binding}: {task:#?}");
    }
}

/// What the agent said, without its tool calls.
fn said(task: &Task) -> String {
    let texts = task.artifacts.iter().flatten().filter(|artifact| artifact.name.as_deref() == Some("text"));
    texts.flat_map(|artifact| artifact.parts.iter().filter_map(a2a::Part::as_text)).collect()
}

/// The prompt with which the agent touches a file, for which it needs a permission.
fn touch(agent: &RealAgent, file: &str) -> String {
    format!("{} scn:text n=2 text=\"Done.\"", (agent.shell)(&format!("touch {file}")))
}

/// Text of a check without the durations at the ends of its lines.
fn without_times(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rfind(" (") {
        Some(at) if line.ends_with(" s)") => &line[..at],
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository").to_owned()
}

/// Adds a line to the summary of the run.
fn note(row: &str) {
    let _ = writeln!(std::io::stderr(), "{row}");
    let Some(path) = std::env::var_os(ROWS) else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    writeln!(file.expect("the file of rows can be opened"), "{row}").expect("a row can be written");
}
