//! OpenCode's events of one turn, made into [`AgentEvent`]s. Pure: no IO, no clock.
//!
//! A turn is a prompt and the assistant messages that answer it (its *steps*). When OpenCode compacts the
//! conversation in mid-turn, it writes user messages of its own and goes on answering those; they join the turn. It
//! does so even after an answer that ended with `stop`, so that only an idle session ends a turn.
//! Prompts that the gateway itself sends while the turn runs join it too. Everything else in the session, such as the
//! prompt of somebody else, does not. A sub-agent's turn is one like any other, but that OpenCode writes its prompt.
//!
//! The stream and the message list say the same thing twice, and either may be ahead of the other. So all state
//! here only moves forward: a part that ended stays ended, a tool call never goes back, a message stays complete.

mod asks;
mod descendants;
mod blocks;
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
    AskReplied, Envelope, EventKind, Fault, MessageUpdated, OfSession, Part, PartDelta, PartRemoved,
    PartUpdated, SessionFailed, SessionUpdated, Status, StatusChanged, StoredMessage, TodosUpdated,
};
use crate::outcome;
use crate::skim::Event;

/// Parts that may wait for their message. OpenCode sends a message before its parts; what does not fit is dropped, and
/// [`Translator::must_reread`] says so.
const MAX_HELD_PARTS: usize = 64;

/// The status of a session that waits before it tries again.
const RETRY: &str = "retry";

/// What is known of the session's activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Activity {
    Unknown,
    Busy,
    /// An idle event came. The last message may still be unfinished.
    Idle,
    /// OpenCode was asked, says idle, and the messages were read after that.
    IdleConfirmed,
}

#[derive(Debug)]
pub(crate) struct Translator {
    session: String,
    prompts: Prompts,
    messages: HashMap<String, Role>,
    steps: Vec<Step>,
    /// How many summaries OpenCode went on from.
    continued: usize,
    /// The parts of our prompts that call a sub-agent for a command.
    subtasks: HashSet<String>,
    /// How many of those OpenCode went on from.
    reported: usize,
    blocks: Blocks,
    held_parts: Vec<Part>,
    asks: Asks,
    ledger: Ledger,
    progress: ReportedProgress,
    activity: Activity,
    /// OpenCode waits before it tries a failed request again.
    retrying: bool,
    /// The first error since the session was last busy; the ones after it repeat it with a stack.
    fault: Option<Fault>,
    /// The first error that came while OpenCode did not show a prompt that it was sent: it may have refused that one.
    refusal: Option<Fault>,
    /// OpenCode answers another prompt of this session already.
    superseded: bool,
    completeness: Completeness,
    /// OpenCode cannot show its messages, so those that are not known may be anybody's.
    unlisted: bool,
}

/// How much is known of what OpenCode said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Completeness {
    Everything,
    /// Events were missed, and the message list has not been read since.
    Gap,
    /// The same, and nobody knows but us.
    Dropped,
    /// Events were missed, and OpenCode refuses to show the message list.
    Unavailable,
}

/// What a message is to this turn.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Role {
    /// The prompt, one that joined, or a user message with which OpenCode itself goes on; when it was written.
    Prompt(f64),
    OtherUser(f64),
    /// An answer to one of ours; the index of its step.
    Step(usize),
    OtherAnswer,
}

#[derive(Debug)]
struct Step {
    id: String,
    created: f64,
    /// When the message was written that it answers.
    answers: f64,
    finish: Option<String>,
    error: Option<Fault>,
    /// When it became complete.
    completed: Option<f64>,
    /// OpenCode's summary of the conversation, written for the model and not for the caller.
    summary: bool,
    /// Nothing of it was completeness since events were missed.
    unseen_since_gap: bool,
}

impl Translator {
    pub(crate) fn new(session: &str, prompt: &str) -> Self {
        Self::with_prompts(session, Prompts::new(prompt))
    }

