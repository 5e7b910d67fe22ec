//! Sends: idempotency, follow-ups, refusals, callers that disconnect.

use std::time::Duration;

use futures_util::FutureExt;
use longshore_engine::EngineConfig;
use longshore_model::{
    ContextId, ErrorKind, MessageId, Part, PartContent, Principal, SendMessage, TaskState,
};

use crate::harness::{alice, all_tasks, message, read_all, start, start_with};

#[tokio::test]
async fn repeated_sends_are_one_task_and_one_prompt() {
    let mut h = start();
    let alice = alice();
    let sends = (0..20).map(|_| h.engine.send(&alice, message("c", "again")));
    let sent = futures_util::future::join_all(sends).await;
    let tasks: Vec<_> = sent.iter().map(|sent| sent.as_ref().unwrap().task.clone()).collect();
    assert!(tasks.iter().all(|task| *task == tasks[0]), "{tasks:?}");
    h.turn().await.complete().await;
    let mut logs = Vec::new();
    for sent in sent {
        logs.push(read_all(sent.unwrap().reader).await);
    }
    assert!(logs.iter().all(|log| *log == logs[0]), "every caller reads the same log");

    let again = h.engine.send(&alice, message("c", "again")).await.unwrap();
    assert_eq!(again.task, tasks[0]);
    assert_eq!(read_all(again.reader).await, logs[0]);
    assert_eq!(h.agent.log().prompted.len(), 1);
}

#[tokio::test]
async fn any_difference_makes_another_send() {
    let mut h = start();
    let base = message("c", "same");
    let mut other_text = base.clone();
    other_text.message.parts = vec![Part::text("other")];
    let mut other_id = base.clone();
    other_id.message.id = MessageId::parse("other").unwrap();
    let mut other_context = base.clone();
    other_context.message.context_id = Some(ContextId::parse("d").unwrap());
    let mut tasks = vec![h.engine.send(&alice(), base.clone()).await.unwrap().task];
    for command in [other_text, other_id, other_context] {
        tasks.push(h.engine.send(&alice(), command).await.unwrap().task);
    }
    tasks.push(h.engine.send(&Principal::new("bob"), base).await.unwrap().task);
    let distinct: std::collections::HashSet<_> = tasks.iter().collect();
    assert_eq!(distinct.len(), 5);
    h.turn().await;
}

#[tokio::test(start_paused = true)]
async fn after_the_window_the_same_message_is_new() {
    let config = EngineConfig { idempotency_window: Duration::from_mins(1), ..EngineConfig::default() };
    let mut h = start_with(std::sync::Arc::new(longshore_store::memory()), config);
    let first = h.send("c", "m").await;
    h.turn().await.complete().await;
    h.reaches(&first.task, TaskState::Completed).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(h.send("c", "m").await.task, first.task);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_ne!(h.send("c", "m").await.task, first.task);
}

#[tokio::test]
async fn a_caller_that_disconnects_leaves_no_task_without_an_owner() {
    let mut h = start();
    // Polled once and dropped: the request was made, its response is not awaited.
    assert!(h.engine.send(&alice(), message("c", "m1")).now_or_never().is_none());
    let turn = h.turn().await;
    turn.complete().await;
    let id = h.engine.list(&alice(), all_tasks(None)).await.unwrap().tasks[0].id.clone();
    h.reaches(&id, TaskState::Completed).await;
}

