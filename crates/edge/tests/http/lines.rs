//! One gateway, two lines: the same operations, the same tasks, at the same time.

use longshore_model::{
    AgentEvent, Artifact, ArtifactId, BlockKind, BlockRef, ContextId, Json, MessageId, PartContent, Task,
    TaskId, TaskState, Timestamp, ToolCall, ToolStatus,
};
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::scripted_agent::{StartedTurn, text_block};
use longshore_wire::surface::{Line, OPERATIONS};
use longshore_wire::v1::decode::StreamEvent;
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use serde_json::{Value, json};

use crate::support::{ADA_BLIND, Answer, Call, Frame, Gateway, Seen, Speaker};

type Lose = fn(&mut Task);

/// What 0.3 cannot tell of a task, and what is left of it. All else is the same on both lines.
const LOSSES: [(&str, Lose); 2] = [
    ("a tool call is its last state", |task| {
        for artifact in &mut task.artifacts {
            let is_call = artifact.kind == BlockKind::ToolCall;
            artifact.parts.drain(..if is_call { artifact.parts.len() - 1 } else { 0 });
        }
    }),
    ("all blocks are one artifact, before the files", |task| {
        let (files, blocks): (Vec<_>, Vec<_>) = task.artifacts.drain(..).partition(is_file);
        if let Some(mut one) = blocks.first().cloned() {
            one.id = ArtifactId::parse(&format!("{}:stream", task.id)).unwrap();
            one.name = Some("response".to_owned());
            one.parts = blocks.into_iter().flat_map(|block| block.parts).collect();
            task.artifacts.push(one);
        }
        task.artifacts.extend(files);
    }),
];

fn is_file(artifact: &Artifact) -> bool {
    artifact.id.as_str().starts_with("file")
}

/// A task as clients of every line know it: without what 0.3 cannot tell, and without the hints about its blocks, which
/// stand at the artifact on one line and at its parts on the other.
fn common(mut task: Task, speaker: Speaker) -> Task {
    if speaker.line == Line::V1 {
        for (_, lose) in LOSSES {
            lose(&mut task);
        }
    }
    for artifact in task.artifacts.iter_mut().filter(|artifact| !is_file(artifact)) {
        (artifact.metadata, artifact.kind, artifact.source_message) = (None, BlockKind::Text, None);
        artifact.parts.iter_mut().for_each(|part| part.metadata = None);
    }
    // An object is the same in any order.
    if let Some(metadata) = &task.metadata {
        let sorted: Value = serde_json::from_str(metadata.get()).unwrap();
        task.metadata = Some(Json::of(&sorted).try_into().unwrap());
    }
    task
}

/// The same for the answer to a send or a get, where the status of 0.3 says besides what the agent said. Frames and lists do
/// not repeat it.
fn answered(mut task: Task, speaker: Speaker) -> Task {
    if speaker.line == Line::V03 {
        let message = task.status.message.take().expect("clients of 0.3 look for the answer there");
        assert_eq!(message.parts[0].as_text(), Some("Better words. Done."));
    }
    common(task, speaker)
}

