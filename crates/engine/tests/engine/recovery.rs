//! A restart of the gateway in the middle of its work.

use longshore_engine::EngineConfig;
use longshore_model::{Part, Seq, TaskState};

use crate::harness::{alice, read_all, start, start_with, text_of};

#[tokio::test]
async fn a_running_turn_is_resumed_and_never_prompted_again() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let prompt = turn.request.prompt.clone();
    turn.say("a", "before ").await;
    let mut reader = sent.reader;
    while reader.cursor() < Seq(3) {
        reader.next().await.unwrap();
    }
    drop(reader);
    let store = h.stop().await;

    let mut h = start_with(store, EngineConfig::default());
    assert_eq!(h.engine.recover().await.unwrap().unfinished, 1);
    let turn = h.turn().await;
    assert_eq!(turn.request.prompt, prompt, "the same prompt, to be looked up");
    let resume = turn.request.resume.clone().expect("the turn is resumed, not begun");
    assert_eq!(resume.artifacts[0].parts, [Part::text("before ")]);
    turn.say("a", "after").await;
    turn.complete().await;
    let task = h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(text_of(&task), "before after");
    let log =
        read_all(h.engine.subscribe(&alice(), &sent.task, Some(Seq::START.into())).await.unwrap().reader)
            .await;
    let numbers: Vec<u64> = log.iter().map(|entry| entry.seq.0).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5], "the log goes on where it stopped");
}

#[tokio::test]
async fn waiting_tasks_keep_their_order_across_a_restart() {
    let mut h = start();
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(h.send("c", &format!("m{number}")).await.task);
    }
    let _running = h.turn().await;
    let store = h.stop().await;

    let mut h = start_with(store, EngineConfig::default());
    assert_eq!(h.engine.recover().await.unwrap().unfinished, 4);
    for (number, task) in sent.iter().enumerate() {
        let turn = h.turn().await;
        assert_eq!(turn.request.task, *task);
        assert_eq!(turn.request.resume.is_some(), number == 0, "only the first had been prompted");
        turn.complete().await;
        h.reaches(task, TaskState::Completed).await;
    }
}

#[tokio::test]
async fn a_stop_leaves_tasks_unchanged_and_no_background_task_behind() {
    let mut h = start();
    let running = h.send("c", "m1").await.task;
    let waiting = h.send("c", "m2").await.task;
    let _turn = h.turn().await;
    h.reaches(&running, TaskState::Working).await;
    let tasks = h.tasks.clone();
    let agent = h.agent.clone();
    let store = h.stop().await;
    assert_eq!(tasks.running(), 0);
    assert!(agent.log().aborted.is_empty(), "a restart is no reason to stop the agent");
    let state = async |id| store.get(&alice(), id).await.unwrap().unwrap().task.status.state;
    assert_eq!((state(&running).await, state(&waiting).await), (TaskState::Working, TaskState::Submitted));
}
