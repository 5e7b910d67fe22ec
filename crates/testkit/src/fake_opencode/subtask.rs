//! A prompt for a sub-agent, which works in a child session while the parent session waits.

use longshore_opencode_shapes::{Cost, Message, MessageTime, Tokens, WorkingPath, to_value};
use serde_json::{Value, json};

use super::ids::{fresh, now_ms};
use super::player::TurnStage;
use super::prompting::error;
use super::responder::{Responder, unknown_agent};
use super::script::{Prompt, Script, Step};
use super::state::State;
use super::world::{World, event, idle, message_updated, part_updated, status, text};
use super::writer::Writer;

/// The prompt that OpenCode itself writes after a command that ran as a subtask.
const SUMMARIZE: &str = "Summarize the task tool output above and continue with your task.";

/// The sub-agent plays the next script; the script after it answers the result.
pub(super) fn stages(state: &mut State, prompt: &Prompt, part: &Value) -> Vec<TurnStage> {
    let agent = text(part, "agent").to_owned();
    let call = Call::new(prompt, part);
    let mut steps = Writer::begin(prompt).steps();
    steps.push(Step::Emit(call.message(None)));
    steps.push(Step::Emit(call.part(json!({"status": "running"}))));
    if !state.project.agents.iter().any(|known| known.name == agent) {
        // OpenCode never closes the tool call.
        let message = unknown_agent(&state.project, &agent);
        steps.push(Step::Emit(error(&prompt.session, &message)));
        steps.extend(idle(&prompt.session).map(Step::Emit));
        steps.push(Step::Emit(error(&prompt.session, &message)));
        return vec![TurnStage::Steps(prompt.clone(), steps)];
    }
    let child = Prompt {
        session: fresh("ses"),
        message: fresh("msg"),
        parts: json!([{"type": "text", "text": part["prompt"]}]),
        responder: Responder { agent, ..prompt.responder.clone() },
        ..prompt.clone()
    };
    let metadata = json!({
        "parentSessionId": prompt.session, "sessionId": child.session,
        "model": {"modelID": child.responder.model, "providerID": child.responder.provider},
    });
    steps.push(Step::Emit(created(state, prompt, &child, part)));
    let running = json!({"status": "running", "title": part["description"], "metadata": metadata});
    steps.push(Step::Emit(call.part(running)));
    let begins = TurnStage::Steps(prompt.clone(), steps);
    let works = TurnStage::Begin(child.clone(), state.next_script());
    let (title, is_command) = (part["description"].clone(), part["command"].is_string());
    let mut answered = prompt.clone();
    if is_command {
        answered.message = fresh("msg");
    }
    let answering = answered.clone();
    let ends = move |world: &World| {
        let output = format!(
            "<task id=\"{}\" state=\"completed\">\n<task_result>\n{}\n</task_result>\n</task>",
            child.session,
            world.last_text(&child.session)
        );
        let mut metadata = metadata;
        metadata["truncated"] = false.into();
        let completed =
            json!({"status": "completed", "title": title, "metadata": metadata, "output": output});
        let mut steps = vec![Step::Emit(call.message(Some(now_ms()))), Step::Emit(call.part(completed))];
        if is_command {
            let parts = json!([{"type": "text", "text": SUMMARIZE, "synthetic": true}]);
            steps.extend(Writer::note(&Prompt { parts, ..answering }).steps());
        }
        steps.push(Step::Emit(status(&call.session, "busy")));
        steps
    };
    let concludes = match state.next_script() {
        Script::Written(turn) => TurnStage::GoOn(answered, turn),
        recorded @ Script::Recorded(_) => TurnStage::Begin(answered, recorded),
    };
    vec![begins, works, TurnStage::Then(prompt.clone(), Box::new(ends)), concludes]
}

/// The call of the `task` tool, and its message.
struct Call {
    session: String,
    info: Value,
    part: Value,
    input: Value,
    start: u64,
}

impl Call {
    fn new(prompt: &Prompt, part: &Value) -> Self {
        let (message, start) = (fresh("msg"), now_ms());
        let mut input = json!({
            "prompt": part["prompt"], "description": part["description"], "subagent_type": part["agent"],
        });
        if !part["command"].is_null() {
            input["command"] = part["command"].clone();
        }
        let agent = text(part, "agent");
        let info = to_value(&Message::Assistant {
            id: &message,
            parent: &prompt.message,
            mode: agent,
            agent,
            path: WorkingPath::new(&prompt.directory),
            cost: Cost::Nothing,
            tokens: Tokens::NONE,
            model: &prompt.responder.model,
            provider: &prompt.responder.provider,
            time: MessageTime { created: start, completed: None },
            session: &prompt.session,
            finish: None,
            error: None,
        });
        let part = json!({
            "id": fresh("prt"), "messageID": message, "sessionID": prompt.session, "type": "tool",
            "callID": fresh("call"), "tool": "task",
        });
        Self { session: prompt.session.clone(), info, part, input, start }
    }

    fn message(&self, completed: Option<u64>) -> Value {
        let mut info = self.info.clone();
        if let Some(completed) = completed {
            info["time"]["completed"] = completed.into();
            info["finish"] = "tool-calls".into();
        }
        message_updated(&self.session, info)
    }

    fn part(&self, mut state: Value) -> Value {
        state["input"] = self.input.clone();
        state["time"] = json!({"start": self.start});
        if state["status"] == "completed" {
            state["time"]["end"] = now_ms().into();
        }
        let mut part = self.part.clone();
        part["state"] = state;
        part_updated(&self.session, part, now_ms())
    }
}

fn created(state: &State, prompt: &Prompt, child: &Prompt, part: &Value) -> Value {
    let mut info = state.world.session(&prompt.session).cloned().unwrap_or_default();
    if let Some(fields) = info.as_object_mut() {
        for field in ["revert", "share", "metadata", "workspaceID"] {
            fields.remove(field);
        }
    }
    info["id"] = child.session.as_str().into();
    info["parentID"] = prompt.session.as_str().into();
    info["agent"] = child.responder.agent.as_str().into();
    info["directory"] = prompt.directory.as_str().into();
    info["title"] = format!("{} (@{} subagent)", text(part, "description"), child.responder.agent).into();
    info["permission"] = json!([{"permission": "task", "pattern": "*", "action": "deny"}]);
    info["time"] = json!({"created": now_ms(), "updated": now_ms()});
    event("session.created", json!({"sessionID": child.session, "info": info}))
}
