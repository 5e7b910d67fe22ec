//! Records that were doctored: each kind of fault must be found, and nothing else.

use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v03::Dialect;
use serde_json::json;

use super::super::record::{Canceled, Canceling, Errand, Record};
use super::super::speaker::Answering;
use super::*;

const WORDS: &str = "say it";
/// When the turn began. It ended four seconds later.
const BEGAN: i64 = 1_767_225_602_000;

fn frame(seq: u64, json: Value) -> Frame {
    Frame { id: Some(format!("{seq}.1")), json }
}

/// What is written here in the spelling of 1.0, in that of another line and binding.
fn spelled(json: &Value, speaker: Speaker) -> Value {
    if speaker.line == ProtocolVersion::V1 {
        return json.clone();
    }
    let of_rest = speaker.dialect == Dialect::Rest;
    let Value::Object(fields) = json else { return json.clone() };
    let mut other = serde_json::Map::new();
    for (key, value) in fields {
        let value = match (key.as_str(), value) {
            ("parts", Value::Array(parts)) => parts.iter().map(|part| part_of_03(part, of_rest)).collect(),
            (_, Value::Array(items)) => items.iter().map(|item| spelled(item, speaker)).collect(),
            ("state" | "role", Value::String(name)) if !of_rest => {
                let name = name.trim_start_matches("TASK_STATE_").trim_start_matches("ROLE_");
                name.to_lowercase().into()
            }
            (_, value) => spelled(value, speaker),
        };
        let is_message = fields.contains_key("messageId");
        let key = if of_rest && is_message && key == "parts" { "content" } else { key };
        other.insert(key.to_owned(), value);
    }
    if of_rest {
        return Value::Object(other);
    }
    // On JSON-RPC each says what it is, and stands in nothing.
    for (key, kind) in
        [("task", "task"), ("statusUpdate", "status-update"), ("artifactUpdate", "artifact-update")]
    {
        if let Some(mut told) = other.remove(key) {
            told["kind"] = kind.into();
            return told;
        }
    }
    for (key, kind) in [("messageId", "message"), ("artifacts", "task"), ("history", "task")] {
        if other.contains_key(key) {
            other.insert("kind".to_owned(), kind.into());
        }
    }
    Value::Object(other)
}

fn part_of_03(part: &Value, of_rest: bool) -> Value {
    let mut part = part.clone();
    if !of_rest {
        part["kind"] = "text".into();
    }
    part
}

/// The same as a client of another line and binding has it.
fn as_seen_by(mut testimony: Testimony, speaker: Speaker) -> Testimony {
    testimony.record.errand.speaker = speaker;
    let kept = testimony.log.iter_mut().flatten();
    for frame in testimony.record.frames.iter_mut().chain(kept) {
        frame.json = spelled(&frame.json, speaker);
    }
    testimony.stored = testimony.stored.map(|stored| spelled(&stored, speaker));
    testimony
}

fn status(seq: u64, state: &str, message: Option<&str>) -> Frame {
    let at = format!("2026-01-01T00:00:{seq:02}Z");
    let mut status = json!({"state": format!("TASK_STATE_{state}"), "timestamp": at});
    if let Some(text) = message {
        status["message"] = json!({"messageId": "r", "role": "ROLE_AGENT", "parts": [{"text": text}]});
    }
    frame(seq, json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}}))
}

fn words(seq: u64, text: &str) -> Frame {
    let artifact = json!({"artifactId": "a", "parts": [{"text": text}]});
    let update = json!({"taskId": "t", "contextId": "c", "artifact": artifact, "append": seq > 3});
    frame(seq, json!({"artifactUpdate": update}))
}

fn log_that_ends(state: &str, message: Option<&str>) -> Vec<Frame> {
    let user = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": WORDS}]});
    let submitted = json!({"state": "TASK_STATE_SUBMITTED", "timestamp": "2026-01-01T00:00:00Z"});
    vec![
        frame(1, json!({"task": {"id": "t", "contextId": "c", "status": submitted, "history": [user]}})),
        status(2, "WORKING", None),
        words(3, "one "),
        words(4, "two "),
        words(5, "three"),
        status(6, state, message),
    ]
}

