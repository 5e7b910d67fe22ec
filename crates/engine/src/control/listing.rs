//! Lists sessions. Sessions of other callers are removed before a list is cut to its limit, so that the limit never hides a
//! caller's own sessions behind those of others.

use std::collections::{BTreeMap, HashMap};

use longshore_model::{
    ControlQuery, ControlResult, Error, Principal, Result, SessionId, SessionInfo, SessionQuery,
    SessionStatus,
};

use super::guard::{Guard, MAX_LEVELS};
use crate::port::{KnownSession, MAX_OWNERS};

/// How many sessions the first request asks the agent for, and the factor by which later requests ask for more while the
/// caller has too few. Most gateways have few sessions, and the agent builds the whole list for each request.
const FIRST: u32 = 200;
const MORE: u32 = 5;

/// The most sessions that a request asks for. The newest come first, so only old sessions are missing.
const MOST: u32 = 10_000;

/// How many sessions are looked up at the agent for one list, to find their parents. If the list needs more, sessions with an
/// undetermined owner are left out.
const MAX_FINDS: usize = 64;

impl Guard<'_> {
    /// The sessions that the caller may see, the newest first, up to the requested number.
    pub(super) async fn sessions(&self, at: &str, query: &SessionQuery) -> Result<Vec<SessionInfo>> {
        let wanted = query.limit as usize;
        let mut asked = if self.sees_all() { query.limit } else { query.limit.max(FIRST) };
        loop {
            let wide = ControlQuery::Sessions(SessionQuery { limit: asked, ..query.clone() });
            let ControlResult::Sessions(found) = self.control.query(at, None, &wide).await? else {
                return Err(Error::internal("the agent returned something else than its sessions"));
            };
            let is_all = found.len() < asked as usize;
            let mut own = self.seen(found).await?;
            if own.len() >= wanted || is_all || asked >= MOST || self.sees_all() {
                own.truncate(wanted);
                return Ok(own);
            }
            asked = asked.saturating_mul(MORE).min(MOST);
        }
    }

    /// The status of the sessions that the caller may see.
    pub(super) async fn statuses(&self, at: &str) -> Result<Vec<SessionStatus>> {
        let ControlResult::Statuses(mut found) =
            self.control.query(at, None, &ControlQuery::Statuses).await?
        else {
            return Err(Error::internal("the agent returned something else than the status of its sessions"));
        };
        found.sort_by(|one, other| one.session.cmp(&other.session));
        if self.sees_all() {
            return Ok(found);
        }
        let ids = found.iter().map(|status| status.session.clone()).collect();
        let mut session_tree = SessionTree::new(*self, self.owners(ids).await?, HashMap::new());
        let mut own = Vec::new();
        for status in found {
            if session_tree.is_seen(&status.session).await? {
                own.push(status);
            }
        }
        Ok(own)
    }

    /// The child sessions that the caller may see. Leaves out those that another caller claimed.
    pub(super) async fn children(&self, found: Vec<SessionInfo>) -> Result<Vec<SessionInfo>> {
        if self.sees_all() {
            return Ok(found);
        }
        let owners = self.owners(found.iter().map(|session| session.id.clone()).collect()).await?;
        let is_others = |id: &SessionId| owners.get(id).is_some_and(|owner| *owner != self.caller.principal);
        Ok(found.into_iter().filter(|session| !is_others(&session.id)).collect())
    }

    async fn seen(&self, found: Vec<SessionInfo>) -> Result<Vec<SessionInfo>> {
        if self.sees_all() {
            return Ok(found);
        }
        let parents = found.iter().map(|session| (session.id.clone(), session.parent.clone()));
        let mut session_tree = self.session_tree(parents.collect()).await?;
        let mut seen = Vec::new();
        for session in found {
            if session_tree.is_seen(&session.id).await? {
                seen.push(session);
            }
        }
        Ok(seen)
    }

    /// Prepares the lookup of owners for a list of sessions that names the parent of each.
    pub(super) async fn session_tree(
        &self,
        parents: HashMap<SessionId, Option<SessionId>>,
    ) -> Result<SessionTree<'_>> {
        let ids = parents.iter().flat_map(|(id, parent)| parent.iter().chain([id])).cloned();
        let owners = self.owners(ids.collect()).await?;
        Ok(SessionTree::new(*self, owners, parents))
    }

    async fn owners(&self, mut ids: Vec<SessionId>) -> Result<BTreeMap<SessionId, Principal>> {
        ids.sort_unstable();
        ids.dedup();
        let mut owners = BTreeMap::new();
        for some in ids.chunks(MAX_OWNERS) {
            owners.append(&mut self.ctx.ports.store.owners(&self.caller.principal, some.to_vec()).await?);
        }
        Ok(owners)
    }
}

