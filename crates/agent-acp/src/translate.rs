//! Translates the updates, the permission requests and the end of one turn into [`AgentEvent`]s. Does no IO and uses no clock.
//!
//! ACP gives ids to few things. A text is a series of chunks of the same kind and message, so a tool call or a thought ends it.
//! Tool calls may come without an announcement and may never get a final update, so this module creates and closes them.

mod diff;
mod outcome;
mod paths;
mod replay;
mod settings;
mod sub_agent;
mod terminal;
mod tool;
mod usage;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_meter::label::WhyIgnored;
use longshore_model::{
    AgentEvent, AgentFile, ArtifactId, AskOptions, BlockKind, BlockRef, Json, MessageId, Outcome, Progress,
    ProgressKind, PromptId, RequestId, Resolution, SessionId, SessionNote,
};
use serde_json::json;

pub use self::outcome::{TurnEnd, lost};
pub use self::paths::FilePaths;
pub(crate) use self::paths::{MAX_PATHS, places};
use self::paths::{NotKnown, Paths};
pub use self::replay::{LastTurn, Replay};
pub use self::settings::Settings;
pub use self::sub_agent::SubAgent;
pub(crate) use self::tool::CallFacts;
use self::tool::{Calls, Source};
pub use self::usage::SessionTotals;
use self::usage::TurnUsage;
use crate::connection::Loss;
use crate::ignored::Ignored;
use crate::permission::{self, Offered};
use crate::schema::{AuthMethod, Chunk, ContentBlock, PermissionRequest, Plan, Update};

/// How many files of a turn are reported, and the largest size of one. Other files are counted by name and dropped.
const MAX_FILES: usize = 64;
const MAX_FILE_BYTES: usize = 8 * 1024 * 1024;

/// How many asks of a turn may be open at the same time. The driver rejects further ones.
const MAX_ASKS: usize = 64;

/// How many characters of a prompt's id the ids of blocks begin with at most. A whole block id may have 128 characters.
const MAX_PREFIX: usize = 100;

/// The state of one turn.
#[derive(Debug)]
pub struct Translator {
    session: SessionId,
    ids: Ids,
    text: Option<OpenText>,
    calls: Calls,
    asks: Vec<OpenAsk>,
    usage: TurnUsage,
    todos: Option<Json>,
    title: Option<String>,
    settings: Settings,
    auth_methods: Vec<AuthMethod>,
    files: usize,
    /// The paths from which the reported files may come. `None`: not all are known.
    file_paths: HashMap<ArtifactId, Option<FilePaths>>,
    ignored: Ignored,
    /// The reasons why updates are missing.
    losses: BTreeSet<Loss>,
    is_stopped: bool,
    is_over: bool,
    out: Vec<AgentEvent>,
}

/// Makes the ids of blocks, asks and sub-agents. ACP has ids for few of these, and those are unique only within one process.
#[derive(Debug)]
struct Ids {
    prefix: String,
    last: u32,
}

impl Ids {
    fn next(&mut self, what: &str) -> String {
        self.last += 1;
        format!("{}.{what}{}", self.prefix, self.last)
    }

    fn block(&mut self, kind: BlockKind, message: Option<&str>) -> BlockRef {
        let id = ArtifactId::parse(&self.next("b")).expect("the prefix is an id and is short");
        BlockRef { id, kind, message: message.and_then(|message| MessageId::parse(message).ok()) }
    }
}

#[derive(Debug)]
struct OpenText {
    block: BlockRef,
    message: Option<String>,
}

#[derive(Debug)]
struct OpenAsk {
    id: RequestId,
    call: String,
}

impl Translator {
    /// `prompt`: the permanently unique id of the prompt, from which the ids of the turn's blocks and asks are made.
    pub fn new(session: SessionId, prompt: &PromptId, totals: SessionTotals) -> Self {
        let prefix = prompt.as_str().chars().take(MAX_PREFIX).collect();
        Self {
            session,
            ids: Ids { prefix, last: 0 },
            text: None,
            calls: Calls::default(),
            asks: Vec::new(),
            usage: TurnUsage::new(totals),
            todos: None,
            title: None,
            settings: Settings::default(),
            auth_methods: Vec::new(),
            files: 0,
            file_paths: HashMap::new(),
            ignored: Ignored::default(),
            losses: BTreeSet::new(),
            is_stopped: false,
            is_over: false,
            out: Vec::new(),
        }
    }