fn testimony(log: Vec<Frame>) -> Testimony {
    let speaker = Speaker::ALL[0];
    let errand = Errand {
        id: "m".to_owned(),
        words: WORDS.to_owned(),
        speaker,
        answering: Answering::ByMessage,
        context: None,
        cancel: None,
        follows: None,
        steers: false,
        seed: 1,
    };
    let mut record = Record::new(errand);
    (record.task, record.frames, record.ended) = (Some("t".to_owned()), log.clone(), true);
    let state = log.last().map(|frame| frame.json["statusUpdate"]["status"].clone());
    let artifact = json!({"artifactId": "a", "parts": [{"text": "one two three"}]});
    let stored = json!({"id": "t", "contextId": "c", "status": state, "artifacts": [artifact]});
    Testimony { record, log: Ok(log), stored: Ok(stored) }
}

fn completed() -> Testimony {
    testimony(log_that_ends("COMPLETED", None))
}

fn upstream(text: &str, is_complete: bool) -> Upstream {
    Upstream {
        session: "s".to_owned(),
        words: WORDS.to_owned(),
        times: 1,
        text: text.to_owned(),
        is_complete,
        is_what_was_kept: false,
        fate: if is_complete { Fate::Ended } else { Fate::Killed },
        kept: String::new(),
        whole: None,
    }
}

fn faults(testimony: &Testimony, upstream: &[Upstream]) -> Vec<Fault> {
    faults_of(std::slice::from_ref(testimony), upstream)
}

/// What is found when the client's record is doctored.
fn doctored(change: impl FnOnce(&mut Record)) -> Vec<Fault> {
    let mut testimony = completed();
    change(&mut testimony.record);
    faults(&testimony, &[upstream("one two three", true)])
}

#[test]
fn a_true_record_has_no_finding() {
    let verdict = check(&[completed()], &[upstream("one two three", true)], &Broken::default());
    assert_eq!(verdict.findings, []);
    assert_eq!(verdict.outcomes, BTreeMap::from([("completed", 1)]), "{verdict:?}");
    assert_eq!(verdict.forgotten, 0);
}

#[test]
fn events_that_are_lost_doubled_or_out_of_order_are_found() {
    assert_eq!(doctored(|record| drop(record.frames.remove(3))), [Fault::Lost]);
    assert_eq!(doctored(|record| record.frames.insert(3, record.frames[3].clone())), [Fault::Doubled]);
    assert_eq!(doctored(|record| record.frames.swap(3, 4)), [Fault::Reordered]);
    let other = |record: &mut Record| record.frames[3].json = words(4, "too ").json;
    assert_eq!(doctored(other), [Fault::Untrue]);
    let renumbered = |record: &mut Record| record.frames[3].id = Some("4.2".to_owned());
    assert_eq!(doctored(renumbered), [Fault::Untrue]);
}

#[test]
fn events_that_the_log_lost_are_found() {
    let mut testimony = completed();
    testimony.log.as_mut().unwrap().remove(2);
    let found = faults(&testimony, &[upstream("one two three", true)]);
    assert!(found.contains(&Fault::Lost), "{found:?}");
    testimony.log = Err("gone".to_owned());
    assert_eq!(faults(&testimony, &[upstream("one two three", true)]), [Fault::Lost]);
}

#[test]
fn a_task_that_does_not_end_or_goes_on_behind_its_end_is_found() {
    let cut = |record: &mut Record| {
        record.frames.pop();
        record.ended = false;
    };
    assert_eq!(doctored(cut), [Fault::Hangs]);
    let mut testimony = completed();
    testimony.log.as_mut().unwrap().push(status(7, "COMPLETED", None));
    assert_eq!(faults(&testimony, &[upstream("one two three", true)]), [Fault::Untrue]);
    assert_eq!(doctored(|record| record.surprises.push("what?".to_owned())), [Fault::Surprise]);
}

