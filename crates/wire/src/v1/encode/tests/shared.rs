//! Tests `metadata.shared`, byte for byte, for each set of extensions that shows a part of it.

use std::slice;

use longshore_model::{
    AskKind, AskOption, AskOptions, Cost, Expired, InterruptNote, InterruptPhase, Notes, OptionKind, Parent,
    PermissionReply, Progress, ProgressKind, RequestId, Resolution, SessionId, SessionNote, Usage,
};

use super::*;
use crate::extension::Extension;

const SHOWING: [Extension; 3] =
    [Extension::SessionBinding, Extension::StreamHints, Extension::InteractiveInterrupt];

fn view(extensions: &[Extension]) -> View {
    View { activated: extensions.iter().copied().collect(), ..View::default() }
}

fn everything() -> View {
    view(&SHOWING)
}

fn session(title: Option<&str>) -> SessionNote {
    SessionNote { id: SessionId::parse("ses_1").unwrap(), title: title.map(str::to_owned) }
}

fn usage() -> Usage {
    Usage {
        input: 9_007_199_254_740_993,
        output: 20,
        total: 30,
        reasoning: 4,
        cache_read: 5,
        cache_write: 6,
        cost: Cost(122_000),
    }
}

fn ask(phase: InterruptPhase) -> InterruptNote {
    let details = (phase == InterruptPhase::Asked)
        .then(|| Json::parse(r#"{"permission":"bash","patterns":["ls \"*\""]}"#).unwrap());
    InterruptNote {
        request_id: RequestId::parse("per_1").unwrap(),
        kind: AskKind::Permission,
        phase,
        details,
        options: AskOptions::default(),
        expired: None,
    }
}

fn progress(kind: ProgressKind, details: Option<&str>) -> Progress {
    Progress { kind, details: details.map(|details| Json::parse(details).unwrap()) }
}

fn noted(state: TaskState, notes: Notes) -> StatusUpdate {
    StatusUpdate { notes, ..StatusUpdate::new(TaskStatus { state, at: Timestamp(2), message: None }) }
}

fn frame(event: TaskEvent, view: View) -> String {
    frame_of(&Entry { seq: Seq(7), epoch: Epoch(1), event }, view)
}

fn status_frame(update: StatusUpdate, view: View) -> String {
    frame(TaskEvent::Status(update.into()), view)
}

/// The `metadata` of a frame or a task, as text.
fn metadata_of(json: &str) -> &str {
    json.split_once(r#""metadata":"#).map_or("", |(_, metadata)| metadata)
}

#[test]
fn each_key_needs_its_extension() {
    let notes = Notes {
        session: Some(session(Some("A \"title\""))),
        usage: Some(usage()),
        progress: Some(progress(ProgressKind::StepFinished, Some(r#"{"reason":"stop"}"#))),
        interrupt: Some(ask(InterruptPhase::Asked)),
        sub_agent_model: None,
    };
    let update = noted(TaskState::InputRequired, notes);
    let sets: [(&str, &[Extension]); 5] = [
        ("session", &[Extension::SessionBinding]),
        ("hints", &[Extension::StreamHints]),
        ("interrupt", &[Extension::InteractiveInterrupt]),
        ("everything", &SHOWING),
        ("nothing", &[Extension::ModelSelection, Extension::InterruptRecovery, Extension::WireContract]),
    ];
    for (name, extensions) in sets {
        insta::assert_snapshot!(format!("status_{name}"), status_frame(update.clone(), view(extensions)));
    }
    let without = status_frame(update, View::default());
    let plain =
        StatusUpdate::new(TaskStatus { state: TaskState::InputRequired, at: Timestamp(2), message: None });
    assert_eq!(without, status_frame(plain, View::default()), "without the extensions there are no notes");
}

#[test]
fn the_model_of_a_sub_agent_is_told_when_it_becomes_known() {
    let notes = Notes { sub_agent_model: Some("p/m".to_owned()), ..Notes::default() };
    let update = StatusUpdate { repeats: true, ..noted(TaskState::Working, notes) };
    let shown = status_frame(update.clone(), view(&[Extension::StreamHints]));
    let expected = r#"{"shared":{"subagent":{"model":"p/m"},"stream":{"event_id""#;
    assert!(metadata_of(&shown).starts_with(expected), "{shown}");
    let event = TaskEvent::Status(update.into());
    assert!(!is_shown(&event, view(&[Extension::SessionBinding]), &OutputModes::default()));
}

#[test]
fn blocks_have_a_kind() {
    for (kind, message) in
        [(BlockKind::Text, Some("msg_1")), (BlockKind::Reasoning, None), (BlockKind::ToolCall, Some("msg_1"))]
    {
        let mut block = artifact("prt_1", vec![Part::text("x")]);
        block.kind = kind;
        block.source_message = message.map(|id| MessageId::parse(id).unwrap());
        let update = TaskEvent::Artifact(ArtifactUpdate {
            artifact: block.clone(),
            append: true,
            last_chunk: false,
            metadata: None,
        });
        let name = kind.as_str();
        insta::assert_snapshot!(
            format!("block_{name}"),
            frame(update.clone(), view(&[Extension::StreamHints]))
        );
        let without_hints = view(&[Extension::SessionBinding, Extension::InteractiveInterrupt]);
        assert_eq!(frame(update.clone(), without_hints), frame(update, View::default()));

        // In a whole task, a block has no position in the stream.
        let whole = Task { artifacts: vec![block], ..bare_task() };
        insta::assert_snapshot!(format!("task_of_{name}"), written(task(&whole, everything())));
        let listed = written(list_response(&[whole], everything(), "", 1, 1));
        assert!(listed.contains(&format!(r#""shared":{{"stream":{{"block_type":"{name}""#)), "{listed}");
    }
}

#[test]
fn a_file_is_no_block_of_the_stream() {
    let mut file = artifact("file_1", vec![Part::new(PartContent::Url("/artifacts/1".to_owned()))]);
    file.kind = BlockKind::File;
    file.metadata = Some(metadata(r#"{"byteSize":3}"#));
    let update = ArtifactUpdate { artifact: file.clone(), append: false, last_chunk: true, metadata: None };
    let event = TaskEvent::Artifact(update);
    assert_eq!(frame(event.clone(), everything()), frame(event, View::default()));
    let whole = Task { artifacts: vec![file], ..bare_task() };
    assert_eq!(task(&whole, everything()), task(&whole, View::default()));
}

#[test]
fn the_task_of_a_sub_agent_names_its_parent() {
    for (call, kind, model, expected) in [
        (
            Some("call_1"),
            Some("general"),
            Some("p/m"),
            r#"{"shared":{"parent":{"task_id":"t0","call_id":"call_1","depth":2},"subagent":{"type":"general","model":"p/m"}}}"#,
        ),
        (
            None,
            Some("general"),
            None,
            r#"{"shared":{"parent":{"task_id":"t0","depth":2},"subagent":{"type":"general"}}}"#,
        ),
        (None, None, None, r#"{"shared":{"parent":{"task_id":"t0","depth":2}}}"#),
    ] {
        let parent = Parent {
            root: TaskId::parse("top").unwrap(),
            task: TaskId::parse("t0").unwrap(),
            call: call.map(str::to_owned),
            depth: 2,
            session: SessionId::parse("ses_child").unwrap(),
            kind: kind.map(str::to_owned),
            model: model.map(str::to_owned),
        };
        let (with_hints, without_hints) = (
            view(&[Extension::StreamHints]),
            view(&[Extension::SessionBinding, Extension::InteractiveInterrupt]),
        );
        let child = Task { parent: Some(Box::new(parent.clone())), ..bare_task() };
        assert_eq!(metadata_of(&written(task(&child, with_hints))), format!("{expected}}}"));
        assert_eq!(metadata_of(&written(send_response(&child, with_hints))), format!("{expected}}}}}"));
        let listed = written(list_response(slice::from_ref(&child), with_hints, "", 1, 1));
        assert!(listed.contains(&format!(r#""metadata":{expected}"#)), "{listed}");
        assert_eq!(task(&child, without_hints), task(&bare_task(), View::default()));

        let submitted = TaskEvent::Submitted {
            context_id: child.context_id.clone(),
            message: message("m1", Role::User, "look"),
            at: Timestamp(1),
            options: Box::default(),
            parent: Some(Box::new(parent)),
        };
        assert_eq!(metadata_of(&frame(submitted.clone(), with_hints)), format!("{expected}}}}}"));
        assert_eq!(metadata_of(&frame(submitted.clone(), without_hints)), "");
        assert_ne!(frame_form(&submitted, with_hints), frame_form(&submitted, without_hints));
    }
}

#[test]
fn a_task_shows_its_session_its_usage_and_its_oldest_ask() {
    let mut second = ask(InterruptPhase::Asked);
    second.request_id = RequestId::parse("per_2").unwrap();
    let asking = Task {
        session: Some(session(None)),
        usage: Some(usage()),
        open_asks: vec![ask(InterruptPhase::Asked), second],
        metadata: Some(metadata(r#"{"a": 1.50}"#)),
        ..bare_task()
    };
    for (name, extensions) in [
        ("session", &[Extension::SessionBinding][..]),
        ("hints", &[Extension::StreamHints]),
        ("interrupt", &[Extension::InteractiveInterrupt]),
        ("everything", &SHOWING),
    ] {
        insta::assert_snapshot!(format!("task_{name}"), written(task(&asking, view(extensions))));
    }
    let silent = Task { session: None, usage: None, open_asks: Vec::new(), ..asking.clone() };
    assert_eq!(task(&asking, View::default()), task(&silent, View::default()));
    assert_eq!(task(&silent, everything()), task(&silent, View::default()));

    let gap = Gap {
        requested: EventId::new(Seq(3), Epoch(2)),
        first: Seq(10),
        head: EventId::new(Seq(12), Epoch(4)),
    };
    let frame = written(stream_task(&asking, view(&[Extension::SessionBinding]), Some(gap)));
    let expected = concat!(
        r#"{"a":1.50,"longshore":{"gap":{"requested":3,"first":10,"head":12,"requested_epoch":2,"head_epoch":4}},"#,
        r#""shared":{"session":{"id":"ses_1"}}}}}"#
    );
    assert_eq!(metadata_of(&frame), expected);
}

#[test]
fn every_resolution_of_an_ask_has_a_word_for_older_clients() {
    for (resolution, word) in [
        (Resolution::Replied, "replied"),
        (Resolution::Rejected, "rejected"),
        (Resolution::Elsewhere, "replied"),
        (Resolution::Approved, "replied"),
        (Resolution::RejectedElsewhere, "rejected"),
        (Resolution::Expired, "rejected"),
        (Resolution::Dropped, "rejected"),
    ] {
        let interrupt = Some(ask(InterruptPhase::Resolved(resolution)));
        let update = noted(TaskState::Working, Notes { interrupt, ..Notes::default() });
        let frame = status_frame(update, view(&[Extension::InteractiveInterrupt]));
        let outcome = resolution.as_str();
        let expected = format!(
            r#"{{"shared":{{"interrupt":{{"request_id":"per_1","type":"permission","phase":"resolved","resolution":"{word}","outcome":"{outcome}"}}}}}}}}}}"#
        );
        assert_eq!(metadata_of(&frame), expected);
    }
}

#[test]
fn an_open_ask_shows_the_options_of_its_agent() {
    let option = |id: &str, name: &str, kind| AskOption { id: id.to_owned(), name: name.to_owned(), kind };
    let options = AskOptions::new([
        option("proceed_once", "Allow \"once\"", OptionKind::AllowOnce),
        option("more", "", OptionKind::Other),
    ]);
    let note = InterruptNote { options, details: None, ..ask(InterruptPhase::Asked) };
    let update = noted(TaskState::InputRequired, Notes { interrupt: Some(note), ..Notes::default() });
    let frame = status_frame(update, view(&[Extension::InteractiveInterrupt]));
    assert_eq!(
        metadata_of(&frame),
        concat!(
            r#"{"shared":{"interrupt":{"request_id":"per_1","type":"permission","phase":"asked","options":["#,
            r#"{"id":"proceed_once","name":"Allow \"once\"","kind":"allow_once"},"#,
            r#"{"id":"more","name":"more","kind":"other"}]}}}}}"#
        )
    );
}

#[test]
fn an_expired_ask_names_its_deadline_and_the_answer_of_the_gateway() {
    for (answer, resolution) in [(PermissionReply::Reject, "rejected"), (PermissionReply::Once, "replied")] {
        let expired = Expired { deadline: Timestamp(1_786_440_600_125), answer, call: Some("c".to_owned()) };
        let note = ask(InterruptPhase::Resolved(Resolution::Expired));
        let interrupt = Some(InterruptNote { expired: Some(expired), ..note });
        let update = noted(TaskState::Working, Notes { interrupt, ..Notes::default() });
        let frame = status_frame(update, view(&[Extension::InteractiveInterrupt]));
        let answer = answer.as_str();
        let expected = format!(
            r#"{{"shared":{{"interrupt":{{"request_id":"per_1","type":"permission","phase":"resolved","resolution":"{resolution}","outcome":"expired","expires_at":1786440600.125,"answer":"{answer}"}}}}}}}}}}"#
        );
        assert_eq!(metadata_of(&frame), expected);
    }
}

#[test]
fn progress_contains_its_details() {
    for (kind, details, expected) in [
        (ProgressKind::StepStarted, None, r#"{"type":"step-start"}"#),
        (ProgressKind::StepFinished, Some("{}"), r#"{"type":"step-finish"}"#),
        (
            ProgressKind::Retry,
            Some(r#"{"attempt": 2, "next": 1786440600125}"#),
            r#"{"type":"retry","attempt":2,"next":1786440600125}"#,
        ),
        (
            ProgressKind::Compaction,
            Some(r#"{"type":"x","auto":true}"#),
            r#"{"type":"compaction","auto":true}"#,
        ),
        (ProgressKind::Todos, Some("{\"todos\":[\n{}]}"), r#"{"type":"todos","todos":[{}]}"#),
        (ProgressKind::Todos, Some("[1]"), r#"{"type":"todos"}"#),
        (ProgressKind::Settings, Some(r#"{"mode":"plan"}"#), r#"{"type":"settings","mode":"plan"}"#),
    ] {
        let notes = Notes { progress: Some(progress(kind, details)), ..Notes::default() };
        let frame = status_frame(noted(TaskState::Working, notes), view(&[Extension::StreamHints]));
        let start = format!(r#"{{"shared":{{"progress":{expected},"stream":"#);
        assert!(metadata_of(&frame).starts_with(&start), "{frame}");
    }
}

#[test]
fn a_cost_is_an_exact_number() {
    for (billionths, expected) in [
        (0, "0"),
        (1, "0.000000001"),
        (122_000, "0.000122"),
        (1_000_000_000, "1"),
        (1_500_000_000, "1.5"),
        (10_000_000_000, "10"),
        (u64::MAX, "18446744073.709551615"),
    ] {
        let notes =
            Notes { usage: Some(Usage { cost: Cost(billionths), ..Usage::default() }), ..Notes::default() };
        let frame = status_frame(noted(TaskState::Completed, notes), view(&[Extension::StreamHints]));
        assert!(frame.contains(&format!(r#""cost":{expected}}},"stream""#)), "{frame}");
    }
}

#[test]
fn other_metadata_is_not_changed() {
    let note = r#""session":{"id":"ses_1"}"#;
    for (before, expected) in [
        (None, format!("{{\"shared\":{{{note}}}}}")),
        (Some("{}"), format!("{{\"shared\":{{{note}}}}}")),
        (Some("{ }"), format!("{{\"shared\":{{{note}}}}}")),
        (
            Some(r#"{"opencode":{"error":{"type":"X", "upstream_status":503.0}} }"#),
            format!(
                "{{\"opencode\":{{\"error\":{{\"type\":\"X\", \"upstream_status\":503.0}}}},\"shared\":{{{note}}}}}"
            ),
        ),
        (Some("{\"z\":1,\n\"a\":1e2}"), format!("{{\"z\":1,\"a\":1e2,\"shared\":{{{note}}}}}")),
        // Other keys inside `shared` are kept.
        (
            Some(r#"{"shared":{"session":{"id":"other"},"x":1.50},"b":2}"#),
            format!("{{\"b\":2,\"shared\":{{\"x\":1.50,{note}}}}}"),
        ),
        (Some(r#"{"\u0073hared":{"x":1}}"#), format!("{{\"shared\":{{\"x\":1,{note}}}}}")),
        (Some(r#"{"shared":7}"#), format!("{{\"shared\":{{{note}}}}}")),
        (Some(r#"{"a":"shared"}"#), format!("{{\"a\":\"shared\",\"shared\":{{{note}}}}}")),
    ] {
        let notes = Notes { session: Some(session(None)), ..Notes::default() };
        let update = StatusUpdate { metadata: before.map(metadata), ..noted(TaskState::Failed, notes) };
        let frame = status_frame(update, view(&[Extension::SessionBinding]));
        assert_eq!(metadata_of(&frame), format!("{expected}}}}}"), "{before:?}");
    }
}
