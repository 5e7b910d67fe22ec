//! The state of the fake's sessions, messages and asks, folded from the sent events as in the real OpenCode.
//!
//! Deltas are not stored: a part that is still streaming has an empty text in the message list.

use std::borrow::Cow;
use std::collections::HashMap;

use longshore_opencode_shapes::{Event, NamedError, Properties, Status, to_value};
use serde::Serialize;
use serde_json::{Map, Value, json};

#[derive(Debug, Default)]
pub(super) struct World {
    sessions: Vec<Session>,
    pub(super) permissions: Vec<Value>,
    pub(super) questions: Vec<Value>,
    /// Messages that a prompt of another session named, and the sessions that they belong to.
    lent: HashMap<String, String>,
    /// The same for parts, with the messages that they are in.
    lent_parts: HashMap<String, (String, String)>,
}

#[derive(Debug, Default)]
struct Session {
    info: Value,
    messages: Vec<Message>,
    /// `None` is idle; idle sessions are absent from the status list.
    status: Option<Value>,
    /// The streamed text of each part. An abort needs it to close the part.
    streamed: HashMap<String, String>,
    todos: Value,
    /// A deleted session is no longer listed, but goes on streaming.
    deleted: bool,
}

#[derive(Debug, Default)]
struct Message {
    info: Value,
    parts: Vec<Value>,
}

impl World {
    pub(super) fn add_session(&mut self, info: Value) {
        match self.session_mut(info["id"].as_str().unwrap_or_default()) {
            Some(session) => session.info = info,
            None => self.sessions.push(Session { info, ..Session::default() }),
        }
    }

    pub(super) fn session(&self, id: &str) -> Option<&Value> {
        self.find(id).map(|session| &session.info)
    }

    pub(super) fn sessions(&self) -> Value {
        self.sessions.iter().filter(|session| !session.deleted).map(|session| session.info.clone()).collect()
    }

    pub(super) fn children(&self, parent: &str) -> Value {
        self.sessions
            .iter()
            .filter(|session| !session.deleted)
            .map(|session| &session.info)
            .filter(|info| info["parentID"] == parent)
            .cloned()
            .collect()
    }

    pub(super) fn patch_session(&mut self, id: &str, change: &Value) -> Option<Value> {
        let session = self.session_mut(id)?;
        for (key, value) in change.as_object()? {
            session.info[key] = value.clone();
        }
        Some(session.info.clone())
    }

    pub(super) fn delete_session(&mut self, id: &str) -> Option<Value> {
        let session = self.session_mut(id)?;
        session.deleted = true;
        Some(session.info.clone())
    }

    /// The message list, oldest first. `None` when there is no such session.
    pub(super) fn messages(&self, id: &str) -> Option<Vec<Value>> {
        let session = self.find(id)?;
        let listed = session.messages.iter();
        Some(listed.map(|message| json!({"info": message.info, "parts": message.parts})).collect())
    }

    pub(super) fn todos(&self, id: &str) -> Value {
        let todos = self.find(id).map(|session| session.todos.clone());
        todos.filter(Value::is_array).unwrap_or_else(|| json!([]))
    }

    /// The last text of the agent in the session.
    pub(super) fn last_text(&self, id: &str) -> String {
        let messages = self.messages(id).unwrap_or_default();
        let parts = messages.iter().rev().filter(|message| message["info"]["role"] == "assistant");
        let mut parts = parts.filter_map(|message| message["parts"].as_array()).flatten();
        parts
            .find(|part| part["type"] == "text")
            .map(|part| text(part, "text").to_owned())
            .unwrap_or_default()
    }

    /// Notes the messages and parts that a prompt of this session names and that exist already. OpenCode looks ids up without
    /// checking their session: it then writes the prompt there, in whichever session that is.
    pub(super) fn lend(&mut self, session: &str, message: &str, parts: &Value) {
        let holds = |known: &&Session| known.messages.iter().any(|known| known.info["id"] == message);
        let owner = self.sessions.iter().find(holds).map(|owner| text(&owner.info, "id"));
        if let Some(owner) = owner.filter(|owner| *owner != session) {
            self.lent.insert(message.to_owned(), owner.to_owned());
        }
        for id in parts.as_array().into_iter().flatten().filter_map(|part| part["id"].as_str()) {
            let found = self.sessions.iter().find_map(|owner| {
                let mut messages = owner.messages.iter();
                let found = messages.find(|message| message.parts.iter().any(|part| part["id"] == id))?;
                Some((text(&owner.info, "id").to_owned(), text(&found.info, "id").to_owned()))
            });
            if let Some(found) = found.filter(|(_, known)| known != message) {
                self.lent_parts.insert(id.to_owned(), found);
            }
        }
    }

