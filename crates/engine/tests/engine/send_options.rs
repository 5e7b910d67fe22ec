//! The options of a message: checked before anything is stored, and applied afterwards.

use std::collections::BTreeMap;

use longshore_engine::port::{Input, Session};
use longshore_model::{
    Error, ErrorKind, Hop, Hops, ModelName, Part, PartContent, Principal, PromptOptions, SendMessage,
    SessionId,
};

use crate::harness::{alice, all_tasks, message, start};

fn in_directory(context: &str, text: &str, directory: &str) -> SendMessage {
    let mut command = message(context, text);
    command.options.directory = Some(directory.to_owned());
    command
}

#[tokio::test]
async fn a_refused_option_leaves_nothing_behind() {
    let h = start();
    h.agent.refuse_next_admission(Error::invalid("metadata.shared.model", "is not there"));
    let error = h.engine.send(&alice(), message("c", "m1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    assert!(h.engine.list(&alice(), all_tasks(None)).await.unwrap().tasks.is_empty());
    assert!(h.agent.log().opened.is_empty());
}

#[tokio::test]
async fn options_reach_the_prompt_and_its_own_task_only() {
    let mut h = start();
    let mut command = message("c", "m1");
    let options = PromptOptions {
        config: BTreeMap::from([("effort".to_owned(), "max".to_owned())]),
        model: ModelName::parse("a/b"),
        mode: Some("plan".to_owned()),
        agent: Some("plan".to_owned()),
        variant: Some("high".to_owned()),
        system: Some("Be brief.".to_owned()),
        hops: Hops(vec![Hop { gateway: "g".to_owned(), signature: "s".to_owned() }]),
        may_run: true,
    };
    command.options.prompt = options.clone();
    h.engine.send(&alice(), command).await.unwrap();
    h.send("c", "m2").await;
    let turn = h.turn().await;
    assert_eq!(turn.request.options, options);
    turn.complete().await;
    assert_eq!(h.turn().await.request.options, PromptOptions::default());
}

#[tokio::test]
async fn a_title_is_for_the_session_that_the_message_opens() {
    let mut h = start();
    let titled = |context: &str, id: &str| {
        let mut command = message(context, id);
        command.options.session_title = Some(format!("title of {id}"));
        command
    };
    h.engine.send(&alice(), titled("c", "m1")).await.unwrap();
    h.turn().await.complete().await;
    // The session exists and keeps its title. If it is gone, the message opens another one.
    h.engine.send(&alice(), titled("c", "m2")).await.unwrap();
    h.turn().await.complete().await;
    h.agent.refuse_next(Error::new(ErrorKind::SessionGone, "Gone."));
    h.engine.send(&alice(), titled("c", "m3")).await.unwrap();
    h.turn().await.complete().await;
    h.send("c2", "m4").await;
    h.turn().await.complete().await;
    let title = |id: &str| Some(format!("title of {id}"));
    assert_eq!(h.agent.log().titles, [title("m1"), title("m3"), None]);
}

#[tokio::test]
async fn a_context_keeps_its_directory() {
    let mut h = start();
    h.engine.send(&alice(), in_directory("c", "m1", "sub")).await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.session.directory, "sub");
    turn.complete().await;
    let error = h.engine.send(&alice(), in_directory("c", "m2", "other")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.violations()[0].field.as_str()),
        (ErrorKind::InvalidParams, "metadata.directory")
    );
    // Named again, or not named, the directory is the same.
    h.engine.send(&alice(), in_directory("c", "m3", "sub")).await.unwrap();
    assert_eq!(h.turn().await.request.session.directory, "sub");
    // Also before the first turn opened a session, and for the default.
    h.agent.opens.hold();
    h.send("d", "m4").await;
    let error = h.engine.send(&alice(), in_directory("d", "m5", "sub")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
}

#[tokio::test]
async fn an_unowned_session_goes_to_the_first_caller_who_may_claim_it() {
    let mut h = start();
    let id = SessionId::parse("ses_tui").unwrap();
    h.agent.add_foreign_session(Session { id: id.clone(), directory: "workspace".to_owned() });
    let naming = |text: &str, may_claim: bool| {
        let mut command = message("c", text);
        command.options.session = Some(id.clone());
        command.may_claim = may_claim;
        command
    };
    let bob = Principal::new("bob");
    let refused = h.engine.send(&bob, naming("m1", false)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidParams);
    h.engine.send(&alice(), naming("m2", true)).await.unwrap();
    assert_eq!(h.turn().await.request.session.id, id);
    // The session is hers now, whatever others may do.
    let refused = h.engine.send(&bob, naming("m3", true)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidParams);
    let mut unknown = naming("m4", true);
    unknown.options.session = Some(SessionId::parse("ses_nowhere").unwrap());
    assert_eq!(h.engine.send(&bob, unknown).await.unwrap_err().kind(), ErrorKind::InvalidParams);
}

#[tokio::test]
async fn references_of_a_message_are_checked_again_when_its_turn_begins() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let mut config = longshore_engine::EngineConfig::default();
    config.intake.root.clone_from(&root);
    let mut h = crate::harness::start_with(std::sync::Arc::new(longshore_store::memory()), config);
    let file = root.join("note.txt");
    std::fs::write(&file, "hello").unwrap();
    h.send("c", "m1").await;
    let turn = h.turn().await;
    let refer = |text: &str| {
        let mut command = message("c", text);
        command.message.parts = vec![Part::new(PartContent::Url(format!("file://{}", file.display())))];
        command
    };
    let (stays, goes) = (refer("m2"), refer("m3"));
    h.engine.send(&alice(), stays).await.unwrap();
    turn.complete().await;
    let turn = h.turn().await;
    assert!(matches!(turn.request.input.as_slice(), [Input::File(file)] if file.is_text));
    let late = h.engine.send(&alice(), goes).await.unwrap();
    std::fs::remove_file(&file).unwrap();
    turn.complete().await;
    let task = h.reaches(&late.task, longshore_model::TaskState::Failed).await;
    let reason = crate::harness::reason_of(&task);
    assert!(!reason.contains(&*root.to_string_lossy()), "{reason}");
    assert_eq!(h.agent.log().prompted.len(), 2);
}
