//! Agents that break every rule: each is a small shell script, started as a real agent would be.

#![expect(clippy::unwrap_used, reason = "a panic is the right answer to a machine without a shell")]

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_agent_acp::connection::{CallError, Limits};
use longshore_agent_acp::content::PromptBlock;
use longshore_agent_acp::launch::{Failed, Running, launch};
use longshore_agent_acp::process::{Ending, ProcessConfig, environment};
use longshore_agent_acp::turn::Turn;
use longshore_agent_acp::{AcpAgent, AcpConfig, FileAccess};
use longshore_engine::port::{self, Agent as _, Input, NewSession, Prompting, TurnRequest};
use longshore_engine::{ProtectedPaths, Tasks};
use longshore_model::{AgentEvent, Error, ErrorKind, Outcome, PromptId, PromptOptions, SessionId, TaskId};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_mins(1);

/// Reads a line and answers the request with this number.
const ANSWERS: &str = r#"
ok() { read -r line; printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
text() { printf '{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}}}\n' "$1"; }
start() { ok 1 '{"protocolVersion":1,"agentInfo":{"name":"hostile","version":"1"}}'; ok 2 '{"sessionId":"s"}'; read -r prompt; }
end() { printf '{"id":3,"result":{"stopReason":"end_turn"}}\n'; }
"#;

fn config(script: &str) -> ProcessConfig {
    ProcessConfig {
        arguments: vec!["-c".into(), format!("{ANSWERS}\n{script}").into()],
        environment: environment(std::env::vars_os(), &BTreeMap::new()),
        patience: Duration::from_secs(20),
        grace: Duration::from_millis(100),
        ..ProcessConfig::new("sh", std::env::temp_dir())
    }
}

fn limits() -> Limits {
    Limits {
        line_bytes: 64 * 1024,
        start: Duration::from_secs(30),
        call: Duration::from_secs(30),
        ..Limits::default()
    }
}

async fn try_start(script: &str) -> Result<Running, Error> {
    timeout(PATIENCE, launch(&config(script), limits(), &Tasks::new())).await.expect("the start ends")
}

/// A turn with an agent that runs `script` after it got the prompt.
async fn prompted(script: &str) -> (Running, Turn) {
    let running = try_start(&format!("start; {script}")).await.unwrap();
    let session = running.connection.new_session("/", &[]).await.unwrap();
    let blocks = [PromptBlock::Text { text: "hi".to_owned() }];
    let id = SessionId::parse(&session.id).unwrap();
    let turn = Turn::start(&running.connection, id, &PromptId::parse("p").unwrap(), &blocks).unwrap();
    (running, turn)
}

async fn rest(turn: &mut Turn) -> (String, Outcome) {
    let mut text = String::new();
    let all = async {
        while let Some(events) = turn.next().await {
            for event in events {
                match event {
                    AgentEvent::Text { text: more, .. } => text.push_str(&more),
                    AgentEvent::Ended(outcome) => return outcome,
                    _ => {}
                }
            }
        }
        panic!("the turn has no end");
    };
    let outcome = timeout(PATIENCE, all).await.expect("the turn ends");
    (text, outcome)
}

fn why(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed(failure) => &failure.message,
        other => panic!("not failed: {other:?}"),
    }
}

