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
mod below;
mod blocks;
mod files;
mod ledger;
mod progress;
mod prompts;
mod text;
mod tool;
mod verdict;

use std::collections::HashMap;

use longshore_engine::port::{Resume, ResumedChild};
use longshore_model::{AgentEvent, Artifact};
use serde::Deserialize;

use self::asks::Asks;
use self::blocks::{Blocks, Source};
pub(crate) use self::files::{ANY_TYPE, MAX_FILE_BYTES};
use self::ledger::Ledger;
use self::progress::Told;
use self::prompts::Prompts;
pub(crate) use self::prompts::{Fate, Unanswered};
pub(crate) use self::tool::CallFacts;
pub(crate) use self::verdict::{Evidence, Verdict};
use crate::api::{
    AskReplied, Envelope, EventKind, Fault, Message, MessageUpdated, OfSession, Part, PartDelta, PartRemoved,
    PartUpdated, SessionFailed, SessionUpdated, Status, StatusChanged, StoredMessage, TodosUpdated,
};
use crate::outcome;

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
    blocks: Blocks,
    held_parts: Vec<Part>,
    asks: Asks,
    ledger: Ledger,
    told: Told,
    activity: Activity,
    /// OpenCode waits before it tries a failed request again.
    retrying: bool,
    /// The first error since the session was last busy; the ones after it repeat it with a stack.
    fault: Option<Fault>,
    /// The first error that came while OpenCode did not show a prompt that it was sent: it may have refused that one.
    refusal: Option<Fault>,
    /// OpenCode answers another prompt of this session already.
    superseded: bool,
    heard: Heard,
    /// OpenCode cannot show its messages, so those that are not known may be anybody's.
    unlisted: bool,
}

/// How much is known of what OpenCode said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    Everything,
    /// Events were missed, and the message list has not been read since.
    Gap,
    /// The same, and nobody knows but us.
    Dropped,
    /// Events were missed, and OpenCode refuses to show the message list.
    Hidden,
}

/// What a message is to this turn.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Role {
    /// The prompt, one that joined, or a user message with which OpenCode itself goes on; when it was written.
    Ours(f64),
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
}

impl Translator {
    pub(crate) fn new(session: &str, prompt: &str) -> Self {
        Self::answering(session, Prompts::of(prompt))
    }

    /// The turn of a sub-agent that was called at this moment: its first user message since then is its prompt.
    pub(crate) fn called(session: &str, since: f64) -> Self {
        Self::answering(session, Prompts::from(since))
    }

    fn answering(session: &str, prompts: Prompts) -> Self {
        Self {
            session: session.to_owned(),
            prompts,
            messages: HashMap::new(),
            steps: Vec::new(),
            continued: 0,
            blocks: Blocks::default(),
            held_parts: Vec::new(),
            asks: Asks::default(),
            ledger: Ledger::default(),
            told: Told::default(),
            activity: Activity::Unknown,
            retrying: false,
            fault: None,
            refusal: None,
            superseded: false,
            heard: Heard::Everything,
            unlisted: false,
        }
    }

    /// Takes up a turn again.
    pub(crate) fn resume(session: &str, prompt: &str, past: &Resume) -> Self {
        let blocks = Blocks::resume(&past.artifacts, &past.children);
        let mut prompts = Prompts::of(prompt);
        prompts.join(past.joined.iter().map(|prompt| (prompt.as_str(), Fate::Earlier)));
        let asks = Asks::resume(&past.open_asks);
        Self { blocks, asks, heard: Heard::Gap, ..Self::answering(session, prompts) }
    }

    /// Takes up the turn of a sub-agent again. Unless its prompt is known, [`Self::called_at`] must follow.
    pub(crate) fn resume_called(
        session: &str,
        prompt: Option<&str>,
        artifacts: &[Artifact],
        children: &[ResumedChild],
    ) -> Self {
        let prompts = match prompt {
            Some(prompt) => Prompts::from(f64::MIN).starting_with(prompt),
            None => Prompts::from(f64::MAX),
        };
        let blocks = Blocks::resume(artifacts, children);
        Self { blocks, heard: Heard::Gap, ..Self::answering(session, prompts) }
    }

    /// When the sub-agent was called.
    pub(crate) fn called_at(&mut self, since: f64) {
        self.prompts.since(since);
    }

