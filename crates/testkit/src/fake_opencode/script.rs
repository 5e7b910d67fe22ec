//! The script of a prompt: a part of a recording, or a turn that the test wrote.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use super::decision::Decision;
use super::gate::Gate;
use super::ids;
use super::recording::{RecordedLine, Recording, bare};
use super::responder::Responder;
use super::turn::Turn;

/// One step of a script.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Emit(Value),
    /// Waits until the session is aborted. An earlier abort counts too.
    AwaitAbort,
    /// Waits until this ask is answered.
    AwaitReply(String),
    /// If the answer to this ask was a rejection, these are the remaining steps.
    IfRejected {
        ask: String,
        steps: Vec<Self>,
    },
    Hold(Gate),
    Pause(Duration),
    /// Decides the following steps. `calls`: how many tool calls the turn has made.
    Decide {
        decision: Decision,
        calls: usize,
    },
}

/// A prompt as the fake received it.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) session: String,
    pub(super) message: String,
    pub(super) parts: Value,
    pub(super) directory: String,
    /// The position after its request in the log.
    pub(super) logged_at: usize,
    pub(super) responder: Responder,
    /// The tools that it allows and denies. Null: none are named.
    pub(super) tools: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Script {
    Recorded(Segment),
    Written(Turn),
}

/// How a recording is played: complete by default.
#[derive(Clone, Debug)]
#[must_use = "its methods return a changed copy"]
pub struct Play {
    recording: Recording,
    foreign_aborts: bool,
    foreign_replies: bool,
    prompts: Option<Vec<usize>>,
    holds: Vec<(String, usize, Gate)>,
    /// Gates at which the script stops after the answer to an ask, by the id of the ask.
    answered: HashMap<String, Gate>,
}

/// The part of a recording from one prompt to the next.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    session: String,
    user_message: Option<String>,
    steps: Vec<Step>,
}

impl Play {
    pub fn new(name: &str) -> Self {
        Self {
            recording: Recording::load(name),
            foreign_aborts: false,
            foreign_replies: false,
            prompts: None,
            holds: Vec::new(),
            answered: HashMap::new(),
        }
    }

    /// The aborts of the recording were another client's: the script does not wait for them.
    pub fn foreign_aborts(mut self) -> Self {
        self.foreign_aborts = true;
        self
    }

    /// The answers to asks were another client's: the script does not wait for them.
    pub fn foreign_replies(mut self) -> Self {
        self.foreign_replies = true;
        self
    }

    /// Plays only these prompts of the recording, counted from 0.
    pub fn only_prompts(mut self, prompts: &[usize]) -> Self {
        self.prompts = Some(prompts.to_vec());
        self
    }

    /// Stops after the `nth` event of a kind, counted from 1 in each prompt, until the gate is opened.
    pub fn hold_after(mut self, kind: &str, nth: usize, gate: &Gate) -> Self {
        self.holds.push((kind.to_owned(), nth, gate.clone()));
        self
    }

    /// Stops after the answer to this ask until the gate is opened.
    pub fn hold_after_answer(mut self, request: &str, gate: &Gate) -> Self {
        self.answered.insert(request.to_owned(), gate.clone());
        self
    }

    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// The texts of the prompts that are played.
    pub fn prompts(&self) -> Vec<String> {
        let all = self.recording.prompts();
        match &self.prompts {
            Some(chosen) => chosen.iter().map(|prompt| all[*prompt].clone()).collect(),
            None => all,
        }
    }

