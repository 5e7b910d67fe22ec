//! The tool calls of a turn: merges partial updates, and closes calls that get no final update.

use std::collections::HashMap;
use std::fmt::Write as _;

use longshore_meter::label::WhyIgnored;
use longshore_model::{
    AgentEvent, BlockKind, BlockRef, CALLER_ARGUMENT, Json, SessionId, ToolCall, ToolStatus,
};
use serde_json::Value;

use super::paths::Paths;
use super::sub_agent::{self, Running, SubAgent};
use super::terminal::{Embedded, Outputs, placeholder};
use super::{Ids, diff, paths};
use crate::schema::{ToolContent, ToolUpdate};

/// How many unfinished tool calls a turn may have. Further calls are dropped and counted.
const MAX_OPEN_CALLS: usize = 512;

/// How many tool calls of a turn are followed in total.
const MAX_CALLS: usize = 16 * 1024;

/// The longest word that is accepted as the name or the kind of a tool.
const MAX_NAME: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Vec<Call>,
    by_id: HashMap<String, usize>,
    open: usize,
    terminals: Outputs,
    /// The directory of the session, from which relative paths start.
    pub(super) directory: Option<String>,
}

/// The parts of a turn to which its calls refer.
struct CallScope<'a> {
    session: &'a SessionId,
    directory: Option<&'a str>,
    terminals: &'a Outputs,
}

/// The message from which the members of a call come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// `tool_call`.
    Announcement,
    /// `tool_call_update`.
    Update,
    /// A permission request. Its members describe the request, so they only add what is missing in the call.
    Ask,
}

#[derive(Debug)]
struct Call {
    block: BlockRef,
    /// The call as it was last reported. Of a finished call, only the small members are kept.
    shown: ToolCall,
    /// Whether the agent gave the name. If not, the name was made from the call's kind.
    is_named: bool,
    kind: Option<String>,
    paths: Vec<String>,
    /// The file changes that the call proposes or has made, as text.
    diffs: Option<String>,
    /// The files in these changes.
    changed: Vec<String>,
    is_rejected: bool,
    is_reported: bool,
    sub_agent: Option<Running>,
    /// The call's content, if it contains terminals.
    embedded: Option<Embedded>,
}

/// The known facts about a call, for its permission request.
#[derive(Clone, Debug)]
pub(crate) struct CallFacts<'a> {
    pub(crate) id: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) is_tool_named: bool,
    pub(crate) kind: Option<&'a str>,
    pub(crate) title: Option<&'a str>,
    pub(crate) command: Option<String>,
    /// Whether further members of the input affect what the command does. They are shown with the command.
    pub(crate) has_arguments: bool,
    /// The directory in which the command runs, if the call names one.
    pub(crate) directory: Option<String>,
    /// The files of the call by its locations, its changes and its input, as the agent wrote them. At most one more than
    /// [`paths::MAX_PATHS`], which says that there are more.
    pub(crate) paths: Vec<String>,
    pub(crate) diff: Option<String>,
}

impl Calls {
    pub(super) fn is_new(&self, id: &str) -> bool {
        !self.by_id.contains_key(id)
    }

    /// Whether a call runs. A call whose permission was refused does not count, because one agent never reports its end.
    pub(super) fn any_runs(&self) -> bool {
        self.open > 0 && self.all.iter().any(|call| !is_final(call.shown.status) && !call.is_rejected)
    }

    pub(super) fn sub_agents(&self) -> impl Iterator<Item = &SubAgent> {
        self.all.iter().filter_map(|call| call.sub_agent.as_ref()).map(Running::facts)
    }

    /// Merges an update into its call, or creates a call. The error is the name under which the update is counted. Even then a part
    /// of the update may have been merged.
    pub(super) fn merge(
        &mut self,
        update: &ToolUpdate,
        source: Source,
        session: &SessionId,
        ids: &mut Ids,
        out: &mut Vec<AgentEvent>,
    ) -> Result<(), (WhyIgnored, String)> {
        let at = match self.by_id.get(&update.id) {
            Some(at) => *at,
            None if self.open >= MAX_OPEN_CALLS || self.all.len() >= MAX_CALLS => {
                return Err((WhyIgnored::TooMuch, "tool call over the limit".to_owned()));
            }
            None => {
                let at = self.all.len();
                self.by_id.insert(update.id.clone(), at);
                self.all.push(Call::new(update, source, ids));
                self.open += 1;
                at
            }
        };
        let call = &mut self.all[at];
        if is_final(call.shown.status) {
            return Ok(());
        }
        if source != Source::Ask && update.content.as_ref().is_some_and(|content| !content.is_empty()) {
            call.embedded = Embedded::find(update);
        }
        let (directory, terminals) = (self.directory.as_deref(), &self.terminals);
        let known = call.merge(update, source, &CallScope { session, directory, terminals }, ids, out);
        if is_final(call.shown.status) {
            self.open -= 1;
        }
        known
    }

