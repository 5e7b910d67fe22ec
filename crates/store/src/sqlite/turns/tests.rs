use super::super::tests::query_plan;
use super::super::{Durability, contexts, schema};
use super::*;

#[test]
fn every_query_on_sessions_and_prompts_walks_an_index_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let db = schema::open_writer(&directory.path().join("store.db"), Durability::Process).unwrap();
    let cases = [
        (BY_PROMPT, "INDEX tasks_by_prompt (session=? AND prompt=?)"),
        (JOINED, "INDEX tasks_joined (session=?)"),
        (contexts::CONTEXTS_OF_SESSION, "COVERING INDEX bindings_by_session (session=? AND owner=?)"),
        (contexts::SESSIONS_USED_SINCE, "INDEX sessions_by_use (at>?)"),
    ];
    for (sql, index) in cases {
        let plan = query_plan(&db, sql);
        assert!(plan.contains(index), "{sql}\n{plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{sql}\n{plan}");
    }
}
