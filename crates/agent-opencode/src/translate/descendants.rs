//! Handles events of the sessions below a turn's own session, and the asks of all sessions in that tree.

use std::collections::HashSet;

use longshore_model::{Ask, IdError};

use super::asks::ListedAsks;
use super::{CallState, Completeness, Role, Translator};
use crate::api::{AskedBy, Message, PermissionAsk, QuestionAsk};
use crate::{ask, id, outcome};

impl Translator {
    /// Merges OpenCode's lists of asks. `busy`: the busy sessions among the turn's session and its sub-agents. An idle session asks
    /// nothing, so an ask that the lists still contain for it was left by an abort. Must be called after [`Self::merge_messages`].
    pub(crate) fn merge_asks(
        &mut self,
        permissions: &[PermissionAsk],
        questions: &[QuestionAsk],
        busy: &HashSet<String>,
    ) {
        let mut asks: Vec<(&str, &str)> =
            permissions.iter().map(|ask| (ask.id.as_str(), ask.session.as_str())).collect();
        asks.extend(questions.iter().map(|ask| (ask.id.as_str(), ask.session.as_str())));
        let closed = self.asks.close_unlisted(&ListedAsks { asks, busy, finished: self.is_finished() });
        self.emit(closed);
        let is_open = |session: &str| busy.contains(session);
        for ask in permissions {
            if is_open(&ask.session) && self.belongs_to_turn(&ask.session, ask.tool.as_ref()) {
                self.permission(ask);
            }
        }
        for ask in questions {
            if is_open(&ask.session) && self.belongs_to_turn(&ask.session, ask.tool.as_ref()) {
                self.question(ask);
            }
        }
    }

    /// Called when OpenCode cannot list the session's messages and a retry cannot help.
    pub(crate) fn messages_unavailable(&mut self) {
        if self.completeness != Completeness::Complete {
            self.completeness = Completeness::Unavailable;
        }
        self.is_list_unavailable = true;
    }

    pub(crate) fn has_open_asks(&self) -> bool {
        self.asks.any_open()
    }

    /// Whether OpenCode's lists of asks must be read, because the stream does not show whether an ask is still open. Resets this,
    /// so a second call returns false.
    pub(crate) fn take_must_read_asks(&mut self) -> bool {
        self.asks.take_must_read_lists()
    }

    /// The state of a tool call of the turn, if it is known.
    pub(crate) fn call(&self, call: &str) -> Option<CallState> {
        self.blocks.call(call)
    }

    /// Merges a sub-agent's messages from its message list.
    pub(crate) fn merge_child_messages<'a>(&mut self, messages: impl Iterator<Item = &'a Message>) {
        for info in messages {
            self.merge_child_message(info);
        }
        self.report_usage();
    }

    pub(super) fn merge_child_message(&mut self, info: &Message) {
        self.ledger.child_message(info);
    }

    pub(super) fn permission(&mut self, ask: &PermissionAsk) {
        self.open_ask(ask::permission(ask, ask.session != self.session));
    }

    pub(super) fn question(&mut self, ask: &QuestionAsk) {
        self.open_ask(ask::question(ask, ask.session != self.session));
    }

    fn open_ask(&mut self, ask: Result<Ask, IdError>) {
        match ask {
            Ok(ask) => {
                let opened = self.asks.open(ask);
                self.emit(opened);
            }
            Err(cause) => {
                tracing::warn!(session = self.session, %cause, "skipped an ask whose id is not a valid identifier");
            }
        }
    }

    fn belongs_to_turn(&self, session: &str, by: Option<&AskedBy>) -> bool {
        let Some(message) = by.and_then(|by| by.message.as_deref()) else { return true };
        if session != self.session {
            // A sub-agent that is called again may have an open ask from an earlier turn. Such an ask is older than this turn.
            return !self.prompt_created().is_some_and(|began| id::is_older(message, began));
        }
        match self.messages.get(message) {
            Some(role) => matches!(role, Role::Step(_)),
            // The list would show the message. Without a list, it is better to report an ask that an abort left over than to lose
            // an ask.
            None => self.is_list_unavailable,
        }
    }

    /// Whether the newest step completed without an abort.
    fn is_finished(&self) -> bool {
        self.newest().is_some_and(|step| {
            step.completed.is_some() && !step.error.as_ref().is_some_and(outcome::is_abort)
        })
    }
}
