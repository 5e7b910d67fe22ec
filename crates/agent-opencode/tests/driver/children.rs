//! Sub-agents: their start, their reports and their end, with broken streams and restarts of the gateway.

use longshore_model::ChildEvent;
use longshore_testkit::fake_opencode::{Cut, CutKind, Delivery, Gate, Play};

use super::child_turns::{check, only, turns};
use super::stage::{stage, start_root};
use super::*;

const NEVER: usize = usize::MAX;

#[tokio::test]
async fn recorded_sub_agents_have_turns_of_their_own() {
    let stopped = "canceled: The turn was stopped at OpenCode itself.";
    let refused = "failed: The model's provider refused OpenCode's credentials (status 401): Incorrect API key \
                   provided.";
    let cases = [
        ("task", "completed", "alpha b bravo c charlie delta e ", "completed"),
        ("task_child_error", refused, "", "completed"),
        ("task_abort", stopped, "alpha b bravo c charlie delta e echo fo foxtrot golf ho ", stopped),
        ("task_permission", "completed", "alpha b bravo c ", "completed"),
    ];
    for (name, end, text, root_end) in cases {
        let bench = Bench::new();
        bench.fake.play(&Play::new(name).foreign_aborts().foreign_replies());
        let session = bench.session().await;
        let (_, turn) = bench.start(&session, "go").await.unwrap();
        let events = all(turn).await;
        assert_eq!(outcome(&events), root_end, "{name}");
        let child = only(&events);
        assert_eq!(result(&child.reports), ended(end, text), "{name}");
        let start = child.start.unwrap();
        assert_eq!(start.caller, session.id, "{name}");
        assert!(start.call.unwrap().starts_with("call_"), "{name}");
        assert_eq!(start.kind.as_deref(), Some("general"), "{name}");
        assert_eq!(start.model.as_deref(), Some("scripted/scripted"), "{name}");
        assert!(start.prompt.contains("scn:") && start.title.is_some(), "{name}: {}", start.prompt);
        let stored = bench.fake.messages(&child.session);
        assert_eq!(stored[0]["info"]["id"], child.prompt.unwrap().as_str(), "{name}");
        bench.stop().await;
    }
}

/// The usage of the sub-agent alone, and of the turn with it.
#[tokio::test]
async fn a_sub_agent_has_usage_of_its_own() {
    let bench = Bench::new();
    bench.fake.play(&Play::new("task"));
    let events = bench.run("go").await;
    let usage = |events: &[AgentEvent]| {
        let usage = events.iter().rev().find_map(|event| match event {
            AgentEvent::Usage(usage) => Some(usage.total),
            _ => None,
        });
        usage.unwrap()
    };
    let sum = |session: &str| -> u64 {
        let messages = bench.fake.messages(session);
        messages.iter().filter_map(|message| message["info"]["tokens"]["total"].as_u64()).sum()
    };
    let child = only(&events);
    assert_eq!(usage(&child.reports), sum(&child.session));
    let all: u64 = bench.fake.sessions().iter().map(|session| sum(session)).sum();
    assert!(usage(&events) == all && all > usage(&child.reports));
    bench.stop().await;
}