/// Waits until a process that is no child of the test is gone, or a zombie that its new parent has not reaped yet.
async fn gone(pid: &str) {
    let stat = format!("/proc/{pid}/stat");
    let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z"));
    timeout(PATIENCE, async {
        while !is_gone() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the child of the agent is killed");
}

#[tokio::test]
async fn an_agent_that_prints_a_sentence_and_exits_is_a_start_failure_that_quotes_it() {
    let error = try_start("echo 'no longer maintained, see /opt/x'; exit 0").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentUnavailable);
    assert_eq!(
        error.message(),
        "The agent `sh` ended before it answered (exit status: 0). It printed: no longer maintained, see <redacted-path>"
    );
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let config = ProcessConfig { program: "/nowhere/no-such-agent".into(), ..config("") };
    let error = launch(&config, limits(), &Tasks::new()).await.unwrap_err();
    assert!(error.message().contains("no executable program `no-such-agent`"), "{error}");
}

#[tokio::test]
async fn an_agent_that_never_answers_fails_after_the_limit_and_is_ended() {
    let limits = Limits { start: Duration::from_millis(100), ..limits() };
    let (config, tasks) = (config("cat >/dev/null"), Tasks::new());
    let error = timeout(PATIENCE, launch(&config, limits, &tasks)).await.unwrap().unwrap_err();
    assert!(
        error.message().starts_with("The agent could not start: no answer to initialize within"),
        "{error}"
    );
}

#[tokio::test]
async fn garbage_between_the_messages_is_counted_and_ignored() {
    let garbage = r#"
echo 'warning: deprecated'; printf '\377\376\n'; echo '{"half":'; echo '[]'; echo '{}'; echo; echo '{"id":99,"result":{}}'
echo '{"id":"3","result":{"stopReason":"cancelled"}}'; echo '{"method":"session/update","params":7}'; echo '{"method":"$/odd"}'
echo '{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"telepathy"}}}'
text good; end; cat >/dev/null"#;
    let (running, mut turn) = prompted(garbage).await;
    let (text, outcome) = rest(&mut turn).await;
    assert_eq!((text.as_str(), outcome), ("good", Outcome::Completed { remark: None }));
    let counted = running.connection.ignored();
    assert_eq!(counted["answer to no request"], 2);
    assert_eq!((counted["line that is no JSON"], counted["line that is no message"]), (2, 3));
    assert_eq!((counted["notification $/odd"], counted["update that cannot be read"]), (1, 1));
    assert_eq!(counted["update telepathy"], 1);
    assert_eq!(running.end().await.unwrap(), Ending::ByItself);
}

#[tokio::test]
async fn a_line_of_100_megabytes_is_dropped_and_the_turn_goes_on() {
    let huge = r#"
printf '{"method":"session/update","params":{"sessionId":"s","update":{"text":"'; head -c 100000000 /dev/zero | tr '\0' x; echo '"}}}'
text after; end; cat >/dev/null"#;
    let (_running, mut turn) = prompted(huge).await;
    let (text, outcome) = rest(&mut turn).await;
    assert_eq!(text, "after");
    let Outcome::Incomplete(outcome) = outcome else { panic!("nothing is said to be missing: {outcome:?}") };
    let Outcome::Completed { remark: Some(remark) } = *outcome else { panic!("not completed: {outcome:?}") };
    assert!(remark.starts_with("A piece of the agent's output is missing here"), "{remark}");
    assert_eq!(turn.translator().ignored().counts()["update that is too long"], 1);
}

#[tokio::test]
async fn an_endless_line_that_could_be_the_answer_ends_the_connection_with_a_reason() {
    let (_running, mut turn) = prompted("head -c 1000000 /dev/zero | tr '\\0' x; echo; cat >/dev/null").await;
    let (_, outcome) = rest(&mut turn).await;
    assert!(why(&outcome).starts_with("The agent sent a line of 1000000 bytes"), "{outcome:?}");
}

#[tokio::test]
async fn a_flood_of_updates_comes_whole_and_in_order() {
    let (_running, mut turn) =
        prompted("i=0; while [ $i -lt 20000 ]; do text \"$i \"; i=$((i+1)); done; end; cat >/dev/null").await;
    let (text, outcome) = rest(&mut turn).await;
    assert_eq!(outcome, Outcome::Completed { remark: None });
    assert!(
        text == (0..20_000).map(|number| format!("{number} ")).collect::<Vec<_>>().concat(),
        "text was lost"
    );
}

#[tokio::test]
async fn an_agent_that_dies_in_a_turn_fails_it_and_keeps_what_was_said() {
    let (running, mut turn) = prompted("text half; kill -9 $$").await;
    let (text, outcome) = rest(&mut turn).await;
    assert_eq!(text, "half");
    assert!(
        why(&outcome).starts_with("The agent ended, or closed its output. The turn did not end properly."),
        "{outcome:?}"
    );
    let next = running.connection.new_session("/", &[]).await;
    assert!(matches!(next, Err(CallError::Closed(_))), "{next:?}");
}

#[tokio::test]
async fn the_death_of_an_agent_is_noticed_although_a_child_holds_its_output() {
    // In the agent's group, and in one of its own.
    for hold in ["sleep 1000 &", "setsid sleep 1000 &"] {
        let tasks = Tasks::new();
        let (agent, mut turn) = served(&format!("{hold} text $!; text half; kill -9 $$"), &tasks).await;
        let Some(AgentEvent::Text { text: child, .. }) = timeout(PATIENCE, turn.events.recv()).await.unwrap()
        else {
            panic!("no text")
        };
        let outcome = end_of(turn).await;
        assert!(why(&outcome).starts_with("The agent ended (signal: 9 (SIGKILL))."), "{outcome:?}");
        gone(child.trim_end_matches("half")).await;
        agent.stop().await;
        timeout(PATIENCE, tasks.stop()).await.expect("nothing is left");
    }
}

#[tokio::test]
async fn an_agent_that_dies_during_its_start_is_noticed_although_a_child_holds_its_output() {
    let tasks = Tasks::new();
    for hold in ["sleep 1000 &", "setsid sleep 1000 &"] {
        let config = config(&format!("{hold} exit 3"));
        let started = launch(&config, limits(), &tasks);
        let error = timeout(PATIENCE, started).await.expect("the start ends").unwrap_err();
        assert_eq!(error.message(), "The agent `sh` ended before it answered (exit status: 3).");
    }
    timeout(PATIENCE, tasks.stop()).await.expect("nothing is left");
}

#[tokio::test]
async fn an_agent_that_closes_its_output_but_lives_is_over_and_is_killed() {
    let (running, mut turn) = prompted("trap '' TERM; exec >&-; while :; do sleep 1000; done").await;
    let (_, outcome) = rest(&mut turn).await;
    assert!(why(&outcome).starts_with("The agent ended, or closed its output."), "{outcome:?}");
    // The configured patience is for agents that need time to save their work.
    drop(running);
}

#[tokio::test]
async fn an_agent_that_does_not_read_a_long_prompt_is_ended_and_the_turn_says_why() {
    let limits = Limits { write: Duration::from_millis(300), ..limits() };
    let script = r#"ok 1 '{"protocolVersion":1}'; ok 2 '{"sessionId":"s"}'; while :; do sleep 1000; done"#;
    let mut running = launch(&config(script), limits, &Tasks::new()).await.unwrap();
    running.connection.new_session("/", &[]).await.unwrap();
    let blocks = [PromptBlock::Text { text: "x".repeat(1024 * 1024) }];
    let (id, prompt) = (SessionId::parse("s").unwrap(), PromptId::parse("p").unwrap());
    let mut turn = Turn::start(&running.connection, id, &prompt, &blocks).unwrap();
    let (_, outcome) = rest(&mut turn).await;
    assert!(why(&outcome).contains("it took no byte of its input"), "{outcome:?}");
    assert_eq!(timeout(PATIENCE, running.failed()).await, Ok(Failed::Closed));
    assert_ne!(running.cut_off().await.unwrap(), Ending::ByItself);
}

#[tokio::test]
async fn an_agent_that_ignores_cancel_stays_busy_and_is_killed_with_its_children() {
    let (running, mut turn) =
        prompted("trap '' TERM; sleep 1000 & text $!; cat >/dev/null; while :; do sleep 1000; done").await;
    let Some(events) = timeout(PATIENCE, turn.next()).await.unwrap() else { panic!("the turn is over") };
    let AgentEvent::Text { text: child, .. } = &events[0] else { panic!("{events:?}") };
    turn.cancel().unwrap();
    drop(turn);
    let blocks = [PromptBlock::Text { text: "again".to_owned() }];
    assert_eq!(running.connection.prompt("s", &blocks).err(), Some(CallError::Busy));
    drop(running);
    gone(child).await;
}

#[tokio::test]
async fn a_flood_of_permission_requests_is_bounded() {
    let ask = r#"
i=0; while [ $i -lt 500 ]; do printf '{"id":%s,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c%s"},"options":[]}}\n' $i $i; i=$((i+1)); done
answered=0; while [ $answered -lt 436 ]; do read -r line; case "$line" in *cancelled*) answered=$((answered+1));; esac; done
text "$answered"; end; cat >/dev/null"#;
    let (_running, mut turn) = prompted(ask).await;
    let (text, outcome) = rest(&mut turn).await;
    assert_eq!((text.as_str(), outcome), ("436", Outcome::Completed { remark: None }));
}

