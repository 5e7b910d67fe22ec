//! Sub-agents that a test plays event by event, during a turn.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use longshore_testkit::fake_opencode::{Gate, Turn as Script};
use serde_json::{Value, json};

use super::*;

/// An OpenCode with a scripted root turn and sub-agents that the test writes by hand.
pub(crate) struct Stage<'a> {
    bench: &'a Bench,
    pub(crate) clock: Cell<u64>,
    /// When the calls began.
    calls: RefCell<HashMap<String, u64>>,
}

impl Stage<'_> {
    pub(crate) fn now(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    pub(crate) async fn emit(&self, kind: &str, session: &str, mut properties: Value) {
        properties["sessionID"] = session.into();
        self.bench.fake.emit(kind, properties).await;
    }

    pub(crate) async fn create(&self, session: &str, parent: &str) {
        let directory = self.bench.fake.directory();
        let info = json!({"id": session, "parentID": parent, "directory": directory, "title": session,
            "time": {"created": self.now(), "updated": self.now()}});
        self.emit("session.created", session, json!({"info": info})).await;
    }

    pub(crate) async fn user(&self, session: &str, id: &str, text: &str) {
        let info = json!({"id": id, "role": "user", "sessionID": session, "time": {"created": self.now()},
            "agent": "general", "model": {"providerID": "scripted", "modelID": "scripted"}});
        self.emit("message.updated", session, json!({"info": info})).await;
        let part = json!({"id": format!("prt_{id}"), "messageID": id, "type": "text", "text": text});
        self.emit("message.part.updated", session, json!({"part": part})).await;
        self.emit("session.status", session, json!({"status": {"type": "busy"}})).await;
    }

    pub(crate) async fn begin(&self, session: &str, id: &str, parent: &str) {
        let info = json!({"id": id, "role": "assistant", "parentID": parent, "sessionID": session,
            "time": {"created": self.now()}});
        self.emit("message.updated", session, json!({"info": info})).await;
    }

    pub(crate) async fn text(&self, session: &str, message: &str, text: &str) {
        let part = json!({"id": format!("prt_{message}"), "messageID": message, "type": "text", "text": text,
            "time": {"start": 1, "end": 2}});
        self.emit("message.part.updated", session, json!({"part": part})).await;
    }

    pub(crate) async fn finish(&self, session: &str, id: &str, parent: &str, finish: &str) {
        let info = json!({"id": id, "role": "assistant", "parentID": parent, "sessionID": session,
            "finish": finish, "time": {"created": self.clock.get(), "completed": self.now()}});
        self.emit("message.updated", session, json!({"info": info})).await;
    }

    pub(crate) async fn idle(&self, session: &str) {
        self.emit("session.status", session, json!({"status": {"type": "idle"}})).await;
        self.emit("session.idle", session, json!({})).await;
    }

    pub(crate) async fn call(&self, session: &str, message: &str, call: &str, child: &str, status: &str) {
        let now = self.now();
        let start = *self.calls.borrow_mut().entry(call.to_owned()).or_insert(now);
        let mut state = json!({"status": status, "title": "a job", "time": {"start": start},
            "input": {"prompt": format!("do {call}"), "description": "job", "subagent_type": "general"},
            "metadata": {"sessionId": child, "parentSessionId": session,
                "model": {"providerID": "scripted", "modelID": "scripted"}}});
        match status {
            "completed" => state["output"] = "done".into(),
            "error" => state["error"] = "Task cancelled".into(),
            _ => {}
        }
        let part = json!({"id": format!("prt_{call}"), "messageID": message, "type": "tool", "tool": "task",
            "callID": call, "state": state});
        self.emit("message.part.updated", session, json!({"part": part})).await;
    }

    /// A sub-agent `ses_child` that was called and prompted (`msg_c`) by the root's step.
    pub(crate) async fn start_child(&self, root: &str, step: &str) {
        self.create("ses_child", root).await;
        self.call(root, step, "call_1", "ses_child", "running").await;
        self.user("ses_child", "msg_c", "a job").await;
    }

    /// The same, with an unfinished answer (`msg_c1`).
    pub(crate) async fn start_answering_child(&self, root: &str, step: &str) {
        self.start_child(root, step).await;
        self.begin("ses_child", "msg_c1", "msg_c").await;
    }

    /// A whole turn of a sub-agent.
    pub(crate) async fn work(&self, session: &str, prompt: &str, text: &str) {
        self.user(session, prompt, "a job").await;
        let answer = format!("{prompt}_answer");
        self.begin(session, &answer, prompt).await;
        self.text(session, &answer, text).await;
        self.finish(session, &answer, prompt, "stop").await;
        self.idle(session).await;
    }
}

/// Starts a root turn that stops in its first step. Returns the message of that step.
pub(crate) async fn start_root(bench: &Bench, gate: &Gate) -> (Session, PromptId, Turn, String) {
    let script = Script::new().text("Let us see. ", 1).hold(gate).text("Done.", 1);
    let (session, prompt, turn) = bench.start_held(script, gate).await;
    let messages = bench.fake.messages(session.id.as_str());
    let step = messages.last().and_then(|step| step["info"]["id"].as_str()).expect("a step").to_owned();
    (session, prompt, turn, step)
}

pub(crate) fn stage(bench: &Bench) -> Stage<'_> {
    // Later than all events of the fake's own script.
    Stage { bench, clock: Cell::new(4_000_000_000_000), calls: RefCell::default() }
}
