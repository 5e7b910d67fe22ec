//! Sub-agents: each call is its own task, below the one that started it.

use longshore_engine::EngineConfig;
use longshore_engine::port::ResumedChildState;
use longshore_model::{
    AgentEvent, ArtifactId, BlockKind, BlockRef, ChildEvent, ChildStart, ErrorKind, Outcome, Part,
    SendMessage, SessionId, Task, TaskId, TaskState, ToolCall, ToolStatus, Usage,
};
use longshore_testkit::scripted_agent::{StartedTurn, permission, text_block};

use crate::harness::{Harness, alice, all_tasks, message, reason_of, start, start_with, text_of};

async fn children(h: &Harness) -> Vec<Task> {
    let mut listed = h.engine.list(&alice(), all_tasks(Some("c"))).await.expect("a list").tasks;
    listed.retain(|task| task.parent.is_some());
    listed.sort_by_key(|task| task.parent.as_ref().expect("a child").depth);
    listed
}

/// Waits until the context has this many tasks of sub-agents.
async fn children_of(h: &Harness, count: usize) -> Vec<Task> {
    loop {
        let found = children(h).await;
        if found.len() == count {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

async fn said(turn: &StartedTurn, session: &str, text: &str) {
    let event = AgentEvent::Text { block: text_block(&format!("prt_{session}")), text: text.to_owned() };
    turn.child(session, ChildEvent::Report(event)).await;
}

async fn ended(turn: &StartedTurn, session: &str) {
    let event = AgentEvent::Ended(Outcome::Completed { remark: None });
    turn.child(session, ChildEvent::Report(event)).await;
}

pub(crate) fn tool(call: &str, child: &str) -> AgentEvent {
    let block = BlockRef {
        id: ArtifactId::parse(&format!("prt_{call}")).expect("a good name"),
        kind: BlockKind::ToolCall,
        message: None,
    };
    let call =
        ToolCall { child: SessionId::parse(child).ok(), ..ToolCall::new(call, "task", ToolStatus::Running) };
    AgentEvent::Tool { block, call: Box::new(call) }
}

fn on(task: &TaskId, id: &str, text: &str) -> SendMessage {
    let mut command = message("c", id);
    command.message.task_id = Some(task.clone());
    command.message.parts = vec![Part::text(text)];
    command
}

#[tokio::test]
async fn a_sub_agent_has_a_task_with_its_own_stream_usage_and_end() {
    let mut h = start();
    let root = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "look around").await;
    turn.report(tool("call_1", "ses_child")).await;
    let [child]: [Task; 1] = children_of(&h, 1).await.try_into().unwrap();
    let parent = child.parent.clone().unwrap();
    assert_eq!((&parent.root, &parent.task, parent.depth), (&root.task, &root.task, 1));
    assert_eq!(parent.call.as_deref(), Some("call_1"));
    assert_eq!(child.history[0].parts, [Part::text("look around")]);
    let reader = h.engine.subscribe(&alice(), &child.id, None).await.unwrap().reader;
    said(&turn, "ses_child", "below").await;
    turn.child("ses_child", ChildEvent::Report(AgentEvent::Usage(Usage { input: 2, ..Usage::default() })))
        .await;
    turn.say("prt_root", "above").await;
    ended(&turn, "ses_child").await;
    let over = h.engine.settled(&alice(), reader).await.unwrap().task;
    assert_eq!((over.status.state, text_of(&over).as_str()), (TaskState::Completed, "below"));
    assert_eq!(over.usage.unwrap().input, 2);
    turn.complete().await;
    let root = h.reaches(&root.task, TaskState::Completed).await;
    assert_eq!(text_of(&root), "above");
    let block = root.artifact("prt_call_1").unwrap();
    let longshore_model::PartContent::Data(data) = &block.parts[0].content else {
        panic!("a tool call is data")
    };
    assert_eq!(data.to_value()["child_task_id"], child.id.as_str());
    // Only a list by context shows it.
    let listed = h.engine.list(&alice(), all_tasks(None)).await.unwrap();
    assert_eq!(listed.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [&root.id]);
    assert_eq!(listed.total, 1);
}

#[tokio::test]
async fn the_model_of_a_sub_agent_may_become_known_after_its_start() {
    let mut h = start();
    h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "look around").await;
    let [child]: [Task; 1] = children_of(&h, 1).await.try_into().unwrap();
    assert_eq!(child.parent.unwrap().model, None);
    turn.child("ses_child", ChildEvent::Model("p/m".to_owned())).await;
    ended(&turn, "ses_child").await;
    turn.complete().await;
    let done = h.reaches(&child.id, TaskState::Completed).await;
    assert_eq!(done.parent.unwrap().model.as_deref(), Some("p/m"));
}

#[tokio::test]
async fn sub_agents_of_sub_agents_are_nested() {
    let mut h = start();
    h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "first").await;
    let start = ChildStart {
        caller: SessionId::parse("ses_child").unwrap(),
        call: Some("call_2".to_owned()),
        prompt: "second".to_owned(),
        title: None,
        kind: Some("x".repeat(1000)),
        model: Some("p/m".to_owned()),
    };
    turn.child("ses_grandchild", ChildEvent::Started(start)).await;
    let [child, grandchild]: [Task; 2] = children_of(&h, 2).await.try_into().unwrap();
    let parent = grandchild.parent.unwrap();
    assert_eq!((parent.task, parent.depth), (child.id, 2));
    assert_eq!((parent.kind, parent.model), (Some("x".repeat(256)), Some("p/m".to_owned())));
    assert_eq!(parent.root, child.parent.unwrap().root);
}

