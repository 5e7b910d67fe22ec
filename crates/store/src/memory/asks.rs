//! The asks of agents.

use std::collections::{BTreeSet, HashMap};

use longshore_engine::port::AskChange;
use longshore_model::{
    AskKind, Closed, ContextId, Interrupt, Principal, RequestId, Result, TaskId, Timestamp,
};

use crate::rules;

#[derive(Default)]
pub(super) struct Asks {
    /// All asks, open and closed.
    known: HashMap<RequestId, Interrupt>,
    /// The open asks of each task that has any, in the order of their opening.
    open: HashMap<TaskId, Vec<RequestId>>,
    /// The closed asks, oldest first.
    by_age: BTreeSet<(Timestamp, RequestId)>,
}

impl Asks {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn get(&self, request: &RequestId) -> Option<&Interrupt> {
        self.known.get(request)
    }

    /// The open asks of an owner. Those with the earliest deadline come first, those without a deadline last.
    pub(super) fn open_of_owner(&self, owner: &Principal, kind: AskKind) -> Vec<Interrupt> {
        let mut found: Vec<_> = self
            .open
            .values()
            .flatten()
            .filter_map(|request| self.known.get(request))
            .filter(|interrupt| interrupt.owner == *owner && interrupt.ask.kind == kind)
            .cloned()
            .collect();
        found.sort_unstable_by(|a, b| {
            let key = |i: &Interrupt| (i.expires_at.is_none(), i.expires_at);
            key(a).cmp(&key(b)).then_with(|| a.ask.request_id.cmp(&b.ask.request_id))
        });
        found
    }

    /// The open asks of a task, oldest first.
    pub(super) fn open_of_task(&self, task: &TaskId) -> Vec<Interrupt> {
        let open = self.open.get(task).into_iter().flatten();
        let mut found: Vec<_> = open.filter_map(|request| self.known.get(request)).cloned().collect();
        found.sort_by_key(|interrupt| interrupt.asked_at);
        found
    }

    /// Checks that these changes may be made in a task of `owner` in `context`.
    pub(super) fn check(&self, changes: &[AskChange], owner: &Principal, context: &ContextId) -> Result<()> {
        for change in changes {
            if let AskChange::Opened(interrupt) = change {
                let known = self.known.get(&interrupt.ask.request_id).map(|known| &known.owner);
                rules::check_ask(interrupt, owner, context, known)?;
            }
        }
        Ok(())
    }

    /// Makes the changes to the asks of `task`, in their order.
    pub(super) fn change(&mut self, task: &TaskId, changes: Vec<AskChange>, at: Timestamp) {
        for change in changes {
            match change {
                AskChange::Opened(interrupt) => {
                    self.forget_old(rules::asks_kept_since(at), rules::OLD_ASKS);
                    self.open(*interrupt);
                }
                AskChange::Closed { request_id, closed } => self.close(task, &request_id, closed),
            }
        }
    }

    /// Closes the open asks of a task that has ended.
    pub(super) fn drop_open(&mut self, task: &TaskId, at: Timestamp) {
        for request in self.open.get(task).cloned().unwrap_or_default() {
            self.close(task, &request, rules::dropped(at));
        }
    }

    /// Stores an open ask, and replaces an earlier record of the same ask.
    fn open(&mut self, interrupt: Interrupt) {
        let (request, task) = (interrupt.ask.request_id.clone(), interrupt.task.clone());
        if let Some(before) = self.known.insert(request.clone(), interrupt) {
            match before.closed {
                Some(closed) => drop(self.by_age.remove(&(closed.at, request.clone()))),
                None => self.remove_open(&before.task, &request),
            }
        }
        self.open.entry(task).or_default().push(request);
    }

    fn close(&mut self, task: &TaskId, request: &RequestId, closed: Closed) {
        let Some(interrupt) = self.known.get_mut(request) else { return };
        if !interrupt.is_open() || interrupt.task != *task {
            return;
        }
        self.by_age.insert((closed.at, request.clone()));
        interrupt.closed = Some(closed);
        self.remove_open(task, request);
    }

    fn remove_open(&mut self, task: &TaskId, request: &RequestId) {
        let Some(open) = self.open.get_mut(task) else { return };
        open.retain(|other| other != request);
        if open.is_empty() {
            self.open.remove(task);
        }
    }

    /// Removes an ask of a removed task.
    pub(super) fn forget(&mut self, request: &RequestId, task: &TaskId) {
        if self.known.get(request).is_none_or(|known| known.task != *task) {
            return;
        }
        match self.known.remove(request).and_then(|known| known.closed) {
            Some(closed) => drop(self.by_age.remove(&(closed.at, request.clone()))),
            None => self.remove_open(task, request),
        }
    }

    /// Removes the oldest asks that were closed before `kept_since`, at most `limit`. Returns how many.
    pub(super) fn forget_old(&mut self, kept_since: Timestamp, limit: u32) -> u32 {
        for dropped in 0..limit {
            let Some((_, request)) = self.by_age.first().filter(|(at, _)| *at < kept_since) else {
                return dropped;
            };
            self.known.remove(request);
            self.by_age.pop_first();
        }
        limit
    }
}
