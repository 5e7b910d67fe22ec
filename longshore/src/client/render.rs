//! Prints the events of a task as they arrive: text, reasoning, tool calls, and a status line.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use longshore_client::{Artifact, ArtifactUpdate, Content, Event, Part, Status, Task, TaskState, is_plain};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::diff::{self, Line};
use super::printer::{Printer, Style};
use super::words::{cut, grouped, title, word};
use crate::cli::client::OutputFormat;
use crate::output;

/// The most bytes of the end of the answer that are kept, to detect a repetition. No event can repeat more.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// The most messages and tool calls that are remembered, and the longest id. If an agent exceeds either, something may be printed
/// twice.
const MAX_REMEMBERED: usize = 10_000;
const MAX_ID: usize = 256;

/// The kind of an output block. Only Longshore sends it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Text,
    Reasoning,
    Tool,
}

/// Prints one task.
#[derive(Debug)]
pub(crate) struct Renderer {
    format: OutputFormat,
    pub(crate) printer: Printer,
    /// The text that was printed of each block, because an update may repeat it.
    shown: HashMap<(String, Kind), String>,
    /// The block that was printed last.
    current: Option<(String, Kind)>,
    calls: HashMap<String, Call>,
    /// The ids of the printed messages.
    messages: HashSet<String>,
    /// The end of the printed answer. Some agents repeat it in their last status.
    answer: String,
    started: Instant,
    tokens: Option<u64>,
    cost: Option<String>,
    state: Option<TaskState>,
    task: Option<String>,
}

/// A tool call.
#[derive(Debug)]
struct Call {
    began: Instant,
    name: String,
    is_over: bool,
}

impl Renderer {
    pub(crate) fn new(format: OutputFormat) -> Self {
        Self {
            format,
            printer: Printer::new(),
            shown: HashMap::new(),
            current: None,
            calls: HashMap::new(),
            messages: HashSet::new(),
            answer: String::new(),
            started: Instant::now(),
            tokens: None,
            cost: None,
            state: None,
            task: None,
        }
    }