    /// The turn of a sub-agent that was called at this moment: its first user message since then is its prompt.
    pub(crate) fn called(session: &str, since: f64) -> Self {
        Self::with_prompts(session, Prompts::for_sub_agent(since))
    }

    fn with_prompts(session: &str, prompts: Prompts) -> Self {
        Self {
            session: session.to_owned(),
            prompts,
            messages: HashMap::new(),
            steps: Vec::new(),
            continued: 0,
            subtasks: HashSet::new(),
            reported: 0,
            blocks: Blocks::default(),
            held_parts: Vec::new(),
            asks: Asks::default(),
            ledger: Ledger::default(),
            progress: ReportedProgress::default(),
            activity: Activity::Unknown,
            retrying: false,
            fault: None,
            refusal: None,
            superseded: false,
            completeness: Completeness::Complete,
            unlisted: false,
        }
    }

    /// Takes up a turn again.
    pub(crate) fn resume(session: &str, prompt: &str, past: &Resume) -> Self {
        let blocks = Blocks::resume(&past.artifacts, &past.children);
        let mut prompts = Prompts::new(prompt);
        prompts.join(past.joined.iter().map(|prompt| (prompt.as_str(), Delivery::BeforeRestart)));
        let asks = Asks::resume(&past.open_asks);
        Self { blocks, asks, completeness: Completeness::Gap, ..Self::with_prompts(session, prompts) }
    }

    /// Takes up the turn of a sub-agent again. Unless its prompt is known, [`Self::set_called_at`] must follow.
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

    /// When the sub-agent was called.
    pub(crate) fn set_called_at(&mut self, since: f64) {
        self.prompts.since(since);
    }

    /// When the sub-agent was called for its next turn.
    pub(crate) fn set_next_call_at(&mut self, until: f64) {
        self.prompts.until(until);
    }

