//! Configurations for push notifications, and the queue for their delivery.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use longshore_engine::port::{
    BoxFuture, Burial, LeasedPush, MAX_DEAD_LETTERS, MAX_PUSH_PAGE, NewPushConfig, PushConfigs, PushCounts,
    PushLease, PushLimit, PushPut, PushQueue, PushRetry, caller_trace,
};
use longshore_model::{
    DeadLetter, Principal, PushConfig, PushConfigId, Result, Seq, TaskEvent, TaskId, Timestamp, TraceContext,
};
use tokio::sync::Notify;

use super::MemoryStore;
use super::state::State;
use crate::rules;

type Key = (TaskId, PushConfigId);

#[derive(Default)]
pub(super) struct Push {
    configs: BTreeMap<Key, Stored>,
    /// The configurations with a [`Stored::due_at`].
    due: BTreeSet<(Timestamp, Key)>,
    dead: BTreeMap<u64, Letter>,
    letters: u64,
    leases: u64,
    pub(super) grown: Arc<Notify>,
}

/// A configuration and its delivery. The fields are the columns of the table `push_configs` of the SQLite store, whose migration
/// explains them.
struct Stored {
    owner: Principal,
    config: PushConfig,
    trace: Option<TraceContext>,
    cursor: Seq,
    grown_at: Option<Timestamp>,
    due_at: Option<Timestamp>,
    lease: Option<u64>,
    replays: Option<Seq>,
    attempts: u32,
    first_failed_at: Option<Timestamp>,
    is_active: bool,
}

struct Letter {
    letter: DeadLetter,
    replay: bool,
}

impl Push {
    fn set_due(&mut self, key: &Key, at: Option<Timestamp>) {
        let Some(stored) = self.configs.get_mut(key) else { return };
        if let Some(before) = std::mem::replace(&mut stored.due_at, at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.extend(at.map(|at| (at, key.clone())));
    }

    fn remove(&mut self, key: &Key) -> bool {
        self.set_due(key, None);
        self.dead.retain(|_, Letter { letter, .. }| (&letter.task, &letter.config) != (&key.0, &key.1));
        self.configs.remove(key).is_some()
    }

    fn of_task(&self, task: &TaskId) -> Vec<Key> {
        let from = PushConfigId::parse("-").expect("the least character of ids");
        let configs = self.configs.range((task.clone(), from)..).map(|(key, _)| key);
        configs.take_while(|(of, _)| of == task).cloned().collect()
    }

    pub(super) fn forget_task(&mut self, task: &TaskId) {
        if self.configs.is_empty() {
            return;
        }
        for key in self.of_task(task) {
            self.remove(&key);
        }
    }

    pub(super) fn note_growth<'a>(
        &mut self,
        task: &TaskId,
        at: Timestamp,
        events: &(impl Iterator<Item = &'a TaskEvent> + Clone),
    ) {
        if self.configs.is_empty() {
            return;
        }
        for key in self.of_task(task) {
            let Some(stored) = self.configs.get_mut(&key) else { continue };
            let wanted = stored.config.events;
            if stored.grown_at.is_some()
                || !events.clone().any(|event| wanted.covers(event) || event.is_terminal())
            {
                continue;
            }
            stored.grown_at = Some(at);
            if stored.due_at.is_none() {
                self.set_due(&key, Some(at));
            }
            self.grown.notify_one();
        }
    }

    fn held(&mut self, lease: &PushLease) -> Option<(Key, &mut Stored)> {
        let key = (lease.task.clone(), lease.config.clone());
        let stored = self.configs.get_mut(&key).filter(|stored| stored.lease == Some(lease.number))?;
        Some((key, stored))
    }

    fn has_replay(&self, key: &Key) -> Option<Seq> {
        let letters = self.dead.values().filter(|letter| letter.replay);
        let of_config =
            letters.filter(|Letter { letter, .. }| (&letter.task, &letter.config) == (&key.0, &key.1));
        of_config.map(|Letter { letter, .. }| letter.event).min()
    }

    fn counts(&self, owner: &Principal) -> PushCounts {
        let active = self.configs.values().filter(|stored| stored.is_active);
        let (mut of_owner, mut in_all) = (0, 0);
        for stored in active {
            in_all += 1;
            of_owner += u64::from(stored.owner == *owner);
        }
        PushCounts { of_owner, in_all }
    }
}

impl State {
    /// The limit that one more configuration would exceed. `None`: there is room.
    pub(super) fn push_limit(&self, new: &NewPushConfig) -> Option<PushLimit> {
        let of_task = self.push.of_task(&new.config.task).len() as u64;
        let is_counted = new.limits.per_principal > 0 || new.limits.in_all > 0;
        let counts = if is_counted { self.push.counts(&new.owner) } else { PushCounts::default() };
        rules::push_limit(&new.limits, of_task, counts)
    }

