//! Translates OpenCode's events of one turn into [`AgentEvent`]s. Does no IO and uses no clock.
//!
//! A turn consists of a prompt and the assistant messages that answer it (its *steps*). When OpenCode compacts the conversation
//! during a turn, it writes user messages of its own and answers them; both belong to the turn. OpenCode compacts even after an
//! answer that ended with `stop`, so only an idle session ends a turn. Prompts that the gateway sends during the turn join the
//! turn. Everything else in the session, such as the prompt of another client, does not belong to it. The turn of a sub-agent
//! follows the same rules, except that OpenCode writes its prompt.
//!
//! The stream and the message list report the same facts, and either may be ahead of the other. So all state in this module only
//! moves forward: an ended part stays ended, a tool call never returns to an earlier state, a complete message stays complete.

mod asks;
mod blocks;
mod descendants;
mod files;
mod ledger;
mod messages;
mod progress;
mod prompts;
mod text;
mod tool;
mod verdict;

use std::collections::{HashMap, HashSet};

use longshore_engine::port::{Resume, ResumedChild};
use longshore_model::{AgentEvent, Artifact};
use serde::Deserialize;

use self::asks::Asks;
use self::blocks::{Blocks, Source};
pub(crate) use self::files::{ANY_TYPE, MAX_FILE_BYTES};
use self::ledger::Ledger;
use self::progress::ReportedProgress;
use self::prompts::Prompts;
pub(crate) use self::prompts::{Delivery, Unanswered};
pub(crate) use self::tool::CallState;
pub(crate) use self::verdict::{Evidence, Verdict};
use crate::api::{
    AskReplied, Envelope, EventKind, Fault, MessageUpdated, Part, PartDelta, PartRemoved, PartUpdated,
    SessionFailed, SessionProperties, SessionUpdated, Status, StatusChanged, StoredMessage, TodosUpdated,
};
use crate::outcome;
use crate::skim::Event;

/// Maximum number of parts that wait for their message, which OpenCode normally sends first. A part beyond the limit is dropped,
/// and [`Translator::must_reread`] then returns true.
const MAX_HELD_PARTS: usize = 64;

/// The status of a session that waits before OpenCode retries a failed request.
const RETRY: &str = "retry";

/// The last known activity of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Activity {
    #[default]
    Unknown,
    Busy,
    /// An idle event has come. The last message may still be unfinished.
    Idle,
    /// OpenCode's status list did not contain the session, and the messages were read after that, so they are final.
    IdleConfirmed,
}

/// Whether the OpenCode process that works on the turn still runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Process {
    #[default]
    Running,
    Ended,
}

#[derive(Debug, Default)]
pub(crate) struct Translator {
    session: String,
    prompts: Prompts,
    messages: HashMap<String, Role>,
    steps: Vec<Step>,
    /// The number of summaries after which OpenCode has written a message to continue.
    continued: usize,
    /// The part ids of the turn's prompts that call a sub-agent for a command.
    subtasks: HashSet<String>,
    /// The number of `subtasks` after which OpenCode has written a message to continue.
    continued_subtasks: usize,
    blocks: Blocks,
    held_parts: Vec<Part>,
    asks: Asks,
    ledger: Ledger,
    progress: ReportedProgress,
    activity: Activity,
    /// Whether OpenCode is waiting before it retries a failed request.
    retrying: bool,
    /// The first error since the session last became busy. Later errors repeat it with a stack trace.
    fault: Option<Fault>,
    /// The first error that came while OpenCode did not show one of the prompts that it had received. The error may be the refusal
    /// of that prompt.
    refusal: Option<Fault>,
    /// Whether OpenCode has begun to answer another prompt of this session.
    superseded: bool,
    process: Process,
    completeness: Completeness,
    /// Whether OpenCode cannot list the session's messages, so that an unknown message may belong to any turn.
    is_list_unavailable: bool,
}

/// Whether the translator has received everything that OpenCode reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Completeness {
    #[default]
    Complete,
    /// Events were missed, and the message list has not been read since.
    Gap,
    /// Like [`Self::Gap`], but the translator itself dropped parts beyond its own limit, which the driver does not know.
    Dropped,
    /// Events were missed, and OpenCode refuses to show the message list.
    Unavailable,
}

/// The role of a message in this turn.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Role {
    /// The turn's prompt, a prompt that joined, or a user message that OpenCode wrote to continue. Contains the creation time.
    Prompt(f64),
    OtherUser(f64),
    /// An answer to a [`Role::Prompt`]. Contains the index of its step.
    Step(usize),
    OtherAnswer,
}

#[derive(Debug)]
struct Step {
    id: String,
    created: f64,
    /// The creation time of the message that this step answers.
    answers: f64,
    finish: Option<String>,
    error: Option<Fault>,
    /// The time at which the step became complete.
    completed: Option<f64>,
    /// Whether the step is OpenCode's summary of the conversation, which is written for the model and not for the caller.
    summary: bool,
    /// Whether events were missed and the stream has not reported anything about this step since then.
    unseen_since_gap: bool,
}