    pub(super) fn segments(&self) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut waiting = Vec::new();
        let mut known = HashSet::new();
        for (index, line) in self.recording.lines.iter().enumerate() {
            if let Some((session, _)) = line.prompt() {
                let steps = if segments.is_empty() { std::mem::take(&mut waiting) } else { Vec::new() };
                segments.push(Segment { session: session.to_owned(), user_message: None, steps });
                continue;
            }
            let Some(step) = self.step(index, line) else { continue };
            match segments.last_mut() {
                Some(segment) => segment.take(step, &mut known),
                // Events before the first prompt are sent after it: no reader listens earlier.
                None => waiting.push(step),
            }
        }
        for (segment, own) in segments.iter_mut().zip(self.user_messages()) {
            segment.user_message = own.or(segment.user_message.take());
            let mut steps = std::mem::take(&mut segment.steps);
            // The fake itself sends this event when the session is created.
            steps.retain(|step| !segment.is_creation(step));
            segment.steps = self.with_holds(steps);
        }
        match &self.prompts {
            Some(chosen) => chosen.iter().map(|prompt| segments[*prompt].clone()).collect(),
            None => segments,
        }
    }

    /// For each prompt, the id of its user message. The message is found by the prompt's text, because the events of a prompt may
    /// come only after the next prompt.
    fn user_messages(&self) -> Vec<Option<String>> {
        let lines = &self.recording.lines;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of_users: HashSet<String> = self
            .recording
            .events()
            .map(|event| &event["properties"]["info"])
            .filter(|info| info["role"] == "user")
            .map(|info| text(&info["id"]))
            .collect();
        let mut owned = HashSet::new();
        let mut found = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let Some((session, body)) = line.prompt() else { continue };
            let words = &body["parts"][0]["text"];
            let own = lines[index..].iter().find_map(|line| {
                let RecordedLine::Event(event) = line else { return None };
                let part = &event["properties"]["part"];
                let id = text(&part["messageID"]);
                let is_own = part["sessionID"] == session && part["text"] == *words && of_users.contains(&id);
                (is_own && owned.insert(id.clone())).then_some(id)
            });
            found.push(own);
        }
        found
    }

    fn step(&self, index: usize, line: &RecordedLine) -> Option<Step> {
        match line {
            RecordedLine::Event(event) => Some(Step::Emit(event.clone())),
            RecordedLine::Request { method, path, .. } if method == "POST" => {
                let segments: Vec<&str> = bare(path).split('/').skip(1).collect();
                match segments.as_slice() {
                    ["session", _, "abort"] if !self.foreign_aborts => Some(Step::AwaitAbort),
                    ["permission" | "question", request, "reply" | "reject"]
                        if !self.foreign_replies && self.recording.was_accepted(index) =>
                    {
                        Some(Step::AwaitReply((*request).to_owned()))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn with_holds(&self, steps: Vec<Step>) -> Vec<Step> {
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut held = Vec::with_capacity(steps.len());
        for step in steps {
            let kind = match &step {
                Step::Emit(event) => event["type"].as_str().unwrap_or_default().to_owned(),
                _ => String::new(),
            };
            let gate = match &step {
                Step::AwaitReply(request) => self.answered.get(request).cloned(),
                _ => None,
            };
            held.push(step);
            held.extend(gate.map(Step::Hold));
            let count = seen.entry(kind.clone()).or_default();
            *count += 1;
            let count = *count;
            let here = self.holds.iter().filter(|(held_kind, nth, _)| *held_kind == kind && *nth == count);
            held.extend(here.map(|(_, _, gate)| Step::Hold(gate.clone())));
        }
        held
    }
}

impl Segment {
    fn is_creation(&self, step: &Step) -> bool {
        matches!(step, Step::Emit(event) if event["type"] == "session.created"
            && event["properties"]["sessionID"] == self.session.as_str())
    }

    fn take(&mut self, step: Step, known: &mut HashSet<String>) {
        if let Step::Emit(event) = &step
            && event["type"] == "message.updated"
            && event["properties"]["info"]["role"] == "user"
            && event["properties"]["sessionID"] == self.session.as_str()
        {
            let id = event["properties"]["info"]["id"].as_str().unwrap_or_default();
            // A late update of an earlier prompt's message does not belong to this prompt.
            if known.insert(id.to_owned()) && self.user_message.is_none() {
                self.user_message = Some(id.to_owned());
            }
        }
        self.steps.push(step);
    }
}

impl Script {
    /// The steps for this prompt. Recorded ids become current ones; `renamed` keeps them for later segments.
    pub(super) fn steps(&self, prompt: &Prompt, renamed: &mut HashMap<String, String>) -> Vec<Step> {
        let segment = match self {
            Self::Written(turn) => return turn.steps(prompt),
            Self::Recorded(segment) => segment,
        };
        let mut distance = 0;
        if let Some(recorded) = &segment.user_message {
            renamed.insert(recorded.clone(), prompt.message.clone());
            distance = ids::distance(recorded, &prompt.message).unwrap_or_default();
        }
        let move_to = Move { segment, prompt, renamed: RefCell::new(renamed), distance };
        segment
            .steps
            .iter()
            .map(|step| match step {
                Step::Emit(event) => Step::Emit(move_to.value(event)),
                other => other.clone(),
            })
            .collect()
    }
}

/// Adapts the values of a recording to this prompt.
struct Move<'a> {
    segment: &'a Segment,
    prompt: &'a Prompt,
    renamed: RefCell<&'a mut HashMap<String, String>>,
    distance: u64,
}

impl Move<'_> {
    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(key, value)| (key.clone(), self.value(value))).collect())
            }
            other => other.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let mut renamed = self.renamed.borrow_mut();
        if let Some(renamed) = renamed.get(text) {
            return renamed.clone();
        }
        if text.starts_with("msg_") {
            // A message that began under one prompt may continue under the next.
            let known = renamed.entry(format!("{} {text}", self.prompt.session));
            return known.or_insert_with(|| ids::moved(text, self.distance)).clone();
        }
        if text.starts_with("evt_") {
            return ids::moved(text, self.distance);
        }
        let text = text.replace(&self.segment.session, &self.prompt.session);
        // The recordings were scrubbed: these are the two directories in which their sessions worked.
        text.replace("/workspace", &self.prompt.directory).replace("/sandbox/disp", &self.prompt.directory)
    }
}
