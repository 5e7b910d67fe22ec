//! The directories of contexts, the sessions that they are bound to, and the owners of sessions.

use std::collections::BTreeMap;

use longshore_engine::port::{
    Binding, Bound, Claim, Claimed, ContextLocation, MAX_CONTEXTS, OwnedSession, Session,
};
use longshore_model::{ContextId, Principal, SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, named_params};

use super::fault::{Outcome, damaged};
use super::record::NewTask;
use crate::rules::{self, Placement};

pub(super) fn location(db: &Connection, owner: &Principal, context: &ContextId) -> Outcome<ContextLocation> {
    let directory = db
        .prepare_cached("SELECT directory FROM contexts WHERE owner = :owner AND context = :context")?
        .query_row(named_params! { ":owner": owner.as_str(), ":context": context.as_str() }, |row| row.get(0))
        .optional()?;
    Ok(ContextLocation { directory, bound: binding(db, owner, context)? })
}

/// The session that the context is bound to.
fn binding(db: &Connection, owner: &Principal, context: &ContextId) -> Outcome<Option<Bound>> {
    let mut statement = db.prepare_cached(
        "SELECT session, directory, named FROM bindings WHERE owner = :owner AND context = :context",
    )?;
    let mut rows =
        statement.query(named_params! { ":owner": owner.as_str(), ":context": context.as_str() })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let id = SessionId::parse(row.get_ref(0)?.as_str()?)
        .map_err(|cause| damaged(&format!("binding of context {context}"), cause))?;
    Ok(Some(Bound { session: Session { id, directory: row.get(1)? }, named: row.get(2)? }))
}

/// Binds a context, unless another binding is in force. Returns the binding that is in force afterwards.
pub(super) fn bind(db: &Connection, binding: &Binding) -> Outcome<Bound> {
    let Binding { owner, context, session, replaces, at } = binding;
    let bound = self::binding(db, owner, context)?;
    if let Some(existing) = rules::conflicting_binding(bound, replaces.as_ref()) {
        return Ok(existing);
    }
    if find_session(db, &session.id)?.is_some_and(|known| known.owner != *owner) {
        return Err(rules::foreign_session(&session.id).into());
    }
    put_session(db, owner, session, *at)?;
    let bound = Bound { session: session.clone(), named: false };
    put_binding(db, owner, context, &bound, *at)?;
    Ok(bound)
}

/// Writes the placement of a new task.
pub(super) fn put_placement(db: &Connection, new: &NewTask, placement: &Placement) -> Outcome<()> {
    let NewTask { owner, context, at, .. } = new;
    if let Some(session) = &placement.claim {
        put_session(db, owner, session, *at)?;
    }
    if let Some(bound) = &placement.binding {
        put_binding(db, owner, context, bound, *at)?;
    }
    if let Some(directory) = &placement.directory {
        db.prepare_cached(
            "INSERT INTO contexts (owner, context, directory, at) VALUES (:owner, :context, :directory, :at)",
        )?
        .execute(named_params! {
            ":owner": owner.as_str(),
            ":context": context.as_str(),
            ":directory": directory,
            ":at": at.0,
        })?;
    }
    Ok(())
}

/// A session and its owner. `None`: the session is unowned.
pub(super) fn find_session(db: &Connection, session: &SessionId) -> Outcome<Option<OwnedSession>> {
    let mut statement = db.prepare_cached("SELECT owner, directory FROM sessions WHERE id = :id")?;
    let mut rows = statement.query(named_params! { ":id": session.as_str() })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let owner = Principal::new(row.get_ref(0)?.as_str()?);
    Ok(Some(OwnedSession { owner, session: Session { id: session.clone(), directory: row.get(1)? } }))
}

/// The session, if `owner` owns it.
pub(super) fn session_of(db: &Connection, owner: &Principal, id: &SessionId) -> Outcome<Option<Session>> {
    Ok(find_session(db, id)?.filter(|known| known.owner == *owner).map(|known| known.session))
}