    /// Sets the session's settings at the start of the turn. Only changes to them are reported.
    #[must_use]
    pub fn with_settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Sets the directory of the session, from which relative paths start.
    #[must_use]
    pub fn in_directory(mut self, directory: String) -> Self {
        self.calls.directory = Some(directory);
        self
    }

    /// Sets the agent's login methods.
    #[must_use]
    pub fn with_auth_methods(self, auth_methods: Vec<AuthMethod>) -> Self {
        Self { auth_methods, ..self }
    }

    /// Removes and returns the events since the last call.
    pub fn take(&mut self) -> Vec<AgentEvent> {
        std::mem::take(&mut self.out)
    }

    /// The paths from which a reported file may come, as far as the agent names them. `None`: where one of them leads is not known.
    pub fn take_paths(&mut self, file: &ArtifactId) -> Option<FilePaths> {
        self.file_paths.remove(file).flatten()
    }

    /// The counts of content that could not be translated.
    pub fn ignored(&self) -> &Ignored {
        &self.ignored
    }

    /// The sub-agents of the turn so far.
    pub fn sub_agents(&self) -> impl Iterator<Item = &SubAgent> {
        self.calls.sub_agents()
    }

    /// Whether silence is expected, because a tool runs or the agent waits for an answer.
    pub fn may_be_silent(&self) -> bool {
        !self.asks.is_empty() || self.calls.any_runs()
    }

    pub fn update(&mut self, update: &Update) {
        if self.is_over {
            return self.count(WhyIgnored::Unexpected, "update after the end of the turn");
        }
        match update {
            Update::AgentMessage(chunk) => self.chunk(BlockKind::Text, chunk),
            Update::AgentThought(chunk) => self.chunk(BlockKind::Reasoning, chunk),
            Update::ToolCall(call) => self.tool(call, Source::Announcement),
            Update::ToolCallUpdate(call) => self.tool(call, Source::Update),
            Update::Plan(plan) => self.plan(plan),
            Update::Title(title) => self.title(title.as_deref()),
            Update::Usage(update) => self.usage.update(update),
            Update::Mode(mode) => self.out.extend(self.settings.mode_changed(mode)),
            Update::ConfigOptions(options) => self.out.extend(self.settings.options_changed(options)),
            // One agent repeats each prompt. Commands belong to the session and are kept by the connection. Unknown updates are
            // counted by the connection, because they also come outside of turns.
            Update::UserMessage(_) | Update::Commands(_) | Update::Unknown(_) => {}
        }
        self.report_usage(None);
    }

    /// Records that a piece of the turn is missing.
    pub fn lost_update(&mut self, loss: Loss) {
        self.losses.insert(loss);
        let name = match loss {
            Loss::TooLong => "update that is too long",
            Loss::NotRead => "updates that could not wait",
        };
        self.count(WhyIgnored::TooMuch, name);
    }

    /// Records the current output of a command that the gateway runs for the agent.
    pub fn terminal(&mut self, id: &str, output: &str) {
        if !self.is_over {
            self.calls.terminal(id, output, &mut self.ids, &mut self.out);
        }
    }

    /// Handles a permission request. Returns the id of the ask. `None`: the ask cannot be shown, so it must be rejected. This
    /// includes a request without options, because no answer could allow it.
    pub fn permission(&mut self, request: &PermissionRequest, options: &AskOptions) -> Option<RequestId> {
        let is_askable = !request.tool_call.id.is_empty() && !options.is_empty();
        if self.is_over || self.asks.len() >= MAX_ASKS || !is_askable {
            self.count(WhyIgnored::TooMuch, "permission request that cannot be shown");
            return None;
        }
        self.tool(&request.tool_call, Source::Ask);
        let id = RequestId::parse(&self.ids.next("a")).expect("the prefix is an id and is short");
        let facts = self.calls.facts(&request.tool_call)?;
        let offered = Offered { options, raw: &request.options };
        let directory = self.calls.directory.as_deref();
        let ask = permission::ask(id.clone(), self.session.clone(), &facts, offered, directory);
        self.asks.push(OpenAsk { id: id.clone(), call: request.tool_call.id.clone() });
        self.out.push(AgentEvent::Asked(Box::new(ask)));
        Some(id)
    }

