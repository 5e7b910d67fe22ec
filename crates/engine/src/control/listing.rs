//! Lists of sessions: cut only after what is others' is left out, so that a caller finds all of its own.

use std::collections::{BTreeMap, HashMap};

use longshore_model::{
    ControlQuery, ControlResult, Error, Principal, Result, SessionId, SessionInfo, SessionQuery,
    SessionStatus,
};

use super::guard::{Guard, MAX_LEVELS};
use crate::port::{Known, MAX_OWNERS};

/// So many sessions are asked for at first, then so many times more each time, as long as the caller has not all that it wants:
/// most gateways have few sessions, and the agent makes the whole list for each.
const FIRST: u32 = 200;
const MORE: u32 = 5;

/// What is beyond so many is not looked at. It is old: the newest come first.
const MOST: u32 = 10_000;

/// So many sessions are looked up at the agent for one list, to see for whom they work. What is beyond is left out.
const MAX_FINDS: usize = 64;

impl Guard<'_> {
    /// The sessions that the caller may see, the newest first, as many as it wants.
    pub(super) async fn sessions(&self, at: &str, query: &SessionQuery) -> Result<Vec<SessionInfo>> {
        let wanted = query.limit as usize;
        let mut asked = if self.sees_all() { query.limit } else { query.limit.max(FIRST) };
        loop {
            let wide = ControlQuery::Sessions(SessionQuery { limit: asked, ..query.clone() });
            let ControlResult::Sessions(found) = self.control.look(at, None, &wide).await? else {
                return Err(Error::internal("the agent told of something else than its sessions"));
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

    /// What runs in the sessions that the caller may see.
    pub(super) async fn statuses(&self, at: &str) -> Result<Vec<SessionStatus>> {
        let ControlResult::Statuses(mut found) = self.control.look(at, None, &ControlQuery::Statuses).await?
        else {
            return Err(Error::internal("the agent told of something else than its sessions"));
        };
        found.sort_by(|one, other| one.session.cmp(&other.session));
        if self.sees_all() {
            return Ok(found);
        }
        let ids = found.iter().map(|status| status.session.clone()).collect();
        let mut families = Families::new(*self, self.owners(ids).await?, HashMap::new());
        let mut own = Vec::new();
        for status in found {
            if families.is_seen(&status.session).await? {
                own.push(status);
            }
        }
        Ok(own)
    }

    /// The sub-agents' sessions of one that the caller may see, but for those that somebody else took.
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
        let mut families = self.families(parents.collect()).await?;
        let mut seen = Vec::new();
        for session in found {
            if families.is_seen(&session.id).await? {
                seen.push(session);
            }
        }
        Ok(seen)
    }

    /// Of a list that says for whom each session works.
    pub(super) async fn families(
        &self,
        parents: HashMap<SessionId, Option<SessionId>>,
    ) -> Result<Families<'_>> {
        let ids = parents.iter().flat_map(|(id, parent)| parent.iter().chain([id])).cloned();
        let owners = self.owners(ids.collect()).await?;
        Ok(Families::new(*self, owners, parents))
    }

    async fn owners(&self, mut ids: Vec<SessionId>) -> Result<BTreeMap<SessionId, Principal>> {
        ids.sort_unstable();
        ids.dedup();
        let mut owners = BTreeMap::new();
        for some in ids.chunks(MAX_OWNERS) {
            owners.append(&mut self.around.store.owners(&self.caller.principal, some.to_vec()).await?);
        }
        Ok(owners)
    }
}

/// Whose the sessions of one list are, found out with few questions.
pub(super) struct Families<'a> {
    guard: Guard<'a>,
    owners: BTreeMap<SessionId, Principal>,
    /// What the list says: for whom each works.
    parents: HashMap<SessionId, Option<SessionId>>,
    /// What the agent said of those of which the list says nothing.
    found: HashMap<SessionId, Found>,
}

/// Whose a session is: its root's.
pub(super) enum Belongs {
    To(Principal),
    ToNobody {
        root: SessionId,
    },
    /// It was not found out.
    Unknown,
}

#[derive(Clone)]
enum Found {
    Here(Known),
    /// The agent has none of that name: what is below it works for nobody any more.
    Gone,
    /// There were too many to ask.
    NotAsked,
}

impl<'a> Families<'a> {
    fn new(
        guard: Guard<'a>,
        owners: BTreeMap<SessionId, Principal>,
        parents: HashMap<SessionId, Option<SessionId>>,
    ) -> Self {
        Self { guard, owners, parents, found: HashMap::new() }
    }

    async fn is_seen(&mut self, id: &SessionId) -> Result<bool> {
        Ok(match self.belongs(id).await? {
            Belongs::To(owner) => owner == self.guard.caller.principal,
            Belongs::ToNobody { .. } => self.guard.sees_nobodys(),
            // Of one of which it is not found out whose it is, nothing is shown.
            Belongs::Unknown => false,
        })
    }

    pub(super) async fn belongs(&mut self, id: &SessionId) -> Result<Belongs> {
        let mut top = id.clone();
        for _ in 0..=MAX_LEVELS {
            if let Some(owner) = self.owner_of(&top).await? {
                return Ok(Belongs::To(owner));
            }
            let parent = match self.parents.get(&top) {
                Some(parent) => parent.clone(),
                None => match self.find(&top).await? {
                    Found::Here(known) if known.is_open => known.parent,
                    Found::Gone => None,
                    Found::Here(_) | Found::NotAsked => return Ok(Belongs::Unknown),
                },
            };
            match parent {
                Some(parent) => top = parent,
                None => return Ok(Belongs::ToNobody { root: top }),
            }
        }
        Ok(Belongs::Unknown)
    }

    async fn owner_of(&mut self, id: &SessionId) -> Result<Option<Principal>> {
        // The store was asked for all that the list names.
        if self.parents.contains_key(id) || self.owners.contains_key(id) {
            return Ok(self.owners.get(id).cloned());
        }
        let caller = Some(&self.guard.caller.principal);
        let owned = self.guard.around.store.owner_of(caller, id).await?;
        Ok(owned.map(|owned| {
            self.owners.insert(id.clone(), owned.owner.clone());
            owned.owner
        }))
    }

    async fn find(&mut self, id: &SessionId) -> Result<Found> {
        if let Some(found) = self.found.get(id) {
            return Ok(found.clone());
        }
        if self.found.len() >= MAX_FINDS {
            return Ok(Found::NotAsked);
        }
        let found = self.guard.control.find(id).await?.map_or(Found::Gone, Found::Here);
        self.found.insert(id.clone(), found.clone());
        Ok(found)
    }
}
