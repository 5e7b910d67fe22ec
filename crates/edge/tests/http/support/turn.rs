//! A turn with every kind of event, in two halves.

use longshore_model::{AgentEvent, BlockKind, BlockRef, Json, ToolCall, ToolStatus};
use longshore_testkit::scripted_agent::{StartedTurn, text_block};

fn call(status: ToolStatus) -> ToolCall {
    ToolCall {
        input: Some(Json::parse(r#"{"command":"ls"}"#).unwrap()),
        output: (status == ToolStatus::Completed).then(|| "a.txt".to_owned()),
        ..ToolCall::new("call_1", "bash", status)
    }
}

pub(crate) async fn first_half(turn: &StartedTurn) {
    let block = |name: &str, kind| BlockRef { kind, ..text_block(name) };
    let thinking = block("prt_1", BlockKind::Reasoning);
    turn.report(AgentEvent::Text { block: thinking.clone(), text: "Hm".to_owned() }).await;
    turn.report(AgentEvent::Text { block: thinking, text: ", well. ".to_owned() }).await;
    let tool = block("prt_2", BlockKind::ToolCall);
    for status in [ToolStatus::Running, ToolStatus::Completed] {
        turn.report(AgentEvent::Tool { block: tool.clone(), call: Box::new(call(status)) }).await;
    }
    turn.say("prt_3", "First ").await;
    turn.say("prt_3", "words. ").await;
}

pub(crate) async fn second_half(turn: StartedTurn) {
    // Other blocks surround the replaced one, so 0.3 has to send the whole artifact again.
    let replaced = AgentEvent::TextReplaced { block: text_block("prt_3"), text: "Better words. ".to_owned() };
    turn.report(replaced).await;
    turn.file("file_1", "a.txt", "text/plain", b"abc").await;
    turn.say("prt_4", "Done").await;
    turn.say("prt_4", ".").await;
    turn.complete().await;
}

/// The agent's text in that turn, for a reader that sees all of it.
pub(crate) const TEXT: &str = "Hm, well. Better words. Done.";
