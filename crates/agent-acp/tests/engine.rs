//! The engine with an ACP agent: tasks from the message to their end, over a process that dies and a gateway that restarts.

#![expect(clippy::unwrap_used, reason = "a panic is the right answer to a machine without a shell")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore_agent_acp::process::{ProcessConfig, environment};
use longshore_agent_acp::{AcpAgent, AcpConfig};
use longshore_engine::port::{Store, SystemClock};
use longshore_engine::{Engine, EngineConfig, EngineParts, Sent, Tasks};
use longshore_meter::Metrics;
use longshore_model::{
    ContextId, Delivery, ErrorKind, Message, MessageId, Part, Principal, Role, SendConfig, SendMessage,
    SendOptions, Seq, Task, TaskId, TaskState,
};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_mins(1);

/// An agent that does what the prompt says, and notes each request in the file `requests`.
const AGENT: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
update() { printf '{"method":"session/update","params":{"sessionId":"%s","update":{"sessionUpdate":"%s","content":{"type":"text","text":"%s"}}}}\n' "$session" "$1" "$2"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),.*/\1/p')
  method=$(printf '%s' "$line" | sed -n 's/.*"method":"\([^"]*\)".*/\1/p')
  named=$(printf '%s' "$line" | sed -n 's/.*"sessionId":"\([^"]*\)".*/\1/p')
  session=${named:-$session}
  echo "$method $session" >> requests
  case "$method" in
    initialize) answer "$id" "{\"protocolVersion\":1,\"agentCapabilities\":{\"loadSession\":$LOADS}}";;
    session/new) session="s-$$"; answer "$id" "{\"sessionId\":\"$session\"}";;
    session/load) update user_message_chunk before; update agent_message_chunk half; answer "$id" null;;
    session/cancel) answer "$prompt" '{"stopReason":"cancelled"}';;
    session/prompt) prompt=$id
      case "$line" in
        *die*) update agent_message_chunk half; kill -9 $$;;
        *work*) update agent_message_chunk half;;
        *ask*) printf '{"id":0,"method":"session/request_permission","params":{"sessionId":"%s","toolCall":{"toolCallId":"c","title":"run"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]}}\n' "$session";;
        *) update agent_message_chunk hello; answer "$id" '{"stopReason":"end_turn"}';;
      esac;;
    '') case "$line" in *'"optionId":"y"'*) update agent_message_chunk allowed;; *) update agent_message_chunk rejected;; esac
      answer "$prompt" '{"stopReason":"end_turn"}';;
  esac
done
"#;

struct Gateway {
    engine: Engine,
    agent: Arc<AcpAgent>,
    store: Arc<dyn Store>,
    tasks: Tasks,
}

fn gateway(root: &Path, loads: bool, store: Arc<dyn Store>) -> Gateway {
    let named = BTreeMap::from([("LOADS".to_owned(), loads.to_string())]);
    let config = AcpConfig::new(
        "scripted",
        ProcessConfig {
            arguments: vec!["-c".into(), AGENT.into()],
            environment: environment(std::env::vars_os(), &named),
            ..ProcessConfig::new("sh", root)
        },
        root,
    );
    let tasks = Tasks::new();
    let agent = AcpAgent::new(config, &tasks);
    let engine = Engine::new(EngineParts {
        store: Arc::clone(&store),
        agent: agent.clone(),
        control: None,
        clock: Arc::new(SystemClock),
        tasks: tasks.clone(),
        metrics: Arc::new(Metrics::new("test")),
        config: EngineConfig::default(),
    });
    Gateway { engine, agent, store, tasks }
}

fn alice() -> Principal {
    Principal::new("alice")
}

fn message(text: &str, task: Option<&TaskId>, delivery: Delivery) -> SendMessage {
    let id = MessageId::parse(&text.replace(' ', "_")).unwrap();
    let mut message = Message::new(id, Role::User, vec![Part::text(text)]);
    message.context_id = Some(ContextId::parse("c").unwrap());
    message.task_id = task.cloned();
    SendMessage {
        message,
        config: SendConfig::default(),
        metadata: None,
        options: SendOptions { delivery, ..SendOptions::default() },
        may_claim: false,
        trace: None,
    }
}

impl Gateway {
    async fn send(&self, text: &str) -> Sent {
        self.engine.send(&alice(), message(text, None, Delivery::Queue)).await.unwrap()
    }

    /// The task at its end, or when it waits for its caller.
    async fn settled(&self, sent: Sent) -> Task {
        let settled = timeout(PATIENCE, self.engine.settled(&alice(), sent.reader)).await;
        settled.expect("the task settles").unwrap().task
    }

    /// Sends a message and waits for the end of its task.
    async fn run(&self, text: &str) -> Task {
        let sent = self.send(text).await;
        self.settled(sent).await
    }

    /// Sends a message and waits until the agent has said something.
    async fn working(&self, text: &str) -> TaskId {
        let sent = self.send(text).await;
        let mut reader = sent.reader;
        let said = async {
            loop {
                reader.next().await.unwrap().expect("the task goes on");
                if !said(&self.engine.get(&alice(), &sent.task).await.unwrap().task).is_empty() {
                    return;
                }
            }
        };
        timeout(PATIENCE, said).await.expect("the agent says something");
        sent.task
    }