/// The owners of these sessions. Unowned sessions are left out.
pub(super) fn owners(db: &Connection, ids: Vec<SessionId>) -> Outcome<BTreeMap<SessionId, Principal>> {
    let mut statement = db.prepare_cached("SELECT owner FROM sessions WHERE id = ?")?;
    let mut owners = BTreeMap::new();
    for id in ids {
        let mut rows = statement.query([id.as_str()])?;
        if let Some(row) = rows.next()? {
            let owner = Principal::new(row.get_ref(0)?.as_str()?);
            owners.insert(id, owner);
        }
    }
    Ok(owners)
}

/// Makes `owner` the owner of an unowned session.
pub(super) fn claim(db: &Connection, claim: &Claim) -> Outcome<Claimed> {
    let Claim { owner, session, at } = claim;
    let claimed = rules::claim(owner, find_session(db, &session.id)?.as_ref());
    if claimed == Claimed::Now {
        put_session(db, owner, session, *at)?;
    }
    Ok(claimed)
}

pub(super) const CONTEXTS_OF_SESSION: &str = "SELECT context FROM bindings
     WHERE session = :session AND owner = :owner ORDER BY at DESC, context DESC LIMIT :limit";

/// The contexts that are bound to a session, latest binding first.
pub(super) fn contexts_of_session(
    db: &Connection,
    owner: &Principal,
    session: &SessionId,
) -> Outcome<Vec<ContextId>> {
    let limit = i64::try_from(MAX_CONTEXTS).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(CONTEXTS_OF_SESSION)?;
    let mut rows = statement.query(named_params! {
        ":session": session.as_str(),
        ":owner": owner.as_str(),
        ":limit": limit,
    })?;
    let mut contexts = Vec::new();
    while let Some(row) = rows.next()? {
        let context = ContextId::parse(row.get_ref(0)?.as_str()?);
        contexts.push(context.map_err(|cause| damaged(&format!("binding to session {session}"), cause))?);
    }
    Ok(contexts)
}

pub(super) const SESSIONS_USED_SINCE: &str =
    "SELECT id, directory FROM sessions WHERE at >= :since ORDER BY at DESC, id DESC LIMIT :limit";

/// The sessions that were used at `since` or later, newest first.
pub(super) fn sessions_used_since(db: &Connection, since: Timestamp, limit: usize) -> Outcome<Vec<Session>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(SESSIONS_USED_SINCE)?;
    let mut rows = statement.query(named_params! { ":since": since.0, ":limit": limit })?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        let id = SessionId::parse(row.get_ref(0)?.as_str()?).map_err(|cause| damaged("a session", cause))?;
        sessions.push(Session { id, directory: row.get(1)? });
    }
    Ok(sessions)
}

/// Updates the time of the session's last use, if it has an owner.
pub(super) fn note_use(db: &Connection, session: &SessionId, at: Timestamp) -> Outcome<()> {
    db.prepare_cached("UPDATE sessions SET at = :at WHERE id = :id AND at < :at")?
        .execute(named_params! { ":id": session.as_str(), ":at": at.0 })?;
    Ok(())
}

/// Records the owner and the directory of a session. The session must be unowned or belong to this owner.
fn put_session(db: &Connection, owner: &Principal, session: &Session, at: Timestamp) -> Outcome<()> {
    db.prepare_cached(
        "INSERT INTO sessions (id, owner, directory, at) VALUES (:id, :owner, :directory, :at)
         ON CONFLICT (id) DO UPDATE SET directory = excluded.directory, at = max(at, excluded.at)",
    )?
    .execute(named_params! {
        ":id": session.id.as_str(),
        ":owner": owner.as_str(),
        ":directory": session.directory,
        ":at": at.0,
    })?;
    Ok(())
}

fn put_binding(
    db: &Connection,
    owner: &Principal,
    context: &ContextId,
    bound: &Bound,
    at: Timestamp,
) -> Outcome<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO bindings (owner, context, session, directory, named, at)
         VALUES (:owner, :context, :session, :directory, :named, :at)",
    )?
    .execute(named_params! {
        ":owner": owner.as_str(),
        ":context": context.as_str(),
        ":session": bound.session.id.as_str(),
        ":directory": bound.session.directory,
        ":named": bound.named,
        ":at": at.0,
    })?;
    Ok(())
}
