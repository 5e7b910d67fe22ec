//! Writes the events of a scripted turn, step by step, with the keys that the recordings show.

use std::time::Duration;

use longshore_opencode_shapes::{
    Cost, Message, MessageTime, Model, NamedError, PartIds, Properties, Tokens, WorkingPath, to_value,
};
use serde_json::{Value, json};

use super::gate::Gate;
use super::ids::{fresh, now_ms};
use super::prompting::error;
use super::script::{Prompt, Step};
use super::turn::{Item, Tool};
use super::world::{event, idle, message_updated, part_updated, status, text};

pub(super) struct Writer<'a> {
    prompt: &'a Prompt,
    user: Value,
    steps: Vec<Step>,
    /// The assistant message of the current step.
    message: Option<Value>,
    calls: usize,
    diffs: Vec<Value>,
    over: bool,
}

impl<'a> Writer<'a> {
    /// Continues a turn after a decision.
    pub(super) fn go_on(prompt: &'a Prompt, calls: usize) -> Self {
        let mut user = to_value(&Message::User {
            id: &prompt.message,
            session: &prompt.session,
            time: MessageTime { created: now_ms(), completed: None },
            agent: &prompt.responder.agent,
            model: Model { provider: &prompt.responder.provider, model: &prompt.responder.model },
            summary: None,
        });
        if prompt.tools.is_object() {
            user["tools"] = prompt.tools.clone();
        }
        Self { prompt, user, steps: Vec::new(), message: None, calls, diffs: Vec::new(), over: false }
    }

    /// Starts without any event.
    pub(super) fn quiet(prompt: &'a Prompt) -> Self {
        Self::go_on(prompt, 0)
    }

    /// Starts with the message of the prompt, which no reply follows.
    pub(super) fn note(prompt: &'a Prompt) -> Self {
        let mut writer = Self::quiet(prompt);
        writer.message_updated(writer.user.clone());
        for part in prompt.parts.as_array().into_iter().flatten() {
            writer.part_of_prompt(part.clone());
            if part["type"] == "agent" {
                let name = part["name"].as_str().unwrap_or_default();
                let text = format!(
                    " Use the above message and context to generate a prompt and call the task tool with subagent: {name}"
                );
                writer.part_of_prompt(json!({"type": "text", "synthetic": true, "text": text}));
            }
        }
        writer
    }

    pub(super) fn begin(prompt: &'a Prompt) -> Self {
        let mut writer = Self::note(prompt);
        writer.busy();
        writer
    }

    /// The steps so far.
    pub(super) fn steps(self) -> Vec<Step> {
        self.steps
    }

    /// Makes the session busy.
    pub(super) fn busy(&mut self) {
        self.steps.push(Step::Emit(status(&self.prompt.session, "busy")));
    }
    /// An unknown model: no reply begins, and the error is sent twice.
    pub(super) fn give_up(mut self, message: &str) -> Vec<Step> {
        let session = &self.prompt.session;
        self.steps.push(Step::Emit(error(session, message)));
        self.steps.extend(idle(session).map(Step::Emit));
        self.steps.push(Step::Emit(error(session, &format!("ProviderModelNotFoundError: {message}"))));
        self.steps
    }

    /// A summary of the session, and the end of the turn if nothing follows.
    pub(super) fn summary(mut self, is_last: bool) -> Vec<Step> {
        self.message_id();
        self.item(&Item::Block {
            kind: "text",
            chunks: vec!["## Goal\nA summary of all this.".to_owned()],
            pace: Duration::ZERO,
        });
        self.finish_step("stop");
        if is_last {
            self.emit("session.compacted", json!({"sessionID": self.prompt.session}));
            self.go_idle();
        }
        self.steps
    }