#[tokio::test]
async fn a_message_on_a_finished_task_is_refused_with_advice() {
    let mut h = start();
    let first = h.send("c", "m0").await;
    let _held = h.turn().await;
    let sent = h.send("c", "m1").await;
    let on_task = |text: &str, context: Option<&str>| {
        let mut command = message("c", text);
        command.message.task_id = Some(sent.task.clone());
        command.message.context_id = context.map(|context| ContextId::parse(context).unwrap());
        command
    };
    let check = async |caller: &str, command: SendMessage, expected: ErrorKind| {
        let error = h.engine.send(&Principal::new(caller), command).await.unwrap_err();
        assert_eq!(error.kind(), expected, "{error:?}");
    };
    check("alice", on_task("m2", None), ErrorKind::UnsupportedOperation).await;
    check("alice", on_task("m2", Some("c")), ErrorKind::UnsupportedOperation).await;
    check("alice", on_task("m2", Some("other")), ErrorKind::InvalidParams).await;
    check("bob", on_task("m2", None), ErrorKind::TaskNotFound).await;
    h.engine.cancel(&alice(), &sent.task).await.unwrap();
    check("alice", on_task("m2", None), ErrorKind::UnsupportedOperation).await;
    assert_ne!(first.task, sent.task);
}

#[tokio::test]
async fn bad_files_are_refused_before_anything_happens() {
    let h = start();
    let zip = Part { media_type: Some("application/zip".into()), ..Part::new(PartContent::Raw(vec![1])) };
    let url = |url: &str| Part::new(PartContent::Url(url.into()));
    for (part, kind) in [
        (zip, ErrorKind::ContentTypeNotSupported),
        (url("file:///etc/passwd"), ErrorKind::InvalidParams),
        (url("https://example.com/x.png"), ErrorKind::InvalidParams),
    ] {
        let mut command = message("c", "m1");
        command.message.parts.push(part);
        let error = h.engine.send(&alice(), command).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.message().contains("parts[1]"), "{error:?}");
    }
    assert!(h.agent.log().opened.is_empty());
}

#[tokio::test]
async fn the_same_context_name_of_two_principals_is_two_contexts() {
    let mut h = start();
    h.engine.send(&alice(), message("c", "m1")).await.unwrap();
    h.engine.send(&Principal::new("bob"), message("c", "m1")).await.unwrap();
    let (one, two) = (h.turn().await, h.turn().await);
    assert_ne!(one.request.session, two.request.session);
}

#[tokio::test]
async fn a_message_continues_only_in_a_session_of_its_own_principal() {
    let mut h = start();
    let first = h.send("c1", "m1").await;
    let turn = h.turn().await;
    let session = turn.request.session.clone();
    let naming = |context: &str, text: &str, session: &longshore_model::SessionId| {
        let mut command = message(context, text);
        command.options.session = Some(session.clone());
        command
    };
    turn.complete().await;
    h.reaches(&first.task, TaskState::Completed).await;
    for context in ["c1", "c2"] {
        let sent =
            h.engine.send(&alice(), naming(context, &format!("in-{context}"), &session.id)).await.unwrap();
        let turn = h.turn().await;
        assert_eq!(turn.request.session, session);
        turn.complete().await;
        h.reaches(&sent.task, TaskState::Completed).await;
    }
    h.send("c3", "m3").await;
    let other = h.turn().await.request.session.clone();
    assert_ne!(other, session);
    let unknown = longshore_model::SessionId::parse("ses_unknown").unwrap();
    let refused = [
        (alice(), naming("c1", "x1", &other.id)),
        (alice(), naming("c4", "x2", &unknown)),
        (Principal::new("bob"), naming("c1", "x3", &session.id)),
    ];
    for (caller, command) in refused {
        let error = h.engine.send(&caller, command).await.unwrap_err();
        assert_eq!(error.violations()[0].field, "metadata.shared.session.id");
    }
    assert_eq!(h.agent.log().opened.len(), 2);
}

#[tokio::test]
async fn two_contexts_of_one_session_take_turns() {
    let mut h = start();
    h.send("c1", "m1").await;
    let turn = h.turn().await;
    let mut command = message("c2", "m2");
    command.options.session = Some(turn.request.session.id.clone());
    let second = h.engine.send(&alice(), command).await.unwrap();
    tokio::task::yield_now().await;
    assert!(h.turns.is_empty(), "the session is taken");
    assert_eq!(h.task(&second.task).await.status.state, TaskState::Submitted);
    turn.complete().await;
    h.turn().await.complete().await;
    h.reaches(&second.task, TaskState::Completed).await;
}