#[test]
fn prompts_that_came_twice_or_from_nowhere_are_found() {
    let twice = Upstream { times: 2, ..upstream("one two three", true) };
    assert_eq!(faults(&completed(), &[twice]), [Fault::DoublePrompt]);
    let again = [upstream("one two three", true), upstream("", false)];
    assert_eq!(faults(&completed(), &again), [Fault::DoublePrompt]);
    let stray = Upstream { words: "made up".to_owned(), ..upstream("", false) };
    assert_eq!(faults(&completed(), &[upstream("one two three", true), stray]), [Fault::Untrue]);
}

#[test]
fn an_answer_that_became_a_prompt_is_found() {
    let answer = Upstream { words: "once".to_owned(), ..upstream("three", true) };
    assert!(faults(&completed(), &[upstream("one two ", true), answer]).contains(&Fault::Untrue));
}

#[test]
fn an_end_that_is_not_what_happened_is_found() {
    assert_eq!(faults(&completed(), &[upstream("one two three", false)]), [Fault::Untrue]);
    assert_eq!(faults(&completed(), &[]), [Fault::Untrue]);
    assert_eq!(faults(&completed(), &[upstream("one two three four", true)]), [Fault::Lost]);
    let canceled = testimony(log_that_ends("CANCELED", None));
    assert_eq!(faults(&canceled, &[upstream("one two three", false)]), [Fault::Untrue]);
    let mut stored = completed();
    stored.stored.as_mut().unwrap()["artifacts"] = json!([]);
    assert_eq!(faults(&stored, &[upstream("one two three", true)]), [Fault::Untrue]);
}

#[test]
fn text_that_a_killed_agent_forgot_is_counted_apart_where_it_is_named() {
    let reason = "OpenCode stopped in the middle of the turn.";
    let failed = testimony(log_that_ends("FAILED", Some(reason)));
    assert_eq!(faults(&failed, &[upstream("one two three", false)]), []);
    let complete = [upstream("one two three", true)];
    assert_eq!(faults(&failed, &complete), [Fault::Untrue; 2], "it did not stop, and it did not fail");
    assert_eq!(faults(&failed, &[upstream("one two", false)]), [Fault::Untrue], "made up");
    assert_eq!(faults(&failed, &[upstream("one two three four", false)]), [Fault::Lost], "not named");
    let named = testimony(log_that_ends(
        "FAILED",
        Some("OpenCode stopped in the middle of the turn. Text may be missing."),
    ));
    let verdict = check(&[named], &[upstream("one two three four", false)], &Broken::default());
    assert_eq!((verdict.findings.len(), verdict.forgotten), (0, 1), "{verdict:?}");
    let kept = [Upstream { is_what_was_kept: true, ..upstream("one ", false) }];
    let died = Broken { agent: vec![Timestamp(BEGAN + 1_000)], ..Broken::default() };
    let failed = std::slice::from_ref(&failed);
    assert_eq!(faults_in(failed, &kept, &died), [], "the client has more than the agent kept");
    assert_eq!(faults_in(failed, &kept, &Broken::default()), [Fault::Untrue], "nobody killed it");
}

fn canceling(sends: u64, answer: Option<Canceled>) -> Canceling {
    Canceling { sends, answer }
}

/// A task that ended so, and what its client heard of its cancel.
fn with_cancel(state: &str, canceling: Canceling) -> Testimony {
    let reason = (state == "FAILED").then_some("OpenCode stopped in the middle of the turn.");
    let mut testimony = testimony(log_that_ends(state, reason));
    testimony.record.canceling = canceling;
    testimony
}