    /// Whether a prompt named this message of another session.
    pub(super) fn is_lent(&self, message: &str) -> bool {
        self.lent.contains_key(message)
    }

    /// Where the session works.
    pub(super) fn directory(&self, id: &str) -> Option<&str> {
        self.known(id)?["directory"].as_str()
    }

    /// The session, even if it was deleted.
    pub(super) fn known(&self, id: &str) -> Option<&Value> {
        self.sessions.iter().find(|session| session.info["id"] == id).map(|session| &session.info)
    }

    /// The topmost session in the tree of this session.
    pub(super) fn root<'a>(&'a self, id: &'a str) -> &'a str {
        let mut root = id;
        while let Some(parent) = self.session(root).and_then(|info| info["parentID"].as_str()) {
            root = parent;
        }
        root
    }

    pub(super) fn statuses(&self, directory: &str) -> Value {
        let mut statuses = Map::new();
        for session in &self.sessions {
            if let (Some(status), Some(id)) = (&session.status, session.info["id"].as_str())
                && session.info["directory"] == directory
            {
                statuses.insert(id.to_owned(), status.clone());
            }
        }
        Value::Object(statuses)
    }

    /// The asks of sessions of that directory, because OpenCode lists asks by directory.
    pub(super) fn asks(&self, asks: &[Value], directory: &str) -> Value {
        asks.iter().filter(|ask| self.directory(text(ask, "sessionID")) == Some(directory)).cloned().collect()
    }

    /// A killed OpenCode forgets running turns and open asks. Stored messages stay.
    pub(super) fn forget_running(&mut self) {
        for session in &mut self.sessions {
            session.status = None;
            session.streamed.clear();
        }
        self.permissions.clear();
        self.questions.clear();
    }

    /// The events with which the real OpenCode closes an aborted turn of this session.
    pub(super) fn abort_events(&self, id: &str, now: u64) -> Vec<Value> {
        let Some(session) = self.sessions.iter().find(|session| session.info["id"] == id) else {
            return Vec::new();
        };
        let error: Properties<'_> = Properties::Error { session: id, error: NamedError::ABORTED };
        let mut events = vec![event("session.error", error)];
        events.extend(idle(id));
        for message in &session.messages {
            if message.info["role"] != "assistant" || !message.info["time"]["completed"].is_null() {
                continue;
            }
            for part in &message.parts {
                let closed = close_part(part, session.streamed.get(text(part, "id")), now);
                events.extend(closed.map(|part| part_updated(id, part, now)));
            }
            let mut info = message.info.clone();
            info["time"]["completed"] = now.into();
            info["error"] = to_value(&NamedError::ABORTED);
            events.push(message_updated(id, info));
        }
        events.extend(idle(id));
        events
    }

    /// Applies an event. Kinds that change nothing here are ignored.
    pub(super) fn apply(&mut self, event: &Value) {
        let properties = &event["properties"];
        let id = text(properties, "sessionID");
        match event["type"].as_str().unwrap_or_default() {
            "session.created" | "session.updated" => self.add_session(properties["info"].clone()),
            "session.deleted" => drop(self.delete_session(id)),
            "permission.asked" => self.permissions.push(properties.clone()),
            "question.asked" => self.questions.push(properties.clone()),
            "permission.replied" => self.permissions.retain(|ask| ask["id"] != properties["requestID"]),
            "question.replied" | "question.rejected" => {
                self.questions.retain(|ask| ask["id"] != properties["requestID"]);
            }
            kind => {
                let (id, properties) = self.written_to(kind, id, properties);
                let found = self.sessions.iter_mut().find(|session| session.info["id"] == id);
                if let Some(session) = found {
                    session.apply(kind, &properties);
                }
            }
        }
    }

