//! Who owns a session, and who may do what in it: all such decisions are made here.

use longshore_meter::label::ClaimOutcome;
use longshore_model::{Principal, Result, SessionId};

use super::ControlCaller;
use crate::claims::Reservation;
use crate::config::SessionGuard;
use crate::control_errors;
use crate::engine_context::EngineContext;
use crate::port::{Claim, Claimed, Control, KnownSession, OwnedSession, Session};

/// How many levels of parent sessions are searched for the owner of a session. Sub-agents are not nested more deeply.
pub(crate) const MAX_LEVELS: usize = 8;

/// The use of a session that the caller intends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Intent {
    Read,
    Change,
    /// Start a turn.
    StartTurn,
    /// Delete the session. Only the owner may do that, even if sessions are shared.
    Delete,
}

/// A session that the caller may use as requested.
#[derive(Debug)]
pub(crate) struct AdmittedSession {
    pub(crate) session: Session,
    /// The claim of an unowned session, which is completed when the call is done. `None`: no claim is needed.
    pub(crate) pending_claim: Option<PendingClaim>,
    /// The agent's facts about the session. `None`: the agent was not queried.
    pub(crate) known: Option<KnownSession>,
}

impl AdmittedSession {
    /// The agent's facts about the session. Queries the agent on the first call only.
    pub(super) async fn known(&mut self, control: &dyn Control) -> Result<&KnownSession> {
        let id = &self.session.id;
        let known = match self.known.take() {
            Some(known) => known,
            None => control.find(id).await?.ok_or_else(|| control_errors::not_found(id))?,
        };
        Ok(self.known.insert(known))
    }
}

/// A session that is about to get an owner. If this is dropped without `settle`, the session stays unowned.
#[derive(Debug)]
pub(crate) struct PendingClaim {
    /// The root session. Its owner also owns the sessions of its sub-agents.
    session: Session,
    owner: Principal,
    /// Whether the call succeeds even if another caller claimed the session meanwhile.
    is_shared: bool,
    _reservation: Option<Reservation>,
}

/// The result of an attempt to reserve an unowned session.
#[derive(Debug)]
pub(super) enum ReserveResult {
    /// The caller has become the owner since the first check.
    Yours,
    /// The session is unowned. `None`: no reservation is needed, because every caller may change the session.
    Free(Option<Reservation>),
}

impl ReserveResult {
    pub(super) fn reservation(self) -> Option<Reservation> {
        match self {
            Self::Yours => None,
            Self::Free(reservation) => reservation,
        }
    }
}

/// A session and its owner.
#[derive(Debug)]
struct SessionOwner {
    session: Session,
    /// The owner of the session. `None`: the session is unowned.
    owner: Option<Principal>,
    /// The root of the session. A claim makes the caller the owner of this session.
    root: Session,
    known: Option<KnownSession>,
}

#[derive(Clone, Copy)]
pub(super) struct Guard<'a> {
    pub(super) ctx: &'a EngineContext,
    pub(super) control: &'a dyn Control,
    pub(super) caller: &'a ControlCaller,
}

