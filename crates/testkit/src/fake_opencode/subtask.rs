//! A prompt for a sub-agent: it works in a session of its own, and the session that asked waits for it.

use serde_json::{Value, json};

use super::ids::{fresh, now_ms};
use super::player::ControlCommand;
use super::prompting::error;
use super::script::{Prompt, Script, Step};
use super::state::State;
use super::voice::{Voice, unknown_agent};
use super::world::{World, event, idle, part_updated, text};
use super::writer::Writer;

/// What OpenCode tells the model itself when a command ran as a subtask.
const SUMMARIZE: &str = "Summarize the task tool output above and continue with your task.";

/// The sub-agent plays the next script, and the one after it is what is made of its result.
pub(super) fn acts(state: &mut State, prompt: &Prompt, part: &Value) -> Vec<ControlCommand> {
    let agent = text(part, "agent").to_owned();
    let call = Call::new(prompt, part);
    let mut steps = Writer::begin(prompt).steps();
    steps.push(Step::Emit(call.message(None)));
    steps.push(Step::Emit(call.part(json!({"status": "running"}))));
    if !state.project.agents.iter().any(|known| known.name == agent) {
        // The call is never closed.
        let said = unknown_agent(&state.project, &agent);
        steps.push(Step::Emit(error(&prompt.session, &said)));
        steps.extend(idle(&prompt.session).map(Step::Emit));
        steps.push(Step::Emit(error(&prompt.session, &said)));
        return vec![ControlCommand::Steps(prompt.clone(), steps)];
    }
    let child = Prompt {
        session: fresh("ses"),
        message: fresh("msg"),
        parts: json!([{"type": "text", "text": part["prompt"]}]),
        voice: Voice { agent, ..prompt.voice.clone() },
        ..prompt.clone()
    };
    let metadata = json!({
        "parentSessionId": prompt.session, "sessionId": child.session,
        "model": {"modelID": child.voice.model, "providerID": child.voice.provider},
    });
    steps.push(Step::Emit(created(state, prompt, &child, part)));
    let running = json!({"status": "running", "title": part["description"], "metadata": metadata});
    steps.push(Step::Emit(call.part(running)));
    let begins = ControlCommand::Steps(prompt.clone(), steps);
    let works = ControlCommand::Begin(child.clone(), state.next_script());
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
            let said = json!([{"type": "text", "text": SUMMARIZE, "synthetic": true}]);
            steps.extend(Writer::note(&Prompt { parts: said, ..answering }).steps());
        }
        let busy = json!({"sessionID": call.session, "status": {"type": "busy"}});
        steps.push(Step::Emit(event("session.status", busy)));
        steps
    };
    let concludes = match state.next_script() {
        Script::Written(turn) => ControlCommand::GoOn(answered, turn),
        recorded @ Script::Recorded(_) => ControlCommand::Begin(answered, recorded),
    };
    vec![begins, works, ControlCommand::Then(prompt.clone(), Box::new(ends)), concludes]
}

/// The call of the `task` tool, and the message that it is in.
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
        let info = json!({
            "id": message, "role": "assistant", "parentID": prompt.message, "sessionID": prompt.session,
            "mode": part["agent"], "agent": part["agent"],
            "path": {"cwd": prompt.directory, "root": prompt.directory}, "cost": 0,
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "modelID": prompt.voice.model, "providerID": prompt.voice.provider, "time": {"created": start},
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
        event("message.updated", json!({"sessionID": self.session, "info": info}))
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
        for of_root in ["revert", "share", "metadata", "workspaceID"] {
            fields.remove(of_root);
        }
    }
    info["id"] = child.session.as_str().into();
    info["parentID"] = prompt.session.as_str().into();
    info["agent"] = child.voice.agent.as_str().into();
    info["directory"] = prompt.directory.as_str().into();
    info["title"] = format!("{} (@{} subagent)", text(part, "description"), child.voice.agent).into();
    info["permission"] = json!([{"permission": "task", "pattern": "*", "action": "deny"}]);
    info["time"] = json!({"created": now_ms(), "updated": now_ms()});
    event("session.created", json!({"sessionID": child.session, "info": info}))
}