/// Wherever the stream is cut, also around the whole life of the sub-agent.
#[tokio::test]
async fn a_sub_agent_that_ran_in_a_gap_is_reported_whole() {
    let mut cuts: Vec<(usize, usize)> = vec![(NEVER, 0), (0, 0), (8, NEVER), (12, 45), (10, 60)];
    cuts.extend((9..60).step_by(5).flat_map(|after| [(after, 1), (after, 12)]));
    for (after, lose) in cuts {
        let bench = Bench::new();
        bench.fake.play(&Play::new("task"));
        let session = bench.session().await;
        bench.fake.cut_events(Cut { after, how: CutKind::CleanEnd, lose });
        let (prompt, turn) = bench.start(&session, "go").await.unwrap();
        let events = all(turn).await;
        let what = format!("after {after}, {lose} lost");
        let child = only(&events);
        let expected = ended("completed", "alpha b bravo c charlie delta e ");
        assert_eq!(result(&child.reports), expected, "{what}");
        assert!(child.start.is_some_and(|start| start.call.is_some()), "{what}");
        assert_eq!(outcome(&events), "completed", "{what}");
        // Resumed by a gateway whose log has nothing of the sub-agent.
        let turn = bench.resume(&session, &prompt, Resume::default()).await;
        assert_eq!(result(&only(&all(turn).await).reports), expected, "{what}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn sub_agents_of_sub_agents_name_their_callers() {
    for gap in [false, true] {
        sub_agents_of_sub_agents(gap).await;
    }
}

async fn sub_agents_of_sub_agents(gap: bool) {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    if gap {
        // No event arrives; the lists show everything.
        bench.fake.deliver(Delivery::HeartbeatsOnly);
    }
    stage.start_answering_child(root, &step).await;
    stage.create("ses_grandchild", "ses_child").await;
    stage.call("ses_child", "msg_c1", "call_2", "ses_grandchild", "running").await;
    stage.work("ses_grandchild", "msg_g", "deep").await;
    stage.call("ses_child", "msg_c1", "call_2", "ses_grandchild", "completed").await;
    stage.text("ses_child", "msg_c1", "shallow").await;
    stage.finish("ses_child", "msg_c1", "msg_c", "stop").await;
    stage.idle("ses_child").await;
    stage.call(root, &step, "call_1", "ses_child", "completed").await;
    if gap {
        bench.fake.deliver(Delivery::Live);
        bench.fake.end_streams();
    }
    gate.open();
    let events = all(turn).await;
    let [child, grandchild] = turns(&events, &[]).try_into().expect("two turns");
    assert_eq!(result(&child.reports), ended("completed", "shallow"));
    assert_eq!(result(&grandchild.reports), ended("completed", "deep"));
    let starts = [child, grandchild].map(|turn| turn.start.expect("a start"));
    let callers: Vec<(&str, &str)> = starts
        .iter()
        .map(|start| (start.caller.as_str(), start.call.as_deref().unwrap_or_default()))
        .collect();
    assert_eq!(callers, [(root, "call_1"), ("ses_child", "call_2")]);
    assert_eq!(starts[0].prompt, "do call_1");
    assert_eq!(outcome(&events), "completed");
    bench.stop().await;
}

#[tokio::test]
async fn a_sub_agent_that_is_called_again_has_another_turn() {
    for gap in [false, true] {
        let bench = Bench::new();
        let gate = Gate::new();
        let (session, _, turn, step) = start_root(&bench, &gate).await;
        let (stage, root) = (stage(&bench), session.id.as_str());
        if gap {
            // No event arrives; the lists show everything.
            bench.fake.deliver(Delivery::HeartbeatsOnly);
        }
        stage.create("ses_child", root).await;
        for (call, prompt, text) in [("call_1", "msg_c", "first"), ("call_2", "msg_d", "second")] {
            stage.call(root, &step, call, "ses_child", "running").await;
            stage.work("ses_child", prompt, text).await;
            stage.call(root, &step, call, "ses_child", "completed").await;
            // Late, as from the real OpenCode.
            stage.idle("ses_child").await;
        }
        if gap {
            bench.fake.deliver(Delivery::Live);
            bench.fake.end_streams();
        }
        gate.open();
        let events = all(turn).await;
        let ends: Vec<_> = turns(&events, &[]).iter().map(|turn| result(&turn.reports)).collect();
        assert_eq!(ends, [ended("completed", "first"), ended("completed", "second")], "gap: {gap}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_running_sub_agent_ends_before_its_aborted_turn() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.start_answering_child(root, &step).await;
    stage.text("ses_child", "msg_c1", "so far").await;
    bench.agent.cancel(&session).await.unwrap();
    let events = all(turn).await;
    let stopped = "canceled: The turn was stopped.";
    assert_eq!(outcome(&events), stopped);
    assert_eq!(result(&only(&events).reports), ended(stopped, "so far"));
    bench.stop().await;
}

/// OpenCode sends the events of the sub-agent first, and the call that names it later or never.
#[tokio::test]
async fn a_sub_agent_is_not_lost_when_its_call_comes_late_or_never() {
    for (is_called, much) in [(true, false), (true, true), (false, false)] {
        let bench = Bench::new();
        let gate = Gate::new();
        let (session, _, turn, step) = start_root(&bench, &gate).await;
        let (stage, root) = (stage(&bench), session.id.as_str());
        stage.create("ses_child", root).await;
        if is_called {
            // The session is created for the call, and its first message comes after it; the call's event is late.
            stage.clock.set(stage.clock.get() + 1);
        }
        let before = stage.clock.get();
        stage.user("ses_child", "msg_c", "a job").await;
        stage.begin("ses_child", "msg_c1", "msg_c").await;
        for _ in 0..if much { 300 } else { 1 } {
            stage.text("ses_child", "msg_c1", "early").await;
        }
        if is_called {
            let after = stage.clock.replace(before - 1);
            stage.call(root, &step, "call_1", "ses_child", "running").await;
            stage.clock.set(after);
        }
        stage.finish("ses_child", "msg_c1", "msg_c", "stop").await;
        stage.idle("ses_child").await;
        gate.open();
        let events = all(turn).await;
        let child = only(&events);
        assert_eq!(result(&child.reports), ended("completed", "early"), "{is_called} {much}");
        let start = child.start.unwrap();
        let expected = if is_called { (Some("call_1"), "do call_1") } else { (None, "a job") };
        assert_eq!((start.call.as_deref(), start.prompt.as_str()), expected);
        let known = (start.kind.as_deref(), start.model.as_deref());
        assert_eq!(known, (Some("general"), Some("scripted/scripted")));
        assert_eq!((start.caller.as_str(), child.prompt.as_deref()), (root, Some("msg_c")));
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_call_that_fails_before_the_sub_agent_begins_ends_the_sub_agent() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, mut turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.create("ses_child", root).await;
    stage.call(root, &step, "call_1", "ses_child", "running").await;
    stage.call(root, &step, "call_1", "ses_child", "error").await;
    // The sub-agent ends before the turn does.
    let ended = |event: &AgentEvent| {
        matches!(event, AgentEvent::Child { event, .. }
            if matches!(&**event, ChildEvent::Report(AgentEvent::Ended(_))))
    };
    let before = until(&mut turn, ended).await;
    let child = only(&before);
    assert_eq!(outcome(&child.reports), "failed: The sub-agent did not begin: Task cancelled");
    gate.open();
    let rest = all(turn).await;
    assert_eq!((outcome(&rest), turns(&rest, &[]).len()), ("completed".to_owned(), 0));
    bench.stop().await;
}

/// A sub-agent that writes to the session of its own caller calls no sub-agent.
#[tokio::test]
async fn a_session_is_never_a_sub_agent_of_itself() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.call(root, &step, "call_1", root, "running").await;
    stage.call(root, &step, "call_1", root, "completed").await;
    gate.open();
    let events = all(turn).await;
    assert_eq!((outcome(&events), turns(&events, &[]).len()), ("completed".to_owned(), 0));
    bench.stop().await;
}

#[tokio::test]
async fn an_ask_of_a_sub_agent_is_reported_by_the_root_and_stops_nothing_else() {
    let bench = Bench::new();
    bench.fake.play(&Play::new("task_permission"));
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
    let ask = last_ask(&events);
    let child = turns(&events, &[]).remove(0);
    assert_eq!(ask.session.as_str(), child.session);
    bench.agent.reply(&session, &ask, &once()).await.unwrap();
    while let Some(event) = next(&mut turn).await {
        events.push(event);
    }
    check(&events, &[]);
    assert_eq!(outcome(&only(&events).reports), "completed");
    bench.stop().await;
}

/// A call can name any session, also one that was created for something else. OpenCode accepts it.
#[tokio::test]
async fn a_sub_agent_call_can_use_an_unrelated_session() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    bench.fake.add_session("ses_old", bench.fake.directory());
    stage.work("ses_old", "msg_o", "old").await;
    stage.call(root, &step, "call_1", "ses_old", "running").await;
    stage.work("ses_old", "msg_c", "new").await;
    stage.call(root, &step, "call_1", "ses_old", "completed").await;
    gate.open();
    let events = all(turn).await;
    let child = only(&events);
    assert_eq!(result(&child.reports), ended("completed", "new"));
    assert_eq!(child.prompt.as_deref(), Some("msg_c"));
    bench.stop().await;
}

/// No agent waits for the sub-agent: the turn ends, and the sub-agent goes on.
#[tokio::test]
async fn a_sub_agent_that_outlives_its_turn_is_not_reported_as_done() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.start_answering_child(root, &step).await;
    stage.call(root, &step, "call_1", "ses_child", "completed").await;
    gate.open();
    let events = all(turn).await;
    assert_eq!(outcome(&events), "completed");
    assert!(
        outcome(&only(&events).reports)
            .starts_with("failed: The turn ended while this sub-agent still worked.")
    );
    bench.stop().await;
}

#[tokio::test]
async fn a_runaway_sub_agent_is_stopped_and_its_caller_goes_on() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.start_child(root, &step).await;
    for nth in 0..5 {
        let answer = format!("msg_c{nth}");
        stage.begin("ses_child", &answer, "msg_c").await;
        stage.finish("ses_child", &answer, "msg_c", "unknown").await;
    }
    bench.fake.wait_for_request("POST", "/session/ses_child/abort", 1).await;
    stage.idle("ses_child").await;
    stage.call(root, &step, "call_1", "ses_child", "error").await;
    gate.open();
    let events = all(turn).await;
    let end = outcome(&only(&events).reports);
    assert!(end.starts_with("failed: The model's replies ended without a finish reason"), "{end}");
    assert_eq!(outcome(&events), "completed");
    bench.stop().await;
}
