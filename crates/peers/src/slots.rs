//! The slots for calls that run: the calls of all tasks share them, and those of one principal get at most half.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_engine::RareLine;
use longshore_model::Principal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(crate) struct Slots {
    all: Arc<Semaphore>,
    /// The most that the calls of one principal may hold, so that they do not block all others.
    pub(crate) most_each: usize,
    /// Those of principals whose calls run or wait.
    each: Mutex<HashMap<Principal, Arc<Semaphore>>>,
    waits: RareLine,
}

/// Frees the slot on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Slots {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(most)),
            most_each: most.div_ceil(2),
            each: Mutex::default(),
            waits: RareLine::new(),
        }
    }

    pub(crate) fn try_take(&self, owner: &Principal) -> Option<Slot> {
        let own = self.of(owner).try_acquire_owned().ok()?;
        Some(Slot { _own: own, _of_all: Arc::clone(&self.all).try_acquire_owned().ok()? })
    }

    /// Waits for a slot. Calls of one principal wait for each other first, so that few of them wait beside those of others.
    pub(crate) async fn take(&self, owner: &Principal) -> Slot {
        if let Some(number) = self.waits.due() {
            tracing::warn!(
                principal = %owner,
                number,
                "calls of peers wait, because as many run as may at the same time, in all or of one principal"
            );
        }
        // Nobody closes them.
        let own = self.of(owner).acquire_owned().await.expect("the semaphore is open");
        let of_all = Arc::clone(&self.all).acquire_owned().await.expect("the semaphore is open");
        Slot { _own: own, _of_all: of_all }
    }

    fn of(&self, owner: &Principal) -> Arc<Semaphore> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever runs or waits holds one more reference.
        each.retain(|_, own| Arc::strong_count(own) > 1);
        let own = each.entry(owner.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.most_each)));
        Arc::clone(own)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_principal_gets_half_and_the_others_the_rest() {
        let (slots, ada, bob) = (Slots::new(4), Principal::new("ada"), Principal::new("bob"));
        let mut of_ada: Vec<Slot> = (0..2).filter_map(|_| slots.try_take(&ada)).collect();
        let mut next_of_ada = Box::pin(slots.take(&ada));
        assert!((&mut next_of_ada).now_or_never().is_none());
        let of_bob: Vec<Slot> = (0..3).filter_map(|_| slots.try_take(&bob)).collect();
        let carl = Principal::new("carl");
        assert_eq!((of_ada.len(), of_bob.len(), slots.try_take(&carl).is_none()), (2, 2, true));
        of_ada.pop();
        assert!(slots.try_take(&ada).is_none(), "the one that waits is first");
        of_ada.push(next_of_ada.await);
        drop((of_ada, of_bob));
        let _last = slots.try_take(&carl).unwrap();
        assert_eq!(slots.each.lock().unwrap().len(), 1, "who has no call is forgotten");
    }
}