    /// What is known of the prompts that join the turn.
    pub(crate) fn join<'a>(&mut self, joined: impl Iterator<Item = (&'a str, Delivery)> + Clone) {
        self.prompts.join(joined);
    }

    /// Takes in one event, as it came from the reader. See [`Self::event`].
    pub(crate) fn handle(&mut self, event: &Event) -> serde_json::Result<()> {
        match event.delta() {
            Some(delta) => {
                self.delta(&delta?);
                Ok(())
            }
            None => self.event(event.kind, event.body()),
        }
    }

    /// Takes in one event of the session, or one of its sub-agents that crosses the tree.
    pub(crate) fn event(&mut self, kind: EventKind, body: &[u8]) -> serde_json::Result<()> {
        match kind {
            EventKind::Status => {
                let change: StatusChanged = properties(body)?;
                self.status(&change.status);
            }
            EventKind::Idle => {
                let OfSession { session } = properties(body)?;
                match session.filter(|session| *session != self.session) {
                    Some(child) => self.asks.stopped(&child),
                    None => self.idle(),
                }
            }
            EventKind::Error => {
                let failed: SessionFailed = properties(body)?;
                self.failed(failed.error.unwrap_or_default());
            }
            EventKind::MessageUpdated => {
                let updated: MessageUpdated = properties(body)?;
                if updated.session.is_some_and(|session| session != self.session) {
                    self.merge_child_message(&updated.info);
                } else {
                    self.register(&updated.info, Source::Stream);
                    self.advance(&updated.info);
                }
            }
            EventKind::PartUpdated => {
                let updated: PartUpdated = properties(body)?;
                self.part(updated.part, Source::Stream);
            }
            EventKind::PartDelta => {
                let delta: PartDelta<'_> = properties(body)?;
                self.delta(&delta);
            }
            EventKind::PartRemoved => {
                let removed: PartRemoved = properties(body)?;
                self.blocks.remove(&removed.part);
            }
            EventKind::SessionUpdated => {
                let updated: SessionUpdated = properties(body)?;
                self.title(updated.info.title.as_deref());
            }
            EventKind::Todos => {
                let updated: TodosUpdated = properties(body)?;
                let news = self.progress.todos(&updated.todos);
                self.emit(news);
            }
            EventKind::PermissionAsked => self.permission(&properties(body)?),
            EventKind::QuestionAsked => self.question(&properties(body)?),
            EventKind::AskReplied | EventKind::AskRejected => {
                let replied: AskReplied = properties(body)?;
                let rejected = kind == EventKind::AskRejected || replied.reply.as_deref() == Some("reject");
                let news = self.asks.answered(&replied.request, rejected);
                self.emit(news);
            }
        }
        self.report_usage();
        Ok(())
    }

    /// It changes nothing but the text of a block, so nothing else need be looked at.
    fn delta(&mut self, delta: &PartDelta<'_>) {
        if delta.field == "text" && !self.blocks.delta(delta) && self.may_be_output(&delta.message) {
            self.blocks.hold(delta);
        }
    }

    /// Events were lost. Text that was being written has a hole, so it waits for its final snapshot.
    pub(crate) fn gap(&mut self) {
        self.completeness = Completeness::Gap;
        self.held_parts.clear();
        self.activity = Activity::Unknown;
        self.blocks.gap();
        for step in &mut self.steps {
            step.unseen_since_gap = true;
        }
    }

    /// Takes in the messages from the prompt on, as the message list has them.
    pub(crate) fn list(&mut self, messages: Vec<StoredMessage>) {
        self.completeness = Completeness::Complete;
        for StoredMessage { info, parts } in messages {
            self.register(&info, Source::List);
            // Text without an end before the last start of the step belongs to an attempt that failed.
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

    /// What OpenCode said when it was asked for the session's activity; `None` is idle. Call it after [`Self::list`].
    pub(crate) fn confirm_status(&mut self, status: Option<&Status>) {
        self.activity = if status.is_some() { Activity::Busy } else { Activity::IdleConfirmed };
        let retry = status.filter(|status| status.kind == RETRY);
        self.retrying = retry.is_some();
        let news = retry.and_then(|status| self.progress.retry(status));
        self.emit(news);
    }

    /// The session's name.
    pub(crate) fn title(&mut self, title: Option<&str>) {
        let news = self.progress.title(&self.session, title);
        self.emit(news);
    }

    /// When OpenCode stored the prompt, or if it did not, the first that joined the turn.
    pub(crate) fn prompt_created(&self) -> Option<f64> {
        self.prompts.began()
    }

    /// The prompts of the turn, its own first.
    pub(crate) fn prompts(&self) -> impl Iterator<Item = &str> {
        self.prompts.ids()
    }

    /// The prompt of the turn. `None`: that of a sub-agent which has not got it yet.
    pub(crate) fn prompt(&self) -> Option<&str> {
        self.prompts.first()
    }

    /// The events since the last call.
    pub(crate) fn take(&mut self) -> Vec<AgentEvent> {
        self.blocks.take()
    }

    /// Something had to be dropped; only the message list can tell what it was.
    pub(crate) fn must_reread(&self) -> bool {
        self.completeness == Completeness::Dropped
    }

    /// The turn is over: ends the text blocks and the asks that OpenCode left open.
    pub(crate) fn close(&mut self) {
        self.blocks.close();
        let dropped = self.asks.drop_all();
        self.emit(dropped);
    }

    fn emit(&mut self, events: impl IntoIterator<Item = AgentEvent>) {
        self.blocks.emit(events);
    }

    fn report_usage(&mut self) {
        let news = self.ledger.news(self.prompt_created()).map(AgentEvent::Usage);
        self.emit(news);
    }

    /// OpenCode told that something went wrong.
    pub(crate) fn failed(&mut self, fault: Fault) {
        if outcome::is_abort(&fault) {
            // Completeness before the prompt, it is the end of the turn before.
            if self.prompts.began().is_some() {
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
                let news = self.progress.retry(status);
                self.emit(news);
                // The failed attempt's text is not part of the answer: the next attempt starts it anew.
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