/// Finds the owners of all sessions in one list with few queries.
pub(super) struct SessionTree<'a> {
    guard: Guard<'a>,
    owners: BTreeMap<SessionId, Principal>,
    /// The parent of each session, from the list.
    parents: HashMap<SessionId, Option<SessionId>>,
    /// The agent's answers about sessions that are not in the list.
    found: HashMap<SessionId, Lookup>,
}

/// The owner of a session, which is the owner of its root session.
pub(super) enum Owner {
    Principal(Principal),
    Unowned {
        root: SessionId,
    },
    /// The owner could not be determined.
    Unknown,
}

#[derive(Clone)]
enum Lookup {
    Here(KnownSession),
    /// The agent has no such session, so its children no longer have a parent.
    Gone,
    /// The limit of lookups was reached before this session was looked up.
    TooMany,
}

impl<'a> SessionTree<'a> {
    fn new(
        guard: Guard<'a>,
        owners: BTreeMap<SessionId, Principal>,
        parents: HashMap<SessionId, Option<SessionId>>,
    ) -> Self {
        Self { guard, owners, parents, found: HashMap::new() }
    }

    async fn is_seen(&mut self, id: &SessionId) -> Result<bool> {
        Ok(match self.owner(id).await? {
            Owner::Principal(owner) => owner == self.guard.caller.principal,
            Owner::Unowned { .. } => self.guard.sees_unowned(),
            // The caller does not see a session whose owner is unknown.
            Owner::Unknown => false,
        })
    }

    pub(super) async fn owner(&mut self, id: &SessionId) -> Result<Owner> {
        let mut top = id.clone();
        for _ in 0..=MAX_LEVELS {
            if let Some(owner) = self.owner_of(&top).await? {
                return Ok(Owner::Principal(owner));
            }
            let parent = match self.parents.get(&top) {
                Some(parent) => parent.clone(),
                None => match self.find(&top).await? {
                    Lookup::Here(known) if known.is_open => known.parent,
                    Lookup::Gone => None,
                    Lookup::Here(_) | Lookup::TooMany => return Ok(Owner::Unknown),
                },
            };
            match parent {
                Some(parent) => top = parent,
                None => return Ok(Owner::Unowned { root: top }),
            }
        }
        Ok(Owner::Unknown)
    }

    async fn owner_of(&mut self, id: &SessionId) -> Result<Option<Principal>> {
        // The store has already been queried for all sessions of the list.
        if self.parents.contains_key(id) || self.owners.contains_key(id) {
            return Ok(self.owners.get(id).cloned());
        }
        let caller = Some(&self.guard.caller.principal);
        let owned = self.guard.ctx.ports.store.owner_of(caller, id).await?;
        Ok(owned.map(|owned| {
            self.owners.insert(id.clone(), owned.owner.clone());
            owned.owner
        }))
    }

    async fn find(&mut self, id: &SessionId) -> Result<Lookup> {
        if let Some(found) = self.found.get(id) {
            return Ok(found.clone());
        }
        if self.found.len() >= MAX_FINDS {
            return Ok(Lookup::TooMany);
        }
        let found = self.guard.control.find(id).await?.map_or(Lookup::Gone, Lookup::Here);
        self.found.insert(id.clone(), found.clone());
        Ok(found)
    }
}
