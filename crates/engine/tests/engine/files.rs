//! Files of an agent: stored for their owner, and reported once with their facts.

use std::sync::Arc;

use longshore_engine::EngineConfig;
use longshore_model::{
    AgentEvent, ArtifactId, BlockKind, BlockRef, ErrorKind, FileId, PartContent, Principal, RemoteFile,
    TaskState,
};

use crate::harness::{alice, start, start_with};

#[tokio::test]
async fn a_file_is_stored_and_reported_and_only_its_owner_gets_it() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.file("prt_1.file.0", "pic.png", "image/png", b"bytes").await;
    turn.file("prt_1.file.0", "pic.png", "image/png", b"bytes").await;
    turn.say("prt_2", "done").await;
    turn.complete().await;
    let task = h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(task.artifacts.len(), 2, "reported once");
    let artifact = &task.artifacts[0];
    assert_eq!((artifact.kind, artifact.name.as_deref()), (BlockKind::File, Some("pic.png")));
    let part = &artifact.parts[0];
    assert_eq!((part.media_type.as_deref(), part.filename.as_deref()), (Some("image/png"), Some("pic.png")));
    let reported = artifact.metadata.as_ref().unwrap().json().to_value();
    assert_eq!((reported["byteSize"].as_u64(), reported["mediaType"].as_str()), (Some(5), Some("image/png")));
    assert_eq!(reported["sha256"], "277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9");
    let PartContent::Url(url) = &part.content else { panic!("a file is reported by its URL") };
    let id = FileId::parse(url.strip_prefix("/artifacts/").unwrap()).unwrap();
    let facts = h.engine.file(&alice(), &id).await.unwrap();
    assert_eq!((facts.size, facts.name.as_deref()), (5, Some("pic.png")));
    assert_eq!(h.engine.read_file(&alice(), &id, 1, 3).await.unwrap(), b"yte");
    let refused = h.engine.file(&Principal::new("bob"), &id).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::RouteNotFound);
}

#[tokio::test]
async fn files_that_nobody_can_fetch_are_in_the_task_up_to_a_bound_and_stored_beyond_it() {
    let mut config = EngineConfig::default();
    config.files.inline_per_task = Some(7);
    let mut h = start_with(Arc::new(longshore_store::memory()), config);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    for (block, bytes) in [("first", "12345"), ("beyond", "123"), ("fits", "12")] {
        turn.file(block, block, "text/plain", bytes.as_bytes()).await;
    }
    turn.complete().await;
    let task = h.reaches(&sent.task, TaskState::Completed).await;
    let content = |index: usize| task.artifacts[index].parts[0].content.clone();
    assert_eq!(content(0), PartContent::Raw(b"12345".to_vec()));
    let reported = task.artifacts[0].metadata.as_ref().unwrap().json().to_value();
    assert_eq!((reported["byteSize"].as_u64(), reported.get("uri")), (Some(5), None));
    assert_eq!(content(2), PartContent::Raw(b"12".to_vec()), "a smaller one still fits");

    let PartContent::Text(text) = content(1) else { panic!("a text says where the file is") };
    assert!(text.starts_with("The file has 3 bytes, and a task carries at most 7 bytes"), "{text}");
    let id = text.split("/artifacts/").nth(1).unwrap().trim_end_matches('.');
    let id = FileId::parse(id).unwrap();
    assert_eq!(h.engine.read_file(&alice(), &id, 0, 3).await.unwrap(), b"123");
}

#[tokio::test]
async fn a_file_over_the_limits_is_reported_and_not_stored() {
    let mut config = EngineConfig::default();
    (config.files.max_bytes, config.files.max_per_task) = (4, 2);
    let mut h = start_with(Arc::new(longshore_store::memory()), config);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.file("large", "a", "text/plain", b"12345").await;
    turn.file("fits", "b", "text/plain", b"1234").await;
    for block in ["third", "fourth"] {
        turn.file(block, block, "text/plain", b"1").await;
    }
    turn.complete().await;
    let task = h.reaches(&sent.task, TaskState::Completed).await;
    let reported: Vec<_> = task
        .artifacts
        .iter()
        .map(|artifact| (artifact.id.as_str(), artifact.parts[0].as_text().is_none()))
        .collect();
    assert_eq!(reported, [("large", false), ("fits", true), ("third", false)]);
}

#[tokio::test]
async fn a_file_at_a_url_keeps_its_url_and_a_withheld_one_says_why() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let block =
        |id: &str| BlockRef { id: ArtifactId::parse(id).unwrap(), kind: BlockKind::File, message: None };
    let url = "https://example.org/x.png".to_owned();
    let file =
        RemoteFile { name: Some("x.png".to_owned()), media_type: "image/png".to_owned(), url: url.clone() };
    turn.report(AgentEvent::RemoteFile { block: block("remote"), file }).await;
    let reason = "It belongs to the gateway.".to_owned();
    turn.report(AgentEvent::WithheldFile { block: block("withheld"), name: None, reason: reason.clone() })
        .await;
    turn.complete().await;
    let task = h.reaches(&sent.task, TaskState::Completed).await;
    let [remote, withheld] = task.artifacts.as_slice() else { panic!("{task:?}") };
    let part = &remote.parts[0];
    assert_eq!((part.media_type.as_deref(), part.filename.as_deref()), (Some("image/png"), Some("x.png")));
    assert_eq!(part.content, PartContent::Url(url));
    assert_eq!((withheld.kind, withheld.parts[0].as_text()), (BlockKind::File, Some(reason.as_str())));
}
