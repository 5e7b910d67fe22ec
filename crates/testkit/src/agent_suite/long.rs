//! Deaths and cancels at many moments of a turn that streams.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::running::End;
use super::{AgentUnderTest, Reply};

/// In each of two checks: a hundred in all.
const DEATHS: usize = 50;
const CANCELS: usize = 100;
const WORDS: usize = 200;

fn words() -> Vec<String> {
    (0..WORDS).map(|number| format!("{number} ")).collect()
}

/// A reply with all kinds of events.
fn reply() -> Reply {
    let (first, second) = (words()[..WORDS / 2].to_vec(), words()[WORDS / 2..].to_vec());
    Reply::new().thought("hm").chunks(first).tool("ls", "out").chunks(second)
}

pub(super) async fn long_deaths_while_the_agent_speaks_leave_nothing_behind(agent: &dyn AgentUnderTest) {
    let words = words();
    die_often(agent, &Reply::new().thought("hm").chunks(words), 1).await;
}

pub(super) async fn long_deaths_while_the_agent_works_leave_nothing_behind(agent: &dyn AgentUnderTest) {
    let reply =
        words().chunks(4).fold(Reply::new(), |reply, words| reply.chunks(words.to_vec()).tool("ls", "out"));
    die_often(agent, &reply, 2).await;
}

/// Kills the agent at many moments of a turn. A turn between two deaths shows that the agent is well.
async fn die_often(agent: &dyn AgentUnderTest, reply: &Reply, seed: u64) {
    let whole = words().concat();
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..DEATHS {
        agent.reply_with(reply.clone());
        let session = agent.session().await;
        let mut running = agent.start(&session, "count").await;
        running.read_some(random.random_range(0..WORDS)).await;
        agent.kill().await;
        let finished = running.rest().await;
        assert!(whole.starts_with(&finished.text()), "round {round}: {}", finished.text());
        let is_whole = finished.text() == whole;
        assert!(matches!(finished.end, End::Failed(_)) || is_whole, "round {round}: {finished:?}");
        agent.reply_with(Reply::new().text("alive"));
        agent.run(&session, "next").await.completed("alive");
    }
    assert_eq!(agent.prompts().len(), 2 * DEATHS, "nothing is prompted twice");
}

pub(super) async fn long_cancels_at_many_moments_leave_nothing_behind(agent: &dyn AgentUnderTest) {
    let whole = words().concat();
    let mut random = StdRng::seed_from_u64(22);
    let session = agent.session().await;
    for round in 0..CANCELS {
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
    assert_eq!(agent.prompts().len(), CANCELS, "nothing is prompted twice");
}
