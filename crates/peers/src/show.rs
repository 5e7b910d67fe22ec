//! Shows a call on the calling task as a tool call of its own, so that a reader of the stream sees which agent was asked what.
//! Pure.

use longshore_meter::label::PeerCall;
use longshore_model::{AgentEvent, ArtifactId, BlockKind, BlockRef, Json, ToolCall, ToolStatus, redact};
use serde_json::{Value, json};

use crate::call::Report;
use crate::record::{Ending, Record};

/// The longest text of a call that the task shows, in characters. The model gets more.
const MAX_SHOWN: usize = 8_000;

/// The prefix of the artifact ids of calls.
const PREFIX: &str = "peer_";

pub(crate) fn is_of_call(artifact: &ArtifactId) -> bool {
    artifact.as_str().starts_with(PREFIX)
}

/// The whole state of a call, as an event.
pub(crate) fn tool(record: &Record) -> Report {
    let body = &record.body;
    let short = |text: &str| redact::cut_at(text, MAX_SHOWN);
    let end = body.end.as_ref();
    let (status, output, error) = match end {
        None => (ToolStatus::Running, None, None),
        Some(end) if end.how == Ending::Completed => (ToolStatus::Completed, Some(short(&end.text)), None),
        Some(end) => {
            let text = Some(short(&end.text)).filter(|text| !text.is_empty());
            (ToolStatus::Error, text, Some(short(&end.reason)))
        }
    };
    let id = ArtifactId::parse(&format!("{PREFIX}{}", record.id)).expect("a call id makes an id");
    Report::Event(AgentEvent::Tool {
        block: BlockRef { id, kind: BlockKind::ToolCall, message: None },
        call: Box::new(ToolCall {
            title: Some(format!("Asked the agent {}", redact::cut_at(&body.peer, 200))),
            input: Some(Json::from_value(&json!({"peer": body.peer, "message": short(&body.text)}))),
            output,
            error,
            meta: Some(Json::from_value(&meta(record))),
            ..ToolCall::new(&record.id, "a2a_call", status)
        }),
    })
}

/// Names the peer's task, and reports the peer's usage apart from the usage of the calling task.
fn meta(record: &Record) -> Value {
    let body = &record.body;
    let mut meta = json!({"peer": body.peer});
    if let Some(task) = &body.remote_task {
        meta["peer_task_id"] = redact::cut_at(task, 200).into();
    }
    if let Some(context) = &body.context {
        meta["peer_context_id"] = redact::cut_at(context, 200).into();
    }
    if let Some(call) = &body.tool_call {
        meta["tool_call_id"] = call.as_str().into();
    }
    if let Some(usage) = &body.usage {
        meta["peer_usage"] = json!({
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "total_tokens": usage.total,
            "cost": usage.cost.to_float(),
        });
    }
    meta
}

pub(crate) fn label(how: Ending) -> PeerCall {
    match how {
        Ending::Completed => PeerCall::Completed,
        Ending::Failed => PeerCall::Failed,
        Ending::Canceled => PeerCall::Canceled,
        Ending::Unknown => PeerCall::Unknown,
    }
}
