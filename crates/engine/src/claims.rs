//! Unowned sessions that a caller is about to claim.
//!
//! A caller becomes the owner of a session only when its call has succeeded. Until then a reservation keeps other callers
//! from starting anything in that session. The reservation has a lease, because a call that hangs must not reserve a session
//! for ever. A call may end after its lease; the store, which keeps the first owner, then says whether another caller was
//! faster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::{Error, ErrorKind, Principal, Result, SessionId};
use tokio::time::Instant;

use crate::control_errors;

/// How many sessions may be reserved at once. Further reservations are refused.
const MAX_PENDING: usize = 1024;

/// When a caller that was refused because of [`MAX_PENDING`] should try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

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
    /// Distinguishes this lease from a later one of the same session.
    serial: u64,
    /// How many calls of the owner hold the lease.
    holders: usize,
}

/// The right to claim a session. Ends when this value is dropped or its lease expires.
#[derive(Debug)]
pub(crate) struct Reservation {
    claims: Arc<Claims>,
    session: SessionId,
    serial: u64,
}

impl Claims {
    pub(crate) fn new(lease: Duration) -> Self {
        Self { lease, pending: Mutex::default() }
    }

    /// Reserves the session. Several calls of the same owner share the reservation.
    pub(crate) fn begin(self: &Arc<Self>, owner: &Principal, session: &SessionId) -> Result<Reservation> {
        let now = Instant::now();
        let mut table = self.lock();
        let serial = match table.by_session.get_mut(session) {
            Some(lease) if lease.owner == *owner => {
                lease.holders += 1;
                lease.until = now + self.lease;
                lease.serial
            }
            Some(lease) if lease.until > now => return Err(control_errors::reserved_by_another(session)),
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
        Ok(Reservation { claims: Arc::clone(self), session: session.clone(), serial })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.claims.lock();
        // The lease may have expired, and another owner may have reserved the session since.
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
        "As many sessions as the gateway keeps track of are being claimed at the moment; try again later.";
    Error::new(ErrorKind::TooManyRequests, text)
        .detail("limit", "pending_claims")
        .detail("max", MAX_PENDING.to_string())
        .after(RETRY_AFTER)
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

    fn kind(result: Result<Reservation>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn other_owners_are_refused_during_the_lease_and_accepted_after_it() {
        let (claims, alice, bob) = (claims(), Principal::new("alice"), Principal::new("bob"));
        let first = claims.begin(&alice, &session("s")).unwrap();
        tokio::time::advance(LEASE.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(kind(claims.begin(&bob, &session("s"))), Some(ErrorKind::SessionForbidden));
        assert_eq!(kind(claims.begin(&bob, &session("t"))), None, "another session is free");
        tokio::time::advance(Duration::from_millis(1)).await;
        let second = claims.begin(&bob, &session("s")).unwrap();
        // Dropping a reservation after its lease must not release the reservation of another owner.
        drop(first);
        assert_eq!(kind(claims.begin(&alice, &session("s"))), Some(ErrorKind::SessionForbidden));
        drop(second);
        assert_eq!(kind(claims.begin(&alice, &session("s"))), None);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_one_owner_share_the_lease_and_each_renews_it() {
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
    async fn one_too_many_is_refused_until_leases_end() {
        let (claims, alice) = (claims(), Principal::new("alice"));
        let held: Vec<_> = (0..MAX_PENDING)
            .map(|number| claims.begin(&alice, &session(&format!("s{number}"))).unwrap())
            .collect();
        assert_eq!(kind(claims.begin(&alice, &session("more"))), Some(ErrorKind::TooManyRequests));
        assert_eq!(kind(claims.begin(&alice, &session("s0"))), None, "the owner holds this one already");
        tokio::time::advance(LEASE).await;
        assert_eq!(kind(claims.begin(&alice, &session("more"))), None);
        drop(held);
        assert!(claims.lock().by_session.is_empty());
    }
}
