//! A turn of the fake agent.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Action;
use super::process::{Agent, die};

/// How often a file is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) struct Turn {
    agent: Arc<Agent>,
    /// The id of the prompt's request.
    id: Value,
    session: String,
    number: u64,
    ignores_cancel: bool,
}

/// What follows a step.
enum Next {
    GoOn,
    Skip(usize),
    Stop(String),
    /// The turn was ended.
    Over,
}

impl Turn {
    pub(super) fn new(agent: Arc<Agent>, id: Value, session: String, number: u64) -> Self {
        Self { agent, id, session, number, ignores_cancel: false }
    }

    /// `script`: `None` if the test sends it.
    pub(super) fn play(mut self, script: Option<Vec<Action>>) {
        let script =
            script.unwrap_or_else(|| self.agent.wait_for(|state| state.scripts.remove(&self.number)));
        let mut skipped = 0;
        for action in script {
            if skipped > 0 {
                skipped -= 1;
                continue;
            }
            let next =
                if self.is_cancelled() { Next::Stop("cancelled".to_owned()) } else { self.perform(action) };
            match next {
                Next::GoOn => {}
                Next::Skip(actions) => skipped = actions,
                Next::Stop(reason) => return self.stop(&reason),
                Next::Over => return,
            }
        }
        let reason = if self.is_cancelled() { "cancelled" } else { "end_turn" };
        self.stop(reason);
    }

    fn perform(&mut self, action: Action) -> Next {
        match action {
            Action::Text(text) => self.chunk("agent_message_chunk", &text),
            Action::Flood { chunks, letters } => {
                let text = "x".repeat(letters);
                (0..chunks).for_each(|_| self.chunk("agent_message_chunk", &text));
            }
            Action::Thought(text) => self.chunk("agent_thought_chunk", &text),
            Action::BeginTool { call, command } => {
                self.update(&json!({
                    "sessionUpdate": "tool_call", "toolCallId": call, "title": command, "kind": "execute",
                    "status": "pending", "rawInput": {"command": command}, "content": [],
                }));
                self.update(
                    &json!({"sessionUpdate": "tool_call_update", "toolCallId": call, "status": "in_progress"}),
                );
            }
            Action::EndTool { call, output, is_failed } => {
                let status = if is_failed { "failed" } else { "completed" };
                self.update(&json!({
                    "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status,
                    "content": [{"type": "content", "content": {"type": "text", "text": output}}],
                }));
            }
            Action::Ask { call, command, skip } => return self.ask(&call, &command, skip),
            Action::Pause(milliseconds) => {
                let end = Instant::now() + Duration::from_millis(milliseconds);
                while let Some(left) =
                    end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
                    && !self.is_cancelled()
                {
                    std::thread::park_timeout(left.min(LOOK_EVERY));
                }
            }
            Action::Update(update) => self.update(&update),
            Action::Hold(gate) => {
                self.agent.tell(&json!({"reached": gate}));
                let ignores = self.ignores_cancel;
                self.agent.wait_for(|state| {
                    let is_cancelled = state.cancelled.contains(&self.session) && !ignores;
                    (is_cancelled || state.open_gates.contains(&gate)).then_some(())
                });
            }
            Action::HoldForFile(path) => {
                while !self.is_cancelled() && !std::path::Path::new(&path).exists() {
                    std::thread::park_timeout(LOOK_EVERY);
                }
            }
            Action::Line(line) => self.agent.print_bytes(format!("{line}\n").as_bytes()),
            Action::LongLine(bytes) => {
                let mut line = vec![b'x'; bytes];
                line.push(b'\n');
                self.agent.print_bytes(&line);
            }
            Action::IgnoreCancel => self.ignores_cancel = true,
            Action::Answer(reason) => self.stop(&reason),
            Action::Stop(reason) => return Next::Stop(reason),
            Action::Fail { code, message } => {
                self.agent.refuse(&self.id, code, &message);
                return Next::Over;
            }
            Action::Fork => {
                let child =
                    Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
                self.agent.tell(&json!({"forked": child.map(|child| child.id()).unwrap_or_default()}));
            }
            Action::Die => die(),
            Action::Exit(code) => exit(code),
            Action::CloseOutput => self.agent.close_output(),
        }
        Next::GoOn
    }

    fn ask(&self, call: &str, command: &str, skip: usize) -> Next {
        let number = self.agent.change(|state| {
            state.last_request += 1;
            // Real agents begin with 0.
            state.last_request - 1
        });
        self.agent.print(&json!({
            "jsonrpc": "2.0", "id": number, "method": "session/request_permission",
            "params": {
                "sessionId": self.session,
                "toolCall": {"toolCallId": call, "title": command, "kind": "execute", "rawInput": {"command": command}},
                "options": [
                    {"optionId": "allow_always", "name": format!("Always allow {command}"), "kind": "allow_always"},
                    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
                    {"optionId": "cancel", "name": "Reject", "kind": "reject_once"},
                ],
            },
        }));
        let answer = self.agent.wait_for(|state| state.answers.remove(&number));
        self.agent.tell(&json!({"answer": {"session": self.session, "outcome": answer}}));
        match (answer["outcome"].as_str(), answer["optionId"].as_str()) {
            (Some("selected"), Some("allow" | "allow_always")) => Next::GoOn,
            (Some("selected"), _) => {
                self.update(&json!({
                    "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "failed",
                    "content": [{"type": "content", "content": {"type": "text", "text": "The user said no."}}],
                }));
                Next::Skip(skip)
            }
            _ => Next::Stop("cancelled".to_owned()),
        }
    }

    fn chunk(&self, kind: &str, text: &str) {
        self.update(&json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}}));
    }

    fn update(&self, update: &Value) {
        self.agent.remember(&self.session, Some(update));
        self.agent.update(&self.session, update);
    }

    fn stop(&self, reason: &str) {
        self.agent.answer(&self.id, &json!({"stopReason": reason}));
    }

    fn is_cancelled(&self) -> bool {
        !self.ignores_cancel && self.agent.lock().cancelled.contains(&self.session)
    }
}

#[expect(clippy::exit, reason = "the script wants the process to end here")]
fn exit(code: i32) -> ! {
    std::process::exit(code)
}