#[test]
fn a_cancel_stands_or_came_too_late() {
    let told = |state| Some(Canceled::ControlResult(state));
    let (half, whole) = ([upstream("one two three four", false)], [upstream("one two three", true)]);
    let canceled = with_cancel("CANCELED", canceling(1, told(TaskState::Canceled)));
    assert_eq!(faults(&canceled, &half), [], "the agent may have written more");
    assert_eq!(faults(&canceled, &whole), [], "and may have come to its end");
    assert_eq!(faults(&canceled, &[upstream("one 2", false)]), [Fault::Untrue], "but nothing else");
    assert_eq!(faults(&with_cancel("CANCELED", canceling(2, Some(Canceled::TooLate))), &half), []);
    assert_eq!(faults(&with_cancel("CANCELED", canceling(1, None)), &half), [], "the client gave up");
    assert_eq!(faults(&with_cancel("COMPLETED", canceling(1, Some(Canceled::TooLate))), &whole), []);

    let undone = with_cancel("COMPLETED", canceling(1, told(TaskState::Canceled)));
    assert_eq!(faults(&undone, &whole), [Fault::Untrue], "acknowledged, and completed");
    let failed = with_cancel("FAILED", canceling(3, told(TaskState::Canceled)));
    assert_eq!(faults(&failed, &[upstream("one two three", false)]), [Fault::Untrue], "and failed");
    let other = with_cancel("CANCELED", canceling(1, told(TaskState::Completed)));
    assert_eq!(faults(&other, &half), [Fault::Untrue], "told another state");
    let by_nobody = with_cancel("CANCELED", canceling(1, Some(Canceled::TooLate)));
    assert_eq!(faults(&by_nobody, &half), [Fault::Untrue], "canceled by somebody else");
    let prompted_again = [upstream("one two three", false), upstream("", false)];
    assert_eq!(faults(&canceled, &prompted_again), [Fault::DoublePrompt]);
}

#[test]
fn a_session_that_stays_busy_is_found() {
    let reason = "The agent's session is busy with work of somebody else. Try again later.";
    let mut failed = testimony(log_that_ends("FAILED", Some(reason)));
    assert_eq!(faults(&failed, &[upstream("one two three", false)]), [Fault::Stuck]);
    failed = testimony(log_that_ends("FAILED", Some("OpenCode stopped in the middle of the turn.")));
    assert_eq!(faults(&failed, &[upstream("one two three", false)]), []);
}

/// A second turn of the same context, whose events come so many seconds later.
fn second(later: u64) -> Testimony {
    let mut log = log_that_ends("COMPLETED", None);
    for frame in &mut log {
        let text = frame.json.to_string();
        let moved = (0..7).rev().fold(text, |text, seq| {
            text.replace(&format!(":00:{seq:02}Z"), &format!(":00:{:02}Z", seq + later))
        });
        frame.json = serde_json::from_str(&moved).unwrap();
    }
    let mut testimony = testimony(log);
    let errand = &mut testimony.record.errand;
    (errand.id, errand.words, errand.follows) = ("n".to_owned(), "say more".to_owned(), Some("m".to_owned()));
    testimony
}

fn prompt_of_second() -> Upstream {
    Upstream { words: "say more".to_owned(), ..upstream("one two three", true) }
}

fn faults_of(testimonies: &[Testimony], upstream: &[Upstream]) -> Vec<Fault> {
    faults_in(testimonies, upstream, &Broken::default())
}

/// What is found, which must be the same whichever line and binding the clients speak.
fn faults_in(testimonies: &[Testimony], upstream: &[Upstream], broken: &Broken) -> Vec<Fault> {
    let [first, others @ ..] = Speaker::ALL.map(|speaker| {
        let seen: Vec<Testimony> =
            testimonies.iter().map(|testimony| as_seen_by(testimony.clone(), speaker)).collect();
        let findings = check(&seen, upstream, broken).findings;
        (findings.iter().map(|finding| finding.fault).collect::<Vec<Fault>>(), findings, speaker.name())
    });
    for (faults, findings, name) in others {
        assert_eq!(faults, first.0, "{name}: {findings:?}");
    }
    first.0
}

#[test]
fn turns_that_overtake_each_other_are_found() {
    let (one, other) = (upstream("one two three", true), prompt_of_second());
    let turns = [completed(), second(10)];
    assert_eq!(faults_of(&turns, &[one.clone(), other.clone()]), []);
    assert_eq!(faults_of(&turns, &[other.clone(), one.clone()]), [Fault::Reordered], "prompted first");
    assert_eq!(faults_of(&[completed(), second(1)], &[one, other]), [Fault::Reordered], "both at once");
}