    /// Records the gateway's answer to an ask. Returns whether the ask was open.
    pub fn answered(&mut self, ask: &RequestId, is_rejection: bool) -> bool {
        let Some(at) = self.asks.iter().position(|open| open.id == *ask) else { return false };
        let OpenAsk { id, call } = self.asks.remove(at);
        self.calls.answered(&call, is_rejection);
        let resolution = if is_rejection { Resolution::Rejected } else { Resolution::Replied };
        self.out.push(AgentEvent::AskClosed { request_id: id, resolution });
        true
    }

    /// Records that the gateway asked the agent to stop and answered all open asks.
    pub fn stopped(&mut self) {
        self.is_stopped = true;
        self.drop_asks();
    }

    /// Ends the turn: closes everything that the agent left open, and reports the end. Further calls change nothing.
    pub fn end(&mut self, end: &TurnEnd) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.end_text();
        self.drop_asks();
        let outcome = outcome::outcome(end, self.is_stopped, &self.auth_methods);
        let is_canceled = matches!(outcome, Outcome::Canceled { .. });
        let outcome = outcome::incomplete(outcome, &self.losses);
        self.calls.close(is_canceled, &mut self.ids, &mut self.out);
        self.report_usage(match end {
            TurnEnd::Answered(answer) => answer.usage.as_ref(),
            TurnEnd::Refused(_) | TurnEnd::AuthRequired | TurnEnd::Lost(_) => None,
        });
        self.out.push(AgentEvent::Ended(outcome));
    }

    fn chunk(&mut self, kind: BlockKind, chunk: &Chunk) {
        if let Some(usage) = &chunk.meta.usage {
            self.usage.request(usage);
        }
        let content = &chunk.content;
        match content.kind.as_str() {
            "text" => self.append(kind, chunk.message_id.as_deref(), &content.text),
            "resource_link" => self.append(kind, chunk.message_id.as_deref(), &link_to(content)),
            // The agent may name the URI of an image instead of sending its data.
            "image" | "audio" if content.data.is_none() && content.uri.is_some() => {
                self.append(kind, chunk.message_id.as_deref(), &link_to(content));
            }
            _ => self.content(content, chunk.message_id.as_deref(), Some(&Arc::default())),
        }
    }

    /// An image, a sound or an embedded resource: a file of its own. `of_call`: the paths of the tool call that it comes from, if
    /// these are known.
    fn content(&mut self, content: &ContentBlock, message: Option<&str>, of_call: Option<&Arc<[PathBuf]>>) {
        match file_of(content) {
            Some(file) if self.files < MAX_FILES && file.bytes.len() <= MAX_FILE_BYTES => {
                self.files += 1;
                self.end_text();
                let block = self.ids.block(BlockKind::File, message);
                let own = path_of(content, self.directory());
                let paths = of_call
                    .zip(own.ok())
                    .map(|(of_call, own)| FilePaths { of_call: Arc::clone(of_call), own });
                self.file_paths.insert(block.id.clone(), paths);
                self.out.push(AgentEvent::File { block, file });
            }
            Some(_) => self.count(WhyIgnored::TooMuch, "file over the limits"),
            None => self.count(WhyIgnored::Unknown, &format!("content {}", content.kind)),
        }
    }

    fn append(&mut self, kind: BlockKind, message: Option<&str>, text: &str) {
        // Agents send an empty text to begin a message, or to transport other facts.
        if text.is_empty() {
            return;
        }
        let continues = |open: &OpenText| open.block.kind == kind && open.message.as_deref() == message;
        if !self.text.as_ref().is_some_and(continues) {
            self.end_text();
            let block = self.ids.block(kind, message);
            self.text = Some(OpenText { block, message: message.map(str::to_owned) });
        }
        let Some(OpenText { block: open, .. }) = &self.text else { return };
        match self.out.last_mut() {
            // The chunk is appended to an event that was not taken yet.
            Some(AgentEvent::Text { block, text: waiting }) if block == open => waiting.push_str(text),
            _ => self.out.push(AgentEvent::Text { block: open.clone(), text: text.to_owned() }),
        }
    }

    fn end_text(&mut self) {
        if let Some(OpenText { block, .. }) = self.text.take() {
            self.out.push(AgentEvent::TextEnded { block });
        }
    }

    fn tool(&mut self, update: &crate::schema::ToolUpdate, source: Source) {
        if self.calls.is_new(&update.id) {
            self.end_text();
        }
        let is_file =
            |content: &&ContentBlock| !matches!(content.kind.as_str(), "" | "text" | "resource_link");
        let files = update.content.iter().flatten().map(|content| &content.content).filter(is_file);
        let files: Vec<_> = files.collect();
        // A call that is over no longer has its input.
        let before = if files.is_empty() { None } else { self.paths_of_call(update) };
        let merged = self.calls.merge(update, source, &self.session, &mut self.ids, &mut self.out);
        if let Err((why, name)) = merged {
            self.count(why, &name);
        }
        for content in update.content.iter().flatten().filter(|content| !tool::is_known(content)) {
            self.count(WhyIgnored::Unknown, &format!("tool content {}", content.kind));
        }
        if !files.is_empty() {
            // A call that is not followed has no paths.
            let paths = self.paths_of_call(update).and_then(|after| {
                let mut all = Paths(before.unwrap_or_default());
                for path in &after {
                    all.add(path);
                }
                paths::all_of_call(&all.0, self.directory()).ok()
            });
            for file in files {
                self.content(file, None, paths.as_ref());
            }
        }
    }

    fn paths_of_call(&self, update: &crate::schema::ToolUpdate) -> Option<Vec<String>> {
        self.calls.facts(update).map(|facts| facts.paths)
    }

    fn directory(&self) -> &Path {
        Path::new(self.calls.directory.as_deref().unwrap_or_default())
    }

    fn plan(&mut self, plan: &Plan) {
        let mut details = json!({"type": "todo", "todos": plan.entries});
        if let Some(meta) = &plan.meta.0 {
            details["meta"] = meta.to_value();
        }
        let details = Json::from_value(&details);
        if self.todos.as_ref() != Some(&details) {
            self.todos = Some(details.clone());
            let progress = Progress { kind: ProgressKind::Todos, details: Some(details) };
            self.out.push(AgentEvent::Progress(progress));
        }
    }

    fn title(&mut self, title: Option<&str>) {
        let Some(title) = title.filter(|title| !title.is_empty() && self.title.as_deref() != Some(title))
        else {
            return;
        };
        self.title = Some(title.to_owned());
        let note = SessionNote { id: self.session.clone(), title: self.title.clone() };
        self.out.push(AgentEvent::Session(note));
    }

    fn report_usage(&mut self, end: Option<&crate::schema::TokenUsage>) {
        self.out.extend(self.usage.changed(end).map(AgentEvent::Usage));
    }

    fn drop_asks(&mut self) {
        let dropped = std::mem::take(&mut self.asks)
            .into_iter()
            .map(|open| AgentEvent::AskClosed { request_id: open.id, resolution: Resolution::Dropped });
        self.out.extend(dropped);
    }

    fn count(&mut self, why: WhyIgnored, name: &str) {
        self.ignored.add(why, name, 1);
    }
}

