//! What a turn hears of the sessions below its own, and what anybody in that tree asks.

use std::collections::HashSet;

use longshore_model::{Ask, IdError};

use super::asks::ListedAsks;
use super::{CallState, Completeness, Role, Translator};
use crate::api::{AskedBy, Message, PermissionAsk, QuestionAsk};
use crate::{ask, id, outcome};

impl Translator {
    /// Takes in OpenCode's lists of asks. `at_work` are the session and those of its sub-agents that are busy: an idle
    /// one asks nothing, and what the lists still hold of it was left by an abort. Call it after [`Self::list`].
    pub(crate) fn open_asks(
        &mut self,
        permissions: &[PermissionAsk],
        questions: &[QuestionAsk],
        at_work: &HashSet<String>,
    ) {
        let mut asks: Vec<(&str, &str)> =
            permissions.iter().map(|ask| (ask.id.as_str(), ask.session.as_str())).collect();
        asks.extend(questions.iter().map(|ask| (ask.id.as_str(), ask.session.as_str())));
        let closed = self.asks.compare(&ListedAsks { asks, at_work, finished: self.is_finished() });
        self.emit(closed);
        let is_open = |session: &str| at_work.contains(session);
        for ask in permissions {
            if is_open(&ask.session) && self.is_of_this_turn(&ask.session, ask.tool.as_ref()) {
                self.permission(ask);
            }
        }
        for ask in questions {
            if is_open(&ask.session) && self.is_of_this_turn(&ask.session, ask.tool.as_ref()) {
                self.question(ask);
            }
        }
    }

    /// OpenCode does not show the session's messages, and will not.
    pub(crate) fn messages_unavailable(&mut self) {
        if self.completeness != Completeness::Complete {
            self.completeness = Completeness::Unavailable;
        }
        self.unlisted = true;
    }

    pub(crate) fn has_open_asks(&self) -> bool {
        self.asks.any_open()
    }

    /// Whether OpenCode's lists of asks must be read, because the stream does not tell whether one is still open. Says so
    /// once.
    pub(crate) fn take_must_read_asks(&mut self) -> bool {
        self.asks.take_must_read_lists()
    }

    /// How far a tool call of the turn is, if it is known.
    pub(crate) fn call(&self, call: &str) -> Option<CallState> {
        self.blocks.call(call)
    }

    /// Takes in messages of a sub-agent, as its message list has them.
    pub(crate) fn merge_child_messages<'a>(&mut self, messages: impl Iterator<Item = &'a Message>) {
        for info in messages {
            self.merge_child_message(info);
        }
        self.report_usage();
    }

    pub(super) fn merge_child_message(&mut self, info: &Message) {
        self.ledger.merge_child_message(info);
    }

    pub(super) fn permission(&mut self, ask: &PermissionAsk) {
        self.asked(ask::permission(ask, ask.session != self.session));
    }

    pub(super) fn question(&mut self, ask: &QuestionAsk) {
        self.asked(ask::question(ask, ask.session != self.session));
    }

    fn asked(&mut self, ask: Result<Ask, IdError>) {
        match ask {
            Ok(ask) => {
                let news = self.asks.asked(ask);
                self.emit(news);
            }
            Err(cause) => {
                tracing::warn!(session = self.session, %cause, "an ask whose name is no identifier was skipped");
            }
        }
    }

    fn is_of_this_turn(&self, session: &str, by: Option<&AskedBy>) -> bool {
        let Some(message) = by.and_then(|by| by.message.as_deref()) else { return true };
        if session != self.session {
            // A sub-agent that an earlier turn left asking can be called again.
            return !self.prompt_created().is_some_and(|began| id::is_older(message, began));
        }
        match self.messages.get(message) {
            Some(role) => matches!(role, Role::Step(_)),
            // Better one that an abort left than one that is lost.
            None => self.unlisted,
        }
    }

    /// Whether the newest step came to an end of its own.
    fn is_finished(&self) -> bool {
        self.newest().is_some_and(|step| {
            step.completed.is_some() && !step.error.as_ref().is_some_and(outcome::is_abort)
        })
    }
}
