//! Tasks whose turn already runs when they are created.

use longshore_engine::port::RunningTurn;
use longshore_testkit::store_suite::make::{prompt_id, session_id, turn};

use super::*;

/// If only the first event were stored, the next start would prompt a turn that already runs.
#[tokio::test]
async fn a_task_whose_turn_cannot_be_written_is_not_created() {
    let bench = Bench::new().await;
    bench.store.bind(binding("ada", "c", "ses")).await.unwrap();
    let working = status(TaskState::Working, 2);
    let begun = Some(RunningTurn { working, turn: turn("ses", "typed") });
    let adopted = Create { begun, at: Timestamp(2), ..create("adopted") };
    // Each write after the task's row fails, without undoing the earlier ones.
    let writes = [
        "INSERT ON events WHEN NEW.seq = 1",
        "INSERT ON events WHEN NEW.seq = 2",
        "INSERT ON snapshots",
        "UPDATE ON sessions",
        "INSERT ON idempotency",
    ];
    for write in writes {
        let refuse = format!("CREATE TRIGGER refuse BEFORE {write} BEGIN SELECT RAISE(FAIL, 'refused'); END");
        bench.intruder().execute_batch(&refuse).unwrap();
        bench.store.create(adopted.clone()).await.expect_err(write);
        bench.intruder().execute_batch("DROP TRIGGER refuse").unwrap();

        assert_eq!(bench.store.get(&ada(), &task_id("adopted")).await.unwrap(), None, "{write}");
        let found = bench.store.turn_of(&session_id("ses"), &prompt_id("typed")).await.unwrap();
        assert_eq!(found, None, "{write}");
        let unfinished = bench.store.unfinished().await.unwrap();
        assert!(unfinished.iter().all(|stored| stored.task.id.as_str() == "t"), "{write}");
    }
    assert_eq!(bench.store.create(adopted).await.unwrap(), Created::New);
    let head = bench.store.head(&ada(), &task_id("adopted")).await.unwrap().unwrap();
    assert_eq!((head.seq, head.state), (Seq(2), TaskState::Working));
}