    pub(super) fn put_push(&mut self, new: NewPushConfig, trace: Option<TraceContext>) -> PushPut {
        let task = self.tasks.get(&new.config.task).filter(|task| task.owner == new.owner);
        let Some(task) = task else { return PushPut::NoTask };
        let (head, is_over) = (task.seq(), task.state().is_terminal());
        let key = (new.config.task.clone(), new.config.id.clone());
        let replaced = self.push.configs.get(&key).map(|stored| stored.cursor);
        if replaced.is_none()
            && let Some(limit) = self.push_limit(&new)
        {
            return PushPut::Full(limit);
        }
        let waits = (replaced.is_some() || new.after < head).then_some(new.config.created);
        self.push.set_due(&key, None);
        let stored = Stored {
            owner: new.owner,
            config: new.config,
            trace,
            cursor: replaced.unwrap_or(new.after),
            grown_at: waits,
            due_at: None,
            lease: None,
            replays: None,
            attempts: 0,
            first_failed_at: None,
            is_active: waits.is_some() || !is_over,
        };
        self.push.configs.insert(key.clone(), stored);
        self.push.set_due(&key, waits);
        self.push.grown.notify_one();
        PushPut::Stored
    }

    fn end_push_lease(&mut self, key: &Key, keep: Option<Timestamp>) {
        if keep.is_some() {
            self.push.set_due(key, keep);
            return;
        }
        let is_over = self.tasks.get(&key.0).is_none_or(|task| task.state().is_terminal());
        let replay = self.push.has_replay(key).map(|_| Timestamp(0));
        let Some(stored) = self.push.configs.get_mut(key) else { return };
        (stored.lease, stored.replays) = (None, None);
        let next = replay.or(stored.grown_at);
        stored.is_active = next.is_some() || !is_over;
        self.push.set_due(key, next);
    }

    fn advance_push(
        &mut self,
        lease: &PushLease,
        cursor: Seq,
        keep: Option<Timestamp>,
        is_accepted: bool,
    ) -> bool {
        let Some((key, stored)) = self.push.held(lease) else { return false };
        stored.attempts = 0;
        if is_accepted {
            stored.first_failed_at = None;
        }
        match stored.replays {
            Some(event) => {
                self.push.dead.retain(|_, Letter { letter, .. }| {
                    (&letter.task, &letter.config, letter.event) != (&key.0, &key.1, event)
                });
            }
            None => stored.cursor = stored.cursor.max(cursor),
        }
        self.end_push_lease(&key, keep);
        true
    }

    fn bury_push(&mut self, lease: &PushLease, dead: Burial, keep: Option<Timestamp>) -> bool {
        let Some((key, stored)) = self.push.held(lease) else { return false };
        let Burial { event, reason, attempts, first_failed_at, at } = dead;
        stored.attempts = 0;
        if stored.replays.is_none() {
            stored.cursor = stored.cursor.max(event);
        }
        let owner = stored.owner.clone();
        let of_config = |letter: &DeadLetter| (&letter.task, &letter.config) == (&lease.task, &lease.config);
        let known = self
            .push
            .dead
            .values_mut()
            .find(|Letter { letter, .. }| of_config(letter) && letter.event == event);
        if let Some(Letter { letter, replay }) = known {
            (letter.reason, letter.at, *replay) = (reason, at, false);
            letter.attempts += attempts;
        } else {
            self.push.letters += 1;
            let number = self.push.letters;
            let (task, config) = key.clone();
            let letter =
                DeadLetter { number, owner, task, config, event, reason, attempts, first_failed_at, at };
            self.push.dead.insert(number, Letter { letter, replay: false });
            let of_config = self.push.dead.iter().filter(|(_, known)| of_config(&known.letter));
            let numbers: Vec<u64> = of_config.map(|(number, _)| *number).collect();
            let extra = numbers.len().saturating_sub(usize::try_from(MAX_DEAD_LETTERS).unwrap_or(usize::MAX));
            for number in &numbers[..extra] {
                self.push.dead.remove(number);
            }
        }
        self.end_push_lease(&key, keep);
        true
    }