/// Serves the agent as the gateway does, and starts a turn.
async fn served(script: &str, tasks: &Tasks) -> (std::sync::Arc<AcpAgent>, port::Turn) {
    served_in(&std::env::temp_dir(), script, tasks).await
}

/// Like [`served`], in this workspace. The agent may ask for files and commands.
async fn served_in(
    workspace: &std::path::Path,
    script: &str,
    tasks: &Tasks,
) -> (std::sync::Arc<AcpAgent>, port::Turn) {
    served_with(workspace, script, tasks, |_| {}).await
}

async fn served_with(
    workspace: &std::path::Path,
    script: &str,
    tasks: &Tasks,
    change: impl FnOnce(&mut ProcessConfig),
) -> (std::sync::Arc<AcpAgent>, port::Turn) {
    let mut process = config(&format!("start; {script}"));
    change(&mut process);
    let workspace = workspace.canonicalize().unwrap();
    let config = AcpConfig {
        protected: std::sync::Arc::new(ProtectedPaths::new([workspace.join("data")])),
        limits: limits(),
        client_files: FileAccess::ReadWrite,
        client_terminals: true,
        cancel_patience: Duration::from_millis(100),
        ..AcpConfig::new("hostile", process, &workspace)
    };
    let agent = AcpAgent::new(config, tasks);
    let directory = workspace.to_str().unwrap().to_owned();
    let session = agent.open_session(NewSession { directory, title: None }).await.unwrap();
    let request = TurnRequest {
        task: TaskId::parse("t").unwrap(),
        session,
        prompt: new_prompt(),
        input: vec![Input::Text("hi".to_owned())],
        options: PromptOptions::default(),
        order: None,
        is_adopted: false,
        resume: None,
        prompting: Prompting::default(),
        trace: None,
    };
    let turn = agent.start_turn(request).await.unwrap();
    (agent, turn)
}