/// A message that went to the task of the first one.
fn joined() -> Testimony {
    let mut testimony = second(10);
    (testimony.record.joined, testimony.record.frames) = (true, Vec::new());
    let nothing = || "no task of its own".to_owned();
    (testimony.log, testimony.stored) = (Err(nothing()), Err(nothing()));
    testimony
}

#[test]
fn a_message_that_joined_belongs_to_the_turn() {
    let turns = [completed(), joined()];
    let (one, two) =
        (upstream("one two ", true), Upstream { text: "three".to_owned(), ..prompt_of_second() });
    let verdict = check(&turns, &[one.clone(), two.clone()], &Broken::default());
    assert_eq!((verdict.findings, verdict.unread), (Vec::new(), 0));
    assert_eq!(verdict.outcomes, BTreeMap::from([("completed", 1)]), "it is one task");

    assert_eq!(faults_of(&turns, &[two.clone(), one.clone()]), [Fault::Lost, Fault::Reordered]);
    let twice = Upstream { times: 2, ..two.clone() };
    assert_eq!(faults_of(&turns, &[one.clone(), twice]), [Fault::DoublePrompt]);
    let open = Upstream { is_complete: false, ..two.clone() };
    assert_eq!(faults_of(&turns, &[one.clone(), open.clone()]), [Fault::Untrue], "not answered to its end");
    let all = upstream("one two three", true);
    assert_eq!(
        faults_of(&turns, std::slice::from_ref(&all)),
        [Fault::Lost],
        "never sent, and nobody says so"
    );

    let reason = "A message that joined this turn may not have been read; look at the session.";
    let named = [testimony(log_that_ends("COMPLETED", Some(reason))), joined()];
    let verdict = check(&named, std::slice::from_ref(&all), &Broken::default());
    assert_eq!((verdict.findings, verdict.unread), (Vec::new(), 1));
    let unheard = Upstream { text: " four".to_owned(), ..open };
    assert_eq!(faults_of(&named, &[all.clone(), unheard]), [], "it may have been read after all");
    let other = Upstream { text: "1 2 3".to_owned(), ..all };
    assert_eq!(faults_of(&named, &[other]), [Fault::Lost], "but nothing else is excused");
}

#[test]
fn a_killed_agent_may_have_forgotten_the_end_of_an_answer_before_the_next() {
    let failed = |reason: &str| [testimony(log_that_ends("FAILED", Some(reason))), joined()];
    // What was forgotten begins like the next answer.
    let one = upstream("one twofold", false);
    let two = Upstream { text: "two three".to_owned(), is_complete: false, ..prompt_of_second() };
    let wrote = [one, two];
    assert_eq!(
        faults_of(&failed("OpenCode stopped in the middle of the turn. Text may be missing."), &wrote),
        []
    );
    assert_eq!(
        faults_of(&failed("OpenCode stopped in the middle of the turn."), &wrote),
        [Fault::Untrue],
        "not named"
    );
    let other = [wrote[0].clone(), Upstream { text: "2 three".to_owned(), ..wrote[1].clone() }];
    assert_eq!(
        faults_of(&failed("OpenCode stopped in the middle of the turn. Text may be missing."), &other),
        [Fault::Untrue],
        "other words"
    );
}

