//! Pages of one owner's tasks.

use longshore_engine::port::{ListQuery, TaskPage};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::fault::Outcome;
use super::known_damage::{DamagedTask, KnownDamage};
use super::read::{Parts, page_cursor, read_task, select_tasks, skip_damaged};

/// The bytes of snapshots and events that end a page. A page ends after the task with which it has read this many bytes, even if
/// its limit is not reached, and returns the cursor of the next page. So a list delays the requests behind it by at most these
/// bytes and its largest task.
pub(super) const PAGE_BYTES: usize = 4 * 1024 * 1024;

pub(super) fn list(db: &Connection, known: &KnownDamage, query: &ListQuery) -> Outcome<TaskPage> {
    known.check_complete()?;
    let left_out = known.ordinals();
    let mut filter = Filter::new(query, &left_out);
    if known.affects_indexes() {
        filter.tasks = "tasks NOT INDEXED";
    }
    // The count visits each matching index entry, which takes a tenth of a microsecond per task of the owner.
    let total: i64 =
        db.prepare_cached(&filter.count())?.query_row(params_from_iter(&filter.values), |row| row.get(0))?;

    let parts = if query.with_artifacts { Parts::All } else { Parts::WithoutArtifacts };
    let sql = filter.page(parts, query);
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(&filter.values))?;
    let (mut tasks, mut bytes, mut more) = (Vec::new(), 0, false);
    let (mut seen, mut last) = (0, None);
    let mut damaged = false;
    while let Some(row) = rows.next()? {
        if seen == query.limit || bytes >= PAGE_BYTES {
            more = true;
            break;
        }
        let cursor = skip_damaged(page_cursor(row))?;
        let id = cursor.as_ref().map(|cursor| cursor.task.clone());
        let found = match cursor {
            Some(_) => skip_damaged(read_task(db, parts, row))?,
            None => None,
        };
        let Some(found) = found else {
            let reason = "it cannot be read".to_owned();
            known.add(row.get(0)?, DamagedTask { id, reason });
            damaged = true;
            continue;
        };
        (seen, last) = (seen + 1, cursor);
        bytes += found.bytes;
        tasks.push(found.task);
    }
    drop(rows);
    if damaged {
        // Read the list again without the newly found damaged tasks, so that the total agrees with the page.
        return list(db, known, query);
    }
    Ok(TaskPage { tasks, total: total.unsigned_abs(), next: last.filter(|_| more) })
}

/// The conditions of a query, and the values of their `?` parameters.
struct Filter {
    /// The table, and the index that has the order of the list. The query names the index because SQLite does not know how many
    /// tasks a context has, and sometimes prefers the index that reads all tasks of the owner.
    tasks: &'static str,
    condition: String,
    values: Vec<Value>,
}

impl Filter {
    /// Adds only the requested conditions. SQLite can then use a condition on one column as a range of the index.
    fn new(query: &ListQuery, left_out: &[i64]) -> Self {
        let tasks = match (&query.context, query.state) {
            (Some(_), _) => "tasks INDEXED BY tasks_by_context",
            (None, Some(_)) => "tasks INDEXED BY tasks_by_state",
            (None, None) => "tasks INDEXED BY tasks_by_owner",
        };
        let mut filter = Self { tasks, condition: String::new(), values: Vec::new() };
        filter.and("tasks.owner = ?", [text(query.owner.as_str())]);
        if let Some(context) = &query.context {
            filter.and("tasks.context = ?", [text(context.as_str())]);
        }
        if let Some(state) = query.state {
            filter.and("tasks.state = ?", [text(state.as_str())]);
        }
        if let Some(since) = query.status_after {
            filter.and("tasks.status_at >= ?", [Value::Integer(since.0)]);
        }
        if query.roots_only {
            filter.and("tasks.root IS NULL", []);
        }
        // Leave out the damaged tasks. There are nearly never any.
        if !left_out.is_empty() {
            // Use one condition for all of them, because SQLite limits the depth of an expression.
            let left_out = serde_json::json!(left_out).to_string();
            filter.and("tasks.ordinal NOT IN (SELECT value FROM json_each(?))", [Value::Text(left_out)]);
        }
        filter
    }

    /// The query for the total. Must not be called after [`Self::page`], which adds a condition.
    fn count(&self) -> String {
        format!("SELECT count(*) FROM {} WHERE {}", self.tasks, self.condition)
    }

    /// The query for a page. It also finds all later tasks, so the caller stops reading at the end of the page.
    fn page(&mut self, parts: Parts, query: &ListQuery) -> String {
        if let Some(after) = &query.after {
            let cursor = [Value::Integer(after.status_at.0), text(after.task.as_str())];
            self.and("(tasks.status_at, tasks.id) < (?, ?)", cursor);
        }
        let order = "ORDER BY tasks.status_at DESC, tasks.id DESC";
        select_tasks(parts, self.tasks, &format!("{} {order}", self.condition))
    }

    fn and<const N: usize>(&mut self, condition: &str, values: [Value; N]) {
        if !self.condition.is_empty() {
            self.condition.push_str(" AND ");
        }
        self.condition.push_str(condition);
        self.values.extend(values);
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[cfg(test)]
mod tests;
