//! Sessions of nobody's that somebody is about to take.
//!
//! A session becomes the caller's when what was asked of it has been done, and not before. Until then nobody else may begin
//! something there, for as long as the lease lasts: a call that hangs must not keep a session for ever. Whoever comes back after
//! the lease finds out in the store, which keeps the first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::{Error, ErrorKind, Principal, Result, SessionId};
use tokio::time::Instant;

use super::refusal;

/// So many sessions may be about to be taken. One more is refused.
const MAX_PENDING: usize = 1024;

/// When whoever is refused for that should come again.
const COME_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Claims {
    lease: Duration,
    pending: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_session: BTreeMap<SessionId, Lease>,
    next_serial: u64,
}

#[derive(Debug)]
struct Lease {
    owner: Principal,
    until: Instant,
    /// Tells it from one that came after it.
    serial: u64,
    /// Calls of the owner that hold it.
    holders: usize,
}

/// The right to take a session, until this is dropped or its lease is over.
#[derive(Debug)]
pub(crate) struct Pending {
    claims: Arc<Claims>,
    session: SessionId,
    serial: u64,
}

impl Claims {
    pub(crate) fn new(lease: Duration) -> Self {
        Self { lease, pending: Mutex::default() }
    }

    /// Keeps the session from others. Another call of the same owner is no other.
    pub(crate) fn begin(self: &Arc<Self>, owner: &Principal, session: &SessionId) -> Result<Pending> {
        let now = Instant::now();
        let mut table = self.lock();
        let serial = match table.by_session.get_mut(session) {
            Some(lease) if lease.owner == *owner => {
                lease.holders += 1;
                lease.until = now + self.lease;
                lease.serial
            }
            Some(lease) if lease.until > now => return Err(refusal::taken_by_another(session)),
            _ => {
                let is_new = !table.by_session.contains_key(session);
                if is_new && table.by_session.len() >= MAX_PENDING {
                    table.by_session.retain(|_, lease| lease.until > now);
                }
                if is_new && table.by_session.len() >= MAX_PENDING {
                    return Err(full());
                }
                let serial = table.next_serial;
                table.next_serial += 1;
                let lease = Lease { owner: owner.clone(), until: now + self.lease, serial, holders: 1 };
                table.by_session.insert(session.clone(), lease);
                serial
            }
        };
        Ok(Pending { claims: Arc::clone(self), session: session.clone(), serial })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut table = self.claims.lock();
        // After the lease it may be somebody else's.
        let Some(lease) = table.by_session.get_mut(&self.session) else { return };
        if lease.serial != self.serial {
            return;
        }
        lease.holders -= 1;
        if lease.holders == 0 {
            table.by_session.remove(&self.session);
        }
    }
}

fn full() -> Error {
    let text =
        "As many sessions as the gateway keeps track of are about to be taken by somebody; try again later.";
    Error::new(ErrorKind::TooManyRequests, text)
        .detail("limit", "pending_claims")
        .detail("max", MAX_PENDING.to_string())
        .after(COME_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn claims() -> Arc<Claims> {
        Arc::new(Claims::new(LEASE))
    }

    fn session(name: &str) -> SessionId {
        SessionId::parse(name).unwrap()
    }

    fn kind(result: Result<Pending>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_refused_within_the_lease_and_taken_after_it() {
        let (claims, alice, bob) = (claims(), Principal::new("alice"), Principal::new("bob"));
        let first = claims.begin(&alice, &session("s")).unwrap();
        tokio::time::advance(LEASE.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(kind(claims.begin(&bob, &session("s"))), Some(ErrorKind::SessionForbidden));
        assert_eq!(kind(claims.begin(&bob, &session("t"))), None, "another session is another matter");
        tokio::time::advance(Duration::from_millis(1)).await;
        let second = claims.begin(&bob, &session("s")).unwrap();
        // The late one gives back nothing that is not its own.
        drop(first);
        assert_eq!(kind(claims.begin(&alice, &session("s"))), Some(ErrorKind::SessionForbidden));
        drop(second);
        assert_eq!(kind(claims.begin(&alice, &session("s"))), None);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_one_owner_hold_it_together_and_each_makes_the_lease_anew() {
        let (claims, alice, bob) = (claims(), Principal::new("alice"), Principal::new("bob"));
        let first = claims.begin(&alice, &session("s")).unwrap();
        tokio::time::advance(LEASE / 2).await;
        let second = claims.begin(&alice, &session("s")).unwrap();
        drop(first);
        tokio::time::advance(LEASE.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(kind(claims.begin(&bob, &session("s"))), Some(ErrorKind::SessionForbidden));
        drop(second);
        assert_eq!(kind(claims.begin(&bob, &session("s"))), None);
        assert!(claims.lock().by_session.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_too_many_is_refused_until_some_are_over() {
        let (claims, alice) = (claims(), Principal::new("alice"));
        let held: Vec<_> = (0..MAX_PENDING)
            .map(|number| claims.begin(&alice, &session(&format!("s{number}"))).unwrap())
            .collect();
        assert_eq!(kind(claims.begin(&alice, &session("more"))), Some(ErrorKind::TooManyRequests));
        assert_eq!(kind(claims.begin(&alice, &session("s0"))), None, "it is held already");
        tokio::time::advance(LEASE).await;
        assert_eq!(kind(claims.begin(&alice, &session("more"))), None);
        drop(held);
        assert!(claims.lock().by_session.is_empty());
    }
}
