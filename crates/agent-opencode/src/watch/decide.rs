//! Decides whether the activity in a session is an external turn, which then becomes a task. Does no IO and uses no clock.
//!
//! A user's message that gets an answer is a turn. OpenCode also writes messages by itself, or for a client that wants no answer;
//! these are no turns. OpenCode sends these sequences of events (*busy*: the session becomes busy):
//!
//! - a prompt: the user's message and its parts, busy, the answer; if the session is already busy: the same without busy;
//! - a prompt that cannot be answered: the message and its parts, busy, an error; if no message is created: only errors;
//! - a prompt for which no answer was requested: the message and its parts;
//! - a shell command: busy first, then a message that OpenCode wrote itself, and its answer;
//! - a summary: a message that is only a marker, busy, the answer; perhaps a synthetic message and its answer;
//! - a fork: messages and answers that are already complete.
//!
//! A session with an open ask is always checked, so that every ask belongs to a task.

use crate::api::{Message, Part, StoredMessage};

/// An event of a watched session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Observation<'a> {
    Busy,
    Idle,
    Error,
    Message(&'a Message),
    Part(&'a Part),
    /// The session or a sub-agent below it has an open ask.
    Asked,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    Nothing,
    /// The message with this id began a turn.
    TurnStarted(String),
    /// The events are not enough for a decision: the session must be read from OpenCode.
    Check,
}

/// The state of one watched session according to its events.
#[derive(Debug, Default)]
pub(crate) struct WatchedSession {
    /// The newest user message.
    newest: Option<UserMessage>,
    is_busy: bool,
    /// Whether an answer has begun since the session became busy.
    is_answering: bool,
    /// The prompt for which a check was requested. One check per prompt is enough.
    checked_for: Option<String>,
    /// The prompt that was reported last.
    reported: Option<String>,
    /// Whether a turn was reported since the session became busy.
    is_reported: bool,
}

#[derive(Debug)]
struct UserMessage {
    id: String,
    created: f64,
    /// Whether the message has content that a user wrote, and not only content of OpenCode.
    is_from_user: bool,
}

impl WatchedSession {
    pub(crate) fn observe(&mut self, observation: Observation<'_>) -> Decision {
        match observation {
            Observation::Busy => {
                self.is_answering &= self.is_busy;
                self.is_reported &= self.is_busy;
                self.is_busy = true;
                Decision::Nothing
            }
            Observation::Idle => {
                (self.is_busy, self.is_answering) = (false, false);
                Decision::Nothing
            }
            Observation::Error if self.is_busy && !self.is_answering => self.decide_on_newest(),
            Observation::Error => Decision::Nothing,
            Observation::Message(message) if message.role == "user" => {
                // An older message may be updated late.
                let is_newer =
                    |newest: &UserMessage| newest.id != message.id && newest.created <= message.time.created;
                if self.newest.as_ref().is_none_or(is_newer) {
                    let (id, created) = (message.id.clone(), message.time.created);
                    self.newest = Some(UserMessage { id, created, is_from_user: false });
                }
                Decision::Nothing
            }
            Observation::Message(message) => self.answer(message),
            Observation::Part(part) => {
                if let Some(newest) = self.newest.as_mut().filter(|newest| newest.id == part.message) {
                    newest.is_from_user |= is_from_user(part);
                }
                Decision::Nothing
            }
            Observation::Asked => match &self.newest {
                Some(newest) if self.reported.as_ref() == Some(&newest.id) => Decision::Nothing,
                _ => Decision::Check,
            },
        }
    }

    /// Marks a turn as reported. Returns whether it was not reported before.
    pub(crate) fn mark_reported(&mut self, prompt: &str) -> bool {
        let is_new = self.reported.as_deref() != Some(prompt);
        if is_new {
            self.reported = Some(prompt.to_owned());
        }
        self.is_reported = true;
        is_new
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Whether a turn runs that was not reported to the engine. A reported turn does not count, because a driver follows it.
    pub(crate) fn is_unreported(&self) -> bool {
        self.is_busy && !self.is_reported
    }

    /// Forgets everything except the last reported prompt, because events were missed.
    pub(crate) fn reset(&mut self) {
        *self = Self { reported: self.reported.take(), ..Self::default() };
    }

    fn answer(&mut self, answer: &Message) -> Decision {
        let is_over = answer.time.completed.is_some() || answer.error.is_some();
        let Some(parent) = answer.parent.as_ref().filter(|_| !is_over) else { return Decision::Nothing };
        self.is_answering = true;
        if self.reported.as_ref() == Some(parent) {
            return Decision::Nothing;
        }
        match &self.newest {
            Some(newest) if newest.id == *parent => self.decide_on_newest(),
            // The answer is not for the newest user message: a newer message has come since, or the event of the answered message
            // was missed.
            _ if self.checked_for.as_ref() == Some(parent) => Decision::Nothing,
            _ => {
                self.checked_for = Some(parent.clone());
                Decision::Check
            }
        }
    }

    fn decide_on_newest(&self) -> Decision {
        match &self.newest {
            Some(newest) if newest.is_from_user && self.reported.as_ref() != Some(&newest.id) => {
                Decision::TurnStarted(newest.id.clone())
            }
            _ => Decision::Nothing,
        }
    }
}

/// The prompt that a busy session works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) prompt: &'a str,
    /// Whether the prompt has content that a user wrote. If not, the work counts as a turn only if the session has an open ask.
    pub(crate) is_from_user: bool,
}

/// Finds the prompt on which a busy session works, from its newest messages (oldest first). `None`: this is still unclear.
pub(crate) fn current_work(messages: &[StoredMessage]) -> Option<Work<'_>> {
    let is_user = |message: &&StoredMessage| message.info.role == "user";
    let newest = messages.iter().rfind(is_user);
    let answer = messages.iter().rfind(|message| message.info.role == "assistant");
    let goes_on = |answer: &&StoredMessage| {
        let is_over = answer.info.time.completed.is_some() || answer.info.error.is_some();
        !is_over || answer.info.finish.as_deref().is_some_and(crate::outcome::asks_for_another_step)
    };
    let is_newer = |message: &&StoredMessage| {
        answer.is_none_or(|answer| {
            message.info.time.created > answer.info.time.created
                && answer.info.parent != Some(message.info.id.clone())
        })
    };
    // A running answer takes precedence. A prompt that came during it is answered next.
    let unfinished =
        answer.filter(|answer| answer.info.time.completed.is_none() && answer.info.error.is_none());
    let prompt = match (unfinished, newest.filter(is_newer)) {
        (Some(answer), _) => answer.info.parent.as_deref()?,
        (None, Some(newest)) => &newest.info.id,
        (None, None) => answer.filter(goes_on)?.info.parent.as_deref()?,
    };
    let Some(at) = messages.iter().position(|message| message.info.id == prompt) else {
        // The prompt is older than all messages that were read. So the turn is long, which means that a user's message began it.
        return Some(Work { prompt, is_from_user: true });
    };
    // After a sub-agent that a command called, OpenCode continues with a synthetic message. Then the message before that one
    // began the turn.
    let is_own = |message: &StoredMessage| {
        !message.parts.is_empty() && message.parts.iter().all(|part| part.synthetic)
    };
    let before = messages[..at].iter().rfind(is_user).filter(|_| is_own(&messages[at]));
    let calls = |message: &&StoredMessage| {
        message.parts.iter().any(|part| part.kind == "subtask" && part.command.is_some())
    };
    let began = before.filter(calls).unwrap_or(&messages[at]);
    Some(Work { prompt: &began.info.id, is_from_user: began.parts.iter().any(is_from_user) })
}

/// Whether a user wrote this part. All other parts are OpenCode's own.
pub(crate) fn is_from_user(part: &Part) -> bool {
    match part.kind.as_str() {
        "text" => !part.synthetic && !part.ignored,
        "file" | "agent" | "subtask" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
