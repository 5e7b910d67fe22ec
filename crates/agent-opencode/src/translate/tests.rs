//! Tests the translator with recordings of a real OpenCode.

mod asks;
mod commands;
mod files;
mod joining;
mod merging;
mod pitfalls;
mod progress;
mod replay;
mod resuming;
mod sub_agents;

use longshore_model::{AgentEvent, BlockKind, Outcome};

use super::*;

/// A one-line description of an outcome.
fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed { remark: None } => "completed".to_owned(),
        Outcome::Completed { remark: Some(remark) } => format!("completed: {remark}"),
        Outcome::Canceled { reason } => format!("canceled: {reason}"),
        Outcome::Incomplete(outcome) => format!("lacking, {}", short(outcome)),
        Outcome::Failed(failure) => format!("failed: {}", failure.message),
        Outcome::AuthRequired(failure) => format!("auth required: {}", failure.message),
    }
}

/// The status of a busy session.
fn busy() -> Status {
    serde_json::from_str(r#"{"type": "busy"}"#).unwrap()
}

/// A block after all events were applied.
#[derive(Clone, PartialEq, Debug, Default)]
struct Folded {
    id: String,
    kind: String,
    text: String,
    ended: bool,
}

/// Applies the events, and leaves out the blocks that were withdrawn.
fn fold(events: &[AgentEvent]) -> Vec<Folded> {
    let mut blocks: Vec<Folded> = Vec::new();
    for event in events {
        let (block, kind) = match event {
            AgentEvent::Text { block, .. }
            | AgentEvent::TextReplaced { block, .. }
            | AgentEvent::TextEnded { block } => (block, block.kind.as_str().to_owned()),
            AgentEvent::Tool { block, call } | AgentEvent::ToolOutput { block, call } => {
                assert_eq!(block.kind, BlockKind::ToolCall);
                (block, format!("tool:{}", call.tool))
            }
            _ => continue,
        };
        assert!(block.message.as_ref().is_some_and(|message| message.as_str().starts_with("msg_")));
        let id = block.id.as_str();
        let at = blocks.iter().position(|block| block.id == id).unwrap_or_else(|| {
            blocks.push(Folded { id: id.to_owned(), kind, ..Folded::default() });
            blocks.len() - 1
        });
        let block = &mut blocks[at];
        match event {
            AgentEvent::Text { text, .. } => {
                assert!(!block.ended, "text after the end of {id}");
                assert!(!text.is_empty(), "an empty text for {id}");
                block.text.push_str(text);
            }
            AgentEvent::TextReplaced { text, .. } => block.text.clone_from(text),
            AgentEvent::TextEnded { .. } => {
                assert!(!block.ended, "{id} ended twice");
                block.ended = true;
            }
            AgentEvent::Tool { call, .. } => {
                assert!(!block.ended, "{id} changed after its end");
                // An unknown tool gets another name when OpenCode finds that it is unknown.
                block.kind = format!("tool:{}", call.tool);
                block.ended = matches!(call.status.as_str(), "completed" | "error");
                block.text = call.output.clone().or(call.error.clone()).unwrap_or_default();
            }
            AgentEvent::ToolOutput { call, .. } => block.text.push_str(call.output.as_deref().unwrap()),
            _ => {}
        }
    }
    blocks.retain(|block| block.kind.starts_with("tool:") || !block.text.is_empty());
    blocks
}