    /// Records the current output of a terminal.
    pub(super) fn terminal(&mut self, id: &str, output: &str, ids: &mut Ids, out: &mut Vec<AgentEvent>) {
        self.terminals.set(id, output);
        for call in self.all.iter_mut().filter(|call| !is_final(call.shown.status)) {
            let Some(embedded) = call.embedded.as_ref().filter(|embedded| embedded.shows(id)) else {
                continue;
            };
            let text = Some(embedded.fill(&self.terminals));
            let output = joined(text, call.diffs.as_deref());
            let next = ToolCall { status: ToolStatus::Running, output, ..call.shown.clone() };
            call.report(next, None, ids, out);
        }
    }

    /// The call's permission was refused or given.
    pub(super) fn answered(&mut self, id: &str, is_rejection: bool) {
        if let Some(at) = self.by_id.get(id) {
            self.all[*at].is_rejected = is_rejection;
        }
    }

    /// Ends the calls that got no final update: the rejected ones, and those that the end of the turn cut off.
    pub(super) fn close(&mut self, is_canceled: bool, ids: &mut Ids, out: &mut Vec<AgentEvent>) {
        for call in self.all.iter_mut().filter(|call| !is_final(call.shown.status)) {
            let why = match (call.is_rejected, is_canceled) {
                (true, _) => "The permission for this call was refused.",
                (false, true) => "The turn was stopped before this call ended.",
                (false, false) => "The turn ended, and the agent did not report how this call ended.",
            };
            let next =
                ToolCall { status: ToolStatus::Error, error: Some(why.to_owned()), ..call.shown.clone() };
            call.report(next, None, ids, out);
        }
        self.open = 0;
    }

    /// The facts for a permission request. `None`: the call is not followed.
    pub(super) fn facts<'a>(&'a self, update: &'a ToolUpdate) -> Option<CallFacts<'a>> {
        let call = &self.all[*self.by_id.get(&update.id)?];
        // An empty input means that the model is still writing the arguments.
        let own_input = update.raw_input.as_ref().filter(|input| input.get() != "{}");
        let input = own_input.or(call.shown.input.as_ref()).map(Json::to_value).unwrap_or_default();
        let kind = update.kind.as_deref().or(call.kind.as_deref());
        let named = |name: &&str| input.get(*name)?.as_str().filter(|text| !text.is_empty());
        let (command, has_arguments) = command(&input).unzip();
        // The update was not merged into a finished call, so its own members are used.
        let own_locations = update.locations.iter().flatten().map(|location| &location.path);
        let own_changes = update.content.iter().flatten().filter(|content| content.kind == "diff");
        let mut paths = Paths::default();
        let named_paths = call.paths.iter().chain(own_locations).chain(&call.changed);
        named_paths.chain(own_changes.map(|content| &content.path)).for_each(|path| paths.add(path));
        paths::of_input(&input, kind, &mut paths);
        Some(CallFacts {
            id: &update.id,
            tool: &call.shown.tool,
            is_tool_named: call.is_named,
            kind,
            title: update.title.as_deref().or(call.shown.title.as_deref()),
            directory: paths::DIRECTORIES.iter().find_map(named).map(str::to_owned),
            command,
            has_arguments: has_arguments.unwrap_or_default(),
            paths: paths.0,
            diff: call.diffs.clone(),
        })
    }
}

impl Call {
    fn new(update: &ToolUpdate, source: Source, ids: &mut Ids) -> Self {
        let is_name = |title: &&String| {
            let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
            !title.is_empty() && title.len() <= MAX_NAME && title.chars().all(is_word)
        };
        let named = update.meta.tool.clone().or_else(|| {
            update.title.as_ref().filter(|title| source == Source::Announcement && is_name(title)).cloned()
        });
        let is_named = named.is_some();
        let tool = named.or_else(|| update.kind.clone()).unwrap_or_else(|| "tool".to_owned());
        let shown = ToolCall::new(&update.id, tool, ToolStatus::Pending);
        let block = ids.block(BlockKind::ToolCall, None);
        Self {
            block,
            shown,
            is_named,
            kind: None,
            paths: Vec::new(),
            diffs: None,
            changed: Vec::new(),
            is_rejected: false,
            is_reported: false,
            sub_agent: None,
            embedded: None,
        }
    }

