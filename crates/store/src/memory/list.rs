//! Pages of one owner's tasks.

use longshore_engine::port::{ListQuery, PageCursor, TaskPage};
use longshore_model::Task;

use super::state::State;

impl State {
    pub(super) fn list(&self, query: &ListQuery) -> TaskPage {
        let mut matching: Vec<&Task> = self
            .tasks
            .values()
            .filter(|row| row.owner == query.owner)
            .map(|row| &row.task)
            .filter(|task| query.context.as_ref().is_none_or(|context| task.context_id == *context))
            .filter(|task| query.state.is_none_or(|state| task.status.state == state))
            .filter(|task| query.status_after.is_none_or(|since| task.status.at >= since))
            .filter(|task| !query.roots_only || task.parent.is_none())
            .collect();
        matching.sort_unstable_by(|a, b| (b.status.at, &b.id).cmp(&(a.status.at, &a.id)));
        let total = matching.len() as u64;

        let begin = query.after.as_ref().map_or(0, |after| {
            matching.partition_point(|task| (task.status.at, &task.id) >= (after.status_at, &after.task))
        });
        let rest = &matching[begin..];
        let page = &rest[..query.limit.min(rest.len())];
        let next = page
            .last()
            .filter(|_| page.len() < rest.len())
            .map(|last| PageCursor { status_at: last.status.at, task: last.id.clone() });
        let tasks = page
            .iter()
            .map(|&task| if query.with_artifacts { task.clone() } else { without_artifacts(task) })
            .collect();
        TaskPage { tasks, total, next }
    }
}

fn without_artifacts(task: &Task) -> Task {
    Task {
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: task.status.clone(),
        artifacts: Vec::new(),
        history: task.history.clone(),
        session: task.session.clone(),
        usage: task.usage,
        open_asks: task.open_asks.clone(),
        expired_asks: task.expired_asks.clone(),
        options: task.options.clone(),
        parent: task.parent.clone(),
        metadata: task.metadata.clone(),
    }
}
