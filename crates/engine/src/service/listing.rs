//! Pages of a caller's tasks.

use longshore_model::{ContextId, ListTasks, Principal, Result, Task, TaskId, Timestamp};

use super::{Engine, Listing};
use crate::port::{ListQuery, PageCursor, TaskPage};
use crate::{derived_ids, page_token};

impl Engine {
    pub async fn list(&self, caller: &Principal, query: ListTasks) -> Result<Listing> {
        let after = match query.page_token.as_deref() {
            None | Some("") => None,
            Some(token) => Some(page_token::decode(token)?),
        };
        let query_of = |context: Option<ContextId>| ListQuery {
            owner: caller.clone(),
            state: query.state,
            status_after: query.status_after,
            limit: query.page_size as usize,
            after: after.clone(),
            // Child tasks are listed only for one context; a list of all tasks would be full of them.
            roots_only: context.is_none(),
            context,
            with_artifacts: query.include_artifacts,
        };
        let mut contexts = self.requested_contexts(caller, query.context_id.as_ref()).await?.into_iter();
        let mut page = self.ctx.ports.store.list(query_of(contexts.next())).await?;
        for context in contexts {
            let more = self.ctx.ports.store.list(query_of(Some(context))).await?;
            page = merge(page, more, query.page_size as usize);
        }
        Ok(Listing {
            tasks: page.tasks,
            total: page.total,
            page_size: query.page_size,
            next_page_token: page.next.as_ref().map(page_token::encode).unwrap_or_default(),
        })
    }

    /// The contexts that the caller requests. An id that stands for a session means all of the caller's contexts that are bound to
    /// that session.
    async fn requested_contexts(
        &self,
        caller: &Principal,
        named: Option<&ContextId>,
    ) -> Result<Vec<ContextId>> {
        let Some(named) = named else { return Ok(Vec::new()) };
        let mut contexts = vec![named.clone()];
        let session = derived_ids::session_of_context(self.ctx.config.names, named);
        if let Some(session) = session.filter(|_| self.has_control()) {
            let bound = self.ctx.ports.store.contexts_of(caller, &session).await?;
            contexts.extend(bound.into_iter().filter(|context| context != named));
        }
        Ok(contexts)
    }
}

/// Merges two sorted pages into one sorted page.
fn merge(one: TaskPage, other: TaskPage, limit: usize) -> TaskPage {
    let mut tasks: Vec<Task> = one.tasks.into_iter().chain(other.tasks).collect();
    tasks.sort_unstable_by(|a, b| (b.status.at, &b.id).cmp(&(a.status.at, &a.id)));
    // If a page is not the last one, more tasks follow its end. So the tasks of the other page after that end are left for a
    // later page.
    let mut next = one.next.into_iter().chain(other.next).max_by(|a, b| page_end(a).cmp(&page_end(b)));
    if let Some(end) = &next {
        tasks.retain(|task| (task.status.at, &task.id) >= page_end(end));
    }
    if tasks.len() > limit {
        tasks.truncate(limit);
        next = tasks.last().map(|last| PageCursor { status_at: last.status.at, task: last.id.clone() });
    }
    TaskPage { tasks, total: one.total + other.total, next }
}

/// The sort key of the end of a page.
fn page_end(end: &PageCursor) -> (Timestamp, &TaskId) {
    (end.status_at, &end.task)
}
