//! How many tasks are unfinished: in all, of a principal, and of a context. One more than allowed is refused.
//!
//! A place is reserved before anything else is done for a message, so that sends that race cannot exceed a bound together,
//! and one that is refused costs no more than a look whether it was taken before. Only a message that steers reserves it when
//! there turned out to be nothing to steer: its refusal costs the looks until then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_meter::label::Limit;
use longshore_meter::{Label as _, Metrics};
use longshore_model::{ContextId, Error, ErrorKind, Principal};

use crate::config::EngineConfig;

/// When whoever is refused should come again. Turns of an agent take seconds at least, and a refusal costs little.
pub(crate) const COME_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Unfinished {
    in_all: usize,
    per_principal: usize,
    per_context: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    in_all: usize,
    /// Only those of whom there are some.
    of_principal: HashMap<Principal, Own>,
}

#[derive(Debug, Default)]
struct Own {
    in_all: usize,
    of_context: HashMap<ContextId, usize>,
}

/// One of the unfinished tasks, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Reserved {
    unfinished: Arc<Unfinished>,
    owner: Principal,
    context: ContextId,
}

/// There are as many as this limit allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    limit: Limit,
    max: usize,
}

impl Unfinished {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            in_all: config.unfinished,
            per_principal: config.unfinished_per_principal,
            per_context: config.unfinished_per_context,
            counts: Mutex::default(),
        }
    }

    /// A place for one more task.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        owner: &Principal,
        context: &ContextId,
    ) -> Result<Reserved, Full> {
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
                return Err(Full { limit, max });
            }
        }
        Ok(self.count_locked(&mut counts, owner, context))
    }

    /// Counts a task that is there in any case.
    pub(crate) fn count(self: &Arc<Self>, owner: &Principal, context: &ContextId) -> Reserved {
        self.count_locked(&mut self.lock(), owner, context)
    }

    /// How many there are, and are about to be.
    pub(crate) fn len(&self) -> usize {
        self.lock().in_all
    }

    fn count_locked(
        self: &Arc<Self>,
        counts: &mut Counts,
        owner: &Principal,
        context: &ContextId,
    ) -> Reserved {
        counts.in_all += 1;
        let own = counts.of_principal.entry(owner.clone()).or_default();
        own.in_all += 1;
        *own.of_context.entry(context.clone()).or_default() += 1;
        Reserved { unfinished: Arc::clone(self), owner: owner.clone(), context: context.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reserved {
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

impl Full {
    /// Counts that somebody is refused for it, and says so.
    pub(crate) fn refusal(self, metrics: &Metrics) -> Error {
        let Self { limit, max } = self;
        metrics.refused.of(limit).increment();
        let who = match limit {
            Limit::UnfinishedPerContext => "This context",
            Limit::UnfinishedPerPrincipal => "Your account",
            _ => "The gateway",
        };
        let text = format!("{who} has {max} unfinished tasks, which is the limit; wait for some to end.");
        Error::new(ErrorKind::TooManyRequests, text)
            .detail("limit", Limit::VALUES[limit.index()])
            .detail("max", max.to_string())
            .after(COME_AGAIN)
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

    fn reserve(unfinished: &Arc<Unfinished>, owner: &str, context: &str) -> Result<Reserved, Limit> {
        let context = ContextId::parse(context).unwrap();
        unfinished.reserve(&Principal::new(owner), &context).map_err(|full| full.limit)
    }

    #[test]
    fn each_bound_is_kept_and_the_narrowest_is_told() {
        let all = unfinished(4, 3, 2);
        let mut kept = vec![reserve(&all, "a", "c1").unwrap(), reserve(&all, "a", "c1").unwrap()];
        assert_eq!(reserve(&all, "a", "c1").unwrap_err(), Limit::UnfinishedPerContext);
        kept.push(reserve(&all, "a", "c2").unwrap());
        assert_eq!(reserve(&all, "a", "c3").unwrap_err(), Limit::UnfinishedPerPrincipal);
        assert_eq!(reserve(&all, "a", "c1").unwrap_err(), Limit::UnfinishedPerContext);
        // The same name is another's context.
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
    fn a_task_that_is_there_counts_beyond_every_bound() {
        let all = unfinished(1, 1, 1);
        let (owner, context) = (Principal::new("a"), ContextId::parse("c").unwrap());
        let kept = [all.count(&owner, &context), all.count(&owner, &context)];
        assert_eq!(all.len(), 2);
        assert!(reserve(&all, "b", "c").is_err());
        drop(kept);
        assert!(reserve(&all, "b", "c").is_ok());
    }

    #[test]
    fn without_bounds_nobody_is_refused() {
        let all = unfinished(0, 0, 0);
        let kept: Vec<_> = (0..100).map(|_| reserve(&all, "a", "c").unwrap()).collect();
        assert_eq!(all.len(), kept.len());
    }

    #[test]
    fn a_refusal_names_its_limit_and_when_to_come_again() {
        let metrics = Metrics::default();
        let error = Full { limit: Limit::UnfinishedPerContext, max: 7 }.refusal(&metrics);
        assert_eq!(error.kind(), ErrorKind::TooManyRequests);
        let details: Vec<_> =
            error.details().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(details, [("limit", "unfinished_per_context"), ("max", "7"), ("retryAfterSeconds", "5")]);
        assert_eq!(error.retry_after(), Some(COME_AGAIN));
        assert_eq!(metrics.refused.of(Limit::UnfinishedPerContext).get(), 1);
    }
}
