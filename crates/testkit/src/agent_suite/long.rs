//! Deaths and cancels at many moments of a turn that streams.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::running::End;
use super::{AgentUnderTest, Reply};

const ROUNDS: usize = 100;
const WORDS: usize = 200;

fn words() -> Vec<String> {
    (0..WORDS).map(|number| format!("{number} ")).collect()
}

/// A reply with all kinds of events.
fn reply() -> Reply {
    let (first, second) = (words()[..WORDS / 2].to_vec(), words()[WORDS / 2..].to_vec());
    Reply::new().thought("hm").chunks(first).tool("ls", "out").chunks(second)
}

pub(super) async fn long_deaths_at_many_moments_leave_nothing_behind(agent: &dyn AgentUnderTest) {
    let whole = words().concat();
    let mut random = StdRng::seed_from_u64(22);
    let mut session = agent.session().await;
    for round in 0..ROUNDS {
        agent.reply_with(reply());
        let mut running = match agent.try_start(&session, "count").await {
            Ok(running) => running,
            Err(_) if !agent.abilities().keeps_sessions => {
                session = agent.session().await;
                agent.start(&session, "count").await
            }
            Err(error) => panic!("round {round}: {error}"),
        };
        running.read_some(random.random_range(0..WORDS)).await;
        agent.kill().await;
        let finished = running.rest().await;
        assert!(whole.starts_with(&finished.text()), "round {round}: {}", finished.text());
        let is_whole = finished.text() == whole;
        assert!(matches!(finished.end, End::Failed(_)) || is_whole, "round {round}: {finished:?}");
    }
    assert_eq!(agent.prompts().len(), ROUNDS, "nothing is prompted twice");
}

pub(super) async fn long_cancels_at_many_moments_leave_nothing_behind(agent: &dyn AgentUnderTest) {
    let whole = words().concat();
    let mut random = StdRng::seed_from_u64(22);
    let session = agent.session().await;
    for round in 0..ROUNDS {
        agent.reply_with(reply());
        let mut running = agent.start(&session, "count").await;
        running.read_some(random.random_range(0..WORDS)).await;
        agent.cancel(&session).await;
        let finished = running.rest().await;
        assert!(whole.starts_with(&finished.text()), "round {round}: {}", finished.text());
        match finished.end {
            End::Canceled => {}
            End::Completed => assert_eq!(finished.text(), whole, "round {round}"),
            End::Failed(reason) => panic!("round {round}: {reason}"),
        }
    }
    assert_eq!(agent.prompts().len(), ROUNDS, "nothing is prompted twice");
}
