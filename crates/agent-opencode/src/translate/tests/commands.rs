//! Tests of commands, and of the synthetic message that OpenCode writes after the sub-agent of a command.

use longshore_testkit::fake_opencode::RecordedLine;

use super::replay::{Replay, decode};
use super::*;

const ANSWER: &str = "echo: Summarize the task tool output above and continue with your task.";

fn texts(events: &[AgentEvent]) -> Vec<String> {
    let blocks = fold(events).into_iter();
    blocks.filter(|block| block.kind == "text").map(|block| block.text).collect()
}

#[test]
fn a_command_is_a_turn_like_any_other() {
    let replay = Replay::of_command("command", "hello").finished();
    assert_eq!(replay.outcome.as_ref().map(short).as_deref(), Some("completed"));
    assert_eq!(texts(&replay.events), ["hello big world"]);
}

/// The synthetic message with which OpenCode continues never counts as another client's prompt, however it is received.
#[test]
fn the_turn_of_a_command_continues_after_its_sub_agent() {
    let replay = Replay::of_command("command", "sub").finished();
    assert_eq!(replay.outcome.as_ref().map(short).as_deref(), Some("completed"));
    assert_eq!(texts(&replay.events), [ANSWER]);

    let (session, prompt) = (replay.session.as_str(), replay.prompt.as_str());
    let stored = Replay::stored("command", session, prompt).expect("the recording lists the session");
    for received in 0..=stored.len() {
        let mut translator = Translator::new(session, prompt);
        translator.merge_messages(decode(stored[..received].to_vec()));
        translator.confirm_status(Some(&busy()));
        assert_eq!(translator.verdict(false), Verdict::Running, "after {received}");
        translator.gap();
        translator.merge_messages(decode(stored.clone()));
        translator.confirm_status(None);
        assert_eq!(translator.verdict(false), Verdict::Over(Outcome::Completed { remark: None }));
        assert_eq!(texts(&translator.take()), [ANSWER], "after {received}");
    }
}

/// Exactly one synthetic message follows each call of a sub-agent.
#[test]
fn a_prompt_of_another_client_after_a_sub_agent_ends_the_turn() {
    let recorded = Replay::of_command("command", "sub");
    let (session, prompt) = (recorded.session.clone(), recorded.prompt.clone());
    let stored = Replay::stored("command", &session, &prompt).expect("the recording lists the session");
    let mut other_prompt = stored.clone();
    other_prompt[2]["parts"][0]["synthetic"] = false.into();
    let mut twice = stored;
    let mut again = [twice[2].clone(), twice[3].clone()];
    for (at, id) in [(0, "msg_another"), (1, "msg_answer")] {
        again[at]["info"]["id"] = id.into();
        again[at]["parts"][0]["messageID"] = id.into();
        again[at]["info"]["time"]["created"] = 4_000_000_000_000_u64.into();
    }
    again[1]["info"]["parentID"] = "msg_another".into();
    twice.extend(again);
    for (messages, expected) in [
        (
            other_prompt,
            "failed: Another prompt in the same session made OpenCode drop the rest of this turn.",
        ),
        (twice, "completed"),
    ] {
        let mut translator = Translator::new(&session, &prompt);
        translator.merge_messages(decode(messages));
        translator.confirm_status(Some(&busy()));
        match translator.verdict(false) {
            Verdict::Over(outcome) => assert_eq!(short(&outcome), expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_refused_command_leaves_only_an_error() {
    let mut replay = Replay::of_command("command", "nope");
    assert_eq!(replay.prompt, "msg_never_stored");
    while replay.next_event().is_some() {}
    assert_eq!(replay.outcome, None);
    let outcome = short(&replay.translator.forced_outcome(false, true));
    assert!(outcome.contains("Command not found"), "{outcome}");
}

impl Replay {
    /// A recording, positioned before the first event of a command.
    fn of_command(name: &str, command: &str) -> Self {
        let is_command = |line: &RecordedLine| {
            matches!(line, RecordedLine::Request { path, body, .. }
                if path.ends_with("/command") && body["command"] == command)
        };
        let is_any = |line: &RecordedLine| matches!(line, RecordedLine::Request { path, .. } if path.ends_with("/command"));
        Self::from(name, is_command, is_any)
    }
}