impl Translator {
    pub(crate) fn new(session: &str, prompt: &str) -> Self {
        Self::with_prompts(session, Prompts::new(prompt))
    }

    /// The turn of a sub-agent that was called at this time. Its prompt is the first user message after that.
    pub(crate) fn for_sub_agent(session: &str, called_at: f64) -> Self {
        Self::with_prompts(session, Prompts::for_sub_agent(called_at))
    }

    fn with_prompts(session: &str, prompts: Prompts) -> Self {
        Self { session: session.to_owned(), prompts, ..Self::default() }
    }

    /// Resumes a turn after a restart of the gateway.
    pub(crate) fn resume(session: &str, prompt: &str, past: &Resume) -> Self {
        let blocks = Blocks::resume(&past.artifacts, &past.children);
        let mut prompts = Prompts::new(prompt);
        prompts.join(past.joined.iter().map(|prompt| (prompt.as_str(), Delivery::BeforeRestart)));
        let asks = Asks::resume(&past.open_asks);
        Self { blocks, asks, completeness: Completeness::Gap, ..Self::with_prompts(session, prompts) }
    }

    /// Resumes the turn of a sub-agent. If `prompt` is `None`, [`Self::set_called_at`] must be called next.
    pub(crate) fn resume_sub_agent(
        session: &str,
        prompt: Option<&str>,
        artifacts: &[Artifact],
        children: &[ResumedChild],
    ) -> Self {
        let prompts = match prompt {
            Some(prompt) => Prompts::for_sub_agent(f64::MIN).starting_with(prompt),
            None => Prompts::for_sub_agent(f64::MAX),
        };
        let blocks = Blocks::resume(artifacts, children);
        Self { blocks, completeness: Completeness::Gap, ..Self::with_prompts(session, prompts) }
    }

    /// Sets the time at which the sub-agent was called.
    pub(crate) fn set_called_at(&mut self, called_at: f64) {
        self.prompts.set_called_at(called_at);
    }

    /// Sets the time of the next call of the same sub-agent. Later messages belong to that turn.
    pub(crate) fn set_next_call_at(&mut self, next_call_at: f64) {
        self.prompts.set_next_call_at(next_call_at);
    }