    fn merge(
        &mut self,
        update: &ToolUpdate,
        source: Source,
        turn: &CallScope<'_>,
        ids: &mut Ids,
        out: &mut Vec<AgentEvent>,
    ) -> Result<(), (WhyIgnored, String)> {
        let mut next = self.shown.clone();
        if let Some(name) = &update.meta.tool {
            self.is_named = true;
            next.tool.clone_from(name);
        }
        next.meta = update.meta.raw.clone().or(next.meta);
        self.kind = update.kind.clone().or(self.kind.take());
        if let Some(locations) = update.locations.as_ref().filter(|locations| !locations.is_empty()) {
            self.paths = locations.iter().map(|location| location.path.clone()).collect();
            if source != Source::Ask || next.locations.is_empty() {
                next.locations = paths::located(locations, turn.directory);
            }
        }
        if let Some(diffs) = update.content.as_deref().and_then(diffs) {
            self.diffs = Some(diffs);
            self.changed = update.content.as_deref().map(changed).unwrap_or_default();
        }
        let title = update.title.clone().filter(|title| !title.is_empty());
        // An empty input means that the model is still writing the arguments.
        let input = update.raw_input.clone().filter(|input| input.get() != "{}");
        let input = input.map(|input| input.without(CALLER_ARGUMENT));
        let kind = update.kind.clone().filter(|kind| !kind.is_empty() && kind.len() <= MAX_NAME);
        (next.title, next.kind, next.input) = match source {
            Source::Announcement | Source::Update => {
                (title.or(next.title), kind.or(next.kind), input.or(next.input))
            }
            Source::Ask => (next.title.or(title), next.kind.or(kind), next.input.or(input)),
        };
        let (status, known) = match update.status.as_deref().map(|word| (word, status_of(word))) {
            None => (next.status, Ok(())),
            Some((_, Some(status))) => (status, Ok(())),
            Some((word, None)) => (next.status, Err((WhyIgnored::Unknown, format!("tool status {word}")))),
        };
        if source != Source::Ask && update.status.is_some() && status == ToolStatus::Running {
            self.is_rejected = false;
        }
        if rank(status) >= rank(next.status) {
            next.status = status;
        }
        if next.status == ToolStatus::Pending
            && self.embedded.as_ref().is_some_and(|embedded| embedded.has_output(turn.terminals))
        {
            next.status = ToolStatus::Running;
        }
        let text = match &self.embedded {
            Some(embedded) => Some(embedded.fill(turn.terminals)).filter(|text| !text.is_empty()),
            None => text_of(update),
        };
        match next.status {
            // Before a tool runs, the content is not output but describes what the tool will do.
            ToolStatus::Pending => {}
            _ if source == Source::Ask => {}
            ToolStatus::Running | ToolStatus::Completed => {
                next.output = joined(text, self.diffs.as_deref()).or(next.output);
            }
            ToolStatus::Error => {
                let why = update.raw_output.as_ref().and_then(error_of).or(text);
                next.error = Some(why.unwrap_or_else(|| "The tool failed and gave no reason.".to_owned()));
            }
        }
        if self.sub_agent.is_none()
            && let Some(facts) = sub_agent::find(update, next.title.as_deref())
        {
            let running = Running::start(facts, &update.id, turn.session, ids, out);
            next.child = Some(running.session().clone());
            self.sub_agent = Some(running);
        }
        self.report(next, update.raw_output.as_ref(), ids, out);
        known
    }

    /// Reports the call if it has changed.
    fn report(
        &mut self,
        next: ToolCall,
        raw_output: Option<&Json>,
        ids: &mut Ids,
        out: &mut Vec<AgentEvent>,
    ) {
        // A new call is always reported.
        let is_reported = std::mem::replace(&mut self.is_reported, true);
        if next == self.shown && is_reported {
            return;
        }
        if is_final(next.status)
            && let Some(sub_agent) = &mut self.sub_agent
        {
            sub_agent.end(&next, raw_output, ids, out);
        }
        let block = self.block.clone();
        let before = std::mem::replace(&mut self.shown, kept(&next));
        out.push(match added_output(&before, &next).filter(|_| is_reported) {
            // The rest has not changed since the last report.
            Some(added) => {
                let added = Some(added.to_owned());
                let next = without_facts(next);
                let call = ToolCall { kind: None, output: added, ..next };
                AgentEvent::ToolOutput { block, call: Box::new(call) }
            }
            None => AgentEvent::Tool { block, call: Box::new(next) },
        });
    }
}

fn is_final(status: ToolStatus) -> bool {
    rank(status) == 2
}

fn rank(status: ToolStatus) -> u8 {
    match status {
        ToolStatus::Pending => 0,
        ToolStatus::Running => 1,
        ToolStatus::Completed | ToolStatus::Error => 2,
    }
}

