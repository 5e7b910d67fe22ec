//! Tests of prompts that join a turn: the turn is over when its newest prompt is answered.

use longshore_testkit::fake_opencode::{RecordedLine, Recording};
use serde_json::{Value, json};

use super::merging::{feed, message, step};
use super::replay::decode;
use super::*;

fn join(translator: &mut Translator, prompts: &[(&str, Delivery)]) {
    translator.join(prompts.iter().copied());
}

fn user(translator: &mut Translator, id: &str, created: u64) {
    let info = json!({"id": id, "role": "user", "time": {"created": created}});
    feed(translator, "message.updated", &json!({"info": info}));
}

/// An answer that is complete.
fn answer(translator: &mut Translator, id: &str, parent: &str, created: u64, finish: &str) {
    let more = json!({"finish": finish, "time": {"created": created, "completed": created + 1}});
    message(translator, id, parent, &more);
}

fn status(translator: &mut Translator, status: &str) {
    feed(translator, "session.status", &json!({"status": {"type": status}}));
}

fn verdict(translator: &Translator) -> String {
    match translator.verdict(false) {
        Verdict::Running => "running".to_owned(),
        Verdict::Unsettled => "unsettled".to_owned(),
        Verdict::Over(outcome) => short(&outcome),
    }
}

const UNREAD: &str =
    "A message that joined this turn may not have been read; look at the session before you send it again.";

/// Recordings in which a busy session is prompted, as one turn that the later prompts join.
#[test]
fn prompts_that_join_during_a_text_or_a_tool_call_are_one_turn() {
    for (name, joined) in
        [("two_prompts_one_session", 1), ("prompt_during_tool", 1), ("many_prompts_queue", 4)]
    {
        let recording = Recording::load(name);
        let events: Vec<&Value> = recording.events().collect();
        let mut prompts: Vec<String> = Vec::new();
        for event in &events {
            let info = &event["properties"]["info"];
            let id = info["id"].as_str().unwrap_or_default().to_owned();
            if event["type"] == "message.updated" && info["role"] == "user" && !prompts.contains(&id) {
                prompts.push(id);
            }
        }
        assert_eq!(prompts.len(), joined + 1, "{name}");
        let session = recording.session().unwrap()["id"].as_str().unwrap().to_owned();
        let mut translator = Translator::new(&session, &prompts[0]);
        let (mut asked, mut answered) = (0, 0);
        let mut reported = Vec::new();
        let mut outcome = None;
        for line in &recording.lines {
            match line {
                RecordedLine::Request { .. } if line.prompt().is_some() => asked += 1,
                RecordedLine::Response { status: 204, .. } => answered += 1,
                RecordedLine::Event(event) => {
                    let kind = event["type"].as_str().unwrap_or_default();
                    let Some(kind) = EventKind::parse(kind) else { continue };
                    translator.event(kind, event.to_string().as_bytes()).unwrap();
                    reported.extend(translator.take());
                    if let Verdict::Over(over) = translator.verdict(false) {
                        outcome.get_or_insert((short(&over), reported.len()));
                    }
                }
                _ => {}
            }
            let known = prompts.iter().take(asked).enumerate().skip(1);
            let delivery = |nth: usize| if nth < answered { Delivery::Accepted } else { Delivery::Undecided };
            translator.join(known.map(|(nth, id)| (id.as_str(), delivery(nth))));
        }
        let (outcome, at) = outcome.unwrap_or_else(|| panic!("{name} has no end"));
        assert_eq!(outcome, "completed", "{name}");
        // No text comes after the end.
        assert!(reported[at..].iter().all(|event| !matches!(event, AgentEvent::Text { .. })), "{name}");
        let (messages, _) = recording.final_messages(&session).unwrap();
        let stored = decode(messages.as_array().unwrap().clone());
        let answers = stored.iter().filter(|message| message.info.role == "assistant");
        let texts: Vec<&str> = answers
            .flat_map(|message| &message.parts)
            .filter(|part| part.kind == "text")
            .filter_map(|part| part.text.as_deref())
            .collect();
        let folded = fold(&reported);
        let shown: Vec<&str> =
            folded.iter().filter(|block| block.kind == "text").map(|block| block.text.as_str()).collect();
        assert_eq!(shown, texts, "{name}");
        assert!(!translator.superseded, "{name}");
    }
}