fn link_to(content: &ContentBlock) -> String {
    let uri = content.uri.as_deref().unwrap_or_default();
    format!("[{}]({uri})", content.name.as_deref().unwrap_or(uri))
}

/// The path that the URI of a block names, if it names one.
fn path_of(content: &ContentBlock, directory: &Path) -> Result<Option<PathBuf>, NotKnown> {
    let uri = content.resource.as_ref().map(|resource| resource.uri.as_str()).or(content.uri.as_deref());
    uri.map_or(Ok(None), |uri| paths::of_uri(uri, directory))
}

/// The file in a content block. `None`: the block contains none, or one that cannot be decoded.
fn file_of(content: &ContentBlock) -> Option<AgentFile> {
    let name_in = |uri: &str| uri.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned);
    let file = |name: Option<String>, media_type: Option<&str>, bytes: Vec<u8>| AgentFile {
        name,
        media_type: media_type.unwrap_or("application/octet-stream").to_owned(),
        bytes: Arc::from(bytes),
    };
    if let Some(resource) = &content.resource {
        let bytes = match (&resource.text, &resource.blob) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(blob)) => STANDARD.decode(blob).ok()?,
            (None, None) => return None,
        };
        let media_type = resource.mime_type.as_deref().or(resource.text.as_ref().map(|_| "text/plain"));
        return Some(file(name_in(&resource.uri), media_type, bytes));
    }
    let bytes = STANDARD.decode(content.data.as_ref()?).ok()?;
    let name = content.name.clone().or_else(|| name_in(content.uri.as_deref()?));
    Some(file(name, content.mime_type.as_deref(), bytes))
}

#[cfg(test)]
mod tests;
