//! Turns that are given up.

use longshore_model::PermissionReply;
use longshore_testkit::fake_opencode::{Gate, Play, Tool, Turn as Script};

use super::*;

fn bench(silence: Option<Duration>, max_steps: Option<usize>) -> Bench {
    let change = |config: &mut OpenCodeConfig| config.watchdog = Watchdog { silence, max_steps };
    Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), change)
}

const SHORT: Option<Duration> = Some(Duration::from_secs(3));

#[tokio::test]
async fn a_model_that_is_silent_is_given_up() {
    let bench = bench(SHORT, None);
    bench.fake.queue(Script::new().text("and then", 1).silence());
    let events = bench.run("go").await;
    assert!(
        outcome(&events).starts_with("failed: Nothing came from the model for 3 s"),
        "{}",
        outcome(&events)
    );
    assert_eq!(text_of(&events), "and then");
    bench.fake.requested("POST", "/abort", 1).await;
    assert_eq!(bench.fake.prompts().len(), 1);
    bench.stop().await;
}

/// The sub-agent's model is silent, and so is the turn that waits for it.
#[tokio::test]
async fn a_silent_sub_agent_is_silence_too() {
    let bench = bench(SHORT, None);
    let gate = Gate::new();
    bench.fake.play(&Play::new("task").hold_after("message.part.delta", 2, &gate));
    let events = bench.run("go").await;
    assert!(outcome(&events).starts_with("failed: Nothing came from the model"), "{}", outcome(&events));
    let [child] = family::turns(&events, &[]).try_into().unwrap();
    assert_eq!(outcome(&child.reports), "canceled: The turn was stopped.");
    assert_eq!(text_of(&child.reports), "alpha b bravo c ");
    bench.stop().await;
}

#[tokio::test]
async fn an_open_ask_is_no_silence() {
    let bench = bench(Some(Duration::from_secs(2)), None);
    bench.fake.queue(Script::new().guarded_tool(Tool::bash("rm x", "")).text("done", 1));
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    let events = until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
    let Some(AgentEvent::Asked(ask)) = events.last().cloned() else { panic!("no ask") };
    // Nothing announces that nothing happens: more than twice the limit passes.
    tokio::time::sleep(Duration::from_millis(4500)).await;
    let once = longshore_model::Answer::Permission { reply: PermissionReply::Once, message: None };
    bench.agent.reply(&session, &ask, &once).await.unwrap();
    assert_eq!(outcome(&all(turn).await), "completed");
    bench.stop().await;
}

#[tokio::test]
async fn a_turn_with_too_many_steps_is_given_up() {
    let steps = |count: usize| {
        let script = (0..count - 1).fold(Script::new(), |script, _| script.tool(Tool::bash("ls", "a\n")));
        script.text("done", 1)
    };
    for (count, end) in [(3, "completed"), (4, "failed: The model did not come to an end within the 3 steps")]
    {
        let bench = bench(None, Some(3));
        bench.fake.queue(steps(count));
        let events = bench.run("go").await;
        assert!(outcome(&events).starts_with(end), "{count}: {}", outcome(&events));
        bench.stop().await;
    }
}