    /// All texts of the statuses of a task.
    async fn notes(&self, task: &TaskId) -> String {
        let start = Some(Seq::START.into());
        let mut reader = self.engine.subscribe(&alice(), task, start).await.unwrap().reader;
        let mut notes = String::new();
        while let Some(entries) = reader.next().await.unwrap() {
            for status in entries.iter().filter_map(|entry| entry.entry.event.status()) {
                let parts = status.message.iter().flat_map(|message| &message.parts);
                notes.extend(parts.filter_map(|part| part.as_text()));
            }
        }
        notes
    }

    /// Stops as a signal would. The process of the agent ends too.
    async fn stop(self) -> Arc<dyn Store> {
        timeout(PATIENCE, self.tasks.stop()).await.expect("all tasks end");
        self.store
    }
}

fn said(task: &Task) -> String {
    task.artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(|part| part.as_text()).collect()
}

fn reason(task: &Task) -> String {
    let message = task.status.message.as_ref();
    message.into_iter().flat_map(|message| &message.parts).filter_map(|part| part.as_text()).collect()
}

/// The requests that the agent got, without those of the handshake.
fn requests(root: &Path) -> Vec<String> {
    let lines = std::fs::read_to_string(root.join("requests")).unwrap();
    let methods = lines.lines().filter(|line| line.starts_with("session/"));
    methods.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_task_fails_with_the_agent_and_the_next_one_goes_on_in_its_session_or_says_that_memory_is_lost() {
    for (loads, expected) in [
        (true, ["session/new", "session/prompt", "session/load", "session/prompt"]),
        (false, ["session/new", "session/prompt", "session/new", "session/prompt"]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let gateway = gateway(root.path(), loads, Arc::new(longshore_store::memory()));
        let failed = gateway.run("die").await;
        assert_eq!((failed.status.state, said(&failed).as_str()), (TaskState::Failed, "half"));
        assert!(reason(&failed).starts_with("The agent ended (signal: 9 (SIGKILL))."), "{}", reason(&failed));
        let next = gateway.run("next").await;
        assert_eq!((next.status.state, said(&next).as_str()), (TaskState::Completed, "hello"));
        let is_told = gateway.notes(&next.id).await.contains("does not know what was said");
        assert_eq!(is_told, !loads);
        assert_eq!(requests(root.path()), expected);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn after_a_restart_of_the_gateway_a_turn_fails_and_is_not_prompted_again() {
    let root = tempfile::tempdir().unwrap();
    let first = gateway(root.path(), true, Arc::new(longshore_store::memory()));
    let task = first.working("work").await;
    let second = gateway(root.path(), true, first.stop().await);
    second.engine.recover().await.unwrap();
    let sent = second.engine.subscribe(&alice(), &task, Some(Seq::START.into())).await.unwrap();
    let failed = timeout(PATIENCE, second.engine.settled(&alice(), sent.reader)).await.unwrap().unwrap().task;
    assert_eq!((failed.status.state, said(&failed).as_str()), (TaskState::Failed, "half"));
    assert!(reason(&failed).starts_with("The gateway was restarted while"), "{}", reason(&failed));
    let next = second.run("next").await;
    assert_eq!((next.status.state, said(&next).as_str()), (TaskState::Completed, "hello"));
    assert_eq!(requests(root.path()), ["session/new", "session/prompt", "session/load", "session/prompt"]);
    second.stop().await;
}

#[tokio::test]
async fn a_plain_message_answers_an_ask() {
    for (word, expected) in [("once", "allowed"), ("reject", "rejected")] {
        let root = tempfile::tempdir().unwrap();
        let gateway = gateway(root.path(), true, Arc::new(longshore_store::memory()));
        let asking = gateway.run("ask").await;
        assert_eq!(asking.status.state, TaskState::InputRequired);
        let answer = message(word, Some(&asking.id), Delivery::Queue);
        let answered = gateway.engine.send(&alice(), answer).await.unwrap();
        let done = gateway.settled(answered).await;
        assert_eq!((done.status.state, said(&done).as_str()), (TaskState::Completed, expected));
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_canceled_task_frees_its_session_and_no_message_joins_a_turn() {
    let root = tempfile::tempdir().unwrap();
    let gateway = gateway(root.path(), true, Arc::new(longshore_store::memory()));
    let task = gateway.working("work").await;
    for joining in [message("join", None, Delivery::Steer), message("join", Some(&task), Delivery::Queue)] {
        let refused = gateway.engine.send(&alice(), joining).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::UnsupportedOperation, "{refused}");
    }
    let waiting = gateway.engine.send(&alice(), message("next", None, Delivery::Queue)).await.unwrap();
    assert_ne!(waiting.task, task);
    let canceled = gateway.engine.cancel(&alice(), &task).await.unwrap().task;
    assert_eq!(canceled.status.state, TaskState::Canceled);
    let next = gateway.settled(waiting).await;
    assert_eq!((next.status.state, said(&next).as_str()), (TaskState::Completed, "hello"));
    assert_eq!(requests(root.path()), ["session/new", "session/prompt", "session/cancel", "session/prompt"]);
    assert_eq!(gateway.agent.facts().unwrap().name, "scripted");
    gateway.stop().await;
}
