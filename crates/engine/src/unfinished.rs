//! Limits the number of unfinished tasks in total, per principal and per context, and their bytes in total and per principal. A
//! task that would exceed a limit is refused.
//!
//! A slot is reserved before anything else is done for a message. So concurrent sends cannot exceed a limit together, and a
//! refused send costs only the check whether an earlier send of the same message was accepted. The exception is a message that
//! steers: it reserves a slot only if there is no turn that it can join, and all other checks are done by then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_meter::label::Limit;
use longshore_meter::{Label as _, Metrics};
use longshore_model::{ContextId, Error, ErrorKind, Principal};

use crate::config::EngineConfig;
use crate::intake::size;

/// When a refused caller should try again. Turns take at least seconds, and a refusal costs little.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The retry hint when the store is full. Retention deletes old tasks once a minute.
const RETRY_AFTER_RETENTION: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Unfinished {
    in_all: usize,
    per_principal: usize,
    per_context: usize,
    max_bytes: u64,
    max_bytes_per_principal: u64,
    counts: Mutex<Counts>,
    /// The bytes of all unfinished tasks. Kept outside the mutex, because every append adds to this number.
    bytes: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Counts {
    in_all: usize,
    /// The counts by principal. Contains only principals with unfinished tasks.
    of_principal: HashMap<Principal, PrincipalCounts>,
}

#[derive(Debug, Default)]
struct PrincipalCounts {
    in_all: usize,
    of_context: HashMap<ContextId, usize>,
    bytes: Arc<AtomicU64>,
}

/// The bytes of one task, counted for its principal and in total until this value is dropped.
#[derive(Debug)]
pub(crate) struct CountedBytes {
    own: AtomicU64,
    of_principal: Arc<AtomicU64>,
    in_all: Arc<AtomicU64>,
}

/// The slot of one unfinished task. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct UnfinishedSlot {
    unfinished: Arc<Unfinished>,
    owner: Principal,
    context: ContextId,
    bytes: Arc<CountedBytes>,
}

/// The limit that a refused task would exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitReached {
    pub(crate) limit: Limit,
    pub(crate) max: u64,
}

