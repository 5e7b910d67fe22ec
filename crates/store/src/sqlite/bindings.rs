//! The sessions of contexts, and whose they are.

use longshore_engine::port::{Binding, Bound, Created, Session};
use longshore_model::{ContextId, Principal, SessionId, Timestamp};
use rusqlite::{Connection, named_params};

use super::fault::{Outcome, damaged};
use super::record::NewTask;
use crate::rules::{self, Naming, OwnedSession};

/// What the context is bound to.
pub(super) fn binding(db: &Connection, owner: &Principal, context: &ContextId) -> Outcome<Option<Bound>> {
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
    let bound = Bound { session: session.clone(), named: false };
    put(db, owner, context, &bound, *at)?;
    Ok(bound)
}

/// Binds the context of a new task to the session that its caller named. Gives what to answer when that may not be.
pub(super) fn name(db: &Connection, new: &NewTask, session: &SessionId) -> Outcome<Option<Created>> {
    let bound = binding(db, &new.owner, &new.context)?;
    let known = known(db, session)?;
    match rules::name_session(session, &new.owner, bound.as_ref(), known.as_ref()) {
        Naming::Stands => Ok(None),
        Naming::Refused(answer) => Ok(Some(answer)),
        Naming::Binds(session) => {
            put(db, &new.owner, &new.context, &Bound { session, named: true }, new.at)?;
            Ok(None)
        }
    }
}

/// A session that was ever bound.
fn known(db: &Connection, session: &SessionId) -> Outcome<Option<OwnedSession>> {
    let mut statement = db.prepare_cached("SELECT owner, directory FROM sessions WHERE id = :id")?;
    let mut rows = statement.query(named_params! { ":id": session.as_str() })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let owner = Principal::new(row.get_ref(0)?.as_str()?);
    Ok(Some(OwnedSession { owner, session: Session { id: session.clone(), directory: row.get(1)? } }))
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
