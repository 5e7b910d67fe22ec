//! Manipulated records: the checker must find each kind of fault, and nothing else.

use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v03::Dialect;
use serde_json::json;

use super::super::record::{CancelAnswer, Canceling, PlannedMessage, Record};
use super::super::speaker::Answering;
use super::*;

const WORDS: &str = "say it";
/// When the turn began. It ended four seconds later.
const BEGAN: i64 = 1_767_225_602_000;

fn frame(seq: u64, json: Value) -> Frame {
    Frame { id: Some(format!("{seq}.1")), json }
}

/// Converts JSON of version 1.0 to another protocol version and binding.
fn converted(json: &Value, speaker: ClientProtocol) -> Value {
    if speaker.version == ProtocolVersion::V1 {
        return json.clone();
    }
    let of_rest = speaker.dialect == Dialect::Rest;
    let Value::Object(fields) = json else { return json.clone() };
    let mut other = serde_json::Map::new();
    for (key, value) in fields {
        let value = match (key.as_str(), value) {
            ("parts", Value::Array(parts)) => parts.iter().map(|part| part_of_03(part, of_rest)).collect(),
            (_, Value::Array(items)) => items.iter().map(|item| converted(item, speaker)).collect(),
            ("state" | "role", Value::String(name)) if !of_rest => {
                let name = name.trim_start_matches("TASK_STATE_").trim_start_matches("ROLE_");
                name.to_lowercase().into()
            }
            (_, value) => converted(value, speaker),
        };
        let is_message = fields.contains_key("messageId");
        let key = if of_rest && is_message && key == "parts" { "content" } else { key };
        other.insert(key.to_owned(), value);
    }
    if of_rest {
        return Value::Object(other);
    }
    // In JSON-RPC of 0.3 each object names its kind and has no envelope.
    for (key, kind) in
        [("task", "task"), ("statusUpdate", "status-update"), ("artifactUpdate", "artifact-update")]
    {
        if let Some(mut object) = other.remove(key) {
            object["kind"] = kind.into();
            return object;
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

/// The same observation by a client of another protocol version and binding.
fn as_seen_by(mut observation: Observation, speaker: ClientProtocol) -> Observation {
    observation.record.planned.speaker = speaker;
    let kept = observation.log.iter_mut().flatten();
    for frame in observation.record.frames.iter_mut().chain(kept) {
        frame.json = converted(&frame.json, speaker);
    }
    observation.stored = observation.stored.map(|stored| converted(&stored, speaker));
    observation
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

fn observation(log: Vec<Frame>) -> Observation {
    let speaker = ClientProtocol::ALL[0];
    let planned = PlannedMessage {
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
    let mut record = Record::new(planned);
    (record.task, record.frames, record.ended) = (Some("t".to_owned()), log.clone(), true);
    let state = log.last().map(|frame| frame.json["statusUpdate"]["status"].clone());
    let artifact = json!({"artifactId": "a", "parts": [{"text": "one two three"}]});
    let stored = json!({"id": "t", "contextId": "c", "status": state, "artifacts": [artifact]});
    Observation { record, log: Ok(log), stored: Ok(stored) }
}

fn completed() -> Observation {
    observation(log_that_ends("COMPLETED", None))
}

fn agent_record(text: &str, is_complete: bool) -> AgentRecord {
    AgentRecord {
        session: "s".to_owned(),
        words: WORDS.to_owned(),
        times: 1,
        text: text.to_owned(),
        is_complete,
        is_what_was_kept: false,
        turn_end: if is_complete { TurnEnd::Ended } else { TurnEnd::Killed },
        kept: String::new(),
        whole: None,
    }
}

fn faults(observation: &Observation, agent_records: &[AgentRecord]) -> Vec<Fault> {
    faults_of(std::slice::from_ref(observation), agent_records)
}

/// The faults that are found in a manipulated record.
fn faults_after(change: impl FnOnce(&mut Record)) -> Vec<Fault> {
    let mut observation = completed();
    change(&mut observation.record);
    faults(&observation, &[agent_record("one two three", true)])
}

#[test]
fn a_correct_record_has_no_finding() {
    let verdict = check(&[completed()], &[agent_record("one two three", true)], &StormFacts::default());
    assert_eq!(verdict.findings, []);
    assert_eq!(verdict.outcomes, BTreeMap::from([("completed", 1)]), "{verdict:?}");
    assert_eq!(verdict.forgotten, 0);
}

#[test]
fn lost_doubled_and_reordered_events_are_found() {
    assert_eq!(faults_after(|record| drop(record.frames.remove(3))), [Fault::Lost]);
    assert_eq!(faults_after(|record| record.frames.insert(3, record.frames[3].clone())), [Fault::Doubled]);
    assert_eq!(faults_after(|record| record.frames.swap(3, 4)), [Fault::Reordered]);
    let other = |record: &mut Record| record.frames[3].json = words(4, "too ").json;
    assert_eq!(faults_after(other), [Fault::Untrue]);
    let renumbered = |record: &mut Record| record.frames[3].id = Some("4.2".to_owned());
    assert_eq!(faults_after(renumbered), [Fault::Untrue]);
}

#[test]
fn events_missing_in_the_log_are_found() {
    let mut observation = completed();
    observation.log.as_mut().unwrap().remove(2);
    let found = faults(&observation, &[agent_record("one two three", true)]);
    assert!(found.contains(&Fault::Lost), "{found:?}");
    observation.log = Err("gone".to_owned());
    assert_eq!(faults(&observation, &[agent_record("one two three", true)]), [Fault::Lost]);
}

#[test]
fn a_task_that_does_not_end_or_continues_after_its_end_is_found() {
    let cut = |record: &mut Record| {
        record.frames.pop();
        record.ended = false;
    };
    assert_eq!(faults_after(cut), [Fault::Hangs]);
    let mut observation = completed();
    observation.log.as_mut().unwrap().push(status(7, "COMPLETED", None));
    assert_eq!(faults(&observation, &[agent_record("one two three", true)]), [Fault::Untrue]);
    assert_eq!(faults_after(|record| record.surprises.push("what?".to_owned())), [Fault::Surprise]);
}

#[test]
fn doubled_and_invented_prompts_are_found() {
    let twice = AgentRecord { times: 2, ..agent_record("one two three", true) };
    assert_eq!(faults(&completed(), &[twice]), [Fault::DoublePrompt]);
    let again = [agent_record("one two three", true), agent_record("", false)];
    assert_eq!(faults(&completed(), &again), [Fault::DoublePrompt]);
    let stray = AgentRecord { words: "made up".to_owned(), ..agent_record("", false) };
    assert_eq!(faults(&completed(), &[agent_record("one two three", true), stray]), [Fault::Untrue]);
}

#[test]
fn an_answer_sent_as_a_prompt_is_found() {
    let answer = AgentRecord { words: "once".to_owned(), ..agent_record("three", true) };
    assert!(faults(&completed(), &[agent_record("one two ", true), answer]).contains(&Fault::Untrue));
}

#[test]
fn a_false_end_is_found() {
    assert_eq!(faults(&completed(), &[agent_record("one two three", false)]), [Fault::Untrue]);
    assert_eq!(faults(&completed(), &[]), [Fault::Untrue]);
    assert_eq!(faults(&completed(), &[agent_record("one two three four", true)]), [Fault::Lost]);
    let canceled = observation(log_that_ends("CANCELED", None));
    assert_eq!(faults(&canceled, &[agent_record("one two three", false)]), [Fault::Untrue]);
    let mut stored = completed();
    stored.stored.as_mut().unwrap()["artifacts"] = json!([]);
    assert_eq!(faults(&stored, &[agent_record("one two three", true)]), [Fault::Untrue]);
}

#[test]
fn reported_text_loss_of_a_killed_agent_is_no_finding() {
    let reason = "OpenCode stopped in the middle of the turn.";
    let failed = observation(log_that_ends("FAILED", Some(reason)));
    assert_eq!(faults(&failed, &[agent_record("one two three", false)]), []);
    let complete = [agent_record("one two three", true)];
    assert_eq!(faults(&failed, &complete), [Fault::Untrue; 2], "it did not stop, and it did not fail");
    assert_eq!(faults(&failed, &[agent_record("one two", false)]), [Fault::Untrue], "made up");
    assert_eq!(faults(&failed, &[agent_record("one two three four", false)]), [Fault::Lost], "not named");
    let named = observation(log_that_ends(
        "FAILED",
        Some("OpenCode stopped in the middle of the turn. Text may be missing."),
    ));
    let verdict = check(&[named], &[agent_record("one two three four", false)], &StormFacts::default());
    assert_eq!((verdict.findings.len(), verdict.forgotten), (0, 1), "{verdict:?}");
    let kept = [AgentRecord { is_what_was_kept: true, ..agent_record("one ", false) }];
    let died = StormFacts { agent: vec![Timestamp(BEGAN + 1_000)], ..StormFacts::default() };
    let failed = std::slice::from_ref(&failed);
    assert_eq!(faults_in(failed, &kept, &died), [], "the client has more than the agent kept");
    assert_eq!(faults_in(failed, &kept, &StormFacts::default()), [Fault::Untrue], "the agent was not killed");
}

fn canceling(sends: u64, answer: Option<CancelAnswer>) -> Canceling {
    Canceling { sends, answer }
}

/// A task that ended in this state, and the course of its cancel.
fn with_cancel(state: &str, canceling: Canceling) -> Observation {
    let reason = (state == "FAILED").then_some("OpenCode stopped in the middle of the turn.");
    let mut observation = observation(log_that_ends(state, reason));
    observation.record.canceling = canceling;
    observation
}

#[test]
fn an_acknowledged_cancel_stands_unless_it_came_too_late() {
    let answered = |state| Some(CancelAnswer::State(state));
    let (half, whole) = ([agent_record("one two three four", false)], [agent_record("one two three", true)]);
    let canceled = with_cancel("CANCELED", canceling(1, answered(TaskState::Canceled)));
    assert_eq!(faults(&canceled, &half), [], "the agent may have written more");
    assert_eq!(faults(&canceled, &whole), [], "and may have come to its end");
    assert_eq!(faults(&canceled, &[agent_record("one 2", false)]), [Fault::Untrue], "but nothing else");
    assert_eq!(faults(&with_cancel("CANCELED", canceling(2, Some(CancelAnswer::TooLate))), &half), []);
    assert_eq!(faults(&with_cancel("CANCELED", canceling(1, None)), &half), [], "the client gave up");
    assert_eq!(faults(&with_cancel("COMPLETED", canceling(1, Some(CancelAnswer::TooLate))), &whole), []);

    let undone = with_cancel("COMPLETED", canceling(1, answered(TaskState::Canceled)));
    assert_eq!(faults(&undone, &whole), [Fault::Untrue], "acknowledged, and completed");
    let failed = with_cancel("FAILED", canceling(3, answered(TaskState::Canceled)));
    assert_eq!(faults(&failed, &[agent_record("one two three", false)]), [Fault::Untrue], "and failed");
    let other = with_cancel("CANCELED", canceling(1, answered(TaskState::Completed)));
    assert_eq!(faults(&other, &half), [Fault::Untrue], "answered with another state");
    let by_another = with_cancel("CANCELED", canceling(1, Some(CancelAnswer::TooLate)));
    assert_eq!(faults(&by_another, &half), [Fault::Untrue], "canceled by another client");
    let prompted_again = [agent_record("one two three", false), agent_record("", false)];
    assert_eq!(faults(&canceled, &prompted_again), [Fault::DoublePrompt]);
}

#[test]
fn a_session_that_stays_busy_is_found() {
    let reason = "The agent's session is busy with work of another client. Try again later.";
    let mut failed = observation(log_that_ends("FAILED", Some(reason)));
    assert_eq!(faults(&failed, &[agent_record("one two three", false)]), [Fault::Stuck]);
    failed = observation(log_that_ends("FAILED", Some("OpenCode stopped in the middle of the turn.")));
    assert_eq!(faults(&failed, &[agent_record("one two three", false)]), []);
}

/// A second turn of the same context, whose events come so many seconds later.
fn second(later: u64) -> Observation {
    let mut log = log_that_ends("COMPLETED", None);
    for frame in &mut log {
        let text = frame.json.to_string();
        let moved = (0..7).rev().fold(text, |text, seq| {
            text.replace(&format!(":00:{seq:02}Z"), &format!(":00:{:02}Z", seq + later))
        });
        frame.json = serde_json::from_str(&moved).unwrap();
    }
    let mut observation = observation(log);
    let planned = &mut observation.record.planned;
    (planned.id, planned.words, planned.follows) =
        ("n".to_owned(), "say more".to_owned(), Some("m".to_owned()));
    observation
}

fn prompt_of_second() -> AgentRecord {
    AgentRecord { words: "say more".to_owned(), ..agent_record("one two three", true) }
}

fn faults_of(observations: &[Observation], agent_records: &[AgentRecord]) -> Vec<Fault> {
    faults_in(observations, agent_records, &StormFacts::default())
}

/// The faults, which must be the same for every protocol version and binding of the clients.
fn faults_in(observations: &[Observation], agent_records: &[AgentRecord], broken: &StormFacts) -> Vec<Fault> {
    let [first, others @ ..] = ClientProtocol::ALL.map(|speaker| {
        let seen: Vec<Observation> =
            observations.iter().map(|observation| as_seen_by(observation.clone(), speaker)).collect();
        let findings = check(&seen, agent_records, broken).findings;
        (findings.iter().map(|finding| finding.fault).collect::<Vec<Fault>>(), findings, speaker.name())
    });
    for (faults, findings, name) in others {
        assert_eq!(faults, first.0, "{name}: {findings:?}");
    }
    first.0
}

#[test]
fn turns_that_overtake_each_other_are_found() {
    let (one, other) = (agent_record("one two three", true), prompt_of_second());
    let turns = [completed(), second(10)];
    assert_eq!(faults_of(&turns, &[one.clone(), other.clone()]), []);
    assert_eq!(faults_of(&turns, &[other.clone(), one.clone()]), [Fault::Reordered], "prompted first");
    assert_eq!(faults_of(&[completed(), second(1)], &[one, other]), [Fault::Reordered], "both at once");
}

/// A message that joined the task of the first one.
fn joined() -> Observation {
    let mut observation = second(10);
    (observation.record.joined, observation.record.frames) = (true, Vec::new());
    let nothing = || "no task of its own".to_owned();
    (observation.log, observation.stored) = (Err(nothing()), Err(nothing()));
    observation
}

#[test]
fn a_joined_message_belongs_to_the_turn() {
    let turns = [completed(), joined()];
    let (one, two) =
        (agent_record("one two ", true), AgentRecord { text: "three".to_owned(), ..prompt_of_second() });
    let verdict = check(&turns, &[one.clone(), two.clone()], &StormFacts::default());
    assert_eq!((verdict.findings, verdict.unread), (Vec::new(), 0));
    assert_eq!(verdict.outcomes, BTreeMap::from([("completed", 1)]), "it is one task");

    assert_eq!(faults_of(&turns, &[two.clone(), one.clone()]), [Fault::Lost, Fault::Reordered]);
    let twice = AgentRecord { times: 2, ..two.clone() };
    assert_eq!(faults_of(&turns, &[one.clone(), twice]), [Fault::DoublePrompt]);
    let open = AgentRecord { is_complete: false, ..two.clone() };
    assert_eq!(faults_of(&turns, &[one.clone(), open.clone()]), [Fault::Untrue], "not answered to its end");
    let all = agent_record("one two three", true);
    assert_eq!(faults_of(&turns, std::slice::from_ref(&all)), [Fault::Lost], "never sent, and not reported");

    let reason = "A message that joined this turn may not have been read; look at the session.";
    let named = [observation(log_that_ends("COMPLETED", Some(reason))), joined()];
    let verdict = check(&named, std::slice::from_ref(&all), &StormFacts::default());
    assert_eq!((verdict.findings, verdict.unread), (Vec::new(), 1));
    let unheard = AgentRecord { text: " four".to_owned(), ..open };
    assert_eq!(faults_of(&named, &[all.clone(), unheard]), [], "it may have been read after all");
    let other = AgentRecord { text: "1 2 3".to_owned(), ..all };
    assert_eq!(faults_of(&named, &[other]), [Fault::Lost], "but nothing else is excused");
}

#[test]
fn a_killed_agent_may_have_lost_the_end_of_an_answer_before_the_next() {
    let failed = |reason: &str| [observation(log_that_ends("FAILED", Some(reason))), joined()];
    // The lost text begins like the next answer.
    let one = agent_record("one twofold", false);
    let two = AgentRecord { text: "two three".to_owned(), is_complete: false, ..prompt_of_second() };
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
    let other = [wrote[0].clone(), AgentRecord { text: "2 three".to_owned(), ..wrote[1].clone() }];
    assert_eq!(
        faults_of(&failed("OpenCode stopped in the middle of the turn. Text may be missing."), &other),
        [Fault::Untrue],
        "other words"
    );
}

#[test]
fn a_task_may_fail_only_for_a_reason_that_is_true() {
    let failed = |reason: &str| {
        let mut observation = observation(log_that_ends("FAILED", Some(reason)));
        for frames in [&mut observation.record.frames, observation.log.as_mut().unwrap()] {
            frames.retain(|frame| frame.json.get("artifactUpdate").is_none());
        }
        observation.stored.as_mut().unwrap()["artifacts"] = json!([]);
        observation
    };
    let made_up = failed("The gateway was restarted.");
    assert_eq!(faults(&made_up, &[]), [Fault::Untrue], "no reason of a storm");
    assert_eq!(faults(&made_up, &[agent_record("", false)]), [Fault::Untrue]);

    let in_doubt = failed("It is not known whether OpenCode took the prompt; look at the session.");
    assert_eq!(faults(&in_doubt, &[]), [Fault::Untrue], "nothing died");
    let near = StormFacts { gateway: vec![Timestamp(BEGAN + 1_000)], ..StormFacts::default() };
    assert_eq!(faults_in(std::slice::from_ref(&in_doubt), &[], &near), []);
    let far = StormFacts { gateway: vec![Timestamp(BEGAN + 60_000)], ..StormFacts::default() };
    assert_eq!(faults_in(std::slice::from_ref(&in_doubt), &[], &far), [Fault::Untrue], "long after");
    let runs = AgentRecord { turn_end: TurnEnd::Runs, ..agent_record("", false) };
    assert_eq!(faults_in(&[in_doubt], std::slice::from_ref(&runs), &near), [Fault::Untrue], "it did arrive");

    let killed = failed("OpenCode stopped in the middle of the turn.");
    assert_eq!(faults(&killed, &[agent_record("", false)]), []);
    assert_eq!(faults(&killed, &[runs]), [Fault::Untrue], "the agent was not killed");
    let waiting = failed("OpenCode took the prompt and shows no sign of it.");
    assert_eq!(faults(&waiting, &[]), [Fault::Untrue], "it never arrived, and nothing died");
    let died = StormFacts { agent: vec![Timestamp(BEGAN + 1_000)], ..StormFacts::default() };
    let waiting = [waiting];
    assert_eq!(faults_in(&waiting, &[], &died), [Fault::Untrue], "the fake records every prompt");
    assert_eq!(faults_in(&waiting, &[], &StormFacts { is_real: true, ..died }), [], "the real one forgot it");
    assert_eq!(check(&[killed], &[agent_record("", false)], &StormFacts::default()).reasons.len(), 1);

    let given_up =
        [failed("OpenCode could not complete the turn: Error: All fibers interrupted without error")];
    let cut = StormFacts { is_real: true, ..near };
    let shown = |text: &str| [AgentRecord { is_what_was_kept: true, ..agent_record(text, false) }];
    assert_eq!(faults_in(&given_up, &shown(""), &cut), []);
    let calm = StormFacts { is_real: true, ..StormFacts::default() };
    assert_eq!(faults_in(&given_up, &shown(""), &calm), [Fault::Untrue], "nothing broke");
    let fake = StormFacts { is_real: false, ..cut };
    assert_eq!(faults_in(&given_up, &shown(""), &fake), [Fault::Untrue], "the fake gives nothing up");
}

#[test]
fn text_that_the_agent_still_shows_is_never_missing() {
    let reason = "OpenCode stopped in the middle of the turn. Text may be missing.";
    let failed = observation(log_that_ends("FAILED", Some(reason)));
    let shows =
        |kept: &str| AgentRecord { kept: kept.to_owned(), ..agent_record("one two three four", false) };
    assert_eq!(faults(&failed, &[shows("one two ")]), []);
    assert_eq!(faults(&failed, &[shows("one two three four")]), [Fault::Lost]);
}

#[test]
fn a_reported_loss_needs_a_cause() {
    let lost = "Text that OpenCode wrote may be missing.";
    let completed = observation(log_that_ends("COMPLETED", Some(lost)));
    assert_eq!(faults(&completed, &[agent_record("one two three", true)]), [Fault::Untrue]);
    assert_eq!(
        faults(&completed, &[agent_record("one two three four", true)]),
        [Fault::Untrue, Fault::Lost],
        "a completed turn has lost nothing"
    );
    let unread = "A message that joined this turn may not have been read.";
    let alone = observation(log_that_ends("COMPLETED", Some(unread)));
    assert_eq!(faults(&alone, &[agent_record("one two three", true)]), [Fault::Untrue], "none joined");
}

#[test]
fn text_that_the_model_did_not_write_is_found() {
    let reason = "OpenCode stopped in the middle of the turn.";
    let failed = observation(log_that_ends("FAILED", Some(reason)));
    let says =
        |whole: &str| AgentRecord { whole: Some(whole.to_owned()), ..agent_record("one two three", false) };
    assert_eq!(faults(&failed, &[says("one two three four")]), []);
    assert_eq!(faults(&failed, &[says("one too three four")]), [Fault::Untrue]);
}