    /// A shell command of the user: busy comes first, and there is no step.
    pub(super) fn shell(mut self, command: &str, output: &str, hold: Option<&Gate>) -> Vec<Step> {
        self.busy();
        let (user, parts) = (self.user.clone(), self.prompt.parts.clone());
        self.message_updated(user);
        for part in parts.as_array().into_iter().flatten() {
            self.part_of_prompt(part.clone());
        }
        let mut info = self.assistant();
        self.message_updated(info.clone());
        let (start, input) = (now_ms(), json!({"command": command}));
        let mut part = json!({
            "type": "tool", "id": fresh("prt"), "messageID": info["id"], "sessionID": self.prompt.session,
            "tool": "bash", "callID": fresh("call"),
            "state": {"status": "running", "time": {"start": start}, "input": input},
        });
        self.part_updated(part.clone());
        self.steps.extend(hold.cloned().map(Step::Hold));
        part["state"]["metadata"] = json!({"output": output});
        self.part_updated(part.clone());
        info["time"]["completed"] = now_ms().into();
        self.message_updated(info);
        part["state"] = json!({
            "status": "completed", "time": {"start": start, "end": now_ms()}, "input": input, "title": "",
            "metadata": {"output": output}, "output": output,
        });
        self.part_updated(part);
        self.steps.extend(idle(&self.prompt.session).map(Step::Emit));
        self.steps
    }

    pub(super) fn item(&mut self, item: &Item) {
        match item {
            Item::Block { kind, chunks, pace } => {
                let part = self.streamed(kind, chunks, *pace);
                self.close_text(part, chunks);
            }
            Item::Abandoned { chunks, message } => {
                self.streamed("text", chunks, Duration::ZERO);
                let retry = json!({"type": "retry", "attempt": 1, "message": message, "next": now_ms()});
                self.emit("session.status", json!({"sessionID": self.prompt.session, "status": retry}));
                self.busy();
                self.step_start();
            }
            Item::Tool(tool) => self.tool(tool, false),
            Item::Permission { tool } => self.tool(tool, true),
            Item::Question(question) => self.question(question),
            Item::Then(decision) => {
                self.steps.push(Step::Decide { decision: decision.clone(), calls: self.calls });
                self.over = true;
            }
            Item::Change(diff) => self.diffs.push(diff.clone()),
            Item::Typed(words) => self.typed(words),
            Item::Step(reason) => {
                self.message_id();
                self.finish_step(reason);
                self.busy();
            }
            Item::Finish(reason) => {
                self.message_id();
                self.finish_step(reason);
                self.go_idle();
            }
            Item::Error(error) => self.fail(error),
            Item::Silence => {
                self.message_id();
                self.steps.push(Step::AwaitAbort);
                self.fail(&to_value(&NamedError::ABORTED));
            }
            Item::Hold(gate) => self.steps.push(Step::Hold(gate.clone())),
            Item::Pause(duration) => self.steps.push(Step::Pause(*duration)),
            Item::Raw(event) => self.steps.push(Step::Emit(event.clone())),
        }
    }

    pub(super) fn end(mut self) -> Vec<Step> {
        if !self.over {
            self.message_id();
            self.finish_step("stop");
            self.go_idle();
        }
        self.steps
    }

