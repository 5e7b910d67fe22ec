//! Limits the bytes of request bodies that have not arrived completely, in total and per principal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_model::{Error, ErrorKind, Principal, Result};

use super::Limits;

/// Added to the size of each unfinished body, because its first bytes keep one of hyper's buffers in memory. The addition also
/// limits the number of unfinished bodies.
const OVERHEAD: usize = 16 * 1024;

/// When a refused caller should try again. Most bodies arrive completely within this time.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The bytes that unfinished bodies may hold.
#[derive(Debug)]
pub(crate) struct Bodies {
    most: usize,
    /// The limit for one principal: half of the total, so that slow bodies of one principal do not cause refusals for all others.
    most_each: usize,
    held: Mutex<Held>,
    metrics: Arc<Metrics>,
}

#[derive(Default, Debug)]
struct Held {
    all: usize,
    /// The bytes of each principal. Contains only principals with an unfinished body.
    each: HashMap<Principal, usize>,
}

/// The counted bytes of one unfinished body. Dropping it frees them.
#[derive(Debug)]
pub(crate) struct HeldBody {
    bodies: Arc<Bodies>,
    principal: Principal,
    bytes: usize,
}

impl Bodies {
    pub(crate) fn new(limits: &Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        let most = if limits.body_bytes == 0 { usize::MAX } else { limits.body_bytes };
        Arc::new(Self { most, most_each: most.div_ceil(2), held: Mutex::default(), metrics })
    }

    /// Starts to count a body. Not called for a body that arrives in one piece.
    pub(crate) fn begin(self: &Arc<Self>, principal: &Principal) -> HeldBody {
        HeldBody { bodies: Arc::clone(self), principal: principal.clone(), bytes: 0 }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldBody {
    /// Sets the number of bytes that have arrived. Fails if the body would then exceed a limit.
    pub(crate) fn grow_to(&mut self, arrived: usize) -> Result<()> {
        let Bodies { most, most_each, metrics, .. } = &*self.bodies;
        let bytes = arrived.saturating_add(OVERHEAD);
        let mut held = self.bodies.held();
        let more = bytes.saturating_sub(self.bytes);
        let own = held.each.get(&self.principal).copied().unwrap_or_default();
        if held.all.saturating_add(more) > *most || own.saturating_add(more) > *most_each {
            metrics.refused.of(Limit::BodyBytes).increment();
            return Err(Error::new(
                ErrorKind::TooManyRequests,
                "Too many request bodies are arriving. Try again later.",
            )
            .detail("limit", "body_bytes")
            .detail("max", most.to_string())
            .after(RETRY_AFTER));
        }
        held.all += more;
        match held.each.get_mut(&self.principal) {
            Some(own) => *own += more,
            None => drop(held.each.insert(self.principal.clone(), more)),
        }
        self.bytes += more;
        Ok(())
    }

    /// Frees everything that was counted so far.
    pub(crate) fn free(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = self.bodies.held();
        held.all -= self.bytes;
        if let Some(own) = held.each.get_mut(&self.principal) {
            *own -= self.bytes;
            if *own == 0 {
                held.each.remove(&self.principal);
            }
        }
        self.bytes = 0;
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_in_all_and_for_each_principal_and_are_freed() {
        let limits = Limits { body_bytes: 6 * OVERHEAD, ..Limits::default() };
        let bodies = Bodies::new(&limits, Arc::default());
        let (ada, bob, carl) = (Principal::new("ada"), Principal::new("bob"), Principal::new("carl"));
        let (mut first, mut second) = (bodies.begin(&ada), bodies.begin(&ada));
        first.grow_to(10).unwrap();
        first.grow_to(OVERHEAD).unwrap();
        let refused = second.grow_to(1).unwrap_err();
        assert_eq!((refused.kind(), refused.retry_after_seconds()), (ErrorKind::TooManyRequests, Some(5)));
        second.grow_to(0).unwrap();
        let mut of_bob = bodies.begin(&bob);
        of_bob.grow_to(2 * OVERHEAD).unwrap();
        let mut of_carl = bodies.begin(&carl);
        assert!(of_carl.grow_to(0).is_err(), "all together reach the limit");
        drop(second);
        of_carl.grow_to(0).unwrap();
        assert_eq!(bodies.metrics.refused.of(Limit::BodyBytes).get(), 2);
        drop((first, of_bob, of_carl));
        assert!(bodies.held().all == 0 && bodies.held().each.is_empty());
    }

    #[test]
    fn zero_is_no_limit() {
        let bodies = Bodies::new(&Limits { body_bytes: 0, ..Limits::default() }, Arc::default());
        let ada = Principal::new("ada");
        bodies.begin(&ada).grow_to(usize::MAX / 4).unwrap();
    }
}
