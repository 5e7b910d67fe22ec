//! Turns with sub-agents that are resumed after a restart of the gateway.

use longshore_engine::port::{ResumedChild, ResumedChildState};
use longshore_model::{ChildEvent, SessionId};
use longshore_testkit::fake_opencode::{Gate, Play};

use super::child_turns::{check, logged, turns};
use super::*;

/// What the log has of a turn and its sub-agents, as the engine returns it.
fn past(events: &[AgentEvent], with_prompt: bool) -> Resume {
    let mut children = Vec::new();
    for turn in turns(events, &[]) {
        let state = if turn.is_over() {
            ResumedChildState::Over
        } else {
            let prompt = turn.prompt.as_deref().filter(|_| with_prompt);
            let prompt = prompt.map(|prompt| PromptId::parse(prompt).expect("an id"));
            ResumedChildState::Running { prompt, artifacts: logged(&turn.reports) }
        };
        let session = SessionId::parse(&turn.session).expect("an id");
        children.push(ResumedChild { session, call: turn.start.and_then(|start| start.call), state });
    }
    let root = events.iter().filter(|event| !matches!(event, AgentEvent::Child { .. }));
    Resume { artifacts: logged(root), children, ..Resume::default() }
}

#[tokio::test]
async fn a_turn_is_resumed_while_a_sub_agent_runs() {
    // After how many texts the gateway stops, and whether the log has the sub-agent's prompt.
    for (nth, with_prompt) in [(1, true), (3, true), (1, false)] {
        let bench = Bench::new();
        let gate = Gate::new();
        bench.fake.play(&Play::new("task").hold_after("message.part.delta", nth, &gate));
        let session = bench.session().await;
        let (prompt, mut turn) = bench.start(&session, "go").await.unwrap();
        let mut seen = 0;
        let mut before = Vec::new();
        while seen < nth {
            let event = next(&mut turn).await.unwrap();
            let is_text = matches!(&event, AgentEvent::Child { event, .. }
                if matches!(&**event, ChildEvent::Report(AgentEvent::Text { .. })));
            seen += usize::from(is_text);
            before.push(event);
        }
        drop(turn);
        let known = past(&before, with_prompt);
        let child = turns(&before, &[]).remove(0);
        let mut turn = bench.resume(&session, &prompt, known).await;
        gate.open();
        let mut after = Vec::new();
        while let Some(event) = next(&mut turn).await {
            after.push(event);
        }
        check(&after, &[&child.session]);
        let [rest] = turns(&after, &[&child.session]).try_into().unwrap();
        assert_eq!(rest.prompt.is_none(), with_prompt, "reported once");
        let mut whole = child.reports;
        whole.extend(rest.reports);
        assert_eq!(result(&whole), ended("completed", "alpha b bravo c charlie delta e "), "{nth}");
        assert_eq!(outcome(&after), "completed");
        assert_eq!(bench.fake.prompts().len(), 1);
        bench.stop().await;
    }
}

#[tokio::test]
async fn nothing_of_a_finished_sub_agent_is_reported_again() {
    let bench = Bench::new();
    bench.fake.play(&Play::new("task"));
    let session = bench.session().await;
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    let events = all(turn).await;
    let again = all(bench.resume(&session, &prompt, past(&events, true)).await).await;
    assert_eq!(turns(&again, &[]).len(), 0, "{again:?}");
    assert!(!again.iter().any(|event| matches!(event, AgentEvent::Tool { .. })), "{again:?}");
    // The gateway was stopped between the end of the call and the end of the sub-agent.
    let mut resume = past(&events, true);
    let child = resume.children[0].session.clone();
    let running = turns(&events, &[]).remove(0);
    resume.children[0].state = ResumedChildState::Running {
        prompt: running.prompt.map(|prompt| PromptId::parse(&prompt).unwrap()),
        artifacts: logged(&running.reports),
    };
    let mut turn = bench.resume(&session, &prompt, resume).await;
    let mut again = Vec::new();
    while let Some(event) = next(&mut turn).await {
        again.push(event);
    }
    let [rest] = turns(&again, &[child.as_str()]).try_into().unwrap();
    assert_eq!(result(&rest.reports), ended("completed", ""));
    bench.stop().await;
}

#[tokio::test]
async fn a_resumed_turn_reports_once_that_it_has_caught_up() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.play(&Play::new("text").hold_after("message.part.delta", 2, &gate));
    let session = bench.session().await;
    let (prompt, mut turn) = bench.start(&session, "go").await.unwrap();
    let before = until(&mut turn, |event| matches!(event, AgentEvent::Text { .. })).await;
    drop(turn);
    let mut turn = bench.resume(&session, &prompt, past(&before, true)).await;
    until(&mut turn, |event| *event == AgentEvent::CaughtUp).await;
    gate.open();
    let after = all(turn).await;
    assert_eq!(outcome(&after), "completed");
    assert!(!after.contains(&AgentEvent::CaughtUp), "reported before: {after:?}");

    // The turn is over by now, and its end is reported instead.
    let again = all(bench.resume(&session, &prompt, Resume::default()).await).await;
    assert_eq!((outcome(&again), text_of(&again).is_empty()), ("completed".to_owned(), false));
    assert!(!again.contains(&AgentEvent::CaughtUp), "{again:?}");
    bench.stop().await;
}