#[test]
fn a_prompt_that_comes_at_the_very_end_keeps_the_turn_open() {
    let mut t = step();
    answer(&mut t, "msg_a", "msg_p", 2, "stop");
    join(&mut t, &[("msg_b", Delivery::Undecided)]);
    status(&mut t, "idle");
    assert_eq!(verdict(&t), "running", "the prompt may still be sent");
    t.confirm_status(None);
    assert_eq!(verdict(&t), "running");
    join(&mut t, &[("msg_b", Delivery::Accepted)]);
    assert_eq!((verdict(&t).as_str(), t.unanswered()), ("unsettled", Some(Unanswered::Accepted)));
    user(&mut t, "msg_b", 10);
    assert_eq!((verdict(&t).as_str(), t.unanswered()), ("unsettled", Some(Unanswered::Stored)));
    status(&mut t, "busy");
    answer(&mut t, "msg_c", "msg_b", 11, "stop");
    assert_eq!((verdict(&t).as_str(), t.unanswered()), ("running", None));
    status(&mut t, "idle");
    assert_eq!(verdict(&t), "completed");
}

/// The columns: a description, the deliveries, when OpenCode stored the prompt, the verdict, and the outcome after the wait.
type Case<'a> = (&'a str, &'a [(&'a str, Delivery)], Option<u64>, &'a str, &'a str);

#[test]
fn a_joined_prompt_without_an_answer_keeps_the_turn_unsettled_and_is_mentioned() {
    let remarked = format!("completed: {UNREAD}");
    let cases: [Case<'_>; 5] = [
        ("accepted, not shown", &[("msg_b", Delivery::Accepted)], None, "unsettled", &remarked),
        ("perhaps accepted", &[("msg_b", Delivery::Unknown)], None, "unsettled", &remarked),
        ("stored, no answer", &[("msg_b", Delivery::Accepted)], Some(10), "unsettled", &remarked),
        ("never sent, before a restart", &[("msg_b", Delivery::BeforeRestart)], None, &remarked, &remarked),
        ("not sent after all", &[], None, "completed", "completed"),
    ];
    for (what, deliveries, stored, expected, forced_outcome) in cases {
        let mut t = step();
        answer(&mut t, "msg_a", "msg_p", 2, "stop");
        join(&mut t, &[("msg_b", Delivery::Undecided)]);
        join(&mut t, deliveries);
        if let Some(created) = stored {
            user(&mut t, "msg_b", created);
        }
        status(&mut t, "idle");
        assert_eq!(verdict(&t), expected, "{what}");
        if expected == "unsettled" {
            assert_eq!(short(&t.forced_outcome(false, true)), forced_outcome, "{what}");
        }
    }
}

/// Of several prompts that arrive during one step, only the newest is answered. The step that it interrupts does not fail.
#[test]
fn only_the_newest_prompt_needs_an_answer() {
    let mut t = step();
    join(&mut t, &[("msg_b", Delivery::Accepted), ("msg_c", Delivery::Accepted)]);
    user(&mut t, "msg_b", 5);
    user(&mut t, "msg_c", 6);
    answer(&mut t, "msg_a", "msg_p", 2, "tool-calls");
    status(&mut t, "idle");
    assert_eq!(verdict(&t), "unsettled");
    status(&mut t, "busy");
    answer(&mut t, "msg_d", "msg_c", 7, "stop");
    status(&mut t, "idle");
    assert_eq!(verdict(&t), "completed");
}

#[test]
fn a_prompt_of_another_client_still_ends_the_turn() {
    let mut t = step();
    join(&mut t, &[("msg_b", Delivery::Accepted)]);
    user(&mut t, "msg_b", 5);
    user(&mut t, "msg_other", 6);
    answer(&mut t, "msg_a", "msg_p", 2, "tool-calls");
    assert_eq!(verdict(&t), "running");
    answer(&mut t, "msg_d", "msg_other", 7, "stop");
    assert_eq!(
        verdict(&t),
        "failed: Another prompt in the same session made OpenCode drop the rest of this turn."
    );
}

#[test]
fn an_answer_shows_that_a_joined_prompt_arrived() {
    let mut t = step();
    join(&mut t, &[("msg_b", Delivery::Accepted)]);
    answer(&mut t, "msg_c", "msg_b", 7, "stop");
    assert!(!t.superseded, "the event of the joined prompt was missed");
}