fn call(status: ToolStatus) -> ToolCall {
    ToolCall {
        call_id: "call_1".to_owned(),
        tool: "bash".to_owned(),
        status,
        title: None,
        input: Some(Json::parse(r#"{"command":"ls"}"#).unwrap()),
        output: (status == ToolStatus::Completed).then(|| "a.txt".to_owned()),
        error: None,
        child: None,
    }
}

/// A turn in which everything happens, in two halves.
async fn first_half(turn: &StartedTurn) {
    let block = |name: &str, kind| BlockRef { kind, ..text_block(name) };
    let thinking = block("prt_1", BlockKind::Reasoning);
    turn.report(AgentEvent::Text { block: thinking.clone(), text: "Hm".to_owned() }).await;
    turn.report(AgentEvent::Text { block: thinking, text: ", well. ".to_owned() }).await;
    let tool = block("prt_2", BlockKind::ToolCall);
    for status in [ToolStatus::Running, ToolStatus::Completed] {
        turn.report(AgentEvent::Tool { block: tool.clone(), call: call(status) }).await;
    }
    turn.say("prt_3", "First ").await;
    turn.say("prt_3", "words. ").await;
}

async fn second_half(turn: StartedTurn) {
    // Other blocks stand around it: 0.3 has to tell the whole artifact again.
    let replaced = AgentEvent::TextReplaced { block: text_block("prt_3"), text: "Better words. ".to_owned() };
    turn.report(replaced).await;
    turn.file("file_1", "a.txt", "text/plain", b"abc").await;
    turn.say("prt_4", "Done").await;
    turn.say("prt_4", ".").await;
    turn.complete().await;
}

const TEXT: &str = "Hm, well. Better words. Done.";

/// A task of that turn, by a 1.0 client.
async fn finished_task(gateway: &mut Gateway, message_id: &str) -> String {
    let (task, turn) = gateway.working_task(message_id).await;
    let mut events = gateway.call("GET", &format!("/tasks/{task}:subscribe")).stream().await;
    first_half(&turn).await;
    second_half(turn).await;
    events.rest().await;
    task
}

/// What an operation gave, in the words of the model.
#[derive(Clone, PartialEq, Debug)]
enum Given {
    Task(Box<Task>),
    Page {
        tasks: Vec<Task>,
        total: u32,
        size: u32,
        token: bool,
    },
    /// The task that the events of a stream make.
    Stream(Box<Seen>),
    Card(String),
    Refused {
        reason: String,
    },
}

fn reason(speaker: Speaker, answer: &Answer) -> String {
    let body = answer.json();
    let facts = match speaker.dialect {
        Dialect::Rpc => body["error"]["data"].clone(),
        Dialect::Rest if speaker.line == Line::V1 => body["error"]["details"].clone(),
        Dialect::Rest => body.clone(),
    };
    let word = match speaker.line {
        Line::V1 => &facts[0]["reason"],
        Line::V03 => &facts["type"],
    };
    word.as_str().unwrap_or_else(|| panic!("{} {body}", speaker.name())).to_owned()
}

/// Ids that differ from send to send.
fn nameless(mut task: Task) -> Task {
    let id = task.id.to_string();
    task.id = TaskId::parse("t").unwrap();
    task.context_id = ContextId::parse("c").unwrap();
    task.status.at = Timestamp(0);
    for message in task.history.iter_mut().chain(&mut task.status.message) {
        message.id = MessageId::parse("m").unwrap();
        (message.task_id, message.context_id) = (None, None);
    }
    for artifact in &mut task.artifacts {
        let name = artifact.id.as_str().replace(&id, "t");
        artifact.id = ArtifactId::parse(&name).unwrap();
    }
    task
}

/// Calls one operation as one client does.
async fn given(gateway: &mut Gateway, speaker: Speaker, method: Method, task: &str) -> Given {
    let unique = format!("{method:?}-{}", speaker.name().replace(' ', "-"));
    let message = speaker.message(&unique, "go");
    match method {
        Method::SendMessage => {
            let (answer, ()) = tokio::join!(speaker.send(gateway, &message, true).send(), async {
                let turn = gateway.turns.recv().await.unwrap();
                first_half(&turn).await;
                second_half(turn).await;
            });
            Given::Task(answered(nameless_files(nameless(speaker.sent(&answer))), speaker).into())
        }
        Method::SendStreamingMessage => {
            let mut events = speaker.stream(gateway, &message).stream().await;
            let turn = gateway.turns.recv().await.unwrap();
            first_half(&turn).await;
            second_half(turn).await;
            let frames = events.rest().await;
            let folded = speaker.fold(None, &frames).unwrap();
            Given::Stream(Seen::of(&nameless_files(nameless(folded))).into())
        }
        Method::GetTask => {
            let answer = speaker.on(gateway, method, task).send().await;
            Given::Task(answered(speaker.task(&answer), speaker).into())
        }
        Method::ListTasks => {
            let page = speaker.page(&speaker.list(gateway).send().await);
            let tasks = page.tasks.into_iter().map(|task| common(task, speaker)).collect();
            let token = !page.next_page_token.is_empty();
            Given::Page { tasks, total: page.total, size: page.page_size, token }
        }
        Method::CancelTask => {
            let (working, turn) = gateway.working_task(&unique).await;
            let canceled = speaker.task(&speaker.on(gateway, method, &working).send().await);
            drop(turn);
            Given::Task(common(nameless(canceled), speaker).into())
        }
        Method::SubscribeToTask => {
            let (working, turn) = gateway.working_task(&unique).await;
            first_half(&turn).await;
            let mut events = speaker.on(gateway, method, &working).stream().await;
            second_half(turn).await;
            let folded = speaker.fold(None, &events.rest().await).unwrap();
            Given::Stream(Seen::of(&nameless_files(nameless(folded))).into())
        }
        Method::GetExtendedAgentCard => {
            let answer = speaker.on(gateway, method, "").send().await;
            let body = answer.json();
            let card = body.get("result").unwrap_or(&body);
            Given::Card(card["name"].as_str().unwrap().to_owned())
        }
        Method::CreateTaskPushNotificationConfig
        | Method::GetTaskPushNotificationConfig
        | Method::ListTaskPushNotificationConfigs
        | Method::DeleteTaskPushNotificationConfig => {
            let answer = speaker.call(gateway, method, task, &json!({"id": task})).send().await;
            Given::Refused { reason: reason(speaker, &answer) }
        }
    }
}

/// A file has another URL in each task.
fn nameless_files(mut task: Task) -> Task {
    for part in task.artifacts.iter_mut().flat_map(|artifact| &mut artifact.parts) {
        if let PartContent::Url(url) = &mut part.content {
            "/artifacts/x".clone_into(url);
            part.metadata = None;
        }
    }
    for artifact in task.artifacts.iter_mut().filter(|artifact| is_file(artifact)) {
        artifact.metadata = None;
    }
    task
}

#[tokio::test]
async fn every_operation_gives_the_same_on_every_line_and_binding() {
    let mut gateway = Gateway::manual().await;
    let task = finished_task(&mut gateway, "m0").await;
    for operation in &OPERATIONS {
        let mut first: Option<Given> = None;
        for speaker in Speaker::ALL {
            let given = given(&mut gateway, speaker, operation.method, &task).await;
            let first = first.get_or_insert_with(|| given.clone());
            assert_eq!(given, *first, "{:?} by {}", operation.method, speaker.name());
        }
        match first.unwrap() {
            Given::Stream(seen) => assert_eq!((seen.state, &*seen.text), (TaskState::Completed, TEXT)),
            Given::Task(task) if operation.method != Method::CancelTask => {
                assert_eq!(Seen::of(&task).text, TEXT);
            }
            Given::Page { tasks, .. } => assert!(!tasks.is_empty()),
            Given::Refused { reason } => assert_eq!(reason, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
            Given::Task(_) | Given::Card(_) => {}
        }
    }
    gateway.stop().await;
}

fn pairs() -> impl Iterator<Item = (Speaker, Speaker)> {
    let all = Speaker::ALL.into_iter();
    all.flat_map(|maker| Speaker::ALL.into_iter().map(move |user| (maker, user)))
        .filter(|(maker, user)| maker.line != user.line)
}

#[tokio::test]
async fn a_task_of_one_line_is_read_streamed_and_resumed_on_the_other() {
    let mut gateway = Gateway::manual().await;
    for (maker, user) in pairs() {
        let about = format!("{} then {}", maker.name(), user.name());
        let message = maker.message(&about.replace(' ', "-"), "go");
        let mut whole = maker.stream(&gateway, &message).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        let mut frames = maker.until(&mut whole, TaskState::Working).await;
        while !frames.last().unwrap().raw.contains("words. ") {
            frames.push(whole.next().await.unwrap());
        }
        let known = maker.fold(None, &frames).unwrap();
        let read = user.task(&user.on(&gateway, Method::GetTask, &id).send().await);
        assert_eq!(Seen::of(&read), Seen::of(&known), "{about}");

        let mut joined = user.on(&gateway, Method::SubscribeToTask, &id).stream().await;
        let snapshot = joined.next().await.unwrap();
        assert_eq!(snapshot.id, frames.last().unwrap().id, "{about}");
        // The other line goes on where this one was cut.
        let cut = frames.last().unwrap().id.unwrap();
        let resumed =
            user.on(&gateway, Method::SubscribeToTask, &id).header("last-event-id", &cut.to_string());
        let mut resumed = resumed.stream().await;
        second_half(turn).await;
        frames.extend(whole.rest().await);
        let end = Seen::of(&maker.fold(None, &frames).unwrap());
        assert_eq!((end.state, &*end.text), (TaskState::Completed, TEXT), "{about}");

        let mut seen = vec![snapshot];
        seen.extend(joined.rest().await);
        assert_eq!(Seen::of(&user.fold(None, &seen).unwrap()), end, "{about}");
        let missed = resumed.rest().await;
        assert!(missed.iter().all(|frame| frame.id.unwrap() > cut), "{about}");
        assert_eq!(Seen::of(&user.fold(Some(read), &missed).unwrap()), end, "{about}");

        // And from every event, after the end.
        for after in &frames {
            let after = after.id.unwrap();
            let before: Vec<Frame> =
                frames.iter().filter(|frame| frame.id.unwrap() <= after).cloned().collect();
            let resumed =
                maker.on(&gateway, Method::SubscribeToTask, &id).header("last-event-id", &after.to_string());
            let tail = resumed.stream().await.rest().await;
            let folded = maker.fold(maker.fold(None, &before), &tail).unwrap();
            assert_eq!(Seen::of(&folded), end, "{about} after {after}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_task_of_one_line_is_canceled_and_continued_on_the_other() {
    let mut gateway = Gateway::manual().await;
    for (maker, user) in pairs() {
        let about = format!("{} then {}", maker.name(), user.name());
        let message = maker.message(&about.replace(' ', "-"), "go");
        let mut events = maker.stream(&gateway, &message).stream().await;
        let mut turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        let mut more = user.message(&format!("more-{}", about.replace(' ', "-")), "and more");
        more["taskId"] = json!(id);
        let (answer, _) = tokio::join!(user.send(&gateway, &more, false).send(), turn.joined());
        assert_eq!(user.sent(&answer).history.len(), 2, "{about}");

        let canceled = user.task(&user.on(&gateway, Method::CancelTask, &id).send().await);
        assert_eq!(canceled.status.state, TaskState::Canceled, "{about}");
        let told = maker.until(&mut events, TaskState::Canceled).await;
        assert_eq!(events.rest().await, [], "{about}");
        if maker.line == Line::V03 {
            let last = told.last().unwrap().data.to_string();
            assert!(last.contains("\"final\":true"), "{last}");
        }
        drop(turn);
        // Again: the lines differ, by their rules and not by who made the task.
        for speaker in [maker, user] {
            let again = speaker.on(&gateway, Method::CancelTask, &id).send().await;
            match speaker.line {
                Line::V1 => assert_eq!(reason(speaker, &again), "TASK_NOT_CANCELABLE", "{about}"),
                Line::V03 => assert_eq!(Seen::of(&speaker.task(&again)), Seen::of(&canceled), "{about}"),
            }
            let ended = speaker.on(&gateway, Method::SubscribeToTask, &id);
            match speaker.line {
                Line::V1 => {
                    assert_eq!(reason(speaker, &ended.send().await), "UNSUPPORTED_OPERATION", "{about}");
                }
                Line::V03 => {
                    let frames = ended.stream().await.rest().await;
                    assert_eq!(frames.len(), 1, "{about}");
                    let seen = Seen::of(&speaker.fold(None, &frames).unwrap());
                    assert_eq!(seen, Seen::of(&canceled), "{about}");
                }
            }
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_of_0_3_stays_open_at_an_ask_which_any_line_answers() {
    let mut gateway = Gateway::manual().await;
    for speaker in Speaker::ALL.into_iter().filter(|speaker| speaker.line == Line::V03) {
        let unique = speaker.name().replace(' ', "-");
        let mut events = speaker.stream(&gateway, &speaker.message(&unique, "go")).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let request = format!("per_{:?}", speaker.dialect);
        turn.ask(&request).await;
        let asked = speaker.until(&mut events, TaskState::InputRequired).await;
        // Nobody had to activate anything to be told.
        let told = asked.last().unwrap().data.to_string();
        assert!(told.contains(&request) && told.contains("\"final\":false"), "{told}");
        let params = json!({"request_id": request, "reply": "once"});
        let answered = gateway.rpc("a2a.interrupt.permission.reply", &params).send().await;
        assert_eq!(answered.json()["result"], json!({"ok": true, "request_id": request}));
        assert_eq!(answered.header("a2a-version"), "0.3");
        turn.say("b", "thanks").await;
        turn.complete().await;
        let rest = events.rest().await;
        assert!(rest.last().unwrap().data.to_string().contains("\"final\":true"), "{rest:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_send_by_0_3_rest_does_not_wait_unless_it_says_so() {
    let mut gateway = Gateway::manual().await;
    for speaker in Speaker::ALL {
        let waits = !(speaker.line == Line::V03 && speaker.dialect == Dialect::Rest);
        let message = speaker.message(&speaker.name().replace(' ', "-"), "go");
        let call = speaker.call(&gateway, Method::SendMessage, "", &json!({"message": message}));
        let (answer, ()) = tokio::join!(call.send(), async {
            let turn = gateway.turns.recv().await.unwrap();
            if waits {
                turn.complete().await;
            }
        });
        let state = speaker.sent(&answer).status.state;
        assert_eq!(state == TaskState::Completed, waits, "{} {state}", speaker.name());
    }
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_hidden_from_a_reader_is_hidden_on_every_line() {
    let mut gateway = Gateway::manual().await;
    for speaker in Speaker::ALL {
        let message = speaker.message(&speaker.name().replace(' ', "-"), "go");
        let blind = |call: Call| call.header("authorization", ADA_BLIND);
        let mut sent = blind(speaker.stream(&gateway, &message)).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        let mut joined = blind(speaker.on(&gateway, Method::SubscribeToTask, &id)).stream().await;
        second_half(turn).await;
        let (sent, joined) = (sent.rest().await, joined.rest().await);
        let read = blind(speaker.on(&gateway, Method::GetTask, &id)).send().await;
        for frames in [&sent, &joined] {
            assert!(frames.iter().all(|frame| !frame.raw.contains("Hm") && !frame.raw.contains("call_1")));
            let seen = Seen::of(&speaker.fold(None, frames).unwrap());
            assert_eq!(seen.text, "Better words. Done.", "{}", speaker.name());
            assert_eq!(seen, Seen::of(&speaker.task(&read)), "{}", speaker.name());
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn where_the_log_is_not_kept_whole_a_reader_of_0_3_gets_the_task_anew() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut gateway = Gateway::manual_on(store.clone()).await;
    for speaker in Speaker::ALL.into_iter().filter(|speaker| speaker.line == Line::V03) {
        let message = speaker.message(&speaker.name().replace(' ', "-"), "go");
        let mut events = speaker.stream(&gateway, &message).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        let mut frames = vec![events.next().await.unwrap()];
        while !frames.last().unwrap().raw.contains("words. ") {
            frames.push(events.next().await.unwrap());
        }
        store.forget_before(3);
        second_half(turn).await;
        let told = events.rest().await;
        let anew = told.iter().filter(|frame| matches!(speaker.event(frame), StreamEvent::Task(_))).count();
        assert_eq!(anew, 1, "{told:?}");
        assert!(told.is_sorted_by_key(|frame| frame.id), "{told:?}");
        frames.extend(told);
        let end = speaker.task(&speaker.on(&gateway, Method::GetTask, &id).send().await);
        assert_eq!(Seen::of(&speaker.fold(None, &frames).unwrap()), Seen::of(&end), "{}", speaker.name());
        store.forget_before(1);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_reader_of_0_3_takes_the_log_from_the_start_only_once() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut gateway = Gateway::manual_on(store.clone()).await;
    let replace = async |turn: &StartedTurn, text: &str| {
        let replaced = AgentEvent::TextReplaced { block: text_block("prt_3"), text: text.to_owned() };
        turn.report(replaced).await;
    };
    for speaker in Speaker::ALL.into_iter().filter(|speaker| speaker.line == Line::V03) {
        let message = speaker.message(&speaker.name().replace(' ', "-"), "go");
        let mut events = speaker.stream(&gateway, &message).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        replace(&turn, "One. ").await;
        let mut frames = vec![events.next().await.unwrap()];
        while !frames.last().unwrap().raw.contains("One. ") {
            frames.push(events.next().await.unwrap());
        }
        // What would have to be read again is gone.
        store.forget_before(3);
        turn.say("prt_3", "Two. ").await;
        for text in ["Three. ", "Four. "] {
            replace(&turn, text).await;
            turn.say("prt_3", "And more. ").await;
        }
        second_half(turn).await;
        let told = events.rest().await;
        assert!(told.iter().all(|frame| !matches!(speaker.event(frame), StreamEvent::Task(_))), "{told:?}");
        frames.extend(told);
        let end = speaker.task(&speaker.on(&gateway, Method::GetTask, &id).send().await);
        assert_eq!(Seen::of(&speaker.fold(None, &frames).unwrap()), Seen::of(&end), "{}", speaker.name());
        store.forget_before(1);
    }
    gateway.stop().await;
}