async fn end_of(turn: port::Turn) -> Outcome {
    told(turn).await.1
}

/// The text and the end of a served turn.
async fn told(mut turn: port::Turn) -> (String, Outcome) {
    let mut text = String::new();
    let end = async {
        loop {
            match turn.events.recv().await.expect("the turn has an end") {
                AgentEvent::Text { text: more, .. } => text.push_str(&more),
                AgentEvent::Ended(outcome) => return outcome,
                _ => {}
            }
        }
    };
    let outcome = timeout(PATIENCE, end).await.expect("the turn ends");
    (text, outcome)
}

#[tokio::test]
async fn a_served_agent_that_ends_or_closes_its_output_ends_its_turn_with_the_reason() {
    for (script, reason) in [
        ("echo 'secret on stderr' >&2; kill -9 $$", "The agent ended (signal: 9 (SIGKILL))."),
        ("exit 3", "The agent ended (exit status: 3)."),
        ("trap '' TERM; exec >&-; while :; do sleep 1000; done", "The agent closed its output."),
    ] {
        let tasks = Tasks::new();
        let (agent, turn) = served(script, &tasks).await;
        let outcome = end_of(turn).await;
        assert!(why(&outcome).starts_with(reason), "{outcome:?}");
        agent.stop().await;
        timeout(PATIENCE, tasks.stop()).await.expect("nothing is left");
    }
}

#[tokio::test]
async fn an_agent_that_uses_too_much_memory_is_ended_with_that_reason() {
    let tasks = Tasks::new();
    // The memory is that of a tool.
    let script =
        "text half; sh -c 'x=$(head -c 100000000 /dev/zero | tr \"\\0\" x); sleep 1000'; cat >/dev/null";
    let (agent, turn) =
        served_with(&std::env::temp_dir(), script, &tasks, |process| process.memory_bytes = Some(64 << 20))
            .await;
    let outcome = end_of(turn).await;
    let expected = "The agent was ended, because it and its tools used more than the 64 MiB of memory that the operator allows.";
    assert!(why(&outcome).starts_with(expected), "{outcome:?}");
    agent.stop().await;
}

#[tokio::test]
async fn a_gateway_that_stops_leaves_no_process_of_a_served_agent() {
    let tasks = Tasks::new();
    let (_agent, mut turn) = served("sleep 1000 & text $!; cat >/dev/null", &tasks).await;
    let Some(AgentEvent::Text { text: child, .. }) = timeout(PATIENCE, turn.events.recv()).await.unwrap()
    else {
        panic!("no text")
    };
    timeout(PATIENCE, tasks.stop()).await.expect("all tasks end");
    gone(&child).await;
}