    /// Updates which prompts join the turn, and whether they were delivered.
    pub(crate) fn join<'a>(&mut self, joined: impl Iterator<Item = (&'a str, Delivery)> + Clone) {
        self.prompts.join(joined);
    }

    /// Handles one event from the reader. See [`Self::event`].
    pub(crate) fn handle(&mut self, event: &Event) -> serde_json::Result<()> {
        match event.delta() {
            Some(delta) => {
                self.delta(&delta?);
                Ok(())
            }
            None => self.event(event.kind, event.body()),
        }
    }

    /// Handles one event of the session, or an event of a sub-agent that the root turn needs too.
    pub(crate) fn event(&mut self, kind: EventKind, body: &[u8]) -> serde_json::Result<()> {
        match kind {
            EventKind::Status => self.status(&properties::<StatusChanged>(body)?.status),
            EventKind::Idle => {
                let SessionProperties { session } = properties(body)?;
                match session.filter(|session| *session != self.session) {
                    Some(child) => self.asks.session_idle(&child),
                    None => self.idle(),
                }
            }
            EventKind::Error => self.failed(properties::<SessionFailed>(body)?.error.unwrap_or_default()),
            EventKind::MessageUpdated => {
                let updated: MessageUpdated = properties(body)?;
                if updated.session.is_some_and(|session| session != self.session) {
                    self.merge_child_message(&updated.info);
                } else {
                    self.register(&updated.info, Source::Stream);
                    self.advance(&updated.info);
                }
            }
            EventKind::PartUpdated => self.part(properties::<PartUpdated>(body)?.part, Source::Stream),
            EventKind::PartDelta => self.delta(&properties(body)?),
            EventKind::PartRemoved => self.blocks.remove(&properties::<PartRemoved>(body)?.part),
            EventKind::SessionUpdated => {
                self.title(properties::<SessionUpdated>(body)?.info.title.as_deref());
            }
            EventKind::Todos => {
                let updated: TodosUpdated = properties(body)?;
                let changed = self.progress.todos(&updated.todos);
                self.emit(changed);
            }
            EventKind::PermissionAsked => self.permission(&properties(body)?),
            EventKind::QuestionAsked => self.question(&properties(body)?),
            EventKind::AskReplied | EventKind::AskRejected => {
                let replied: AskReplied = properties(body)?;
                let rejected = kind == EventKind::AskRejected || replied.reply.as_deref() == Some("reject");
                let closed = self.asks.close_answered(&replied.request, rejected);
                self.emit(closed);
            }
        }
        self.report_usage();
        Ok(())
    }

    /// Handles a text delta, which changes only the text of a block, so that nothing else needs a check.
    fn delta(&mut self, delta: &PartDelta<'_>) {
        if delta.field == "text" && !self.blocks.delta(delta) && self.may_be_output(&delta.message) {
            self.blocks.hold(delta);
        }
    }

    /// Called when events were lost. An unfinished text may then have a hole, so it waits for its final snapshot.
    pub(crate) fn gap(&mut self) {
        self.completeness = Completeness::Gap;
        self.held_parts.clear();
        self.activity = Activity::Unknown;
        self.blocks.gap();
        for step in &mut self.steps {
            step.unseen_since_gap = true;
        }
    }

    /// Merges messages from the message list, from the prompt on.
    pub(crate) fn merge_messages(&mut self, messages: Vec<StoredMessage>) {
        self.completeness = Completeness::Complete;
        for StoredMessage { info, parts } in messages {
            self.register(&info, Source::List);
            // Unfinished text before the last start of the step belongs to a failed attempt.
            let last_start = parts.iter().rposition(|part| part.kind == "step-start").unwrap_or(0);
            for (at, part) in parts.into_iter().enumerate() {
                let id = part.id.clone();
                self.part(part, Source::List);
                if at < last_start {
                    self.blocks.withdraw(&id);
                }
            }
            self.advance(&info);
        }
        self.report_usage();
    }

    /// Sets the activity according to OpenCode's status list. `None`: idle. Must be called after [`Self::merge_messages`].
    pub(crate) fn confirm_status(&mut self, status: Option<&Status>) {
        self.activity = if status.is_some() { Activity::Busy } else { Activity::IdleConfirmed };
        let retry = status.filter(|status| status.kind == RETRY);
        self.retrying = retry.is_some();
        let changed = retry.and_then(|status| self.progress.retry(status));
        self.emit(changed);
    }

    /// Reports the session's title if it changed.
    pub(crate) fn title(&mut self, title: Option<&str>) {
        let changed = self.progress.title(&self.session, title);
        self.emit(changed);
    }

    /// When OpenCode stored the turn's prompt. If OpenCode did not store it, when it stored the first prompt that joined the turn.
    pub(crate) fn prompt_created(&self) -> Option<f64> {
        self.prompts.started_at()
    }

    /// The prompts of the turn; the turn's own prompt first.
    pub(crate) fn prompts(&self) -> impl Iterator<Item = &str> {
        self.prompts.ids()
    }

    /// The turn's own prompt. `None`: the turn of a sub-agent that has not received its prompt yet.
    pub(crate) fn prompt(&self) -> Option<&str> {
        self.prompts.first()
    }

    /// Removes and returns the events since the last call.
    pub(crate) fn take(&mut self) -> Vec<AgentEvent> {
        self.blocks.take()
    }

    /// Whether the translator dropped a part that only the message list can restore.
    pub(crate) fn must_reread(&self) -> bool {
        self.completeness == Completeness::Dropped
    }

    /// Called when the turn is over. Ends the text blocks and closes the asks that OpenCode left open.
    pub(crate) fn close(&mut self) {
        self.blocks.close();
        let dropped = self.asks.drop_all();
        self.emit(dropped);
    }

    fn emit(&mut self, events: impl IntoIterator<Item = AgentEvent>) {
        self.blocks.emit(events);
    }

    fn report_usage(&mut self) {
        let changed = self.ledger.changed_total(self.prompt_created()).map(AgentEvent::Usage);
        self.emit(changed);
    }

    /// Handles an error of the session.
    pub(crate) fn failed(&mut self, fault: Fault) {
        if outcome::is_abort(&fault) {
            // An abort that is reported before the prompt is stored concerns the previous turn.
            if self.prompt_created().is_some() {
                self.fault.get_or_insert(fault);
            }
            return;
        }
        if self.prompts.any_not_shown() {
            self.refusal.get_or_insert_with(|| fault.clone());
        }
        self.fault.get_or_insert(fault);
    }

    fn idle(&mut self) {
        self.retrying = false;
        if self.activity != Activity::IdleConfirmed {
            self.activity = Activity::Idle;
        }
    }

    fn status(&mut self, status: &Status) {
        self.retrying = status.kind == RETRY;
        match status.kind.as_str() {
            "idle" => self.idle(),
            RETRY => {
                self.activity = Activity::Busy;
                let changed = self.progress.retry(status);
                self.emit(changed);
                // The text of the failed attempt is not part of the answer, because the next attempt starts from the beginning.
                if let Some(id) = self.newest().map(|step| step.id.clone()) {
                    self.blocks.withdraw_open(&id);
                }
            }
            _ => {
                self.activity = Activity::Busy;
                self.fault = None;
            }
        }
    }
}

fn properties<'a, T: Deserialize<'a>>(body: &'a [u8]) -> serde_json::Result<T> {
    serde_json::from_slice::<Envelope<T>>(body).map(|envelope| envelope.properties)
}

#[cfg(test)]
mod tests;