    /// The id of the task, once an event has named it.
    pub(crate) fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    pub(crate) fn state(&self) -> Option<TaskState> {
        self.state
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Task(task) => self.note(&task.id, task.status.state, &task.metadata),
            Event::StatusUpdate(update) => self.note(&update.task_id, update.status.state, &update.metadata),
            Event::ArtifactUpdate(update) => self.task = Some(update.task_id.clone()),
            Event::Message(_) => self.state = Some(TaskState::Completed),
        }
        match self.format {
            OutputFormat::Text => self.show(event),
            OutputFormat::Jsonl => print_json(event),
            OutputFormat::Json => {
                if let Event::Message(_) = event {
                    print_json(event);
                }
            }
        }
    }

    /// Updates the elapsed time in the status line, if no other line is open.
    pub(crate) fn tick(&mut self) {
        if self.format != OutputFormat::Text {
            return;
        }
        let running = self.calls.values().find(|call| !call.is_over);
        let what = match (running, self.state) {
            (Some(call), _) => format!("running {}", call.name),
            (None, Some(TaskState::Submitted)) => "waiting for the agent".to_owned(),
            _ => "working".to_owned(),
        };
        let line = format!("{what} · {}", self.figures());
        self.printer.status(&line);
    }

    /// Ends the output with a line that tells how the task ended.
    pub(crate) fn finish(&mut self, task: Option<&Task>) {
        match (self.format, task) {
            (OutputFormat::Json, Some(task)) => print_json(task),
            (OutputFormat::Text, _) => {
                self.printer.end_answer();
                self.printer.end_aside();
                let state = self.state.map_or("ended", word);
                let line = format!("{state} · {}", self.figures());
                self.printer.line(Style::Dim, &line);
            }
            _ => {}
        }
    }

    /// The elapsed time, the tokens and the cost, as text.
    fn figures(&self) -> String {
        let elapsed = self.started.elapsed();
        let mut text = if elapsed.as_secs() < 60 {
            format!("{:.1} s", elapsed.as_secs_f32())
        } else {
            format!("{} min {} s", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
        };
        if let Some(tokens) = self.tokens {
            let _ = write!(text, " · {} tokens", grouped(tokens));
        }
        if let Some(cost) = &self.cost {
            let _ = write!(text, " · cost {cost}");
        }
        text
    }

    fn note(&mut self, task: &str, state: Option<TaskState>, metadata: &Map<String, Value>) {
        self.task = Some(task.to_owned());
        self.state = state.or(self.state);
        let usage = metadata.get("shared").map_or(&Value::Null, |shared| &shared["usage"]);
        self.tokens = usage["total_tokens"].as_u64().or(self.tokens);
        // Ignore a cost of 0: it means that the agent does not know the cost.
        let cost = usage["cost"].as_f64().filter(|cost| *cost > 0.0).map(|cost| format!("{cost:.4}"));
        self.cost = cost.or(self.cost.take());
    }

    fn show(&mut self, event: &Event) {
        match event {
            Event::Task(task) => {
                for artifact in &task.artifacts {
                    self.artifact(artifact, false);
                }
                self.status(&task.status, &task.metadata);
            }
            Event::Message(message) => self.say(&message.text()),
            Event::StatusUpdate(update) => self.status(&update.status, &update.metadata),
            Event::ArtifactUpdate(ArtifactUpdate { artifact, append, .. }) => {
                self.artifact(artifact, *append);
            }
        }
    }

    fn status(&mut self, status: &Status, metadata: &Map<String, Value>) {
        let Some(message) = &status.message else { return };
        if self.messages.len() >= MAX_REMEMBERED {
            self.messages.clear();
        }
        let id = &message.message_id;
        if (1..=MAX_ID).contains(&id.len()) && !self.messages.insert(id.clone()) {
            return;
        }
        let text = message.text();
        match status.state {
            // The message is printed when the command prompts for the answer.
            Some(TaskState::InputRequired | TaskState::AuthRequired) => {}
            Some(TaskState::Completed) => self.say(&text),
            Some(TaskState::Failed | TaskState::Rejected | TaskState::Canceled) => {
                self.printer.line(Style::Bad, &text);
            }
            // Agents with this metadata write their answer in status messages.
            _ if metadata.contains_key("iac_code") => self.write_answer(&text),
            _ => self.printer.line(Style::Dim, &text),
        }
    }

    /// Prints a message as part of the answer, unless the answer already ends with it.
    fn say(&mut self, text: &str) {
        let text = text.trim_end();
        if !text.is_empty() && !self.answer.trim_end().ends_with(text.trim_start()) {
            self.leave_block();
            self.write_answer(text);
        }
    }

    fn artifact(&mut self, artifact: &Artifact, append: bool) {
        if kind_of_artifact(artifact) == Kind::Tool
            && let Some(call) = artifact.parts.iter().rev().find_map(tool_call)
        {
            return self.tool(&artifact.artifact_id, call);
        }
        if append {
            for part in &artifact.parts {
                self.part(artifact, part);
            }
            return;
        }
        for kind in [Kind::Reasoning, Kind::Text] {
            let texts = artifact.parts.iter().filter(|part| kind_of(part, artifact) == kind);
            let text: String = texts.filter_map(Part::as_text).collect();
            self.replace(&artifact.artifact_id, kind, &text);
        }
        for part in artifact.parts.iter().filter(|part| part.as_text().is_none()) {
            self.part(artifact, part);
        }
    }

    /// Prints a part that is appended to its block.
    fn part(&mut self, artifact: &Artifact, part: &Part) {
        let kind = kind_of(part, artifact);
        match &part.content {
            Content::Text(text) => self.write(&artifact.artifact_id, kind, text),
            Content::Data(call) if kind == Kind::Tool => self.tool(&artifact.artifact_id, call),
            Content::Data(data) => {
                self.leave_block();
                self.write_answer(&format!("{data}\n"));
            }
            Content::Raw(_) | Content::Url(_) => {
                let url = if let Content::Url(url) = &part.content { url.as_str() } else { "" };
                let name = part.filename.as_deref().or(artifact.name.as_deref()).unwrap_or("a file");
                let media_type = part.media_type.as_deref().unwrap_or("unknown type");
                self.printer.line(Style::Dim, format!("file: {name} ({media_type}) {url}").trim_end());
            }
        }
    }

    /// Prints the new part of a block. `text`: the whole text of the block.
    fn replace(&mut self, id: &str, kind: Kind, text: &str) {
        let key = (id.to_owned(), kind);
        let old = self.shown.get(&key).cloned().unwrap_or_default();
        if let Some(rest) = text.strip_prefix(old.as_str()) {
            return self.write(id, kind, rest);
        }
        self.shown.remove(&key);
        self.leave_block();
        if self.printer.is_watched() {
            self.printer.line(Style::Dim, "(The agent begins this text again.)");
        }
        self.write(id, kind, text);
    }

    fn write(&mut self, id: &str, kind: Kind, text: &str) {
        if text.is_empty() {
            return;
        }
        let key = (id.to_owned(), kind);
        if self.current.as_ref() != Some(&key) {
            self.leave_block();
            self.current = Some(key.clone());
        }
        // Texts of tool calls are never printed again, so they need not be kept.
        if kind != Kind::Tool {
            self.shown.entry(key).or_default().push_str(text);
        }
        match kind {
            Kind::Text => self.write_answer(text),
            Kind::Reasoning if self.printer.is_watched() => self.printer.aside(Style::Dim, text),
            // Without a terminal, reasoning would only fill a log.
            Kind::Reasoning | Kind::Tool => {}
        }
    }

    fn write_answer(&mut self, text: &str) {
        self.answer.push_str(text);
        if self.answer.len() > 2 * MAX_ANSWER {
            let start = self.answer.ceil_char_boundary(self.answer.len() - MAX_ANSWER);
            self.answer.drain(..start);
        }
        self.printer.answer(text);
    }

    /// Ends the current block, so that the next text begins on a new line.
    fn leave_block(&mut self) {
        self.current = None;
        if !self.answer.is_empty() && !self.answer.ends_with('\n') {
            self.answer.push('\n');
        }
        self.printer.end_answer();
        self.printer.end_aside();
    }

    /// Prints a finished tool call: one line, and the change that it made.
    fn tool(&mut self, id: &str, call: &Value) {
        let text = |name: &str| call[name].as_str().unwrap_or_default();
        let id = Some(text("call_id")).filter(|id| !id.is_empty()).unwrap_or(id);
        let id = &id[..id.floor_char_boundary(MAX_ID)];
        if self.calls.len() >= MAX_REMEMBERED {
            self.calls.clear();
        }
        let known = self.calls.entry(id.to_owned()).or_insert_with(|| Call {
            began: Instant::now(),
            name: cut(text("tool")),
            is_over: false,
        });
        let (sign, style) = match text("status") {
            "completed" => ("✓", Style::Good),
            "error" => ("✗", Style::Bad),
            _ => return,
        };
        if std::mem::replace(&mut known.is_over, true) {
            return;
        }
        let seconds = known.began.elapsed().as_secs_f32();
        let title = title(call);
        self.leave_block();
        self.printer.line(
            style,
            format!("{sign} {} {title} ({seconds:.1} s)", text("tool")).replace("  ", " ").as_str(),
        );
        if let Some(error) = text("error").lines().next() {
            self.printer.line(Style::Dim, &format!("  {}", cut(error)));
        }
        for line in diff::of_call(call) {
            match line {
                Line::Removed(text) => self.printer.line(Style::Bad, &format!("  -{text}")),
                Line::Added(text) => self.printer.line(Style::Good, &format!("  +{text}")),
                Line::About(text) => self.printer.line(Style::Dim, &format!("  {text}")),
            }
        }
    }
}

pub(crate) fn print_json(value: &impl serde::Serialize) {
    output::print(escaped(&serde_json::to_string(value).unwrap_or_default()));
}

/// Escapes characters that control a terminal. In JSON they can occur only in strings, so the value stays the same.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_plain(c) {
            escaped.push(c);
        } else {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        }
    }
    escaped
}

fn kind_of_artifact(artifact: &Artifact) -> Kind {
    block_type(&artifact.metadata).unwrap_or(Kind::Text)
}

/// The kind of a part. In 0.3, each part has its own kind.
fn kind_of(part: &Part, artifact: &Artifact) -> Kind {
    block_type(&part.metadata).unwrap_or_else(|| kind_of_artifact(artifact))
}

fn block_type(metadata: &Map<String, Value>) -> Option<Kind> {
    match metadata.get("shared")?["stream"]["block_type"].as_str()? {
        "reasoning" => Some(Kind::Reasoning),
        "tool_call" => Some(Kind::Tool),
        _ => Some(Kind::Text),
    }
}

fn tool_call(part: &Part) -> Option<&Value> {
    match &part.content {
        Content::Data(call) => Some(call),
        _ => None,
    }
}
