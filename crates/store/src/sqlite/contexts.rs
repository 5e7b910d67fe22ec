//! Where contexts work, the sessions that they are bound to, and whose those are.

use longshore_engine::port::{Binding, Bound, ContextPlace, Session};
use longshore_model::{ContextId, Principal, SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, named_params};

use super::fault::{Outcome, damaged};
use super::record::NewTask;
use crate::rules::{self, OwnedSession, Placement};

pub(super) fn place(db: &Connection, owner: &Principal, context: &ContextId) -> Outcome<ContextPlace> {
    let directory = db
        .prepare_cached("SELECT directory FROM contexts WHERE owner = :owner AND context = :context")?
        .query_row(named_params! { ":owner": owner.as_str(), ":context": context.as_str() }, |row| row.get(0))
        .optional()?;
    Ok(ContextPlace { directory, bound: binding(db, owner, context)? })
}

/// What the context is bound to.
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

/// Binds a context, unless another binding stands, and gives the one that stands then.
pub(super) fn bind(db: &Connection, binding: &Binding) -> Outcome<Bound> {
    let Binding { owner, context, session, replaces, at } = binding;
    let bound = self::binding(db, owner, context)?;
    if let Some(standing) = rules::standing(bound, replaces.as_ref()) {
        return Ok(standing);
    }
    if known(db, &session.id)?.is_some_and(|known| known.owner != *owner) {
        return Err(rules::foreign_session(&session.id).into());
    }
    own(db, owner, session, *at)?;
    let bound = Bound { session: session.clone(), named: false };
    put(db, owner, context, &bound, *at)?;
    Ok(bound)
}

/// Writes where the context of a new task works.
pub(super) fn settle(db: &Connection, new: &NewTask, placement: &Placement) -> Outcome<()> {
    let NewTask { owner, context, at, .. } = new;
    if let Some(session) = &placement.claims {
        own(db, owner, session, *at)?;
    }
    if let Some(bound) = &placement.binds {
        put(db, owner, context, bound, *at)?;
    }
    if let Some(directory) = &placement.settles {
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

/// A session that was ever bound.
pub(super) fn known(db: &Connection, session: &SessionId) -> Outcome<Option<OwnedSession>> {
    let mut statement = db.prepare_cached("SELECT owner, directory FROM sessions WHERE id = :id")?;
    let mut rows = statement.query(named_params! { ":id": session.as_str() })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let owner = Principal::new(row.get_ref(0)?.as_str()?);
    Ok(Some(OwnedSession { owner, session: Session { id: session.clone(), directory: row.get(1)? } }))
}

/// A session that was bound, if it is this owner's.
pub(super) fn session_of(db: &Connection, owner: &Principal, id: &SessionId) -> Outcome<Option<Session>> {
    Ok(known(db, id)?.filter(|known| known.owner == *owner).map(|known| known.session))
}

/// The session is the owner's, who may have it already, and works where it says.
fn own(db: &Connection, owner: &Principal, session: &Session, at: Timestamp) -> Outcome<()> {
    db.prepare_cached(
        "INSERT INTO sessions (id, owner, directory, at) VALUES (:id, :owner, :directory, :at)
         ON CONFLICT (id) DO UPDATE SET directory = excluded.directory",
    )?
    .execute(named_params! {
        ":id": session.id.as_str(),
        ":owner": owner.as_str(),
        ":directory": session.directory,
        ":at": at.0,
    })?;
    Ok(())
}

fn put(db: &Connection, owner: &Principal, context: &ContextId, bound: &Bound, at: Timestamp) -> Outcome<()> {
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
