//! Tests that a resumed turn reports only what the log lacks.

use longshore_engine::port::Resume;
use longshore_model::{
    Artifact, ArtifactId, BlockKind, BlockRef, Json, MessageId, Part as ModelPart, PromptId,
};
use serde_json::{Value, json};

use super::replay::{Replay, decode, shown};
use super::*;

/// The artifacts in a log after these events.
fn logged(events: &[AgentEvent]) -> Vec<Artifact> {
    let mut artifacts: Vec<Artifact> = Vec::new();
    for event in events {
        let (block, name, part, append) = match event {
            AgentEvent::Text { block, text } => {
                (block, block.kind.as_str().to_owned(), ModelPart::text(text), true)
            }
            AgentEvent::TextReplaced { block, text } => {
                (block, block.kind.as_str().to_owned(), ModelPart::text(text), false)
            }
            AgentEvent::Tool { block, call } => {
                (block, format!("tool:{}", call.tool), tool_part(call), false)
            }
            AgentEvent::ToolOutput { block, call } => {
                (block, format!("tool:{}", call.tool), tool_part(call), true)
            }
            _ => continue,
        };
        match artifacts.iter_mut().find(|artifact| artifact.id == block.id) {
            Some(artifact) if append => artifact.parts.push(part),
            Some(artifact) => (artifact.name, artifact.parts) = (Some(name), vec![part]),
            None => artifacts.push(Artifact {
                id: block.id.clone(),
                kind: block.kind,
                source_message: block.message.clone(),
                name: Some(name),
                description: None,
                parts: vec![part],
                extensions: Vec::new(),
                metadata: None,
            }),
        }
    }
    artifacts
}

fn past(events: &[AgentEvent]) -> Resume {
    Resume { artifacts: logged(events), ..Resume::default() }
}

fn tool_part(call: &longshore_model::ToolCall) -> ModelPart {
    let mut data = json!({"call_id": call.call_id, "tool": call.tool, "status": call.status.as_str(),
        "title": call.title, "subtitle": call.subtitle, "output": call.output, "error": call.error});
    data["input"] = call.input.as_ref().map_or(Value::Null, Json::to_value);
    data.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    ModelPart::data(Json::parse(&data.to_string()).unwrap())
}

#[test]
fn wherever_the_gateway_stopped_only_the_rest_is_reported() {
    for name in
        ["text", "reasoning_then_tool", "tool_bash_slow", "cut_rst_partial", "auto_compact", "tool_pair"]
    {
        let whole = Replay::of(name, 0).finished();
        let messages = Replay::stored(name, &whole.session, &whole.prompt).unwrap();
        let expected = shown(&messages, &whole.prompt);
        let first_event = Replay::of(name, 0);
        let (session, prompt) = (first_event.session, first_event.prompt);
        for stop in 0..=whole.events.len() {
            let before = &whole.events[..stop];
            let mut resumed = Translator::resume(&session, &prompt, &past(before));
            resumed.gap();
            resumed.merge_messages(decode(messages.clone()));
            resumed.confirm_status(None);
            let after = resumed.take();
            let mut events = before.to_vec();
            // The end of the last block may be reported again, because the log does not contain it.
            events.retain(|event| !matches!(event, AgentEvent::TextEnded { .. }));
            let new = after.iter().filter(|event| !matches!(event, AgentEvent::TextEnded { .. }));
            events.extend(new.cloned());
            let mut folded = fold(&events);
            for block in &mut folded {
                block.ended = true;
            }
            assert_eq!(folded, expected, "{name}, stopped after {stop} events");
            assert!(matches!(resumed.verdict(false), Verdict::Over(_)), "{name}, {stop}");
            if stop == whole.events.len() {
                // The total usage is reported each time.
                let again = |event: &&AgentEvent| {
                    !matches!(event, AgentEvent::TextEnded { .. } | AgentEvent::Usage(_))
                };
                assert_eq!(after.iter().find(again), None, "{name}: nothing was missing");
            }
        }
    }
}

