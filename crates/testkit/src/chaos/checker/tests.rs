//! Records that were doctored: each kind of fault must be found, and nothing else.

use serde_json::json;

use super::super::record::{Errand, Record};
use super::super::speaker::Answering;
use super::*;

const WORDS: &str = "say it";

fn frame(seq: u64, json: Value) -> Frame {
    Frame { id: Some(format!("{seq}.1")), json }
}

fn status(seq: u64, state: &str, message: Option<&str>) -> Frame {
    let mut status = json!({"state": format!("TASK_STATE_{state}"), "timestamp": "2026-01-01T00:00:00Z"});
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
    }
}

fn faults(testimony: &Testimony, upstream: &[Upstream]) -> Vec<Fault> {
    let verdict = check(std::slice::from_ref(testimony), upstream);
    verdict.findings.iter().map(|finding| finding.fault).collect()
}

/// What is found when the client's record is doctored.
fn doctored(change: impl FnOnce(&mut Record)) -> Vec<Fault> {
    let mut testimony = completed();
    change(&mut testimony.record);
    faults(&testimony, &[upstream("one two three", true)])
}

#[test]
fn a_true_record_has_no_finding() {
    let verdict = check(&[completed()], &[upstream("one two three", true)]);
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
    let reason = "OpenCode stopped.";
    let failed = testimony(log_that_ends("FAILED", Some(reason)));
    assert_eq!(faults(&failed, &[upstream("one two three", false)]), []);
    assert_eq!(faults(&failed, &[upstream("one two three", true)]), [Fault::Untrue]);
    assert_eq!(faults(&failed, &[upstream("one two", false)]), [Fault::Untrue], "made up");
    assert_eq!(faults(&failed, &[upstream("one two three four", false)]), [Fault::Lost], "not named");
    let named = testimony(log_that_ends("FAILED", Some("OpenCode stopped. Text may be missing.")));
    let verdict = check(&[named], &[upstream("one two three four", false)]);
    assert_eq!((verdict.findings.len(), verdict.forgotten), (0, 1), "{verdict:?}");
    let kept = Upstream { is_what_was_kept: true, ..upstream("one ", false) };
    assert_eq!(faults(&failed, &[kept]), [], "the client has more than the agent kept");
}