    /// A part that starts and streams, and is not closed yet.
    fn streamed(&mut self, kind: &str, chunks: &[String], pace: Duration) -> Value {
        let message = self.message_id();
        let ids = PartIds { id: &fresh("prt"), message: &message, session: &self.prompt.session };
        let part = to_value(&ids.block(kind, "", now_ms(), None));
        self.part_updated(part.clone());
        for chunk in chunks {
            if !pace.is_zero() {
                self.steps.push(Step::Pause(pace));
            }
            let delta: Properties<'_> = Properties::Delta {
                session: ids.session,
                message: ids.message,
                part: ids.id,
                field: "text",
                delta: chunk,
            };
            self.steps.push(Step::Emit(event("message.part.delta", delta)));
        }
        part
    }

    fn close_text(&mut self, mut part: Value, chunks: &[String]) {
        part["text"] = chunks.concat().into();
        part["time"]["end"] = now_ms().into();
        self.part_updated(part);
    }

    /// A tool call ends its step: the next item belongs to a new message.
    fn tool(&mut self, tool: &Tool, guarded: bool) {
        let message = self.message_id();
        self.calls += 1;
        let call = format!("call_{}", self.calls);
        let mut part = json!({
            "id": fresh("prt"), "messageID": message, "sessionID": self.prompt.session, "type": "tool",
            "tool": tool.name, "callID": call, "state": {"status": "pending", "input": {}, "raw": ""},
        });
        self.part_updated(part.clone());
        if guarded {
            let id = fresh("per");
            self.emit("permission.asked", json!({
                "id": id, "sessionID": self.prompt.session, "permission": tool.name, "patterns": [tool.title],
                "metadata": {"command": tool.title}, "always": ["*"], "tool": {"messageID": message, "callID": call},
            }));
            self.steps.push(Step::AwaitReply(id.clone()));
            if tool.ends_when_rejected {
                let steps = self.rejected(&id, &part, tool);
                self.steps.push(Step::IfRejected { ask: id.clone(), steps });
            }
            let replied = json!({"sessionID": self.prompt.session, "requestID": id, "reply": "once"});
            self.emit("permission.replied", replied);
        }
        let start = now_ms();
        part["state"] = json!({"status": "running", "input": tool.input, "time": {"start": start}});
        if tool.name == "bash" {
            part["state"]["metadata"] = json!({"output": ""});
        }
        self.part_updated(part.clone());
        self.steps.extend(tool.hold.clone().map(Step::Hold));
        let time = json!({"start": start, "end": now_ms()});
        part["state"] = match &tool.result {
            Ok(output) => json!({
                "status": "completed", "input": tool.input, "output": output, "title": tool.title, "time": time,
                "metadata": {"output": output, "exit": 0, "truncated": false},
            }),
            Err(error) => json!({"status": "error", "input": tool.input, "error": error, "time": time}),
        };
        if tool.result.is_ok() && !tool.attachments.is_empty() {
            part["state"]["attachments"] = tool.attachments.clone().into();
        }
        self.part_updated(part);
        self.finish_step("tool-calls");
        self.busy();
    }

    /// The rest of a turn whose tool was not permitted.
    fn rejected(&mut self, ask: &str, part: &Value, tool: &Tool) -> Vec<Step> {
        // This writer goes on with the answer `once`.
        let (begun, message) = (std::mem::take(&mut self.steps), self.message.clone());
        let replied = json!({"sessionID": self.prompt.session, "requestID": ask, "reply": "reject"});
        self.emit("permission.replied", replied);
        let mut part = part.clone();
        part["state"] = json!({
            "status": "error", "input": tool.input, "time": {"start": now_ms(), "end": now_ms()},
            "error": "The user rejected permission to use this specific tool call.",
        });
        self.part_updated(part);
        self.finish_step("tool-calls");
        self.go_idle();
        (self.message, self.over) = (message, false);
        std::mem::replace(&mut self.steps, begun)
    }

    fn question(&mut self, question: &str) {
        let message = self.message_id();
        self.calls += 1;
        let call = format!("call_{}", self.calls);
        let questions = json!([{"question": question, "header": "Question", "options": []}]);
        let (id, start) = (fresh("que"), now_ms());
        let mut part = json!({
            "id": fresh("prt"), "messageID": message, "sessionID": self.prompt.session, "type": "tool",
            "tool": "question", "callID": call, "state": {"status": "pending", "input": {}, "raw": ""},
        });
        self.part_updated(part.clone());
        self.emit(
            "question.asked",
            json!({
                "id": id, "sessionID": self.prompt.session, "questions": questions,
                "tool": {"messageID": message, "callID": call},
            }),
        );
        part["state"] =
            json!({"status": "running", "input": {"questions": questions}, "time": {"start": start}});
        self.part_updated(part.clone());
        self.steps.push(Step::AwaitReply(id.clone()));
        let replied = json!({"sessionID": self.prompt.session, "requestID": id, "answers": [["as given"]]});
        self.emit("question.replied", replied);
        part["state"] = json!({
            "status": "completed", "input": {"questions": questions}, "output": "User has answered your questions.",
            "title": "Asked 1 question", "metadata": {"truncated": false}, "time": {"start": start, "end": now_ms()},
        });
        self.part_updated(part);
        self.finish_step("tool-calls");
        self.busy();
    }

    fn finish_step(&mut self, reason: &str) {
        let Some(mut info) = self.message.take() else { return };
        let ids = PartIds { id: &fresh("prt"), message: text(&info, "id"), session: &self.prompt.session };
        self.part_updated(to_value(&ids.step_finish(reason)));
        info["finish"] = reason.into();
        info["tokens"] = to_value(&Tokens::STEP);
        info["cost"] = to_value(&Cost::Step);
        self.message_updated(info.clone());
        info["time"]["completed"] = now_ms().into();
        self.message_updated(info);
    }

    fn fail(&mut self, error: &Value) {
        self.message_id();
        let Some(mut info) = self.message.take() else { return };
        self.emit("session.error", json!({"sessionID": self.prompt.session, "error": error}));
        self.steps.extend(idle(&self.prompt.session).map(Step::Emit));
        info["error"] = error.clone();
        info["time"]["completed"] = now_ms().into();
        self.message_updated(info);
        self.go_idle();
    }

    fn go_idle(&mut self) {
        self.over = true;
        self.steps.extend(idle(&self.prompt.session).map(Step::Emit));
        // The recordings show these events after idle.
        self.user["summary"] = json!({"diffs": self.diffs});
        self.emit("session.diff", json!({"sessionID": self.prompt.session, "diff": self.diffs}));
        self.message_updated(self.user.clone());
    }

    /// Another client's prompt: the current step goes on, and the next step answers that prompt.
    fn typed(&mut self, words: &str) {
        self.user["id"] = fresh("msg").into();
        self.user["time"] = json!({"created": now_ms()});
        self.message_updated(self.user.clone());
        self.part_of_prompt(json!({"type": "text", "text": words}));
    }

    fn part_of_prompt(&mut self, mut part: Value) {
        part["messageID"] = self.user["id"].clone();
        part["sessionID"] = self.prompt.session.as_str().into();
        if part["id"].is_null() {
            part["id"] = fresh("prt").into();
        }
        self.part_updated(part);
    }

    /// A new reply.
    fn assistant(&self) -> Value {
        let is_summary = self.prompt.parts[0]["type"] == "compaction";
        let agent = if is_summary { "compaction" } else { &self.prompt.responder.agent };
        let mut info = to_value(&Message::Assistant {
            id: &fresh("msg"),
            parent: text(&self.user, "id"),
            mode: agent,
            agent,
            path: WorkingPath::new(&self.prompt.directory),
            cost: Cost::Nothing,
            tokens: Tokens::NONE,
            model: &self.prompt.responder.model,
            provider: &self.prompt.responder.provider,
            time: MessageTime { created: now_ms(), completed: None },
            session: &self.prompt.session,
            finish: None,
            error: None,
        });
        if is_summary {
            info["summary"] = true.into();
        }
        if let Some(variant) = &self.prompt.responder.variant {
            info["variant"] = variant.as_str().into();
        }
        info
    }

    /// The message of the current step, which this starts if there is none.
    fn message_id(&mut self) -> String {
        if self.message.is_none() {
            let info = self.assistant();
            self.message_updated(info.clone());
            self.message = Some(info);
            self.busy();
            self.step_start();
        }
        self.message.as_ref().and_then(|info| info["id"].as_str()).unwrap_or_default().to_owned()
    }

    fn step_start(&mut self) {
        let Some(message) = &self.message else { return };
        let ids = PartIds { id: &fresh("prt"), message: text(message, "id"), session: &self.prompt.session };
        self.part_updated(to_value(&ids.step_start()));
    }

    fn message_updated(&mut self, info: Value) {
        self.steps.push(Step::Emit(message_updated(&self.prompt.session, info)));
    }

    fn part_updated(&mut self, part: Value) {
        self.steps.push(Step::Emit(part_updated(&self.prompt.session, part, now_ms())));
    }

    fn emit(&mut self, kind: &str, properties: Value) {
        self.steps.push(Step::Emit(event(kind, properties)));
    }
}