#[tokio::test]
async fn a_second_call_of_a_sub_agent_is_another_task() {
    let mut h = start();
    h.send("c", "m1").await;
    let turn = h.turn().await;
    for call in ["call_1", "call_2"] {
        turn.call_child("ses_child", call, call).await;
        said(&turn, "ses_child", call).await;
        ended(&turn, "ses_child").await;
    }
    turn.complete().await;
    let found = children_of(&h, 2).await;
    let mut texts: Vec<String> = Vec::new();
    for child in found {
        texts.push(text_of(&h.reaches(&child.id, TaskState::Completed).await));
    }
    texts.sort();
    assert_eq!(texts, ["call_1", "call_2"]);
}

#[tokio::test]
async fn a_sub_agents_ask_is_on_both_tasks_and_can_be_answered_on_either() {
    let mut h = start();
    let root = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "x").await;
    let [child]: [Task; 1] = children_of(&h, 1).await.try_into().unwrap();
    for (request, by_root) in [("per_1", true), ("per_2", false)] {
        let ask = permission(&SessionId::parse("ses_child").unwrap(), request);
        turn.report(AgentEvent::Asked(Box::new(ask))).await;
        for id in [&root.task, &child.id] {
            while h.task(id).await.open_asks.is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(h.task(id).await.status.state, TaskState::InputRequired);
        }
        let task = if by_root { &root.task } else { &child.id };
        h.engine.send(&alice(), on(task, request, "once")).await.unwrap();
        while h.task(&child.id).await.status.state != TaskState::Working {
            tokio::task::yield_now().await;
        }
        assert_eq!(h.task(&root.task).await.status.state, TaskState::Working);
    }
    assert_eq!(h.agent.log().replied.len(), 2);
    let refused = h.engine.send(&alice(), on(&child.id, "m9", "hello")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::UnsupportedOperation);
    assert!(refused.message().contains("sub-agent"), "{refused:?}");
}

#[tokio::test]
async fn sub_agents_are_canceled_with_their_root_or_alone() {
    let mut h = start();
    let root = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_one", "call_1", "x").await;
    turn.call_child("ses_two", "call_2", "y").await;
    let found = children_of(&h, 2).await;
    let id_of = |session: &str| {
        let is = |task: &&Task| task.parent.as_ref().unwrap().session.as_str() == session;
        found.iter().find(is).unwrap().id.clone()
    };
    let (one, two) = (id_of("ses_one"), id_of("ses_two"));
    let canceled = h.engine.cancel(&alice(), &one).await.unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
    while h.agent.log().aborted.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(h.agent.log().aborted[0].id.as_str(), "ses_one");
    assert_eq!(h.task(&root.task).await.status.state, TaskState::Working, "the root goes on");
    h.engine.cancel(&alice(), &root.task).await.unwrap();
    h.reaches(&two, TaskState::Canceled).await;
}

#[tokio::test]
async fn an_unfinished_sub_agent_fails_with_the_reason_when_its_root_ends() {
    let mut h = start();
    h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "x").await;
    let [child]: [Task; 1] = children_of(&h, 1).await.try_into().unwrap();
    turn.complete().await;
    let child = h.reaches(&child.id, TaskState::Failed).await;
    assert!(reason_of(&child).contains("completed"), "{}", reason_of(&child));
}

#[tokio::test]
async fn after_a_restart_sub_agents_continue_with_their_root() {
    let mut h = start();
    let root = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_done", "call_1", "x").await;
    ended(&turn, "ses_done").await;
    turn.call_child("ses_child", "call_2", "y").await;
    said(&turn, "ses_child", "before ").await;
    let found = children_of(&h, 2).await;
    let is_open = |task: &&Task| task.parent.as_ref().unwrap().session.as_str() == "ses_child";
    let child = found.iter().find(is_open).unwrap().id.clone();
    while text_of(&h.task(&child).await) != "before " {
        tokio::task::yield_now().await;
    }
    let store = h.stop().await;

    let mut h = start_with(store, EngineConfig::default());
    assert_eq!(h.engine.recover().await.unwrap().unfinished, 2, "the root and the one that runs");
    let turn = h.turn().await;
    let mut known = turn.request.resume.as_ref().unwrap().children.clone();
    known.sort_by(|a, b| a.call.cmp(&b.call));
    assert!(matches!(known[0].state, ResumedChildState::Over));
    let ResumedChildState::Running { prompt, artifacts } = &known[1].state else { panic!("it runs") };
    assert_eq!(prompt.as_ref().unwrap().as_str(), "msg_of_ses_child");
    assert_eq!(artifacts.len(), 1);
    said(&turn, "ses_child", "after").await;
    ended(&turn, "ses_child").await;
    let over = h.reaches(&child, TaskState::Completed).await;
    assert_eq!(text_of(&over), "before after");
    turn.complete().await;
    h.reaches(&root.task, TaskState::Completed).await;
}
