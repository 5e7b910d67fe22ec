//! A reader that does not read.

use std::time::Duration;

use super::{AgentUnderTest, Reply};

/// More events than any queue of a driver may hold.
const WORDS: usize = 5_000;
/// The largest queue that a driver may have. The port calls for a bound, and does not say which.
const MOST_WAITING: usize = 1_024;

/// The queue counts as full when it has not grown for so many looks.
const QUIET_LOOKS: usize = 20;
const LOOK_EVERY: Duration = Duration::from_millis(5);

fn words() -> Vec<String> {
    (0..WORDS).map(|number| format!("{number} ")).collect()
}

pub(super) async fn an_unread_turn_is_bounded_and_loses_nothing(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().chunks(words()));
    let session = agent.session().await;
    let running = agent.start(&session, "count").await;
    // No event announces that the queue is full. If the agent is slower than this, the check is weaker and not wrong.
    let (mut most, mut quiet_looks) = (0, 0);
    while quiet_looks < QUIET_LOOKS {
        tokio::time::sleep(LOOK_EVERY).await;
        let waiting = running.turn.events.len();
        quiet_looks = if waiting > most { 0 } else { quiet_looks + 1 };
        most = most.max(waiting);
    }
    assert!(most <= MOST_WAITING, "{most} events waited for the reader");
    running.rest().await.completed(&words().concat());
}

pub(super) async fn an_unread_turn_harms_no_other(agent: &dyn AgentUnderTest) {
    let (a, b) = (agent.session().await, agent.session().await);
    agent.reply_with(Reply::new().chunks(words()));
    let unread = agent.start(&a, "count").await;
    agent.reply_with(Reply::new().text("quick"));
    let other = agent.start(&b, "hello").await;
    other.rest().await.completed("quick");
    unread.rest().await.completed(&words().concat());
}