#[test]
fn a_prompt_that_never_arrived_is_not_assumed_to_have_run() {
    let mut resumed = Translator::resume("ses_1", "msg_1", &Resume::default());
    resumed.gap();
    resumed.merge_messages(Vec::new());
    resumed.confirm_status(None);
    assert_eq!(resumed.verdict(false), Verdict::Unsettled);
    assert_eq!(resumed.evidence(), Evidence::None);
    assert_eq!(
        short(&resumed.forced_outcome(false, false)),
        "failed: It is not known whether OpenCode took the prompt; look at the session before you send it again."
    );
    assert_eq!(
        short(&resumed.forced_outcome(false, true)),
        "failed: OpenCode took the prompt and shows no sign of it."
    );
}

#[test]
fn a_resumed_turn_that_still_runs_goes_on() {
    // In mid_stream_get the list was read during the stream, when the part was open and its text not stored yet.
    let mut live = Replay::of("mid_stream_get", 0);
    let mut deltas = 0;
    while deltas < 3 {
        deltas += usize::from(live.next_event().unwrap()["type"] == "message.part.delta");
    }
    let mut resumed = Translator::resume(&live.session, &live.prompt, &past(&live.events));
    let block = fold(&live.events).remove(0);
    resumed.gap();
    resumed.merge_messages(decode(vec![
        json!({"info": {"id": live.prompt, "role": "user", "time": {"created": 1}}, "parts": []}),
        json!({"info": {"id": "msg_a", "role": "assistant", "parentID": live.prompt, "time": {"created": 2}},
            "parts": [{"id": block.id, "messageID": "msg_a", "type": "text", "text": "", "time": {"start": 1}}]}),
    ]));
    resumed.confirm_status(Some(&busy()));
    assert_eq!(resumed.take(), []);
    assert_eq!(resumed.verdict(false), Verdict::Running);
}

/// A kill cuts off the answer to one message. In the log, the answer to the next message follows.
#[test]
fn a_text_that_was_cut_off_counts_as_lacking_even_if_another_answer_follows() {
    for (cut_off, is_lacking) in [(true, true), (false, false)] {
        let mut artifacts = Vec::new();
        for (message, part) in [("msg_a", "prt_a"), ("msg_b", "prt_b")] {
            let block = BlockRef {
                id: ArtifactId::parse(part).unwrap(),
                kind: BlockKind::Text,
                message: Some(MessageId::parse(message).unwrap()),
            };
            artifacts.extend(logged(&[AgentEvent::Text { block, text: "heard".to_owned() }]));
        }
        let joined = vec![PromptId::parse("msg_j").unwrap()];
        let past = Resume { artifacts, joined, ..Resume::default() };
        let mut resumed = Translator::resume("ses_1", "msg_p", &past);
        resumed.gap();
        let step = |id: &str, parent: &str, created: u32, part: Option<&str>| {
            let text = |part: &str| json!({"id": part, "messageID": id, "type": "text", "text": "heard", "time": {"start": 1, "end": 2}});
            let mut time = json!({"created": created});
            if part.is_some() {
                time["completed"] = created.into();
            }
            json!({"info": {"id": id, "role": "assistant", "parentID": parent, "time": time},
                "parts": part.into_iter().map(text).collect::<Vec<_>>()})
        };
        let prompt = |id: &str, created: u32| json!({"info": {"id": id, "role": "user", "time": {"created": created}}, "parts": []});
        resumed.merge_messages(decode(vec![
            prompt("msg_p", 1),
            step("msg_a", "msg_p", 2, (!cut_off).then_some("prt_a")),
            prompt("msg_j", 3),
            step("msg_b", "msg_j", 4, Some("prt_b")),
        ]));
        assert_eq!(text_of(&resumed.take()), "", "nothing is reported again");
        assert_eq!(resumed.may_lack_text(), is_lacking, "cut off: {cut_off}");
    }
}

fn text_of(events: &[AgentEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        AgentEvent::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
