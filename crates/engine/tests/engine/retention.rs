//! Old data is removed in the background, and late readers are informed of the gap.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{EngineConfig, RetentionRules, SubscriptionStart};
use longshore_model::{ErrorKind, Seq, TaskState};

use crate::harness::{Harness, alice, message, read_all, start_with};

const HOUR: Duration = Duration::from_hours(1);

fn start(fold_after: Option<Duration>, keep_tasks: Option<Duration>, window: Duration) -> Harness {
    let config = EngineConfig {
        retention: RetentionRules { fold_after, keep_tasks },
        idempotency_window: window,
        ..EngineConfig::default()
    };
    let h = start_with(Arc::new(longshore_store::memory()), config);
    h.engine.start_retention();
    h
}

#[tokio::test(start_paused = true)]
async fn the_log_of_an_old_task_is_folded_and_its_readers_get_a_gap() {
    let mut h = start(Some(2 * HOUR), None, 100 * HOUR);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", "x").await;
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    let before = h.task(&sent.task).await;
    let waiting = h.send("d", "m2").await;
    let _turn = h.turn().await;

    let first = async |task| h.store.head(&alice(), task).await.unwrap().unwrap().first;
    tokio::time::sleep(HOUR).await;
    assert_eq!(first(&sent.task).await, Seq(1));
    tokio::time::sleep(HOUR + Duration::from_mins(2)).await;
    let head = first(&sent.task).await;
    assert_eq!((head, first(&waiting.task).await), (Seq(4), Seq(1)), "what is not over stays");

    assert_eq!(h.task(&sent.task).await, before);
    // A reader that has not seen all events gets a gap; a reader that has does not.
    for cursor in 0..=4 {
        let subscription = h.engine.subscribe(&alice(), &sent.task, Some(Seq(cursor).into())).await.unwrap();
        let is_gap = matches!(subscription.opening, SubscriptionStart::Gap(..));
        let rest = read_all(subscription.reader).await.len();
        assert_eq!((is_gap, rest), (cursor < 3, usize::from(cursor == 3)), "{cursor}");
    }
    // A repeated send finds the same task, and its reader gets a gap.
    let again = h.engine.send(&alice(), message("c", "m1")).await.unwrap();
    assert_eq!(again.task, sent.task);
    assert!(matches!(again.opening, SubscriptionStart::Gap(..)), "{:?}", again.opening);
    let settled = h.engine.settled(&alice(), again.reader).await.unwrap();
    assert_eq!(settled.task, before);
}

#[tokio::test(start_paused = true)]
async fn an_old_task_is_removed_if_configured() {
    for (keep_tasks, stays) in [(Some(3 * HOUR), false), (None, true)] {
        let mut h = start(None, keep_tasks, HOUR);
        let sent = h.send("c", "m1").await;
        h.turn().await.complete().await;
        h.reaches(&sent.task, TaskState::Completed).await;
        tokio::time::sleep(2 * HOUR).await;
        h.engine.get(&alice(), &sent.task).await.unwrap();
        tokio::time::sleep(HOUR + Duration::from_mins(2)).await;
        match h.engine.get(&alice(), &sent.task).await {
            Ok(_) => assert!(stays),
            Err(error) => assert_eq!((stays, error.kind()), (false, ErrorKind::TaskNotFound)),
        }
        // The context can be used like a new one.
        h.send("c", "m2").await;
        h.turn().await.complete().await;
        h.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_kept_while_a_repeated_send_leads_to_it() {
    let minute = Duration::from_mins(1);
    let mut h = start(None, Some(minute), 10 * minute);
    let sent = h.send("c", "m1").await;
    h.turn().await.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    tokio::time::sleep(8 * minute).await;
    assert_eq!(h.send("c", "m1").await.task, sent.task);
    assert_eq!(h.agent.log().prompted.len(), 1, "it was prompted again");
    tokio::time::sleep(4 * minute).await;
    let gone = h.engine.get(&alice(), &sent.task).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::TaskNotFound);
    h.send("c", "m1").await;
    h.turn().await.complete().await;
}