#[test]
fn a_task_may_fail_for_what_happened_and_for_nothing_else() {
    let failed = |reason: &str| {
        let mut testimony = testimony(log_that_ends("FAILED", Some(reason)));
        for frames in [&mut testimony.record.frames, testimony.log.as_mut().unwrap()] {
            frames.retain(|frame| frame.json.get("artifactUpdate").is_none());
        }
        testimony.stored.as_mut().unwrap()["artifacts"] = json!([]);
        testimony
    };
    let made_up = failed("The gateway was restarted.");
    assert_eq!(faults(&made_up, &[]), [Fault::Untrue], "no reason of a storm");
    assert_eq!(faults(&made_up, &[upstream("", false)]), [Fault::Untrue]);

    let in_doubt = failed("It is not known whether OpenCode took the prompt; look at the session.");
    assert_eq!(faults(&in_doubt, &[]), [Fault::Untrue], "nothing died");
    let near = Broken { gateway: vec![Timestamp(BEGAN + 1_000)], ..Broken::default() };
    assert_eq!(faults_in(std::slice::from_ref(&in_doubt), &[], &near), []);
    let far = Broken { gateway: vec![Timestamp(BEGAN + 60_000)], ..Broken::default() };
    assert_eq!(faults_in(std::slice::from_ref(&in_doubt), &[], &far), [Fault::Untrue], "long after");
    let runs = Upstream { fate: Fate::Runs, ..upstream("", false) };
    assert_eq!(faults_in(&[in_doubt], std::slice::from_ref(&runs), &near), [Fault::Untrue], "it did arrive");

    let killed = failed("OpenCode stopped in the middle of the turn.");
    assert_eq!(faults(&killed, &[upstream("", false)]), []);
    assert_eq!(faults(&killed, &[runs]), [Fault::Untrue], "nobody killed it");
    let waiting = failed("OpenCode took the prompt and shows no sign of it.");
    assert_eq!(faults(&waiting, &[]), [Fault::Untrue], "it never arrived, and nothing died");
    let died = Broken { agent: vec![Timestamp(BEGAN + 1_000)], ..Broken::default() };
    let waiting = [waiting];
    assert_eq!(faults_in(&waiting, &[], &died), [Fault::Untrue], "the fake knows what it got");
    assert_eq!(faults_in(&waiting, &[], &Broken { is_real: true, ..died }), [], "the real one forgot it");
    assert_eq!(check(&[killed], &[upstream("", false)], &Broken::default()).reasons.len(), 1);

    let given_up =
        [failed("OpenCode could not complete the turn: Error: All fibers interrupted without error")];
    let cut = Broken { is_real: true, ..near };
    let shown = |text: &str| [Upstream { is_what_was_kept: true, ..upstream(text, false) }];
    assert_eq!(faults_in(&given_up, &shown(""), &cut), []);
    let calm = Broken { is_real: true, ..Broken::default() };
    assert_eq!(faults_in(&given_up, &shown(""), &calm), [Fault::Untrue], "nothing broke");
    let fake = Broken { is_real: false, ..cut };
    assert_eq!(faults_in(&given_up, &shown(""), &fake), [Fault::Untrue], "the fake gives nothing up");
}

#[test]
fn what_the_agent_still_shows_is_never_missing() {
    let reason = "OpenCode stopped in the middle of the turn. Text may be missing.";
    let failed = testimony(log_that_ends("FAILED", Some(reason)));
    let shows = |kept: &str| Upstream { kept: kept.to_owned(), ..upstream("one two three four", false) };
    assert_eq!(faults(&failed, &[shows("one two ")]), []);
    assert_eq!(faults(&failed, &[shows("one two three four")]), [Fault::Lost]);
}

#[test]
fn nobody_says_without_cause_that_something_is_missing() {
    let lost = "Text that OpenCode wrote may be missing.";
    let completed = testimony(log_that_ends("COMPLETED", Some(lost)));
    assert_eq!(faults(&completed, &[upstream("one two three", true)]), [Fault::Untrue]);
    assert_eq!(
        faults(&completed, &[upstream("one two three four", true)]),
        [Fault::Untrue, Fault::Lost],
        "no excuse for a turn that came to its end"
    );
    let unread = "A message that joined this turn may not have been read.";
    let alone = testimony(log_that_ends("COMPLETED", Some(unread)));
    assert_eq!(faults(&alone, &[upstream("one two three", true)]), [Fault::Untrue], "none joined");
}

#[test]
fn what_the_model_does_not_say_is_found() {
    let reason = "OpenCode stopped in the middle of the turn.";
    let failed = testimony(log_that_ends("FAILED", Some(reason)));
    let says = |whole: &str| Upstream { whole: Some(whole.to_owned()), ..upstream("one two three", false) };
    assert_eq!(faults(&failed, &[says("one two three four")]), []);
    assert_eq!(faults(&failed, &[says("one too three four")]), [Fault::Untrue]);
}