    /// When the sub-agent was called for its next turn.
    pub(crate) fn called_again_at(&mut self, until: f64) {
        self.prompts.until(until);
    }

    /// What is known of the prompts that join the turn.
    pub(crate) fn join<'a>(&mut self, joined: impl Iterator<Item = (&'a str, Fate)> + Clone) {
        self.prompts.join(joined);
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
                    self.message_below(&updated.info);
                } else {
                    self.register(&updated.info);
                    self.advance(&updated.info);
                }
            }
            EventKind::PartUpdated => {
                let updated: PartUpdated = properties(body)?;
                self.part(updated.part, Source::Stream);
            }
            EventKind::PartDelta => {
                let delta: PartDelta<'_> = properties(body)?;
                if delta.field == "text" && self.may_be_output(&delta.message) {
                    self.blocks.delta(&delta);
                }
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
                let news = self.told.todos(&updated.todos);
                self.say(news);
            }
            EventKind::PermissionAsked => self.permission(&properties(body)?),
            EventKind::QuestionAsked => self.question(&properties(body)?),
            EventKind::AskReplied | EventKind::AskRejected => {
                let replied: AskReplied = properties(body)?;
                let rejected = kind == EventKind::AskRejected || replied.reply.as_deref() == Some("reject");
                let news = self.asks.answered(&replied.request, rejected);
                self.say(news);
            }
        }
        self.tell_usage();
        Ok(())
    }

    /// Events were lost. Text that was being written has a hole, so it waits for its final snapshot.
    pub(crate) fn gap(&mut self) {
        self.heard = Heard::Gap;
        self.held_parts.clear();
        self.activity = Activity::Unknown;
        self.blocks.gap();
    }

    /// Takes in the messages from the prompt on, as the message list has them.
    pub(crate) fn list(&mut self, messages: Vec<StoredMessage>) {
        self.heard = Heard::Everything;
        for StoredMessage { info, parts } in messages {
            self.register(&info);
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
        self.tell_usage();
    }

    /// What OpenCode said when it was asked for the session's activity; `None` is idle. Call it after [`Self::list`].
    pub(crate) fn asked_status(&mut self, status: Option<&Status>) {
        self.activity = if status.is_some() { Activity::Busy } else { Activity::IdleConfirmed };
        let retry = status.filter(|status| status.kind == RETRY);
        self.retrying = retry.is_some();
        let news = retry.and_then(|status| self.told.retry(status));
        self.say(news);
    }

    /// The session's name.
    pub(crate) fn title(&mut self, title: Option<&str>) {
        let news = self.told.title(&self.session, title);
        self.say(news);
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
        self.heard == Heard::Dropped
    }

    /// The turn is over: ends the text blocks and the asks that OpenCode left open.
    pub(crate) fn close(&mut self) {
        self.blocks.close();
        let dropped = self.asks.drop_all();
        self.say(dropped);
    }

    fn say(&mut self, events: impl IntoIterator<Item = AgentEvent>) {
        self.blocks.say(events);
    }

    fn tell_usage(&mut self) {
        let news = self.ledger.news(self.prompt_created()).map(AgentEvent::Usage);
        self.say(news);
    }

    fn failed(&mut self, fault: Fault) {
        if self.prompts.any_unseen() && !outcome::is_abort(&fault) {
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
                let news = self.told.retry(status);
                self.say(news);
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

    /// Notes what a message is to this turn.
    fn register(&mut self, info: &Message) {
        if self.messages.contains_key(&info.id) {
            return;
        }
        let role = if info.role == "user" {
            if self.prompts.stored(&info.id, info.time.created) {
                // An error that came before was somebody else's.
                self.refusal = self.refusal.take().filter(|_| self.prompts.any_unseen());
                Role::Ours(info.time.created)
            } else if self.follows_a_summary(info) {
                self.continued += 1;
                Role::Ours(info.time.created)
            } else {
                Role::OtherUser(info.time.created)
            }
        } else if let Some(answers) = self.answered_by(info) {
            self.prompts.answered(info.parent.as_deref().unwrap_or_default());
            self.steps.push(Step {
                id: info.id.clone(),
                created: info.time.created,
                answers,
                finish: None,
                error: None,
                completed: None,
                summary: info.mode.as_deref() == Some("compaction"),
            });
            Role::Step(self.steps.len() - 1)
        } else {
            // An older one is of the turn before, whose last changes may come late.
            let ours = self.newest().map(|step| step.created).or(self.prompt_created());
            self.superseded |= ours.is_some_and(|created| info.time.created > created);
            Role::OtherAnswer
        };
        self.messages.insert(info.id.clone(), role);
        if !self.may_be_output(&info.id) {
            self.blocks.drop_held(&info.id);
        }
        if self.held_parts.iter().any(|part| part.message == info.id) {
            for part in std::mem::take(&mut self.held_parts) {
                self.part(part, Source::Stream);
            }
        }
    }

    /// When the message was written that this one answers, if it is one of ours.
    fn answered_by(&self, info: &Message) -> Option<f64> {
        let parent = info.parent.as_ref()?;
        match self.messages.get(parent) {
            Some(&Role::Ours(created)) => Some(created),
            // Its own event was missed.
            None if self.prompts.contains(parent) => Some(info.time.created),
            _ => None,
        }
    }

    /// Takes over how far a message is.
    fn advance(&mut self, info: &Message) {
        let Some(&Role::Step(at)) = self.messages.get(&info.id) else { return };
        self.ledger.message(info);
        let step = &mut self.steps[at];
        if info.finish.is_some() {
            step.finish.clone_from(&info.finish);
        }
        if info.error.is_some() {
            step.error.clone_from(&info.error);
        }
        if step.completed.is_none() && info.time.completed.is_some() {
            step.completed = info.time.completed;
            // A text without an end in a complete message is of an attempt that failed. Not so after an abort.
            if !step.error.as_ref().is_some_and(outcome::is_abort) {
                self.blocks.withdraw_open(&info.id);
            }
        }
    }

    /// Whether a message is, or may turn out to be, one whose text the caller sees.
    fn may_be_output(&self, message: &str) -> bool {
        match self.messages.get(message) {
            None => true,
            Some(&Role::Step(at)) => !self.steps[at].summary,
            Some(Role::Ours(_) | Role::OtherUser(_) | Role::OtherAnswer) => false,
        }
    }

    fn part(&mut self, part: Part, source: Source) {
        match self.messages.get(&part.message) {
            None if self.held_parts.len() < MAX_HELD_PARTS => self.held_parts.push(part),
            None if self.heard == Heard::Hidden => {}
            None => self.heard = Heard::Dropped,
            Some(&Role::OtherUser(created)) => {
                if part.kind == "text" && !part.synthetic && self.prompts.written(&part.message, created) {
                    self.messages.insert(part.message, Role::Ours(created));
                    return;
                }
                // A compaction that somebody asked for is no part of this turn, nor is one that a later turn needs.
                let needed = part.kind == "compaction" && part.auto;
                if needed && self.prompt_created().is_some() && !self.superseded {
                    self.messages.insert(part.message, Role::Ours(created));
                    // What the list tells of is over, or was told before the gateway was restarted.
                    self.say((source == Source::Stream).then(progress::compaction));
                }
            }
            Some(&Role::Step(at)) => {
                if part.kind == "step-finish" {
                    self.ledger.step(&part);
                }
                if source == Source::Stream {
                    let news = self.told.step(&part);
                    self.say(news);
                }
                if !self.steps[at].summary {
                    self.blocks.part(&part, source);
                }
            }
            // What users wrote, and what was answered to others, is no output of this turn.
            Some(_) => {}
        }
    }

    /// After its summary OpenCode goes on with one user message: "continue", or the prompt once more. Nothing marks the
    /// latter. A prompt that somebody else sent in the meantime is older than the end of the summary.
    fn follows_a_summary(&self, info: &Message) -> bool {
        let summaries = self.steps.iter().filter(|step| step.summary).count();
        let waits = self.continued < summaries && !self.superseded;
        let newest = self.newest().filter(|step| step.summary && waits);
        newest.and_then(|step| step.completed).is_some_and(|completed| info.time.created >= completed)
    }

    fn newest(&self) -> Option<&Step> {
        // Not simply the last: after a gap an older one may be read from the list.
        self.steps.iter().max_by(|a, b| a.created.total_cmp(&b.created))
    }
}

fn properties<'a, T: Deserialize<'a>>(body: &'a [u8]) -> serde_json::Result<T> {
    serde_json::from_slice::<Envelope<T>>(body).map(|envelope| envelope.properties)
}

#[cfg(test)]
mod tests;