    fn due_push(&mut self, now: Timestamp, limit: usize, until: Timestamp) -> Vec<LeasedPush> {
        let due: Vec<Key> = self
            .push
            .due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(limit)
            .map(|(_, key)| key.clone())
            .collect();
        let mut leased = Vec::with_capacity(due.len());
        for key in due {
            let replays = self.push.has_replay(&key);
            self.push.leases += 1;
            let number = self.push.leases;
            self.push.set_due(&key, Some(until));
            let Some(stored) = self.push.configs.get_mut(&key) else { continue };
            (stored.lease, stored.replays) = (Some(number), replays);
            if replays.is_none() {
                stored.grown_at = None;
            }
            leased.push(LeasedPush {
                lease: PushLease { task: key.0, config: key.1, number },
                owner: stored.owner.clone(),
                config: stored.config.clone(),
                cursor: stored.cursor,
                attempts: stored.attempts,
                first_failed_at: stored.first_failed_at,
                trace: stored.trace.clone(),
                replays,
            });
        }
        leased
    }
}

impl PushConfigs for MemoryStore {
    fn put(&self, new: NewPushConfig) -> BoxFuture<'_, Result<PushPut>> {
        Box::pin(async move { Ok(self.state().put_push(new, caller_trace())) })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<Option<PushConfig>>> {
        Box::pin(async move {
            let key = (task.clone(), id.clone());
            let state = self.state();
            let stored = state.push.configs.get(&key).filter(|stored| stored.owner == *owner);
            Ok(stored.map(|stored| stored.config.clone()))
        })
    }

    fn list<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        after: Option<&'a PushConfigId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<PushConfig>>> {
        Box::pin(async move {
            let state = self.state();
            let configs = state.push.configs.iter().filter(|((of, id), stored)| {
                of == task && stored.owner == *owner && after.is_none_or(|after| id > after)
            });
            Ok(configs.take(limit.min(MAX_PUSH_PAGE)).map(|(_, stored)| stored.config.clone()).collect())
        })
    }

    fn delete<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let key = (task.clone(), id.clone());
            let mut state = self.state();
            let is_own = state.push.configs.get(&key).is_some_and(|stored| stored.owner == *owner);
            Ok(is_own && state.push.remove(&key))
        })
    }

    fn ids<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<PushConfigId>>> {
        Box::pin(async move {
            let configs = self.list(owner, task, None, MAX_PUSH_PAGE).await?;
            Ok(configs.into_iter().map(|config| config.id).collect())
        })
    }

    fn counts<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Result<PushCounts>> {
        Box::pin(async move { Ok(self.state().push.counts(owner)) })
    }
}

impl PushQueue for MemoryStore {
    fn due(&self, now: Timestamp, limit: usize, until: Timestamp) -> BoxFuture<'_, Result<Vec<LeasedPush>>> {
        Box::pin(async move { Ok(self.state().due_push(now, limit, until)) })
    }

    fn grown(&self) -> BoxFuture<'_, ()> {
        let grown = self.state().push.grown.clone();
        Box::pin(async move { grown.notified().await })
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        Box::pin(async move { Ok(self.state().push.due.first().map(|(at, _)| *at)) })
    }

    fn advance<'a>(
        &'a self,
        lease: &'a PushLease,
        cursor: Seq,
        keep: Option<Timestamp>,
        is_accepted: bool,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Ok(self.state().advance_push(lease, cursor, keep, is_accepted)) })
    }

    fn postpone<'a>(&'a self, lease: &'a PushLease, retry: PushRetry) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let mut state = self.state();
            let Some((key, stored)) = state.push.held(lease) else { return Ok(false) };
            (stored.lease, stored.replays, stored.grown_at) = (None, None, Some(retry.at));
            (stored.attempts, stored.first_failed_at) = (retry.attempts, retry.first_failed_at);
            state.push.set_due(&key, Some(retry.at));
            Ok(true)
        })
    }

    fn bury<'a>(
        &'a self,
        lease: &'a PushLease,
        dead: Burial,
        keep: Option<Timestamp>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Ok(self.state().bury_push(lease, dead, keep)) })
    }

    fn dead(&self, after: u64, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
        Box::pin(async move {
            let state = self.state();
            let letters = state.push.dead.range((Excluded(after), Unbounded));
            Ok(letters.take(limit.min(MAX_PUSH_PAGE)).map(|(_, letter)| letter.letter.clone()).collect())
        })
    }

    fn replay(&self, number: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let mut state = self.state();
            let Some(letter) = state.push.dead.get_mut(&number) else { return Ok(false) };
            letter.replay = true;
            let key = (letter.letter.task.clone(), letter.letter.config.clone());
            if let Some(stored) = state.push.configs.get_mut(&key).filter(|stored| stored.lease.is_none()) {
                stored.is_active = true;
                state.push.set_due(&key, Some(Timestamp(0)));
            }
            state.push.grown.notify_one();
            Ok(true)
        })
    }

    fn drop_dead(&self, number: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { Ok(self.state().push.dead.remove(&number).is_some()) })
    }
}
