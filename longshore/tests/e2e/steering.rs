//! Messages for a busy session: they wait, join the running turn, or are refused.

use futures_util::future::join_all;
use longshore_testkit::gateway::TOKEN;
use longshore_testkit::raw::{self, Frame, RawClient};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::client::{Binding, Client, RpcError, Stream, message, message_in, message_on, within};
use crate::frames::{self, context_id, id, nth_text, runs_a_tool, state, state_of, task_id};
use crate::harness::Harness;
use crate::model_log;
use crate::upstream::{self, Agreement, UpstreamTurn};

/// What the turn does when the second message arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Text,
    Tool,
}

/// The delivery of the second message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Queue,
    Steer,
    Reject,
    /// With the id of the running task.
    OnTask,
}

const FIRST: &str = "The first is answered slowly, one letter after the other.";
const AFTER_TOOL: &str = "The command has run.";
const SECOND: &str = "Now to the second.";

/// Every delivery at every moment over one binding. The contexts run side by side.
async fn every_way(binding: Binding) {
    let harness = Harness::demo().await;
    // The first turn of an OpenCode takes seconds, and blocks every other turn.
    harness.play("scn:text n=1").await;
    let client = harness.client.over(binding);
    let ways = [Way::Queue, Way::Steer, Way::Reject, Way::OnTask];
    let cases = ways.iter().flat_map(|way| [(*way, Moment::Text), (*way, Moment::Tool)]);
    join_all(cases.map(|(way, moment)| deliver(&harness, &client, binding, way, moment))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_for_a_busy_session_wait_join_or_are_refused() {
    every_way(Binding::JsonRpc).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_messages_for_a_busy_session_wait_join_or_are_refused_over_rest() {
    every_way(Binding::Rest).await;
}

async fn deliver(harness: &Harness, client: &Client, binding: Binding, way: Way, moment: Moment) {
    let name = format!("{way:?} in mid-{moment:?}");
    let running = Running::begin(client, &name, moment).await;
    let (task, context) = (running.task(), running.context());
    match way {
        Way::Queue => {
            let sent = message_in(&context, &running.second);
            let queued = send(harness, binding, &sent, "queue").await.expect("the message is taken");
            assert_eq!(state_of(&queued), "SUBMITTED", "{name}: {queued:#}");
            assert_ne!(queued["id"], task.as_str(), "{name}: no task of its own");
            let second = running.second.clone();
            let first = running.alone(harness, moment).await;
            let frames =
                client.resume(queued["id"].as_str().expect("a task has an id"), 0).await.rest().await;
            let played = harness.check(&second, frames, Agreement::Whole).await;
            played.ended("COMPLETED", "").has(&[("text", SECOND)]);
            let began = played.frames.iter().find(|frame| state(frame) == Some("WORKING"));
            let began = began.expect("a task that ran was WORKING");
            let began = began.json.pointer("/statusUpdate/status/timestamp").and_then(Value::as_str);
            let began = began.expect("a status has a time");
            let ended = first["status"]["timestamp"].as_str().expect("a status has a time");
            assert!(began >= ended, "{name}: began at {began}, before the first had ended at {ended}");
            asked_once(harness, &name, &second, 2).await;
        }
        Way::Steer => {
            let sent = message_in(&context, &running.second);
            let joined = send(harness, binding, &sent, "steer").await.expect("the message is taken");
            assert_eq!(joined["id"], task.as_str(), "{name}: another task");
            assert_eq!(state_of(&joined), "WORKING", "{name}: {joined:#}");
            // The same message again joins only once.
            let again = send(harness, binding, &sent, "steer").await.expect("the message is taken");
            assert_eq!(again["id"], task.as_str(), "{name}: another task for the same message");
            running.joined(harness, moment).await;
        }
        Way::Reject => {
            let sent = message_in(&context, &running.second);
            let refused = send(harness, binding, &sent, "reject").await.expect_err("the session is busy");
            let code = if binding == Binding::JsonRpc { -31060 } else { 409 };
            assert_eq!((refused.code, refused.reason()), (code, "SESSION_BUSY"), "{name}: {}", refused.body);
            let second = running.second.clone();
            running.alone(harness, moment).await;
            let prompted = upstream::turns(&harness.opencode, &second).await;
            assert!(prompted.is_empty(), "{name}: OpenCode has it: {prompted:#?}");
            let listed = harness.client.call("ListTasks", json!({ "contextId": context })).await;
            assert_eq!(listed["totalSize"], 1, "{name}: {listed:#}");
            // The same message is accepted once the session is idle.
            let taken = client.send(&with_delivery(&sent, "reject")).await;
            assert_eq!(state_of(&taken), "COMPLETED", "{name}: {taken:#}");
            asked_once(harness, &name, &second, 2).await;
        }
        Way::OnTask => {
            // Its own stream shows the task from here to its end, as the first stream does.
            let sent = message_on(&task, &json!({"text": running.second}));
            let frames = client.stream(&sent).await.rest().await;
            assert!(frames.iter().all(|frame| task_id(frame) == task), "{name}: {frames:#?}");
            let last = frames.last().expect("a stream has a frame");
            assert_eq!(state(last), Some("COMPLETED"), "{name}: {frames:#?}");
            let said: String = frames.iter().filter_map(frames::text).collect();
            assert!(said.ends_with(SECOND), "{name}: the stream of the message said {said:?}");
            running.joined(harness, moment).await;
        }
    }
}

/// A message that arrives close to the end of a turn is answered once.
#[tokio::test(flavor = "multi_thread")]
async fn long_a_message_at_the_very_end_of_a_turn_is_never_lost() {
    let harness = Harness::demo().await;
    harness.play("scn:text n=1").await;
    let client = &harness.client;
    // The time from the first text to the end of the task.
    let mut ends = Vec::new();
    for round in 0..3 {
        let prompt = format!("scn:text n=2 (how long {round})");
        let mut stream = client.stream(&message(&prompt)).await;
        stream.until("a text", nth_text(1)).await;
        let seen = Instant::now();
        stream.until("the end", frames::is_terminal).await;
        ends.push(seen.elapsed());
    }
    ends.sort();
    let end = ends[1];

    let (mut joined, mut apart) = (0, 0);
    for round in 0..90_u32 {
        // On a machine that has become slower the end is later than measured.
        if round >= 30 && joined > 0 && apart > 0 {
            break;
        }
        let name = format!("round {round}");
        let [first, second] = ["first", "second"].map(|word| format!("scn:text n=2 ({name}, the {word})"));
        let mut stream = client.stream(&message(&first)).await;
        let mut frames = stream.until("a text", nth_text(1)).await;
        // From well before the end to well after it.
        sleep(end * round / 22).await;
        let sent = message_in(&context_id(&frames[0]), &second);
        let task = within("the second task", client.send(&with_delivery(&sent, "steer"))).await;
        frames.extend(stream.rest().await);
        assert_eq!(state_of(&task), "COMPLETED", "{name}: {task:#}");
        let texts = upstream::blocks_of_task(&task).len();
        if task["id"] == task_id(&frames[0]) {
            joined += 1;
            assert_eq!(texts, 2, "{name}: {task:#}");
            check_joined(&harness, &name, &frames, [&first, &second]).await;
        } else {
            apart += 1;
            assert_eq!(texts, 1, "{name}: {task:#}");
            harness.check(&first, frames, Agreement::Whole).await.ended("COMPLETED", "");
            asked_once(&harness, &name, &second, 2).await;
        }
    }
    assert!(joined > 0 && apart > 0, "{joined} joined and {apart} did not: the end was not met");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_joined_message_survives_a_killed_gateway() {
    let (mut harness, model) = Harness::with_own_model().await;
    for moment in [Moment::Text, Moment::Tool] {
        let name = format!("killed in mid-{moment:?}");
        let mut running = Running::begin(&harness.client, &name, moment).await;
        let (task, context) = (running.task(), running.context());
        let sent = message_in(&context, &running.second);
        let joined = send(&harness, Binding::JsonRpc, &sent, "steer").await.unwrap();
        harness.gateway.kill();
        assert_eq!(joined["id"], task.as_str(), "{name}: another task");
        while let Some(frame) = running.stream.next().await {
            running.frames.push(frame);
        }
        harness.restart().await;
        // A client that missed the answer sends the message again.
        let again = send(&harness, Binding::JsonRpc, &sent, "steer").await.unwrap();
        assert_eq!(again["id"], task.as_str(), "{name}: another task for the same message");
        let last = running.frames.last().expect("frames came before the crash");
        running.frames.extend(harness.client.resume(&task, id(last)).await.rest().await);
        let prompts = [running.first.as_str(), running.second.as_str()];
        check_joined(&harness, &name, &running.frames, prompts).await;
        let asked = model.journal().turns();
        let steps = if moment == Moment::Text { 2 } else { 4 };
        assert_eq!(asked.len(), steps, "{name}: the model was asked {asked:#?}");
        let listed = harness.client.call("ListTasks", json!({ "contextId": context })).await;
        assert_eq!(listed["totalSize"], 1, "{name}: {listed:#}");
    }
}

/// A running turn, and the frames so far.
struct Running {
    name: String,
    first: String,
    second: String,
    stream: Stream,
    frames: Vec<Frame>,
}

impl Running {
    async fn begin(client: &Client, name: &str, moment: Moment) -> Self {
        let first = match moment {
            Moment::Text => format!("scn:text n=100 delay=50 text={FIRST:?} ({name}, the first)"),
            Moment::Tool => format!(
                "scn:bash cmd=\"sleep 2; echo done\" scn:text text={AFTER_TOOL:?} ({name}, the first)"
            ),
        };
        let second = format!("scn:text text={SECOND:?} ({name}, the second)");
        let mut stream = client.stream(&message(&first)).await;
        let frames = match moment {
            Moment::Text => stream.until("the third text", nth_text(3)).await,
            Moment::Tool => stream.until("a tool that runs", runs_a_tool).await,
        };
        Self { name: name.to_owned(), first, second, stream, frames }
    }

    fn task(&self) -> String {
        task_id(&self.frames[0])
    }

    fn context(&self) -> String {
        context_id(&self.frames[0])
    }

    /// Reads the turn without a joined message to its end.
    async fn alone(mut self, harness: &Harness, moment: Moment) -> Value {
        self.frames.extend(self.stream.rest().await);
        let played = harness.check(&self.first, self.frames, Agreement::Whole).await;
        played.ended("COMPLETED", "");
        match moment {
            Moment::Text => played.has(&[("text", FIRST)]),
            Moment::Tool => played.has(&[("tool:bash", "completed"), ("text", AFTER_TOOL)]),
        };
        played.task
    }

    /// Reads the turn with the joined message to its end.
    async fn joined(mut self, harness: &Harness, moment: Moment) {
        self.frames.extend(self.stream.rest().await);
        let task = check_joined(harness, &self.name, &self.frames, [&self.first, &self.second]).await;
        let blocks = upstream::blocks_of_task(&task);
        let contents: Vec<&Value> = blocks.iter().map(|block| &block.content).collect();
        match moment {
            Moment::Text => assert_eq!(contents, [FIRST, SECOND], "{}", self.name),
            // The joined message replaces the steps that would have followed.
            Moment::Tool => {
                assert_eq!(contents.len(), 2, "{}: {contents:#?}", self.name);
                assert_eq!(contents[0]["output"], "done\n", "{}: the command was stopped", self.name);
                assert_eq!(contents[1], SECOND, "{}", self.name);
            }
        }
    }
}

/// Checks the stream of a task with two messages against the stored task, OpenCode and the model.
async fn check_joined(harness: &Harness, name: &str, frames: &[Frame], prompts: [&str; 2]) -> Value {
    frames::check_log(name, frames);
    let task = raw::plain_text(&harness.client.get(&task_id(&frames[0])).await);
    assert_eq!(state_of(&task), "COMPLETED", "{name}: {task:#}");
    let (folded, stored) = (raw::without_answers(&raw::fold(frames)), raw::without_answers(&task));
    assert_eq!(folded, stored, "{name}: the stream folds into another task");
    let history = task["history"].as_array().into_iter().flatten();
    let said: Vec<&str> = history.filter_map(|message| message.pointer("/parts/0/text")?.as_str()).collect();
    assert_eq!(said, prompts, "{name}: the history");

    let first = upstream::turn(&harness.opencode, prompts[0]).await;
    let second = upstream::turn(&harness.opencode, prompts[1]).await;
    assert_eq!(first.session, second.session, "{name}: it went to another session");
    assert!(!second.answers.is_empty(), "{name}: the second message was not answered");
    let answers = first.answers.into_iter().chain(second.answers).collect();
    upstream::check(name, &task, &UpstreamTurn { session: first.session, answers }, Agreement::Whole);
    asked_once(harness, name, prompts[1], 2).await;
    task
}

/// Fails unless the model got this prompt once, as the `number`-th user message.
async fn asked_once(harness: &Harness, name: &str, prompt: &str, number: usize) {
    let asked = model_log::asked(&harness.opencode, prompt).await;
    assert_eq!(asked.len(), 1, "{name}: the model was asked {asked:#?}");
    assert_eq!(asked[0]["user_messages"], number, "{name}: {:#}", asked[0]);
}

/// Sends with the delivery in the metadata of the request, and returns when the gateway has accepted the message.
async fn send(
    harness: &Harness,
    binding: Binding,
    message: &Value,
    delivery: &str,
) -> Result<Value, RpcError> {
    let params = json!({
        "message": message,
        "configuration": {"returnImmediately": true},
        "metadata": {"shared": {"delivery": delivery}},
    });
    if binding == Binding::JsonRpc {
        let answer = harness.client.try_call("SendMessage", params).await;
        return answer.map(|mut answer| answer["task"].take());
    }
    let client = RawClient::new(harness.gateway.url(), TOKEN);
    let mut answer = within("/message:send", client.rest("POST", "/message:send", Some(&params))).await;
    match answer.status {
        200 => Ok(answer.body["task"].take()),
        status => Err(RpcError { code: status.into(), body: answer.body["error"].take() }),
    }
}

/// The message with the delivery in its own metadata.
fn with_delivery(message: &Value, delivery: &str) -> Value {
    let mut message = message.clone();
    message["metadata"] = json!({"shared": {"delivery": delivery}});
    message
}