impl Unfinished {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            in_all: config.unfinished,
            per_principal: config.unfinished_per_principal,
            per_context: config.unfinished_per_context,
            max_bytes: config.unfinished_bytes,
            max_bytes_per_principal: config.unfinished_bytes_per_principal,
            counts: Mutex::default(),
            bytes: Arc::default(),
        }
    }

    /// Reserves a slot for one more task. `bytes`: the size of its first message.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        owner: &Principal,
        context: &ContextId,
        bytes: usize,
    ) -> Result<UnfinishedSlot, LimitReached> {
        let mut counts = self.lock();
        let own = counts.of_principal.get(owner);
        let of_context = own.and_then(|own| own.of_context.get(context)).copied().unwrap_or(0);
        let of_principal = own.map_or(0, |own| own.in_all);
        for (count, max, limit) in [
            (of_context, self.per_context, Limit::UnfinishedPerContext),
            (of_principal, self.per_principal, Limit::UnfinishedPerPrincipal),
            (counts.in_all, self.in_all, Limit::Unfinished),
        ] {
            if max > 0 && count >= max {
                return Err(LimitReached { limit, max: max as u64 });
            }
        }
        self.check_locked(&counts, owner, bytes)?;
        Ok(self.count_locked(&mut counts, owner, context, bytes))
    }

    /// Checks whether an existing task may get a message of this many bytes.
    pub(crate) fn check_bytes(&self, owner: &Principal, bytes: usize) -> Result<(), LimitReached> {
        self.check_locked(&self.lock(), owner, bytes)
    }

    fn check_locked(&self, counts: &Counts, owner: &Principal, bytes: usize) -> Result<(), LimitReached> {
        let own = counts.of_principal.get(owner).map_or(0, |own| own.bytes.load(Ordering::Relaxed));
        for (used, max, limit) in [
            (own, self.max_bytes_per_principal, Limit::UnfinishedBytesPerPrincipal),
            (self.bytes.load(Ordering::Relaxed), self.max_bytes, Limit::UnfinishedBytes),
        ] {
            if max > 0 && used.saturating_add(bytes as u64) > max {
                return Err(LimitReached { limit, max });
            }
        }
        Ok(())
    }

    /// Counts a task that already exists, even beyond the limits.
    pub(crate) fn count(
        self: &Arc<Self>,
        owner: &Principal,
        context: &ContextId,
        bytes: usize,
    ) -> UnfinishedSlot {
        self.count_locked(&mut self.lock(), owner, context, bytes)
    }

    /// Counts the bytes of a child task for its owner. A child task does not count towards the number of unfinished tasks.
    pub(crate) fn count_bytes(&self, owner: &Principal, bytes: usize) -> Arc<CountedBytes> {
        let of_principal = self.lock().of_principal.get(owner).map(|own| Arc::clone(&own.bytes));
        self.counted(of_principal.unwrap_or_default(), bytes)
    }

    fn counted(&self, of_principal: Arc<AtomicU64>, bytes: usize) -> Arc<CountedBytes> {
        let counted = CountedBytes { own: AtomicU64::new(0), of_principal, in_all: Arc::clone(&self.bytes) };
        counted.add(bytes);
        Arc::new(counted)
    }

    /// The number of unfinished tasks, including those that are being created.
    pub(crate) fn len(&self) -> usize {
        self.lock().in_all
    }

    fn count_locked(
        self: &Arc<Self>,
        counts: &mut Counts,
        owner: &Principal,
        context: &ContextId,
        bytes: usize,
    ) -> UnfinishedSlot {
        counts.in_all += 1;
        let own = counts.of_principal.entry(owner.clone()).or_default();
        own.in_all += 1;
        *own.of_context.entry(context.clone()).or_default() += 1;
        let bytes = self.counted(Arc::clone(&own.bytes), bytes);
        UnfinishedSlot { unfinished: Arc::clone(self), owner: owner.clone(), context: context.clone(), bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnfinishedSlot {
    pub(crate) fn bytes(&self) -> Arc<CountedBytes> {
        Arc::clone(&self.bytes)
    }
}

impl CountedBytes {
    pub(crate) fn add(&self, bytes: usize) {
        for count in [&self.own, &*self.of_principal, &*self.in_all] {
            count.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        let own = self.get();
        for count in [&*self.of_principal, &*self.in_all] {
            count.fetch_sub(own, Ordering::Relaxed);
        }
    }
}

impl Drop for UnfinishedSlot {
    fn drop(&mut self) {
        let mut counts = self.unfinished.lock();
        counts.in_all -= 1;
        let Some(own) = counts.of_principal.get_mut(&self.owner) else { return };
        own.in_all -= 1;
        if let Some(of_context) = own.of_context.get_mut(&self.context) {
            *of_context -= 1;
            if *of_context == 0 {
                own.of_context.remove(&self.context);
            }
        }
        if own.in_all == 0 {
            counts.of_principal.remove(&self.owner);
        }
    }
}

impl LimitReached {
    /// Counts the refusal in the metrics, and makes the error for the caller.
    pub(crate) fn refusal(self, metrics: &Metrics) -> Error {
        let Self { limit, max } = self;
        metrics.refused.of(limit).increment();
        let who = match limit {
            Limit::UnfinishedPerContext => "This context",
            Limit::UnfinishedPerPrincipal
            | Limit::UnfinishedBytesPerPrincipal
            | Limit::StoredBytesPerPrincipal
            | Limit::PushConfigsPerPrincipal => "Your account",
            Limit::PushConfigsPerTask => "This task",
            _ => "The gateway",
        };
        let (text, after) = match limit {
            Limit::UnfinishedBytesPerPrincipal | Limit::UnfinishedBytes => {
                let text = format!(
                    "{who} would have more than {} of unfinished tasks with this message, which is the limit; wait for some to end.",
                    size(max)
                );
                (text, RETRY_AFTER)
            }
            Limit::StoredBytesPerPrincipal | Limit::StoredBytes => (
                format!(
                    "{who} has {} of tasks in the store, which is the limit; new messages are taken when old tasks are deleted, or \
                     when the operator raises the limit.",
                    size(max)
                ),
                RETRY_AFTER_RETENTION,
            ),
            Limit::PushConfigsPerTask | Limit::PushConfigsPerPrincipal | Limit::PushConfigs => (
                format!(
                    "{who} has {max} push configurations, which is the limit; delete one, or wait for tasks to end."
                ),
                RETRY_AFTER,
            ),
            _ => (
                format!("{who} has {max} unfinished tasks, which is the limit; wait for some to end."),
                RETRY_AFTER,
            ),
        };
        Error::new(ErrorKind::TooManyRequests, text)
            .detail("limit", Limit::VALUES[limit.index()])
            .detail("max", max.to_string())
            .after(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfinished(in_all: usize, per_principal: usize, per_context: usize) -> Arc<Unfinished> {
        Arc::new(Unfinished::new(&EngineConfig {
            unfinished: in_all,
            unfinished_per_principal: per_principal,
            unfinished_per_context: per_context,
            ..EngineConfig::default()
        }))
    }

    fn reserve(unfinished: &Arc<Unfinished>, owner: &str, context: &str) -> Result<UnfinishedSlot, Limit> {
        let context = ContextId::parse(context).unwrap();
        unfinished.reserve(&Principal::new(owner), &context, 1).map_err(|full| full.limit)
    }

    #[test]
    fn each_limit_holds_and_the_narrowest_is_reported() {
        let all = unfinished(4, 3, 2);
        let mut kept = vec![reserve(&all, "a", "c1").unwrap(), reserve(&all, "a", "c1").unwrap()];
        assert_eq!(reserve(&all, "a", "c1").unwrap_err(), Limit::UnfinishedPerContext);
        kept.push(reserve(&all, "a", "c2").unwrap());
        assert_eq!(reserve(&all, "a", "c3").unwrap_err(), Limit::UnfinishedPerPrincipal);
        assert_eq!(reserve(&all, "a", "c1").unwrap_err(), Limit::UnfinishedPerContext);
        // A context of another principal with the same id is a different context.
        kept.push(reserve(&all, "b", "c1").unwrap());
        assert_eq!(reserve(&all, "b", "c2").unwrap_err(), Limit::Unfinished);
        assert_eq!(all.len(), 4);
        kept.remove(0);
        drop(reserve(&all, "a", "c1").unwrap());
        kept.clear();
        assert_eq!(all.len(), 0);
        assert!(all.lock().of_principal.is_empty());
    }

    #[test]
    fn an_existing_task_counts_beyond_every_limit() {
        let all = unfinished(1, 1, 1);
        let (owner, context) = (Principal::new("a"), ContextId::parse("c").unwrap());
        let kept = [all.count(&owner, &context, 1), all.count(&owner, &context, 1)];
        assert_eq!(all.len(), 2);
        assert!(reserve(&all, "b", "c").is_err());
        drop(kept);
        assert!(reserve(&all, "b", "c").is_ok());
    }

    #[test]
    fn without_limits_no_task_is_refused() {
        let all = unfinished(0, 0, 0);
        let kept: Vec<_> = (0..100).map(|_| reserve(&all, "a", "c").unwrap()).collect();
        assert_eq!(all.len(), kept.len());
    }

    #[test]
    fn bytes_are_limited_per_principal_and_in_all_and_freed_with_their_task() {
        let all = Arc::new(Unfinished::new(&EngineConfig {
            unfinished_bytes: 150,
            unfinished_bytes_per_principal: 100,
            ..EngineConfig::default()
        }));
        let context = ContextId::parse("c").unwrap();
        let reserve = |owner, bytes| {
            all.reserve(&Principal::new(owner), &context, bytes).map_err(|full| (full.limit, full.max))
        };
        let (first, _second) = (reserve("a", 60).unwrap(), reserve("b", 40).unwrap());
        assert_eq!(reserve("a", 41).unwrap_err(), (Limit::UnfinishedBytesPerPrincipal, 100));
        assert_eq!(reserve("b", 51).unwrap_err(), (Limit::UnfinishedBytes, 150));
        // Output counts towards the limit, but is never refused.
        first.bytes().add(100);
        assert_eq!(reserve("a", 0).unwrap_err().0, Limit::UnfinishedBytesPerPrincipal);
        assert_eq!(all.check_bytes(&Principal::new("b"), 0).unwrap_err().limit, Limit::UnfinishedBytes);
        drop(first);
        assert!(reserve("a", 100).is_ok());
        assert_eq!(all.bytes.load(Ordering::Relaxed), 40);
    }

    #[test]
    fn a_refusal_names_its_limit_and_when_to_try_again() {
        let metrics = Metrics::default();
        let error = LimitReached { limit: Limit::UnfinishedPerContext, max: 7 }.refusal(&metrics);
        assert_eq!(error.kind(), ErrorKind::TooManyRequests);
        let details: Vec<_> =
            error.details().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(details, [("limit", "unfinished_per_context"), ("max", "7"), ("retryAfterSeconds", "5")]);
        assert_eq!(error.retry_after(), Some(RETRY_AFTER));
        assert_eq!(metrics.refused.of(Limit::UnfinishedPerContext).get(), 1);
    }
}
