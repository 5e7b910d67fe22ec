//! Decodes REST requests. Their parameters come from the path, the query string and the body of a POST.

use longshore_model::{
    CancelTask, ContextId, GetTask, ListTasks, Result, SubscribeToTask, TaskId, TaskState,
};

use super::request::{self, DEFAULT_PAGE_SIZE, LISTED_HISTORY, moment, no_tenant, page_size};
use super::{id, some_id};
use crate::json::{Fault, Read, count, flag_from_text, int32_from_text, text};
use crate::spelling::Spelling;

/// Checks the query of a request whose only allowed query parameter is `tenant`.
pub(crate) fn check_tenant(query: &[(String, String)]) -> Result<()> {
    read(query, |_| Ok(()))
}

/// Decodes a request for a task. `id` (the path segment) and the query pairs are already percent-decoded.
pub fn get_task(id: &str, query: &[(String, String)]) -> Result<GetTask> {
    read(query, |query| {
        Ok(GetTask {
            id: path_id(id)?,
            history_length: query.get(&["historyLength", "history_length"], history_length)?,
        })
    })
}

pub fn subscribe(id: &str, query: &[(String, String)], body: &str) -> Result<SubscribeToTask> {
    task_of_path(id, query, body).map(|id| SubscribeToTask { id })
}

pub fn cancel_task(id: &str, query: &[(String, String)], body: &str) -> Result<CancelTask> {
    task_of_path(id, query, body).map(|id| CancelTask { id })
}

pub(crate) fn list_tasks(query: &[(String, String)], spelling: &Spelling) -> Result<ListTasks> {
    read(query, |query| {
        let page_size = query.get(&["pageSize", "page_size"], |text| page_size(int32_from_text(text)?))?;
        let context_id =
            query.get(&["contextId", "context_id"], |text| some_id(text, ContextId::parse))?.flatten();
        let page_token = query.get(&["pageToken", "page_token"], |text| Ok(text.to_owned()))?;
        Ok(ListTasks {
            context_id,
            state: query.get(&["status"], |text| status(text, spelling))?.flatten(),
            status_after: query.get(&["statusTimestampAfter", "status_timestamp_after"], moment)?,
            page_size: page_size.unwrap_or(DEFAULT_PAGE_SIZE),
            page_token: page_token.filter(|token| !token.is_empty()),
            history_length: query
                .get(&["historyLength", "history_length"], history_length)?
                .or(LISTED_HISTORY),
            include_artifacts: query
                .get(&["includeArtifacts", "include_artifacts"], flag_from_text)?
                .unwrap_or(false),
        })
    })
}

/// The decoded pairs of a query.
pub(crate) type Pairs<'a> = &'a [(String, String)];

pub(super) struct Query<'a>(Pairs<'a>);

impl Query<'_> {
    /// The last value of a parameter, under any spelling of its name.
    pub(super) fn get<T>(&self, spellings: &[&str], read: impl FnOnce(&str) -> Read<T>) -> Read<Option<T>> {
        let pair = self.0.iter().rev().find(|(key, _)| spellings.contains(&key.as_str()));
        pair.map(|(key, value)| read(value).map_err(|fault| fault.under(key))).transpose()
    }
}

pub(super) fn read<T>(query: Pairs<'_>, read: impl FnOnce(&Query<'_>) -> Read<T>) -> Result<T> {
    let query = Query(query);
    query.get(&["tenant"], no_tenant).and_then(|_| read(&query)).map_err(Fault::into_params_error)
}

/// The task of a request that needs only the task's id. The body may be empty. An id in the body must equal the id in the path.
fn task_of_path(id: &str, query: &[(String, String)], body: &str) -> Result<TaskId> {
    let task = read(query, |_| path_id(id))?;
    if !body.trim_ascii().is_empty() {
        request::params(body, &["tenant", "id"], |params| {
            params.optional("id", |raw| match text(raw)?.as_str() {
                "" => Ok(()),
                named if named == task.as_str() => Ok(()),
                _ => Err(Fault::new("must be the id of the path, or left out")),
            })
        })?;
    }
    Ok(task)
}

pub(super) fn path_id(text: &str) -> Read<TaskId> {
    id(text, TaskId::parse).map_err(|fault| fault.under("id"))
}

fn history_length(text: &str) -> Read<u32> {
    count(int32_from_text(text)?)
}

/// Reads a filter by state. An empty filter counts as absent, because the empty enum is the unspecified value.
fn status(text: &str, spelling: &Spelling) -> Read<Option<TaskState>> {
    if text.is_empty() { Ok(None) } else { Ok((spelling.state_from_text)(text)?.value()) }
}
