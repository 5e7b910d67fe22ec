//! Prompts that join a turn: the turn is over when its newest prompt is.

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

/// The recordings in which somebody prompts a busy session, as one turn that the others join.
#[test]
fn prompts_that_join_in_mid_text_and_in_mid_tool_are_one_turn() {
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
        let mut told = Vec::new();
        let mut outcome = None;
        for line in &recording.lines {
            match line {
                RecordedLine::Request { .. } if line.prompt().is_some() => asked += 1,
                RecordedLine::Response { status: 204, .. } => answered += 1,
                RecordedLine::Event(event) => {
                    let kind = event["type"].as_str().unwrap_or_default();
                    let Some(kind) = EventKind::parse(kind) else { continue };
                    translator.event(kind, event.to_string().as_bytes()).unwrap();
                    told.extend(translator.take());
                    if let Verdict::Over(over) = translator.verdict(false) {
                        outcome.get_or_insert((short(&over), told.len()));
                    }
                }
                _ => {}
            }
            let known = prompts.iter().take(asked).enumerate().skip(1);
            let fate = |nth: usize| if nth < answered { Delivery::Accepted } else { Delivery::Undecided };
            translator.join(known.map(|(nth, id)| (id.as_str(), fate(nth))));
        }
        let (outcome, at) = outcome.unwrap_or_else(|| panic!("{name} has no end"));
        assert_eq!(outcome, "completed", "{name}");
        // Nothing that a caller sees comes after the end.
        assert!(told[at..].iter().all(|event| !matches!(event, AgentEvent::Text { .. })), "{name}");
        let (messages, _) = recording.final_messages(&session).unwrap();
        let stored = decode(messages.as_array().unwrap().clone());
        let answers = stored.iter().filter(|message| message.info.role == "assistant");
        let texts: Vec<&str> = answers
            .flat_map(|message| &message.parts)
            .filter(|part| part.kind == "text")
            .filter_map(|part| part.text.as_deref())
            .collect();
        let folded = fold(&told);
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
    assert_eq!(verdict(&t), "running", "it may yet be sent");
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

/// What happened, what is known, when OpenCode stored the prompt; the verdict, and the last word.
type Case<'a> = (&'a str, &'a [(&'a str, Delivery)], Option<u64>, &'a str, &'a str);

#[test]
fn what_becomes_of_a_prompt_that_nobody_answers() {
    let remarked = format!("completed: {UNREAD}");
    let cases: [Case<'_>; 5] = [
        ("taken, no sign of it", &[("msg_b", Delivery::Accepted)], None, "unsettled", &remarked),
        ("perhaps taken", &[("msg_b", Delivery::Unknown)], None, "unsettled", &remarked),
        ("stored, no answer", &[("msg_b", Delivery::Accepted)], Some(10), "unsettled", &remarked),
        ("never sent, before a restart", &[("msg_b", Delivery::BeforeRestart)], None, &remarked, &remarked),
        ("not sent after all", &[], None, "completed", "completed"),
    ];
    for (what, fates, stored, expected, forced_outcome) in cases {
        let mut t = step();
        answer(&mut t, "msg_a", "msg_p", 2, "stop");
        join(&mut t, &[("msg_b", Delivery::Undecided)]);
        join(&mut t, fates);
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

/// Of several that come during one step only the newest is answered; the step that it cut short is none the worse.
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
fn somebody_elses_prompt_still_ends_the_turn() {
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
fn a_joined_prompt_is_known_by_its_answer_too() {
    let mut t = step();
    join(&mut t, &[("msg_b", Delivery::Accepted)]);
    answer(&mut t, "msg_c", "msg_b", 7, "stop");
    assert!(!t.superseded, "its own event was missed, and it is ours");
}
