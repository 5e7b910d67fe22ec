//! Push notifications: which event a configuration begins with, and what a refusal leaves behind.

use std::sync::Arc;

use longshore_engine::port::{BoxFuture, PushConfigs, PushLimits, PushQueue, Receivers};
use longshore_engine::{EngineConfig, PushParts, PushRules};
use longshore_model::{
    CreatePushConfig, ErrorKind, FieldViolation, ListPushConfigs, Part, Principal, PushFormat, PushRequest,
    PushView, Result, SendMessage, Seq, TaskId, TaskState, Timestamp,
};
use longshore_store::MemoryStore;

use crate::asks::{asking, on};
use crate::harness::{Harness, alice, message, start_with};

#[derive(Debug)]
struct AnyReceiver;

impl Receivers for AnyReceiver {
    fn check<'a>(&'a self, _: &'a PushRequest) -> BoxFuture<'a, Result<(), FieldViolation>> {
        Box::pin(async { Ok(()) })
    }
}

fn pushing(limits: PushLimits) -> (Harness, Arc<MemoryStore>) {
    let store = Arc::new(longshore_store::memory());
    let mut h = start_with(Arc::clone(&store) as _, EngineConfig::default());
    let rules = PushRules { limits, ..PushRules::default() };
    let configs = Arc::clone(&store) as Arc<dyn PushConfigs>;
    h.engine = h.engine.with_push(PushParts { configs, receivers: Arc::new(AnyReceiver), rules });
    (h, store)
}

fn request() -> PushRequest {
    PushRequest {
        place: "",
        id: None,
        url: "https://hooks.test/".to_owned(),
        token: None,
        authentication: None,
        format: PushFormat::V1,
        view: PushView::default(),
    }
}

fn with_push(mut command: SendMessage) -> SendMessage {
    command.config.push = Some(Box::new(request()));
    command
}

async fn create(h: &Harness, task: &TaskId) -> Result<()> {
    let command = CreatePushConfig { task: task.clone(), request: request() };
    h.engine.create_push_config(&alice(), command).await.map(drop)
}

/// The cursors of the configurations that have something to send.
async fn cursors(store: &MemoryStore) -> Vec<Seq> {
    let due = store.due(Timestamp(i64::MAX - 1), 10, Timestamp(0)).await.expect("a list");
    due.into_iter().map(|leased| leased.cursor).collect()
}

async fn stored(h: &Harness, task: &TaskId) -> bool {
    let list = ListPushConfigs { task: task.clone(), page_size: 10, page_token: None };
    !h.engine.push_configs(&alice(), list).await.expect("a list").configs.is_empty()
}

async fn head(h: &Harness, task: &TaskId) -> Seq {
    h.store.head(&alice(), task).await.expect("an answer").expect("a task").seq
}

#[tokio::test]
async fn a_configuration_in_a_send_begins_with_the_first_event() {
    let (mut h, store) = pushing(PushLimits::default());
    let sent = h.engine.send(&alice(), with_push(message("c", "m1"))).await.expect("the send is taken");
    assert!(sent.is_new);
    assert_eq!(cursors(&store).await, [Seq::START]);
    // The same send again finds the task, and its configuration keeps its cursor.
    let again = h.engine.send(&alice(), with_push(message("c", "m1"))).await.expect("the send is taken");
    assert_eq!((again.task, again.is_new), (sent.task, false));
    assert_eq!(cursors(&store).await, [Seq::START]);
    h.turn().await.complete().await;
    h.stop().await;
}

#[tokio::test]
async fn a_configuration_in_an_answer_begins_where_its_sender_reads_on() {
    let (mut h, store) = pushing(PushLimits::default());
    let (task, turn) = asking(&mut h).await;
    let answer = with_push(on(&task, "a1", Part::text("once")));
    let sent = h.engine.send(&alice(), answer).await.expect("the answer is taken");
    let from = sent.reader.cursor();
    assert!(from > Seq::START);
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
    assert_eq!(cursors(&store).await, [from]);
    h.stop().await;
}

#[tokio::test]
async fn a_created_configuration_begins_with_the_next_event_or_with_the_status_that_a_task_rests_in() {
    let (mut h, store) = pushing(PushLimits::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    h.reaches(&sent.task, TaskState::Working).await;
    let before = head(&h, &sent.task).await;
    create(&h, &sent.task).await.expect("it is created");
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(cursors(&store).await, [before]);

    // An ended task: the last event may have come just before the request.
    let late = h.send("d", "m2").await;
    h.turn().await.complete().await;
    h.reaches(&late.task, TaskState::Completed).await;
    create(&h, &late.task).await.expect("it is created");
    let end = head(&h, &late.task).await;
    assert!(cursors(&store).await.contains(&Seq(end.0 - 1)));

    // A task that waits, with output after its ask.
    let (asks, asking_turn) = {
        let sent = h.send("e", "m3").await;
        let turn = h.turn().await;
        turn.ask("per_9").await;
        h.reaches(&sent.task, TaskState::InputRequired).await;
        (sent.task, turn)
    };
    let asked = head(&h, &asks).await;
    create(&h, &asks).await.expect("it is created");
    assert!(cursors(&store).await.contains(&Seq(asked.0 - 1)));
    asking_turn.complete().await;
    h.stop().await;
}

#[tokio::test]
async fn a_send_whose_configuration_is_refused_does_nothing() {
    let (mut h, _) = pushing(PushLimits { per_task: 0, per_principal: 1, in_all: 0 });
    let (task, turn) = asking(&mut h).await;
    let first = h.engine.send(&alice(), with_push(message("d", "m2"))).await.expect("the send is taken");
    let other = h.turn().await;
    for command in [with_push(message("e", "m3")), with_push(on(&task, "a1", Part::text("once")))] {
        let error = h.engine.send(&alice(), command).await.expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::TooManyRequests);
        assert_eq!(error.find_detail("limit"), Some("push_configs_per_principal"));
    }
    // The ask is still open, and no task was made.
    assert_eq!(h.task(&task).await.status.state, TaskState::InputRequired);
    assert_eq!(h.agent.log().prompted.len(), 2);
    assert!(stored(&h, &first.task).await && !stored(&h, &task).await);
    // A task that has ended makes room once its events are delivered; a foreign task does not exist.
    let bob = Principal::new("bob");
    let command = CreatePushConfig { task: task.clone(), request: request() };
    let foreign = h.engine.create_push_config(&bob, command).await.expect_err("it is not bob's");
    assert_eq!(foreign.kind(), ErrorKind::TaskNotFound);
    for turn in [turn, other] {
        turn.complete().await;
    }
    h.stop().await;
}

#[tokio::test]
async fn an_engine_without_push_refuses_all_of_it() {
    let mut h = start_with(Arc::new(longshore_store::memory()), EngineConfig::default());
    let refused = h.engine.send(&alice(), with_push(message("c", "m1"))).await.expect_err("not supported");
    assert_eq!(refused.kind(), ErrorKind::PushNotSupported);
    let sent = h.send("c", "m2").await;
    assert_eq!(create(&h, &sent.task).await.expect_err("not supported").kind(), ErrorKind::PushNotSupported);
    h.turn().await.complete().await;
    assert_eq!(h.agent.log().prompted.len(), 1);
    h.stop().await;
}
