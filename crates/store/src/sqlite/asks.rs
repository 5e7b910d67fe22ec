//! The asks of agents.

use longshore_model::{
    Ask, AskKind, Closed, ContextId, Interrupt, Json, Principal, RequestId, Resolution, SessionId, TaskId,
    Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Params, Row, named_params};

use super::fault::{Outcome, damaged};
use super::read::{decode, decode_or_default, text, text_or_null};
use super::record::{AskText, Batch, OpenedText};
use super::write::TaskRow;
use crate::rules;

/// Applies the ask changes of a batch in order. Changes nothing if one of them cannot belong to the task.
pub(super) fn change(db: &Connection, task: &TaskRow, batch: &Batch) -> Outcome<()> {
    let TaskRow { ordinal, owner, context, .. } = task;
    for change in &batch.asks {
        if let AskText::Opened(OpenedText { interrupt, .. }) = change {
            let known = owner_of(db, &interrupt.ask.request_id)?;
            rules::check_ask(interrupt, owner, context, known.as_ref())?;
        }
    }
    for change in &batch.asks {
        match change {
            AskText::Opened(opened) => {
                forget_old(db, batch.at)?;
                open(db, *ordinal, opened)?;
            }
            AskText::Closed { request_id, closed } => close(db, *ordinal, Some(request_id), closed)?,
        }
    }
    Ok(())
}

pub(super) fn find(db: &Connection, request: &RequestId) -> Outcome<Option<Interrupt>> {
    let found = select(db, FIND, named_params! { ":request": request.as_str() })?;
    Ok(found.into_iter().next())
}

/// The open asks of an owner. Those with the earliest deadline come first, those without a deadline last.
pub(super) fn open_of_owner(db: &Connection, owner: &Principal, kind: AskKind) -> Outcome<Vec<Interrupt>> {
    select(db, OPEN_OF_OWNER, named_params! { ":owner": owner.as_str(), ":kind": kind.as_str() })
}

/// The open asks of a task, oldest first.
pub(super) fn open_of_task(db: &Connection, task: i64) -> Outcome<Vec<Interrupt>> {
    select(db, OPEN_OF_TASK, named_params! { ":task": task })
}

/// A query whose rows [`interrupt`] can read.
macro_rules! select_interrupts {
    ($rest:literal) => {
        concat!(
            "SELECT request, tasks.id, tasks.context, interrupts.owner, kind, interrupts.session, summary, details, questions,
                    asked_at, expires_at, resolution, closed_at, closed_by, how, call, permission, options
             FROM interrupts JOIN tasks ON tasks.ordinal = interrupts.task WHERE ",
            $rest
        )
    };
}

const FIND: &str = select_interrupts!("request = :request");

const OPEN_OF_OWNER: &str = select_interrupts!(
    "interrupts.owner = :owner AND kind = :kind AND resolution IS NULL ORDER BY expires_at NULLS LAST, request"
);

const OPEN_OF_TASK: &str = select_interrupts!(
    "interrupts.task = :task AND resolution IS NULL ORDER BY asked_at, interrupts.ordinal"
);

const CLOSE: &str =
    "UPDATE interrupts SET resolution = :resolution, closed_at = :at, closed_by = :by, how = :how
     WHERE task = :task AND resolution IS NULL AND (:request IS NULL OR request = :request)";

const FORGET_OLD: &str = "DELETE FROM interrupts WHERE ordinal IN (
     SELECT ordinal FROM interrupts WHERE closed_at < :kept_since ORDER BY closed_at LIMIT :limit)";

fn select(db: &Connection, sql: &str, params: impl Params) -> Outcome<Vec<Interrupt>> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(interrupt(row)?);
    }
    Ok(found)
}

