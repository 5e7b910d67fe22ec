//! Whose a session is, and who may do what in it: the one place that decides.

use longshore_meter::label::ClaimOutcome;
use longshore_model::{Principal, Result, SessionId};

use super::claims::Pending;
use super::{ControlCaller, refusal};
use crate::actor::Surroundings;
use crate::config::SessionGuard;
use crate::port::{Claim, Claimed, Control, Known, Owned, Session};

/// So far below its root may a session be that its owner is looked for. Sub-agents of OpenCode call no others so deep.
pub(crate) const MAX_LEVELS: usize = 8;

/// What is wanted of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Intent {
    Look,
    Change,
    /// A turn.
    Order,
}

/// A session that the caller may use as it wants to.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) session: Session,
    /// It is nobody's, and the caller's when what it wants is done.
    pub(crate) taking: Option<Taking>,
    /// What the agent says of it, if it had to be asked.
    pub(crate) known: Option<Known>,
}

/// A session that is about to become somebody's. Dropped without a word it stays nobody's.
#[derive(Debug)]
pub(crate) struct Taking {
    /// The root: a sub-agent's session is that of the one for which it works.
    session: Session,
    owner: Principal,
    /// Whoever else took it meanwhile may as well.
    is_shared: bool,
    _pending: Option<Pending>,
}

/// What became of an attempt to keep a session of nobody's from others.
#[derive(Debug)]
pub(super) enum Reserved {
    /// It has become the caller's meanwhile.
    Yours,
    /// Where everybody may change it, nobody is kept from it.
    Free(Option<Pending>),
}

impl Reserved {
    pub(super) fn pending(self) -> Option<Pending> {
        match self {
            Self::Yours => None,
            Self::Free(pending) => pending,
        }
    }
}

/// Whose a session is.
#[derive(Debug)]
struct Belonging {
    session: Session,
    /// `None`: nobody's.
    owner: Option<Principal>,
    /// The session that would be taken.
    root: Session,
    known: Option<Known>,
}

#[derive(Clone, Copy)]
pub(super) struct Guard<'a> {
    pub(super) around: &'a Surroundings,
    pub(super) control: &'a dyn Control,
    pub(super) caller: &'a ControlCaller,
}