#[tokio::test]
async fn a_served_agent_gets_no_file_outside_of_its_session_and_none_of_the_gateway() {
    let holder = tempfile::tempdir().unwrap();
    let workspace = holder.path().join("work");
    std::fs::create_dir_all(workspace.join("data")).unwrap();
    std::fs::write(workspace.join("own"), "own").unwrap();
    std::fs::write(workspace.join("data/token"), "hidden").unwrap();
    std::fs::write(holder.path().join("beside"), "hidden").unwrap();
    // The answers to the requests are the text of the turn.
    let script = r#"
cd "$PWD" && ln -s ../beside link && ln -s .. up && ln data/token hard
read_file() { printf '{"id":"r","method":"fs/read_text_file","params":{"sessionId":"s","path":"%s"}}\n' "$1"; read -r answer
  text "$(printf '%s' "$answer" | tr -d '"{}')|"; }
for path in own link up/beside data/token hard /etc/passwd ../beside; do read_file "$path"; done
end; cat >/dev/null"#;
    let tasks = Tasks::new();
    let script = format!("cd '{}'\n{script}", workspace.display());
    let (agent, turn) = served_in(&workspace, &script, &tasks).await;
    let (text, outcome) = told(turn).await;
    assert_eq!(outcome, Outcome::Completed { remark: None });
    let answers: Vec<&str> = text.split('|').collect();
    assert!(answers[0].contains("content:own"), "{text}");
    let refused = answers[1..].iter().filter(|answer| answer.contains("-32602"));
    assert!(refused.count() == 6 && !text.contains("hidden") && !text.contains("root:"), "{text}");
    agent.stop().await;
    timeout(PATIENCE, tasks.stop()).await.expect("nothing is left");
}

#[tokio::test]
async fn a_served_agent_that_floods_requests_and_reads_no_answers_is_cut_off() {
    let holder = tempfile::tempdir().unwrap();
    std::fs::write(holder.path().join("big"), "x".repeat(1_000_000)).unwrap();
    let script = r#"
i=0; while [ $i -lt 20000 ]; do printf '{"id":%s,"method":"fs/read_text_file","params":{"sessionId":"s","path":"big"}}\n' $i; i=$((i+1)); done
sleep 1000"#;
    let tasks = Tasks::new();
    let (agent, turn) = served_in(holder.path(), script, &tasks).await;
    let (_, outcome) = told(turn).await;
    assert!(why(&outcome).starts_with("The agent does not read its input."), "{outcome:?}");
    agent.stop().await;
    timeout(PATIENCE, tasks.stop()).await.expect("nothing is left");
}

#[tokio::test]
async fn a_gateway_that_stops_leaves_no_command_of_a_served_agent() {
    let holder = tempfile::tempdir().unwrap();
    let script = r#"
printf '{"id":1,"method":"terminal/create","params":{"sessionId":"s","command":"sleep 1000 & echo $! > pid; wait"}}\n'
read -r answer; until test -s pid; do sleep 0.05; done; text "$(cat pid)"; cat >/dev/null"#;
    let script = format!("cd '{}'\n{script}", holder.path().display());
    let tasks = Tasks::new();
    let (_agent, mut turn) = served_in(holder.path(), &script, &tasks).await;
    let child = timeout(PATIENCE, async {
        loop {
            if let Some(AgentEvent::Text { text, .. }) = turn.events.recv().await {
                return text;
            }
        }
    });
    let child = child.await.expect("the command runs");
    timeout(PATIENCE, tasks.stop()).await.expect("all tasks end");
    gone(child.trim()).await;
}

#[tokio::test]
async fn a_process_that_left_the_group_of_its_command_ends_with_the_agent() {
    let holder = tempfile::tempdir().unwrap();
    let script = r#"
printf '{"id":1,"method":"terminal/create","params":{"sessionId":"s","command":"setsid","args":["sh","-c","echo $$ > new; mv new pid; exec sleep 1000"],"env":[{"name":"LONGSHORE_MANAGED","value":"other"}]}}\n'
read -r answer; until test -s pid; do sleep 0.05; done; text "$(cat pid)"; end; cat >/dev/null"#;
    let script = format!("cd '{}'\n{script}", holder.path().display());
    let tasks = Tasks::new();
    let (agent, turn) = served_in(holder.path(), &script, &tasks).await;
    let (child, outcome) = told(turn).await;
    assert_eq!(outcome, Outcome::Completed { remark: None });
    agent.stop().await;
    gone(child.trim()).await;
    timeout(PATIENCE, tasks.stop()).await.expect("nothing is left");
}

/// An id such as the engine makes.
fn new_prompt() -> PromptId {
    PromptId::parse(&uuid::Uuid::now_v7().to_string()).expect("a UUID is an id")
}