fn interrupt(row: &Row<'_>) -> Outcome<Interrupt> {
    let request = text("ask", row, 0)?;
    let what = format!("ask {request}");
    let ask = Ask {
        request_id: RequestId::parse(request).map_err(|cause| damaged(&what, cause))?,
        kind: kind(text(&what, row, 4)?).ok_or_else(|| damaged(&what, "unknown kind"))?,
        session: SessionId::parse(text(&what, row, 5)?).map_err(|cause| damaged(&what, cause))?,
        summary: text(&what, row, 6)?.to_owned(),
        details: Json::parse(text(&what, row, 7)?).ok_or_else(|| damaged(&what, "no JSON"))?,
        questions: decode(&what, row.get_ref(8)?)?,
        call: text_or_null(&what, row, 15)?.map(str::to_owned),
        permission: decode_or_default(&what, row.get_ref(16)?)?,
        options: decode_or_default(&what, row.get_ref(17)?)?,
    };
    Ok(Interrupt {
        ask,
        task: TaskId::parse(text(&what, row, 1)?).map_err(|cause| damaged(&what, cause))?,
        context: ContextId::parse(text(&what, row, 2)?).map_err(|cause| damaged(&what, cause))?,
        owner: Principal::new(text(&what, row, 3)?),
        asked_at: Timestamp(row.get(9)?),
        expires_at: row.get::<_, Option<i64>>(10)?.map(Timestamp),
        closed: closed(&what, row)?,
    })
}

fn closed(what: &str, row: &Row<'_>) -> Outcome<Option<Closed>> {
    let Some(word) = text_or_null(what, row, 11)? else { return Ok(None) };
    Ok(Some(Closed {
        resolution: Resolution::parse(word).ok_or_else(|| damaged(what, "unknown resolution"))?,
        at: Timestamp(row.get(12)?),
        by: text_or_null(what, row, 13)?.map(Principal::new),
        how: text_or_null(what, row, 14)?.map(str::to_owned),
    }))
}

fn kind(word: &str) -> Option<AskKind> {
    AskKind::ALL.into_iter().find(|kind| kind.as_str() == word)
}

fn owner_of(db: &Connection, request: &RequestId) -> Outcome<Option<Principal>> {
    let owner: Option<String> = db
        .prepare_cached("SELECT owner FROM interrupts WHERE request = :request")?
        .query_row(named_params! { ":request": request.as_str() }, |row| row.get(0))
        .optional()?;
    Ok(owner.map(|owner| Principal::new(&owner)))
}

/// Stores an open ask, and replaces an earlier record of the same ask.
fn open(db: &Connection, task: i64, opened: &OpenedText) -> Outcome<()> {
    let OpenedText { interrupt, questions, permission, options } = opened;
    let Interrupt { ask, owner, asked_at, expires_at, .. } = &**interrupt;
    db.prepare_cached(
        "INSERT OR REPLACE INTO interrupts
             (request, task, owner, kind, session, summary, details, questions, asked_at, expires_at, call,
              permission, options)
         VALUES (:request, :task, :owner, :kind, :session, :summary, :details, :questions, :asked_at, :expires_at, :call,
                 :permission, :options)",
    )?
    .execute(named_params! {
        ":request": ask.request_id.as_str(),
        ":task": task,
        ":owner": owner.as_str(),
        ":kind": ask.kind.as_str(),
        ":session": ask.session.as_str(),
        ":summary": ask.summary,
        ":details": ask.details.get(),
        ":questions": questions,
        ":asked_at": asked_at.0,
        ":expires_at": expires_at.map(|at| at.0),
        ":call": ask.call,
        ":permission": permission,
        ":options": options,
    })?;
    Ok(())
}

/// Closes one open ask of the task, or all of them if `request` is `None`.
pub(super) fn close(db: &Connection, task: i64, request: Option<&RequestId>, closed: &Closed) -> Outcome<()> {
    db.prepare_cached(CLOSE)?.execute(named_params! {
        ":task": task,
        ":request": request.map(RequestId::as_str),
        ":resolution": closed.resolution.as_str(),
        ":at": closed.at.0,
        ":by": closed.by.as_ref().map(Principal::as_str),
        ":how": closed.how,
    })?;
    Ok(())
}

/// Removes some closed asks that are older than the retention time, oldest first.
fn forget_old(db: &Connection, now: Timestamp) -> Outcome<()> {
    db.prepare_cached(FORGET_OLD)?.execute(named_params! {
        ":kept_since": rules::asks_kept_since(now).0,
        ":limit": rules::OLD_ASKS,
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
