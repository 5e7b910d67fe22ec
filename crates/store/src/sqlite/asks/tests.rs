use longshore_engine::port::Store;
use longshore_model::ErrorKind;
use longshore_testkit::store_suite::make::{
    ada, asking, closed, closes, create, interrupt, opens, request_id,
};

use super::super::tests::query_plan;
use super::super::{Durability, SqliteStore, schema};
use super::*;

#[test]
fn closed_asks_cost_queries_for_open_asks_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let db = schema::open_writer(&directory.path().join("store.db"), Durability::Process).unwrap();
    let cases = [
        (FIND, "(request=?)"),
        (OPEN_OF_OWNER, "INDEX interrupts_open (owner=? AND kind=?)"),
        (OPEN_OF_TASK, "INDEX interrupts_by_task (task=? AND resolution=?)"),
        (CLOSE, "INDEX interrupts_by_task (task=? AND resolution=?)"),
        (FORGET_OLD, "INDEX interrupts_by_age (closed_at<?)"),
    ];
    for (sql, expected) in cases {
        let plan = query_plan(&db, sql);
        assert!(plan.contains(expected) && !plan.contains("SCAN"), "{sql}\n{plan}");
    }
}

#[tokio::test]
async fn a_damaged_ask_is_reported() {
    let damages = [
        "UPDATE interrupts SET kind = 'riddle'",
        "UPDATE interrupts SET session = 'a/b'",
        "UPDATE interrupts SET details = '{'",
        "UPDATE interrupts SET questions = '{}'",
        "UPDATE interrupts SET resolution = 'shrugged'",
        "UPDATE interrupts SET kind = CAST(x'ff' AS TEXT)",
        "UPDATE interrupts SET session = CAST(x'ff' AS TEXT)",
        "UPDATE interrupts SET summary = CAST(x'ff' AS TEXT)",
        "UPDATE interrupts SET details = CAST(x'ff' AS TEXT)",
        "UPDATE interrupts SET questions = CAST(x'ff' AS TEXT)",
        "UPDATE interrupts SET resolution = CAST(x'ff' AS TEXT)",
        "UPDATE interrupts SET how = CAST(x'ff' AS TEXT)",
    ];
    for damage in damages {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let store = SqliteStore::open(&path, Durability::Process).unwrap();
        store.create(create("t")).await.unwrap();
        let changes = vec![opens(&interrupt("t", "r")), closes("r", closed(Resolution::Replied, 1))];
        store.append(asking("t", 1, changes)).await.unwrap();
        store.append(asking("t", 2, vec![opens(&interrupt("t", "whole"))])).await.unwrap();

        Connection::open(&path).unwrap().execute(&format!("{damage} WHERE request = 'r'"), []).unwrap();
        let error = store.interrupt(&ada(), &request_id("r")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{damage}");
        assert!(error.message().contains("ask r is damaged"), "{error}");
        // The other asks are unaffected.
        let open = store.open_interrupts(&ada(), AskKind::Permission).await.unwrap();
        assert_eq!(open, [interrupt("t", "whole")], "{damage}");
    }
}
