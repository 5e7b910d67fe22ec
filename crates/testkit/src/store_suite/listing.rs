//! Lists: their order, filters, pages and totals.

use std::slice;
use std::sync::Arc;

use longshore_engine::port::{Append, Create, ListQuery, Store};
use longshore_model::{Task, TaskState, Timestamp};

use super::Fixture;
use super::make::{
    append, appended, child, chunk, context_id, create, create_in, everything, folded, made, owner, status,
    submitted, task_id,
};

/// A task for these checks: its id, context, last state and time.
type Row = (&'static str, &'static str, TaskState, i64);

/// A filter by context, state and time, and the ids of the matching tasks.
type FilterCase = (Option<&'static str>, Option<TaskState>, Option<i64>, &'static [&'static str]);

async fn fill(store: &Arc<dyn Store>, rows: &[Row]) {
    for &(task, context, state, at) in rows {
        made(store, create_in(task, context, at)).await;
        if state != TaskState::Submitted {
            appended(store, append(task, 1, vec![chunk("x"), status(state, at)])).await;
        }
    }
}

fn ids(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.as_str()).collect()
}

pub(super) async fn the_newest_status_comes_first(fixture: &dyn Fixture) {
    let store = fixture.open();
    let rows = [
        ("b", "c", TaskState::Submitted, 10),
        ("old", "c", TaskState::Submitted, -5),
        ("a", "c", TaskState::Submitted, 10),
        ("B", "c", TaskState::Submitted, 10),
        ("new", "c", TaskState::Submitted, 11),
    ];
    fill(&store, &rows).await;
    made(&store, Create { owner: owner("bob"), ..create_in("bobs", "c", 10) }).await;
    let page = store.list(everything()).await.expect("a list");
    // Ties are sorted by id, descending, byte by byte.
    assert_eq!(ids(&page.tasks), ["new", "b", "a", "B", "old"]);
    assert_eq!((page.total, page.next), (5, None));

    // The time of the status counts, not that of the last event or of the creation.
    appended(&store, append("old", 1, vec![status(TaskState::Working, 12), chunk("x")])).await;
    appended(&store, append("a", 1, vec![chunk("x")])).await;
    let page = store.list(everything()).await.expect("a list");
    assert_eq!(ids(&page.tasks), ["old", "new", "b", "a", "B"]);
}

pub(super) async fn filters_narrow_the_list_and_its_total(fixture: &dyn Fixture) {
    let store = fixture.open();
    let rows = [
        ("1", "x", TaskState::Completed, 10),
        ("2", "x", TaskState::Working, 20),
        ("3", "y", TaskState::Completed, 20),
        ("4", "y", TaskState::Working, 30),
        ("5", "x", TaskState::Completed, 30),
        ("6", "y", TaskState::Submitted, 40),
    ];
    fill(&store, &rows).await;
    made(&store, Create { owner: owner("bob"), ..create_in("bobs", "x", 99) }).await;
    let (x, completed) = (Some("x"), Some(TaskState::Completed));
    let cases: [FilterCase; 11] = [
        (None, None, None, &["6", "5", "4", "3", "2", "1"]),
        (x, None, None, &["5", "2", "1"]),
        (Some("none"), None, None, &[]),
        (None, completed, None, &["5", "3", "1"]),
        (None, Some(TaskState::Submitted), None, &["6"]),
        (None, Some(TaskState::Failed), None, &[]),
        // From that moment on, inclusive.
        (None, None, Some(20), &["6", "5", "4", "3", "2"]),
        (None, None, Some(21), &["6", "5", "4"]),
        (x, completed, None, &["5", "1"]),
        (x, None, Some(20), &["5", "2"]),
        (x, completed, Some(11), &["5"]),
    ];
    for (context, state, since, expected) in cases {
        for with_artifacts in [false, true] {
            let query = ListQuery {
                context: context.map(context_id),
                state,
                status_after: since.map(Timestamp),
                with_artifacts,
                ..everything()
            };
            let page = store.list(query.clone()).await.expect("a list");
            assert_eq!(ids(&page.tasks), expected, "{query:?}");
            assert_eq!(page.total, expected.len() as u64, "{query:?}");

            // The total covers all pages, and the filters apply to each page.
            let paged = walk(&store, ListQuery { limit: 1, ..query.clone() }, expected.len() as u64).await;
            assert_eq!(paged, expected, "{query:?}");
        }
    }
}

pub(super) async fn the_tasks_of_sub_agents_can_be_left_out(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("root")).await;
    // Enough for several pages without a root, and newer than every root.
    for n in 0..7 {
        let name = format!("child-{n}");
        made(&store, child(&name, "root", "root")).await;
        appended(&store, append(&name, 1, vec![status(TaskState::Working, 9)])).await;
    }
    made(&store, create_in("other", "d", 1)).await;
    made(&store, create("next")).await;
    let cases: [(Option<&str>, Option<TaskState>, &[&str]); 4] = [
        (None, None, &["root", "other", "next"]),
        (Some("c"), None, &["root", "next"]),
        (None, Some(TaskState::Submitted), &["root", "other", "next"]),
        (Some("c"), Some(TaskState::Working), &[]),
    ];
    for (context, state, expected) in cases {
        for with_artifacts in [false, true] {
            let context = context.map(context_id);
            let query = ListQuery { context, state, with_artifacts, roots_only: true, ..everything() };
            for limit in [1, 100] {
                let seen = walk(&store, ListQuery { limit, ..query.clone() }, expected.len() as u64).await;
                assert_eq!(seen, expected, "{query:?}");
            }
        }
    }
    let all = store.list(ListQuery { context: Some(context_id("c")), ..everything() }).await.expect("a list");
    assert_eq!((all.total, all.tasks.iter().filter(|task| task.parent.is_some()).count()), (9, 7));
}

