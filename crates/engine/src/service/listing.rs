//! Pages of a caller's tasks.

use longshore_model::{ContextId, ListTasks, Principal, Result, Task, TaskId, Timestamp};

use super::{Engine, Listing};
use crate::port::{ListQuery, PageCursor, TaskPage};
use crate::{names, page_token};

impl Engine {
    pub async fn list(&self, caller: &Principal, query: ListTasks) -> Result<Listing> {
        let after = match query.page_token.as_deref() {
            None | Some("") => None,
            Some(token) => Some(page_token::decode(token)?),
        };
        let of_context = |context: Option<ContextId>| ListQuery {
            owner: caller.clone(),
            state: query.state,
            status_after: query.status_after,
            limit: query.page_size as usize,
            after: after.clone(),
            // The work of sub-agents belongs to a conversation; elsewhere it would only be noise.
            roots_only: context.is_none(),
            context,
            with_artifacts: query.include_artifacts,
        };
        let mut contexts = self.contexts_meant(caller, query.context_id.as_ref()).await?.into_iter();
        let mut page = self.around.store.list(of_context(contexts.next())).await?;
        for context in contexts {
            let more = self.around.store.list(of_context(Some(context))).await?;
            page = merged(page, more, query.page_size as usize);
        }
        Ok(Listing {
            tasks: page.tasks,
            total: page.total,
            page_size: query.page_size,
            next_page_token: page.next.as_ref().map(page_token::encode).unwrap_or_default(),
        })
    }

    /// The context that is named. A name that stands for a session means all of the caller's contexts that are bound to it.
    async fn contexts_meant(&self, caller: &Principal, named: Option<&ContextId>) -> Result<Vec<ContextId>> {
        let Some(named) = named else { return Ok(Vec::new()) };
        let mut meant = vec![named.clone()];
        if let Some(session) = names::session_of(named).filter(|_| self.has_control()) {
            let bound = self.around.store.contexts_of(caller, &session).await?;
            meant.extend(bound.into_iter().filter(|context| context != named));
        }
        Ok(meant)
    }
}

/// One page of two, in the order that each has.
fn merged(one: TaskPage, other: TaskPage, limit: usize) -> TaskPage {
    let mut tasks: Vec<Task> = one.tasks.into_iter().chain(other.tasks).collect();
    tasks.sort_unstable_by(|a, b| (b.status.at, &b.id).cmp(&(a.status.at, &a.id)));
    // Behind the end of a page there may be more of its tasks: what the other has there comes on a later page.
    let mut next = one.next.into_iter().chain(other.next).max_by(|a, b| place(a).cmp(&place(b)));
    if let Some(end) = &next {
        tasks.retain(|task| (task.status.at, &task.id) >= place(end));
    }
    if tasks.len() > limit {
        tasks.truncate(limit);
        next = tasks.last().map(|last| PageCursor { status_at: last.status.at, task: last.id.clone() });
    }
    TaskPage { tasks, total: one.total + other.total, next }
}

/// Where a page ends, in the order of the list.
fn place(end: &PageCursor) -> (Timestamp, &TaskId) {
    (end.status_at, &end.task)
}