impl Guard<'_> {
    /// Checks whether the session guard allows the caller's intent. Queries the agent only if the store knows no owner of the
    /// session.
    pub(super) async fn admit(&self, id: &SessionId, intent: Intent) -> Result<AdmittedSession> {
        let SessionOwner { session, owner, root, known } = self.owner_of_tree(id).await?;
        let mode = self.ctx.config.control.session_guard;
        let pending_claim = match owner {
            Some(owner) if owner == self.caller.principal => None,
            Some(_) => {
                match (intent, mode) {
                    (Intent::Read, SessionGuard::SharedReads | SessionGuard::Shared)
                    | (Intent::Change, SessionGuard::Shared) => {}
                    (Intent::StartTurn, SessionGuard::Shared) => {
                        return Err(control_errors::shared_without_turns(id));
                    }
                    _ => return Err(control_errors::owned_by_another(id)),
                }
                None
            }
            None if intent == Intent::Read => {
                if !self.sees_unowned() {
                    return Err(control_errors::unowned(id));
                }
                None
            }
            None => self.begin_claim(id, root).await?,
        };
        Ok(AdmittedSession { session, pending_claim, known })
    }

    /// Whether the caller may read unowned sessions.
    pub(super) fn sees_unowned(&self) -> bool {
        self.caller.may_claim || self.sees_all()
    }

    /// Whether the caller may read the sessions of all callers.
    pub(super) fn sees_all(&self) -> bool {
        self.ctx.config.control.session_guard != SessionGuard::Owner
    }

    /// Whether the caller may change the sessions of all callers.
    pub(super) fn changes_all(&self) -> bool {
        self.ctx.config.control.session_guard == SessionGuard::Shared
    }

    /// Reserves the session for a claim. `None`: the caller has become the owner since the first check.
    async fn begin_claim(&self, id: &SessionId, root: Session) -> Result<Option<PendingClaim>> {
        let (owner, is_shared) = (self.caller.principal.clone(), self.changes_all());
        Ok(match self.reserve(id, &root.id).await? {
            ReserveResult::Yours => None,
            ReserveResult::Free(reservation) => {
                Some(PendingClaim { session: root, owner, is_shared, _reservation: reservation })
            }
        })
    }

    /// Reserves an unowned session for a caller who may claim it.
    pub(super) async fn reserve(&self, id: &SessionId, root: &SessionId) -> Result<ReserveResult> {
        let is_shared = self.changes_all();
        if !self.caller.may_claim && !is_shared {
            return Err(control_errors::unowned(id));
        }
        if is_shared {
            return Ok(ReserveResult::Free(None));
        }
        let owner = &self.caller.principal;
        let reservation = self.ctx.control_state.claims.begin(owner, root);
        // Checks the owner again, because another caller may have claimed the session since the first check. A claim is in
        // the store before its reservation is released, so this check finds every claim.
        let reservation = match (self.owner_of(root).await?, reservation) {
            (Some(taken), _) if taken.owner == *owner => return Ok(ReserveResult::Yours),
            (Some(_), Ok(_)) => Err(control_errors::lost_before(id)),
            (_, reservation) => reservation,
        };
        let refused = &self.ctx.metrics.session_claims;
        let reservation = reservation.inspect_err(|_| refused.of(ClaimOutcome::Refused).increment())?;
        Ok(ReserveResult::Free(Some(reservation)))
    }

    async fn owner_of_tree(&self, id: &SessionId) -> Result<SessionOwner> {
        if let Some(OwnedSession { owner, session }) = self.owner_of(id).await? {
            return Ok(SessionOwner { root: session.clone(), session, owner: Some(owner), known: None });
        }
        let known = self.control.find(id).await?.ok_or_else(|| control_errors::not_found(id))?;
        self.root_owner(known).await
    }

    /// The owner of the root session, for a session that has no owner of its own.
    async fn root_owner(&self, known: KnownSession) -> Result<SessionOwner> {
        let (session, mut top) = (known.session.clone(), known.clone());
        for _ in 0..=MAX_LEVELS {
            if !top.is_open {
                return Err(control_errors::out_of_bounds(&session.id));
            }
            let above = match &top.parent {
                Some(parent) => {
                    if let Some(OwnedSession { owner, session: root }) = self.owner_of(parent).await? {
                        return Ok(SessionOwner { session, owner: Some(owner), root, known: Some(known) });
                    }
                    self.control.find(parent).await?
                }
                None => None,
            };
            match above {
                Some(above) => top = above,
                None => {
                    return Ok(SessionOwner { session, owner: None, root: top.session, known: Some(known) });
                }
            }
        }
        Err(control_errors::too_deep(&session.id))
    }

    async fn owner_of(&self, id: &SessionId) -> Result<Option<OwnedSession>> {
        self.ctx.ports.store.owner_of(Some(&self.caller.principal), id).await
    }
}

impl PendingClaim {
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Completes a claim that the store made when it created the task: only counts the claim, and watches the session.
    pub(crate) fn settled_with_task(self, ctx: &EngineContext) {
        ctx.metrics.session_claims.of(ClaimOutcome::Taken).increment();
        self.watch(ctx);
    }

    fn watch(self, ctx: &EngineContext) {
        ctx.ports.watch(vec![self.session]);
    }

    /// Makes the caller the owner of the session, after its call has succeeded.
    pub(crate) async fn settle(self, ctx: &EngineContext) -> Result<()> {
        let claim =
            Claim { owner: self.owner.clone(), session: self.session.clone(), at: ctx.ports.clock.now() };
        let claimed = ctx.ports.store.claim(claim).await?;
        let outcome = match claimed {
            Claimed::Now | Claimed::Yours => ClaimOutcome::Taken,
            Claimed::Others => ClaimOutcome::Lost,
        };
        ctx.metrics.session_claims.of(outcome).increment();
        match claimed {
            Claimed::Now => {
                self.watch(ctx);
                Ok(())
            }
            Claimed::Yours => Ok(()),
            Claimed::Others if self.is_shared => Ok(()),
            Claimed::Others => Err(control_errors::lost_to_another(&self.session.id)),
        }
    }
}
