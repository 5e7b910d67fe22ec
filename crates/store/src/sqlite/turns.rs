//! Finds the task of a prompt.

use longshore_model::{ContextId, Principal, PromptId, SessionId, TaskId};
use rusqlite::{Connection, Row, named_params};

use super::fault::{Outcome, damaged};
use super::read;

/// The task whose turn a prompt started or joined.
pub(super) struct TurnTask {
    ordinal: i64,
    pub(super) task: TaskId,
    pub(super) owner: Principal,
    pub(super) context: ContextId,
}

pub(super) const BY_PROMPT: &str = "SELECT ordinal, id, owner, context FROM tasks INDEXED BY tasks_by_prompt
     WHERE session = :session AND prompt = :prompt ORDER BY ordinal DESC LIMIT 1";

/// Selects the tasks of a session with joined messages. Messages join few turns, so there are few rows to decode.
pub(super) const JOINED: &str =
    "SELECT ordinal, id, owner, context, joined FROM tasks INDEXED BY tasks_joined
     WHERE session = :session AND joined IS NOT NULL ORDER BY ordinal DESC";

/// The task whose turn the prompt started or joined. If there are several, the newest one.
pub(super) fn find(db: &Connection, session: &SessionId, prompt: &PromptId) -> Outcome<Option<TurnTask>> {
    let started = find_started(db, session, prompt)?;
    let joined = find_joined(db, session, prompt)?;
    Ok(started.into_iter().chain(joined).max_by_key(|turn| turn.ordinal))
}

fn find_started(db: &Connection, session: &SessionId, prompt: &PromptId) -> Outcome<Option<TurnTask>> {
    let mut statement = db.prepare_cached(BY_PROMPT)?;
    let prompt = named_params! { ":session": session.as_str(), ":prompt": prompt.as_str() };
    let mut rows = statement.query(prompt)?;
    rows.next()?.map(turn_task).transpose()
}

/// Finds the task that the prompt joined. Skips damaged rows, because a request for the task itself reports the damage.
fn find_joined(db: &Connection, session: &SessionId, prompt: &PromptId) -> Outcome<Option<TurnTask>> {
    let mut statement = db.prepare_cached(JOINED)?;
    let mut rows = statement.query(named_params! { ":session": session.as_str() })?;
    while let Some(row) = rows.next()? {
        let joined: Option<Vec<PromptId>> =
            read::skip_damaged(read::decode(&format!("turn in session {session}"), row.get_ref(4)?))?;
        if joined.is_some_and(|joined| joined.contains(prompt)) {
            return turn_task(row).map(Some);
        }
    }
    Ok(None)
}

fn turn_task(row: &Row<'_>) -> Outcome<TurnTask> {
    let id = read::text("task", row, 1)?;
    let what = format!("task {id}");
    Ok(TurnTask {
        ordinal: row.get(0)?,
        task: TaskId::parse(id).map_err(|cause| damaged(&what, cause))?,
        owner: Principal::new(read::text(&what, row, 2)?),
        context: ContextId::parse(read::text(&what, row, 3)?).map_err(|cause| damaged(&what, cause))?,
    })
}

#[cfg(test)]
mod tests;
