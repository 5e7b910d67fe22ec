use std::path::Path;

use longshore_engine::port::PageCursor;
use longshore_model::{TaskState, Timestamp};
use longshore_testkit::store_suite::make::{context_id, everything, task_id};

use super::super::tests::query_plan;
use super::super::{Durability, schema};
use super::*;

fn open(directory: &Path) -> Connection {
    schema::open_writer(&directory.join("store.db"), Durability::Process).unwrap()
}

#[test]
fn every_list_walks_an_index_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let after = PageCursor { status_at: Timestamp(5), task: task_id("t") };
    // Each bit selects one of the filters.
    for chosen in 0..64_u8 {
        let has = |bit: u8| chosen >> bit & 1 == 1;
        let query = ListQuery {
            context: has(0).then(|| context_id("c")),
            state: has(1).then_some(TaskState::Working),
            status_after: has(2).then_some(Timestamp(1)),
            after: has(3).then(|| after.clone()),
            with_artifacts: has(4),
            roots_only: has(5),
            ..everything()
        };
        let mut filter = Filter::new(&query, &[]);
        // The index alone gives the total, except for the tasks of a context with a state filter, which are few.
        let count = query_plan(&db, &filter.count());
        assert_eq!(count.contains("COVERING INDEX"), !(has(0) && has(1)), "{query:?}\n{count}");
        let parts = if query.with_artifacts { Parts::All } else { Parts::WithoutArtifacts };
        let sql = filter.page(parts, &query);
        let plan = query_plan(&db, &sql);
        let index = match (has(0), has(1)) {
            (false, false) => "INDEX tasks_by_owner (owner=?",
            (true, _) => "INDEX tasks_by_context (owner=? AND context=?",
            (false, true) => "INDEX tasks_by_state (owner=? AND state=?",
        };
        assert!(plan.contains(index), "{query:?}\n{plan}");
        if has(3) {
            // A later page starts in the middle of the index.
            assert!(plan.contains("(status_at,id)<(?,?)"), "{query:?}\n{plan}");
        }
        // A separate sort would read every task of the owner for each page.
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{query:?}\n{plan}");
    }
}

#[test]
fn the_tasks_of_sub_agents_are_found_by_their_root() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let plan = query_plan(&db, &super::super::read::select_children());
    assert!(plan.contains("INDEX tasks_by_root (root=?)"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
}

#[test]
fn a_start_reads_only_unfinished_tasks() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let plan = query_plan(&db, &super::super::read::select_unfinished());
    assert!(plan.contains("INDEX tasks_unfinished"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
}

#[test]
fn a_new_task_finds_expired_keys_by_their_age() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let check = query_plan(&db, super::super::write::HAS_EXPIRED);
    assert!(check.contains("INDEX idempotency_by_age (owner=? AND at<?)"), "{check}");
    assert!(!check.contains("TEMP B-TREE") && !check.contains("SCAN"), "{check}");
    let plan = query_plan(&db, super::super::write::DELETE_EXPIRED);
    assert!(plan.contains("PRIMARY KEY (owner=? AND digest=?)"), "{plan}");
    assert!(plan.contains("INDEX idempotency_by_age (owner=? AND at<?)"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{plan}");
}

#[test]
fn the_index_condition_has_the_words_of_the_terminal_states() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    for state in TaskState::ALL {
        let sql = format!("SELECT '{state}' NOT IN ({})", super::super::read::TERMINAL_WORDS);
        let unfinished: bool = db.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(unfinished, !state.is_terminal(), "{state}");
    }
}
