//! Lines of an ACP agent to reports.

use longshore_agent_acp::connection::{Connection, Limits};
use longshore_agent_acp::turn::Turn;
use longshore_engine::Tasks;
use longshore_model::{AgentEvent, PromptId, SessionId};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

use super::events::DELTA;
use super::{Work, runtime};

const SESSION: &str = "ses_e22b7777effedYLj9HdhoixeFA";
const DELTAS: u64 = 1000;
/// As much as a pipe of the kernel holds.
const PIPE_BYTES: usize = 64 * 1024;

/// The agent's side: the lines that the gateway writes, and its own.
struct Agent {
    requests: tokio::io::Lines<BufReader<DuplexStream>>,
    output: DuplexStream,
}

impl Agent {
    /// The id of the next request.
    async fn request(&mut self) -> u64 {
        let line = self.requests.next_line().await.ok().flatten().expect("a request");
        let request: serde_json::Value = serde_json::from_str(&line).expect("a request is JSON");
        request["id"].as_u64().expect("a request has an id")
    }

    async fn answer(&mut self, id: u64, result: serde_json::Value) {
        let line = format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result}));
        self.output.write_all(line.as_bytes()).await.expect("the gateway reads");
    }
}

/// Reads the same lines in a new turn each time.
pub(super) fn deltas() -> Work {
    let update = json!({
        "sessionUpdate": "agent_message_chunk",
        "messageId": "msg_1dd48889c0017P9Vq1VM4RTuCL",
        "content": {"type": "text", "text": DELTA},
    });
    let params = json!({"sessionId": SESSION, "update": update});
    let line = format!("{}\n", json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    let lines = line.repeat(usize::try_from(DELTAS).unwrap_or_default()).into_bytes();

    let runtime = runtime();
    let (tasks, connection, mut agent) = runtime.block_on(connect());
    Work::new(DELTAS, move || {
        let _ = &tasks;
        runtime.block_on(turn(&connection, &mut agent, &lines))
    })
}

async fn connect() -> (Tasks, Connection, Agent) {
    let (ours, theirs) = (tokio::io::duplex(PIPE_BYTES), tokio::io::duplex(PIPE_BYTES));
    let tasks = Tasks::new();
    let (connection, driver) =
        Connection::new(theirs.0, ours.0, Limits::default(), std::sync::Arc::default());
    tasks.spawn("acp-driver", driver.run());
    let mut agent = Agent { requests: BufReader::new(ours.1).lines(), output: theirs.1 };
    let opening = async {
        let id = agent.request().await;
        agent.answer(id, json!({"sessionId": SESSION})).await;
    };
    let (opened, ()) = tokio::join!(connection.new_session("/workspace", &[]), opening);
    opened.expect("a session");
    (tasks, connection, agent)
}

/// Returns how many deltas were reported. Deltas that wait together are reported as one text.
async fn turn(connection: &Connection, agent: &mut Agent, lines: &[u8]) -> u64 {
    let session = SessionId::parse(SESSION).expect("an id");
    let prompt = PromptId::parse("prompt").expect("an id");
    let content = [json!({"type": "text", "text": "go"})];
    let mut turn = Turn::start(connection, session, &prompt, &content).expect("an idle session");
    let id = agent.request().await;
    let writing = async {
        agent.output.write_all(lines).await.expect("the gateway reads");
        agent.answer(id, json!({"stopReason": "end_turn"})).await;
    };
    let reading = async {
        let mut bytes = 0;
        while let Some(events) = turn.next().await {
            for event in events {
                if let AgentEvent::Text { text, .. } = event {
                    bytes += text.len();
                }
            }
        }
        bytes
    };
    let (bytes, ()) = tokio::join!(reading, writing);
    u64::try_from(bytes / DELTA.len()).unwrap_or_default()
}