impl Guard<'_> {
    /// Refuses what the caller may not do. Nothing is asked of the agent about a session that is known to be somebody's.
    pub(super) async fn admit(&self, id: &SessionId, intent: Intent) -> Result<Entry> {
        let Belonging { session, owner, root, known } = self.belonging(id).await?;
        let mode = self.around.config.control.session_guard;
        let taking = match owner {
            Some(owner) if owner == self.caller.principal => None,
            Some(_) => {
                match (intent, mode) {
                    (Intent::Look, SessionGuard::SharedReads | SessionGuard::Shared)
                    | (Intent::Change, SessionGuard::Shared) => {}
                    (Intent::Order, SessionGuard::Shared) => return Err(refusal::anothers_for_turns(id)),
                    _ => return Err(refusal::anothers(id)),
                }
                None
            }
            None if intent == Intent::Look => {
                if !self.sees_nobodys() {
                    return Err(refusal::nobodys(id));
                }
                None
            }
            None => self.take(id, root).await?,
        };
        Ok(Entry { session, taking, known })
    }

    /// Whether the caller may look at sessions of nobody's.
    pub(super) fn sees_nobodys(&self) -> bool {
        self.caller.may_claim || self.sees_all()
    }

    /// Whether the caller may look at everybody's sessions.
    pub(super) fn sees_all(&self) -> bool {
        self.around.config.control.session_guard != SessionGuard::Owner
    }

    /// Whether the caller may change everybody's sessions.
    pub(super) fn changes_all(&self) -> bool {
        self.around.config.control.session_guard == SessionGuard::Shared
    }

    /// `None`: it has become the caller's meanwhile.
    async fn take(&self, id: &SessionId, root: Session) -> Result<Option<Taking>> {
        let (owner, is_shared) = (self.caller.principal.clone(), self.changes_all());
        Ok(match self.reserve(id, &root.id).await? {
            Reserved::Yours => None,
            Reserved::Free(pending) => Some(Taking { session: root, owner, is_shared, _pending: pending }),
        })
    }

    /// Keeps a session that is nobody's from others, for one who may take it.
    pub(super) async fn reserve(&self, id: &SessionId, root: &SessionId) -> Result<Reserved> {
        let is_shared = self.changes_all();
        if !self.caller.may_claim && !is_shared {
            return Err(refusal::nobodys(id));
        }
        if is_shared {
            return Ok(Reserved::Free(None));
        }
        let owner = &self.caller.principal;
        let pending = self.around.claims.begin(owner, root);
        // To find out that it is nobody's took a while. Whoever took it in between told the store before it let others at it.
        let pending = match (self.owner_of(root).await?, pending) {
            (Some(taken), _) if taken.owner == *owner => return Ok(Reserved::Yours),
            (Some(_), Ok(_)) => Err(refusal::lost_before(id)),
            (_, pending) => pending,
        };
        let refused = &self.around.metrics.session_claims;
        let pending = pending.inspect_err(|_| refused.of(ClaimOutcome::Refused).increment())?;
        Ok(Reserved::Free(Some(pending)))
    }

    async fn belonging(&self, id: &SessionId) -> Result<Belonging> {
        if let Some(Owned { owner, session }) = self.owner_of(id).await? {
            return Ok(Belonging { root: session.clone(), session, owner: Some(owner), known: None });
        }
        let known = self.control.find(id).await?.ok_or_else(|| refusal::not_found(id))?;
        self.of_unowned(known).await
    }

    /// Whose a session is that has no owner of its own: its root's.
    async fn of_unowned(&self, known: Known) -> Result<Belonging> {
        let (session, mut top) = (known.session.clone(), known.clone());
        for _ in 0..=MAX_LEVELS {
            if !top.is_open {
                return Err(refusal::out_of_bounds(&session.id));
            }
            let above = match &top.parent {
                Some(parent) => {
                    if let Some(Owned { owner, session: root }) = self.owner_of(parent).await? {
                        return Ok(Belonging { session, owner: Some(owner), root, known: Some(known) });
                    }
                    self.control.find(parent).await?
                }
                None => None,
            };
            match above {
                Some(above) => top = above,
                None => {
                    return Ok(Belonging { session, owner: None, root: top.session, known: Some(known) });
                }
            }
        }
        Err(refusal::too_deep(&session.id))
    }

    async fn owner_of(&self, id: &SessionId) -> Result<Option<Owned>> {
        self.around.store.owner_of(Some(&self.caller.principal), id).await
    }
}

impl Taking {
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The store made the session the caller's with the task that it made.
    pub(crate) fn settled_with_task(self, around: &Surroundings) {
        around.metrics.session_claims.of(ClaimOutcome::Taken).increment();
        self.watch(around);
    }

    fn watch(self, around: &Surroundings) {
        if let Some(control) = &around.control {
            control.watch(vec![self.session]);
        }
    }

    /// What was wanted is done: the session is the caller's from now on.
    pub(crate) async fn settle(self, around: &Surroundings) -> Result<()> {
        let claim =
            Claim { owner: self.owner.clone(), session: self.session.clone(), at: around.clock.now() };
        let claimed = around.store.claim(claim).await?;
        let outcome = match claimed {
            Claimed::Now | Claimed::Yours => ClaimOutcome::Taken,
            Claimed::Others => ClaimOutcome::Lost,
        };
        around.metrics.session_claims.of(outcome).increment();
        match claimed {
            Claimed::Now => {
                self.watch(around);
                Ok(())
            }
            Claimed::Yours => Ok(()),
            Claimed::Others if self.is_shared => Ok(()),
            Claimed::Others => Err(refusal::lost_to_another(&self.session.id)),
        }
    }
}
