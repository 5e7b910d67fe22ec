//! Tool calls that are open when their task ends.

use longshore_model::{
    AgentEvent, BlockKind, BlockRef, Failure, Json, Outcome, PartContent, Task, TaskState, ToolCall,
    ToolLocation, ToolStatus,
};
use longshore_testkit::scripted_agent::text_block;
use serde_json::{Value, json};

use crate::harness::{alice, start};

fn call(id: &str, status: ToolStatus, output: Option<&str>) -> (BlockRef, Box<ToolCall>) {
    let call = Box::new(ToolCall {
        kind: Some("execute".to_owned()),
        locations: vec![ToolLocation { path: "a".to_owned(), line: Some(3) }],
        input: Json::parse(r#"{"timeout": 1.00}"#),
        output: output.map(str::to_owned),
        meta: Json::parse(r#"{"vendor": 2.00}"#),
        ..ToolCall::new(id, "bash", status)
    });
    (BlockRef { kind: BlockKind::ToolCall, ..text_block(id) }, call)
}

fn tool(id: &str, status: ToolStatus) -> AgentEvent {
    let (block, call) = call(id, status, None);
    AgentEvent::Tool { block, call }
}

fn output(id: &str, text: &str) -> AgentEvent {
    let (block, call) = call(id, ToolStatus::Running, Some(text));
    AgentEvent::ToolOutput { block, call }
}

/// The parts of a tool call.
fn shown(task: &Task, id: &str) -> Vec<Value> {
    let artifact = task.artifact(id).expect("the call is shown");
    let data = artifact.parts.iter().map(|part| match &part.content {
        PartContent::Data(data) => data.to_value(),
        other => panic!("{other:?}"),
    });
    data.collect()
}

#[tokio::test]
async fn a_task_that_ends_closes_its_open_tool_calls_and_leaves_the_others_alone() {
    let not_reported = "The turn ended, and the agent did not report the end of this call. What it had done by then is done.";
    for (end, why) in [
        (
            TaskState::Canceled,
            "The task was canceled before this call ended. What it had done by then is done.",
        ),
        (TaskState::Failed, not_reported),
        (TaskState::Completed, not_reported),
    ] {
        let mut h = start();
        let sent = h.send("c", "m1").await;
        let turn = h.turn().await;
        turn.report(tool("ended", ToolStatus::Completed)).await;
        turn.report(tool("open", ToolStatus::Running)).await;
        turn.report(output("printing", "one ")).await;
        turn.report(output("printing", "two")).await;
        turn.say("a", "x").await;
        while h.task(&sent.task).await.artifact("a").is_none() {
            tokio::task::yield_now().await;
        }
        match end {
            TaskState::Canceled => drop(h.engine.cancel(&alice(), &sent.task).await.unwrap()),
            TaskState::Failed => turn.report(AgentEvent::Ended(Outcome::Failed(Failure::new("x")))).await,
            _ => turn.complete().await,
        }
        let task = h.reaches(&sent.task, end).await;
        assert_eq!(shown(&task, "ended").last().unwrap()["status"], "completed");
        let open = json!({"call_id": "open", "tool": "bash", "status": "error", "kind": "execute",
            "locations": [{"path": "a", "line": 3}], "input": {"timeout": 1.0}, "error": why, "meta": {"vendor": 2.0}});
        assert_eq!(shown(&task, "open"), [open]);
        assert!(format!("{:?}", task.artifact("open")).contains("1.00"), "the input is passed on unchanged");
        let printed = shown(&task, "printing");
        let outputs: String = printed.iter().filter_map(|part| part["output"].as_str()).collect();
        assert_eq!(
            (outputs.as_str(), printed.last().unwrap()["status"].as_str()),
            ("one two", Some("error"))
        );
    }
}
