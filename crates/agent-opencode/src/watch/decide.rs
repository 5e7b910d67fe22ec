//! Whether what happens in a session without us is a turn that is to become a task. Pure: no IO, no clock.
//!
//! Somebody who says something gets an answer, and that is a turn. OpenCode also writes messages of its own accord, or for
//! somebody who wants no answer, and those are none. The orders in which it tells of them:
//!
//! - a prompt: the user's message and its parts, busy, the answer to it; while it works on something else: the same without busy;
//! - one that cannot be answered: the message and its parts, busy, an error; when not even a message is made: errors only;
//! - one that is not to be answered: the message and its parts;
//! - a shell: busy first, then a message that is all OpenCode's own, and its answer;
//! - a summary: a message that is only a mark, busy, the answer; perhaps words of OpenCode's own, and their answer;
//! - a fork: messages and answers that are whole already.
//!
//! What asks is looked at in any case: an ask is never without a task.

use crate::api::{Message, Part, StoredMessage};

/// What was heard of a session that no turn of ours has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Observation<'a> {
    Busy,
    Idle,
    PromptFaults,
    Message(&'a Message),
    Part(&'a Part),
    /// The session asks, or a sub-agent below it.
    Asked,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    Nothing,
    /// The message of this name began a turn.
    Stirs(String),
    /// Only OpenCode can tell.
    Look,
}

/// What is known of one session.
#[derive(Debug, Default)]
pub(crate) struct WatchedSession {
    /// The newest message of a user.
    newest: Option<UserMessage>,
    is_busy: bool,
    /// Something was answered since it became busy.
    is_answering: bool,
    /// What a look was made for: one is enough.
    checked_for: Option<String>,
    /// What was decided already.
    reported: Option<String>,
    /// And that since it became busy.
    is_reported: bool,
}

#[derive(Debug)]
struct UserMessage {
    id: String,
    created: f64,
    /// Somebody said something in it.
    is_from_user: bool,
}

impl WatchedSession {
    pub(crate) fn observe(&mut self, heard: Observation<'_>) -> Decision {
        match heard {
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
                // Older ones are changed late.
                let is_newer = |said: &UserMessage| said.id != message.id && said.created <= message.time.created;
                if self.newest.as_ref().is_none_or(is_newer) {
                    let (id, created) = (message.id.clone(), message.time.created);
                    self.newest = Some(UserMessage { id, created, is_from_user: false });
                }
                Decision::Nothing
            }
            Observation::Message(message) => self.answer(message),
            Observation::Part(part) => {
                if let Some(said) = self.newest.as_mut().filter(|said| said.id == part.message) {
                    said.is_from_user |= is_from_user(part);
                }
                Decision::Nothing
            }
            Observation::Asked => match &self.newest {
                Some(said) if self.reported.as_ref() == Some(&said.id) => Decision::Nothing,
                _ => Decision::Check,
            },
        }
    }

    /// Notes that a turn is told of. Says whether it was not before.
    pub(crate) fn tell(&mut self, prompt: &str) -> bool {
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

    /// Something runs that was not told of. What was is followed by whoever was told.
    pub(crate) fn is_unreported(&self) -> bool {
        self.is_busy && !self.is_reported
    }

    /// Events were missed: nothing is known but what was told.
    pub(crate) fn forget(&mut self) {
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
            Some(said) if said.id == *parent => self.decide_on_newest(),
            // Somebody said more meanwhile, or what it answers was not heard.
            _ if self.checked_for.as_ref() == Some(parent) => Decision::Nothing,
            _ => {
                self.checked_for = Some(parent.clone());
                Decision::Check
            }
        }
    }

    fn decide_on_newest(&self) -> Decision {
        match &self.newest {
            Some(said) if said.is_from_user && self.reported.as_ref() != Some(&said.id) => {
                Decision::TurnStarted(said.id.clone())
            }
            _ => Decision::Nothing,
        }
    }
}

/// What a busy session is at work on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) prompt: &'a str,
    /// Somebody said something. Else it is a turn only if it asks.
    pub(crate) is_from_user: bool,
}

/// The same from the newest messages of a busy session, oldest first. `None`: it cannot be told yet.
pub(crate) fn current_work(messages: &[StoredMessage]) -> Option<Work<'_>> {
    let said = |message: &&StoredMessage| message.info.role == "user";
    let newest = messages.iter().rfind(said);
    let answer = messages.iter().rfind(|message| message.info.role == "assistant");
    let goes_on = |answer: &&StoredMessage| {
        let is_over = answer.info.time.completed.is_some() || answer.info.error.is_some();
        !is_over || answer.info.finish.as_deref().is_some_and(crate::outcome::asks_for_another_step)
    };
    let is_newer = |said: &&StoredMessage| {
        answer.is_none_or(|answer| {
            said.info.time.created > answer.info.time.created
                && answer.info.parent != Some(said.info.id.clone())
        })
    };
    // One that came while something else is answered is taken up next.
    let unfinished =
        answer.filter(|answer| answer.info.time.completed.is_none() && answer.info.error.is_none());
    let prompt = match (unfinished, newest.filter(is_newer)) {
        (Some(answer), _) => answer.info.parent.as_deref()?,
        (None, Some(newest)) => &newest.info.id,
        (None, None) => answer.filter(goes_on)?.info.parent.as_deref()?,
    };
    let Some(at) = messages.iter().position(|message| message.info.id == prompt) else {
        // It is older than what was read: a long turn, which somebody's words began.
        return Some(Work { prompt, is_from_user: true });
    };
    // After a sub-agent that was called for a command OpenCode goes on with words of its own.
    let is_own = |message: &StoredMessage| {
        !message.parts.is_empty() && message.parts.iter().all(|part| part.synthetic)
    };
    let before = messages[..at].iter().rfind(said).filter(|_| is_own(&messages[at]));
    let calls = |message: &&StoredMessage| {
        message.parts.iter().any(|part| part.kind == "subtask" && part.command.is_some())
    };
    let began = before.filter(calls).unwrap_or(&messages[at]);
    Some(Work { prompt: &began.info.id, is_from_user: began.parts.iter().any(is_from_user) })
}

/// Somebody said this. All else is OpenCode's own.
pub(crate) fn is_from_user(part: &Part) -> bool {
    match part.kind.as_str() {
        "text" => !part.synthetic && !part.ignored,
        "file" | "agent" | "subtask" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
