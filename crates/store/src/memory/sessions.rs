//! Sessions that have an owner, and their use.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longshore_engine::port::{MAX_CONTEXTS, OwnedSession, Session, TurnRecord};
use longshore_model::{ContextId, Principal, PromptId, SessionId, Timestamp};

#[derive(Default)]
pub(super) struct Sessions {
    known: HashMap<SessionId, Known>,
    /// The same sessions by the time of their last use.
    used: BTreeSet<(Timestamp, SessionId)>,
    /// The numbers of the tasks whose turn a prompt started or joined, by session and prompt.
    prompts: HashMap<(SessionId, PromptId), BTreeSet<u64>>,
}

struct Known {
    owned: OwnedSession,
    used_at: Timestamp,
    /// The contexts that are bound to the session, by the time of the binding. All have the same owner.
    contexts: BTreeSet<(Timestamp, ContextId)>,
}

impl Sessions {
    pub(super) fn get(&self, id: &SessionId) -> Option<&OwnedSession> {
        self.known.get(id).map(|known| &known.owned)
    }

    pub(super) fn owners(&self, ids: Vec<SessionId>) -> BTreeMap<SessionId, Principal> {
        let owned = ids.into_iter().filter_map(|id| {
            let owner = self.get(&id)?.owner.clone();
            Some((id, owner))
        });
        owned.collect()
    }

    /// Records the owner and the directory of a session. The session must be unowned or belong to this owner.
    pub(super) fn put(&mut self, owner: &Principal, session: &Session, at: Timestamp) {
        if let Some(known) = self.known.get_mut(&session.id) {
            known.owned.session.directory.clone_from(&session.directory);
            return self.note_use(&session.id, at);
        }
        self.used.insert((at, session.id.clone()));
        let known = Known {
            owned: OwnedSession { owner: owner.clone(), session: session.clone() },
            used_at: at,
            contexts: BTreeSet::new(),
        };
        self.known.insert(session.id.clone(), known);
    }

    /// Updates the time of the session's last use, if it has an owner.
    fn note_use(&mut self, id: &SessionId, at: Timestamp) {
        if let Some(known) = self.known.get_mut(id).filter(|known| known.used_at < at) {
            self.used.remove(&(known.used_at, id.clone()));
            self.used.insert((at, id.clone()));
            known.used_at = at;
        }
    }

    pub(super) fn used_since(&self, since: Timestamp, limit: usize) -> Vec<Session> {
        let used = self.used.iter().rev().take_while(|(at, _)| *at >= since).take(limit);
        used.filter_map(|(_, id)| Some(self.get(id)?.session.clone())).collect()
    }

    pub(super) fn bind(&mut self, id: &SessionId, context: &ContextId, at: Timestamp) {
        if let Some(known) = self.known.get_mut(id) {
            known.contexts.insert((at, context.clone()));
        }
    }

    /// Removes the binding of a context. `at`: the time when it was made.
    pub(super) fn unbind(&mut self, id: &SessionId, context: &ContextId, at: Timestamp) {
        if let Some(known) = self.known.get_mut(id) {
            known.contexts.remove(&(at, context.clone()));
        }
    }

    pub(super) fn contexts_of(&self, owner: &Principal, id: &SessionId) -> Vec<ContextId> {
        let known = self.known.get(id).filter(|known| known.owned.owner == *owner);
        let contexts = known.into_iter().flat_map(|known| known.contexts.iter().rev());
        contexts.take(MAX_CONTEXTS).map(|(_, context)| context.clone()).collect()
    }

    /// Records the turn of a task. `task`: the number of the task.
    pub(super) fn put_turn(&mut self, turn: &TurnRecord, task: u64, at: Timestamp) {
        for prompt in prompts(turn) {
            self.prompts.entry(prompt).or_default().insert(task);
        }
        self.note_use(&turn.session.id, at);
    }

    /// Removes the record of a task's turn. `task`: the number of the task.
    pub(super) fn drop_turn(&mut self, turn: &TurnRecord, task: u64) {
        for prompt in prompts(turn) {
            if let Some(tasks) = self.prompts.get_mut(&prompt) {
                tasks.remove(&task);
                if tasks.is_empty() {
                    self.prompts.remove(&prompt);
                }
            }
        }
    }

    /// The number of the newest task whose turn the prompt started or joined.
    pub(super) fn turn_of(&self, session: &SessionId, prompt: &PromptId) -> Option<u64> {
        self.prompts.get(&(session.clone(), prompt.clone()))?.last().copied()
    }
}

fn prompts(turn: &TurnRecord) -> impl Iterator<Item = (SessionId, PromptId)> {
    let all = std::iter::once(&turn.prompt).chain(&turn.joined);
    all.map(|prompt| (turn.session.id.clone(), prompt.clone()))
}