    /// The session and the properties that an event writes: its own, unless it is about a message or a part of another session.
    fn written_to<'a>(&self, kind: &str, id: &str, properties: &'a Value) -> (String, Cow<'a, Value>) {
        let part = &properties["part"];
        let owner = match kind {
            "message.updated" => self.lent.get(text(&properties["info"], "id")),
            "message.part.updated" => {
                if let Some((owner, message)) = self.lent_parts.get(text(part, "id")) {
                    let mut written = properties.clone();
                    written["part"]["sessionID"] = owner.as_str().into();
                    written["part"]["messageID"] = message.as_str().into();
                    return (owner.clone(), Cow::Owned(written));
                }
                // The part keeps the id of the session that it came from.
                let lent = self.lent.get(text(part, "messageID"));
                return (lent.map_or(id, String::as_str).to_owned(), Cow::Borrowed(properties));
            }
            _ => None,
        };
        let Some(owner) = owner else { return (id.to_owned(), Cow::Borrowed(properties)) };
        let mut written = properties.clone();
        written["info"]["sessionID"] = owner.as_str().into();
        (owner.clone(), Cow::Owned(written))
    }

    fn find(&self, id: &str) -> Option<&Session> {
        self.sessions.iter().find(|session| session.info["id"] == id && !session.deleted)
    }

    fn session_mut(&mut self, id: &str) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.info["id"] == id && !session.deleted)
    }
}

impl Session {
    fn apply(&mut self, kind: &str, properties: &Value) {
        match kind {
            "session.status" => {
                let status = &properties["status"];
                self.status = (status["type"] != "idle").then(|| status.clone());
            }
            "todo.updated" => self.todos = properties["todos"].clone(),
            "message.updated" => {
                let info = &properties["info"];
                // The real OpenCode reports this by a `session.updated` that changes nothing else here.
                if self.info["time"].is_object()
                    && info["time"]["created"].as_u64() > self.info["time"]["updated"].as_u64()
                {
                    self.info["time"]["updated"] = info["time"]["created"].clone();
                }
                match self.message(text(info, "id")) {
                    Some(message) => message.info = info.clone(),
                    None => self.messages.push(Message { info: info.clone(), parts: Vec::new() }),
                }
            }
            "message.removed" => {
                self.messages.retain(|message| message.info["id"] != properties["messageID"]);
            }
            "message.part.updated" => {
                let part = &properties["part"];
                let Some(message) = self.message(text(part, "messageID")) else { return };
                match message.parts.iter_mut().find(|known| known["id"] == part["id"]) {
                    Some(known) => *known = part.clone(),
                    None => message.parts.push(part.clone()),
                }
            }
            "message.part.delta" => {
                let streamed = self.streamed.entry(text(properties, "partID").to_owned()).or_default();
                streamed.push_str(text(properties, "delta"));
            }
            "message.part.removed" => {
                if let Some(message) = self.message(text(properties, "messageID")) {
                    message.parts.retain(|part| part["id"] != properties["partID"]);
                }
            }
            _ => {}
        }
    }

    fn message(&mut self, id: &str) -> Option<&mut Message> {
        self.messages.iter_mut().find(|message| message.info["id"] == id)
    }
}

/// An event with a new id.
pub(super) fn event(kind: &str, properties: impl Serialize) -> Value {
    to_value(&Event { id: &super::ids::fresh("evt"), kind, properties })
}

/// The two events that OpenCode sends when a session becomes idle.
pub(super) fn idle(session: &str) -> [Value; 2] {
    let idle: Properties<'_> = Properties::Session { session };
    [status(session, "idle"), event("session.idle", idle)]
}

pub(super) fn status(session: &str, kind: &str) -> Value {
    let status: Properties<'_> = Properties::Status { session, status: Status { kind } };
    event("session.status", status)
}

pub(super) fn message_updated(session: &str, info: Value) -> Value {
    event("message.updated", Properties::Info { session, info })
}

pub(super) fn part_updated(session: &str, part: Value, now: u64) -> Value {
    event("message.part.updated", Properties::Part { session, part, time: now })
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The part after an abort. `None` when it was closed already.
fn close_part(part: &Value, streamed: Option<&String>, now: u64) -> Option<Value> {
    let mut closed = part.clone();
    match text(part, "type") {
        "text" | "reasoning" if part["time"]["end"].is_null() => {
            closed["text"] = streamed.cloned().unwrap_or_default().into();
            closed["time"]["end"] = now.into();
        }
        "tool" if matches!(text(&part["state"], "status"), "pending" | "running") => {
            closed["state"]["status"] = "error".into();
            closed["state"]["error"] = "Tool execution aborted".into();
        }
        _ => return None,
    }
    Some(closed)
}
