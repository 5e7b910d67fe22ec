//! The approvals that the gateway keeps.

use longshore_engine::port::MAX_APPROVALS;
use longshore_model::{Approval, ContextId, Error, Principal, RequestId, SessionId, Timestamp};
use rusqlite::{Connection, Row, named_params};

use super::fault::{Fault, Outcome, damaged};
use super::read::{decode, decode_or_default, skip_damaged, text};

pub(super) fn keep(db: &Connection, approval: &Approval) -> Outcome<()> {
    let Approval { request_id, owner, session, context, permission, patterns, action, at } = approval;
    let patterns = serde_json::to_string(patterns).map_err(|cause| Fault(Error::internal(cause)))?;
    let action = (!action.is_empty()).then(|| serde_json::to_string(action)).transpose();
    let action = action.map_err(|cause| Fault(Error::internal(cause)))?;
    db.prepare_cached(
        "INSERT OR REPLACE INTO approvals (owner, request, session, context, permission, patterns, at, action)
         VALUES (:owner, :request, :session, :context, :permission, :patterns, :at, :action)",
    )?
    .execute(named_params! {
        ":owner": owner.as_str(),
        ":request": request_id.as_str(),
        ":session": session.as_str(),
        ":context": context.as_str(),
        ":permission": permission,
        ":patterns": patterns,
        ":at": at.0,
        ":action": action,
    })?;
    db.prepare_cached(
        "DELETE FROM approvals WHERE rowid IN (
             SELECT rowid FROM approvals WHERE owner = :owner AND session = :session
             ORDER BY at DESC, request LIMIT -1 OFFSET :kept)",
    )?
    .execute(named_params! {
        ":owner": owner.as_str(),
        ":session": session.as_str(),
        ":kept": limit(),
    })?;
    Ok(())
}

/// The approvals of an owner. Leaves out unreadable ones; the owner is then asked again in the cases that they covered.
pub(super) fn list(
    db: &Connection,
    owner: &Principal,
    session: Option<&SessionId>,
) -> Outcome<Vec<Approval>> {
    let mut statement = db.prepare_cached(
        "SELECT request, session, context, permission, patterns, at, action FROM approvals
         WHERE owner = :owner AND (:session IS NULL OR session = :session)
         ORDER BY at DESC, request LIMIT :limit",
    )?;
    let mut rows = statement.query(named_params! {
        ":owner": owner.as_str(),
        ":session": session.map(SessionId::as_str),
        ":limit": limit(),
    })?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.extend(skip_damaged(approval(owner, row))?);
    }
    Ok(found)
}

pub(super) fn revoke(db: &Connection, owner: &Principal, request: &RequestId) -> Outcome<bool> {
    let removed = db
        .prepare_cached("DELETE FROM approvals WHERE owner = :owner AND request = :request")?
        .execute(named_params! { ":owner": owner.as_str(), ":request": request.as_str() })?;
    Ok(removed > 0)
}

fn limit() -> i64 {
    i64::try_from(MAX_APPROVALS).unwrap_or(i64::MAX)
}

fn approval(owner: &Principal, row: &Row<'_>) -> Outcome<Approval> {
    let request = text("approval", row, 0)?;
    let what = format!("approval {request}");
    Ok(Approval {
        request_id: RequestId::parse(request).map_err(|cause| damaged(&what, cause))?,
        owner: owner.clone(),
        session: SessionId::parse(text(&what, row, 1)?).map_err(|cause| damaged(&what, cause))?,
        context: ContextId::parse(text(&what, row, 2)?).map_err(|cause| damaged(&what, cause))?,
        permission: text(&what, row, 3)?.to_owned(),
        patterns: decode(&what, row.get_ref(4)?)?,
        at: Timestamp(row.get(5)?),
        action: decode_or_default(&what, row.get_ref(6)?)?,
    })
}