fn status_of(word: &str) -> Option<ToolStatus> {
    Some(match word {
        "pending" => ToolStatus::Pending,
        "in_progress" | "running" | "partially_completed" => ToolStatus::Running,
        "completed" => ToolStatus::Completed,
        "failed" | "cancelled" | "rejected" => ToolStatus::Error,
        _ => return None,
    })
}

/// The part of a call that is kept to find out what its next update changes. A finished call gets no more updates, so its texts,
/// which may be large, are dropped.
fn kept(call: &ToolCall) -> ToolCall {
    if is_final(call.status) {
        ToolCall { output: None, ..without_facts(call.clone()) }
    } else {
        call.clone()
    }
}

fn without_facts(call: ToolCall) -> ToolCall {
    ToolCall { title: None, locations: Vec::new(), input: None, meta: None, ..call }
}

/// The text that was added to the output of a running call. `None`: something else has changed too.
fn added_output<'a>(before: &ToolCall, after: &'a ToolCall) -> Option<&'a str> {
    let rest = |call: &ToolCall| ToolCall { output: None, ..call.clone() };
    let is_running = before.status == ToolStatus::Running && rest(before) == rest(after);
    after.output.as_deref().filter(|_| is_running)?.strip_prefix(before.output.as_deref().unwrap_or_default())
}

fn diffs(content: &[ToolContent]) -> Option<String> {
    let texts: Vec<_> = content
        .iter()
        .filter(|content| content.kind == "diff")
        .map(|content| diff::unified(&content.path, &content.old_text, &content.new_text))
        .collect();
    (!texts.is_empty()).then(|| texts.concat())
}

/// The files that the diffs in a content change.
fn changed(content: &[ToolContent]) -> Vec<String> {
    let diffs = content.iter().filter(|content| content.kind == "diff");
    diffs.map(|content| content.path.clone()).collect()
}

/// The command in an input, and whether further members affect what it does.
fn command(input: &Value) -> Option<(String, bool)> {
    let mut command = match input.get("command")? {
        Value::String(text) => text.clone(),
        // Words with blanks are quoted, so that they stay recognizable as one word.
        Value::Array(words) => match words.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
            Some(words) if words.iter().all(|word| !word.contains(char::is_whitespace)) => words.join(" "),
            _ => Value::from(words.clone()).to_string(),
        },
        _ => return None,
    };
    if command.is_empty() || command == "[]" {
        return None;
    }
    let mut has_arguments = false;
    for name in ["args", "arguments", "env", "environment", "stdin", "input"] {
        let is_empty = |value: &&Value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(values) => values.is_empty(),
            Value::Object(members) => members.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        if let Some(value) = input.get(name).filter(|value| !is_empty(value)) {
            let _ = write!(command, " ({name}: {value})");
            has_arguments = true;
        }
    }
    Some((command, has_arguments))
}

/// Whether callers are shown content of this kind.
pub(super) fn is_known(content: &ToolContent) -> bool {
    matches!(content.kind.as_str(), "content" | "diff" | "terminal")
}

/// The text of an update: that of its content, or else that of its raw output.
pub(super) fn text_of(update: &ToolUpdate) -> Option<String> {
    let mut text = String::new();
    for content in update.content.iter().flatten() {
        let line = match content.kind.as_str() {
            "content" => match content.content.kind.as_str() {
                "text" => content.content.text.clone(),
                "resource_link" => content.content.uri.clone().unwrap_or_default(),
                _ => String::new(),
            },
            "terminal" => placeholder(&content.terminal_id),
            _ => String::new(),
        };
        if !line.is_empty() {
            let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            let _ = write!(text, "{separator}{line}");
        }
    }
    if text.is_empty() { update.raw_output.as_ref().and_then(output_of) } else { Some(text) }
}

fn joined(text: Option<String>, diffs: Option<&str>) -> Option<String> {
    match (text, diffs) {
        (Some(text), Some(diffs)) if !text.contains(diffs) => {
            let separator = if text.ends_with('\n') { "" } else { "\n" };
            Some(format!("{text}{separator}{diffs}"))
        }
        (Some(text), _) => Some(text),
        (None, diffs) => diffs.map(str::to_owned),
    }
}

/// The text in a raw output. Agents and tools use different forms.
pub(super) fn output_of(raw: &Json) -> Option<String> {
    let text = match raw.to_value() {
        Value::String(text) => text,
        Value::Object(members) => {
            let text =
                ["output", "stdout", "text", "result"].iter().find_map(|name| members.get(*name)?.as_str());
            text?.to_owned()
        }
        Value::Array(entries) => {
            entries.iter().filter_map(|entry| entry.get("text")?.as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn error_of(raw: &Json) -> Option<String> {
    let value = raw.to_value();
    let error = value.get("error")?;
    error.as_str().or_else(|| error.get("message")?.as_str()).map(str::to_owned)
}