pub(super) async fn pages_neither_skip_nor_repeat_tasks(fixture: &dyn Fixture) {
    const TASKS: usize = 23;
    let store = fixture.open();
    for n in 0..TASKS {
        // Groups of five with one time, created in a mixed order.
        let number = n * 7 % TASKS;
        let name = format!("task-{number:02}");
        made(&store, create_in(&name, "c", i64::try_from(number / 5).expect("small"))).await;
    }
    let whole = store.list(everything()).await.expect("a list");
    let expected: Vec<_> = (0..TASKS).rev().map(|number| format!("task-{number:02}")).collect();
    assert_eq!(ids(&whole.tasks), expected);
    for limit in [1, 2, 5, TASKS - 1, TASKS, TASKS + 1, usize::MAX] {
        let query = ListQuery { limit, ..everything() };
        assert_eq!(walk(&store, query, TASKS as u64).await, expected, "{limit} a page");
    }
}

pub(super) async fn an_empty_page_has_the_total(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let page = store.list(ListQuery { limit: 0, ..everything() }).await.expect("a list");
    assert_eq!((page.tasks, page.total), (Vec::new(), 1));
}

pub(super) async fn a_list_is_correct_without_snapshots(fixture: &dyn Fixture) {
    let store = fixture.open();
    let id = task_id("t");
    made(&store, create("t")).await;
    let mut events = vec![submitted("c", 1)];
    // Each batch, and whether it comes with a snapshot.
    let steps = [
        (vec![chunk("a")], false),
        (vec![status(TaskState::Working, 2), chunk("b")], false),
        (vec![chunk("c")], true),
        (vec![chunk("d")], false),
        (vec![chunk("e"), status(TaskState::InputRequired, 3), chunk("f")], false),
        (vec![status(TaskState::Completed, 4)], true),
    ];
    for (batch, with_snapshot) in steps {
        let expected = events.len() as u64;
        events.extend(batch.iter().cloned());
        let task = folded(&id, &events);
        let snapshot = with_snapshot.then(|| Arc::new(task.clone()));
        appended(&store, Append { snapshot, ..append("t", expected, batch) }).await;

        let whole = store.list(everything()).await.expect("a list");
        assert_eq!(whole.tasks, slice::from_ref(&task), "after {} events", events.len());
        let lean = store.list(ListQuery { with_artifacts: false, ..everything() }).await.expect("a list");
        let without = Task { artifacts: Vec::new(), ..task };
        assert_eq!(lean.tasks, [without], "after {} events", events.len());
    }
}

/// The ids of every page, in order. Checks the size of each page and the total on it.
async fn walk(store: &Arc<dyn Store>, mut query: ListQuery, total: u64) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let page = store.list(query.clone()).await.expect("a list");
        assert_eq!(page.total, total);
        seen.extend(ids(&page.tasks).into_iter().map(str::to_owned));
        assert!(seen.len() as u64 <= total, "a page was returned twice: {seen:?}");
        let Some(next) = page.next else { return seen };
        // Only a full page has a next one.
        assert_eq!(page.tasks.len(), query.limit);
        query.after = Some(next);
    }
}
