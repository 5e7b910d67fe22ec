//! The defects C1 to C20 of the Python peer (section 12.1 of the notes on it): one test each, at the wire. Each test
//! fails with the defect.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use longshore_engine::port::Store;
use longshore_testkit::fake_opencode::{Cut, CutKind, FakeOpenCode, Fault, Gate, Play, Tool, Turn};
use longshore_testkit::raw::{Answer, Frames, RawClient, message};
use serde_json::{Value, json};

use crate::common::{Options, TestGateway};
use crate::replay::fixture::{Fixture, check};
use crate::replay::usage::Usage;

/// A binding.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Binding {
    JsonRpc,
    Rest,
}

use Binding::{JsonRpc, Rest};

const BOTH: [Binding; 2] = [JsonRpc, Rest];

impl Binding {
    /// Sends a message and returns the task of the answer.
    async fn send(self, client: &RawClient, params: &Value) -> Value {
        let task = match self {
            JsonRpc => client.rpc("SendMessage", params.clone()).await.result()["task"].clone(),
            Rest => ok(client.rest("POST", "/message:send", Some(params)).await)["task"].clone(),
        };
        assert!(task["id"].is_string(), "{self:?} gave no task");
        task
    }

    async fn get(self, client: &RawClient, task: &Value) -> Value {
        match self {
            JsonRpc => client.task(id(task)).await,
            Rest => ok(client.rest("GET", &format!("/tasks/{}", id(task)), None).await),
        }
    }

    async fn cancel(self, client: &RawClient, task: &Value) -> Value {
        match self {
            JsonRpc => client.rpc("CancelTask", json!({"id": id(task)})).await.result().clone(),
            Rest => ok(client.rest("POST", &format!("/tasks/{}:cancel", id(task)), Some(&json!({}))).await),
        }
    }

    /// The tasks that a query returns, in its order.
    async fn list(self, client: &RawClient, query: &[(&str, &str)]) -> Vec<Value> {
        let listed = match self {
            JsonRpc => {
                let params = query.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
                client.rpc("ListTasks", Value::Object(params)).await.result().clone()
            }
            Rest => {
                let query: Vec<String> = query.iter().map(|(key, value)| format!("{key}={value}")).collect();
                ok(client.rest("GET", &format!("/tasks?{}", query.join("&")), None).await)
            }
        };
        listed["tasks"].as_array().cloned().unwrap_or_default()
    }

    async fn stream(self, client: &RawClient, params: &Value) -> Frames {
        let opened = match self {
            JsonRpc => client.rpc_stream("SendStreamingMessage", params.clone(), None).await,
            Rest => client.rest_stream("POST", "/message:stream", Some(params), None).await,
        };
        opened.unwrap_or_else(|answer| panic!("no stream but {}", answer.body))
    }
}

fn ok(answer: Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

fn id(task: &Value) -> &str {
    task["id"].as_str().expect("a task has an id")
}

/// The state without its prefix.
fn state(task: &Value) -> &str {
    let state = task["status"]["state"].as_str().unwrap_or_default();
    state.strip_prefix("TASK_STATE_").unwrap_or_default()
}

/// The texts of the reply, one for each block.
fn texts(task: &Value) -> Vec<String> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let texts = artifacts.filter(|artifact| artifact["name"] == "text").map(|artifact| {
        let parts = artifact["parts"].as_array().into_iter().flatten();
        parts.filter_map(|part| part["text"].as_str()).collect::<String>()
    });
    texts.filter(|text| !text.is_empty()).collect()
}

/// The ids of the messages in the history.
fn history(task: &Value) -> Vec<&str> {
    let messages = task["history"].as_array().into_iter().flatten();
    messages.filter_map(|message| message["messageId"].as_str()).collect()
}

fn on_task(id: &str, text: &str, task: &Value) -> Value {
    let mut params = message(id, text);
    params["message"]["taskId"] = task["id"].clone();
    params
}

fn in_context(id: &str, text: &str, context: &Value) -> Value {
    let mut params = message(id, text);
    params["message"]["contextId"] = context.clone();
    params
}

fn immediately(mut params: Value) -> Value {
    params["configuration"] = json!({"returnImmediately": true});
    params
}

/// Waits for the end of a task, and returns it.
async fn ended(client: &RawClient, task: &Value) -> Value {
    let log = client.rpc_stream("SubscribeToTask", json!({"id": id(task)}), Some(0)).await;
    log.expect("the task's log").all().await;
    client.task(id(task)).await
}

/// The prompted sessions, in the order of the prompts.
fn prompted(fake: &FakeOpenCode) -> Vec<String> {
    let session = |path: String| path.split('/').nth(2).unwrap_or_default().to_owned();
    fake.prompts().into_iter().map(|prompt| session(prompt.path)).collect()
}

fn unauthorized() -> Turn {
    let data = json!({"message": "Incorrect API key provided", "statusCode": 401, "isRetryable": false});
    Turn::new().error("APIError", &data)
}

#[tokio::test]
async fn c01_a_task_that_returns_immediately_finishes() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        let gate = Gate::new();
        fixture.fake.queue(Turn::new().text("alpha ", 1).hold(&gate).text("bravo", 1));
        let task = binding.send(fixture.client(), &immediately(message("message-1", "go"))).await;
        assert!(matches!(state(&task), "SUBMITTED" | "WORKING"), "{task:#}");
        gate.reached().await;
        assert_eq!(state(&binding.get(fixture.client(), &task).await), "WORKING");
        gate.open();
        let task = ended(fixture.client(), &task).await;
        assert_eq!((state(&task), texts(&task).concat().as_str()), ("COMPLETED", "alpha bravo"));
        assert_eq!(binding.get(fixture.client(), &task).await, task);
    }
}

#[tokio::test]
async fn c02_a_follow_up_on_a_waiting_task_is_stored_with_its_outcome() {
    let cases = [
        (unauthorized(), "AUTH_REQUIRED", "try again"),
        (Turn::new().guarded_tool(Tool::bash("rm x", "")).text("done", 1), "INPUT_REQUIRED", "once"),
    ];
    for binding in BOTH {
        for (turn, waiting, words) in cases.clone() {
            let fixture = Fixture::new().await;
            fixture.fake.queue(turn);
            fixture.fake.queue(Turn::new().text("done", 1));
            let task = binding.send(fixture.client(), &message("message-1", "go")).await;
            assert_eq!(state(&task), waiting, "{task:#}");
            let answered = binding.send(fixture.client(), &on_task("message-2", words, &task)).await;
            let stored = binding.get(fixture.client(), &task).await;
            for (what, seen) in [("the answer", &answered), ("the store", &stored)] {
                assert_eq!(seen["id"], task["id"], "{what}, {binding:?}");
                assert_eq!(state(seen), "COMPLETED", "{what}, {binding:?}: {seen:#}");
                assert_eq!(history(seen), ["message-1", "message-2"], "{what}, {binding:?}");
                assert_eq!(texts(seen), ["done"], "{what}, {binding:?}");
            }
        }
    }
}

#[tokio::test]
async fn c03_a_follow_up_with_only_a_task_id_stays_in_its_context_and_session() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        fixture.fake.queue(unauthorized());
        let task = binding.send(fixture.client(), &message("message-1", "go")).await;
        let followed = binding.send(fixture.client(), &on_task("message-2", "again", &task)).await;
        assert_eq!(followed["contextId"], task["contextId"], "{binding:?}");
        assert_eq!(fixture.fake.sessions().len(), 1, "{binding:?}: another session was made");
        let sessions = prompted(&fixture.fake);
        assert_eq!((sessions.len(), &sessions[0]), (2, &sessions[1]), "{binding:?}");
    }
}

#[tokio::test]
async fn c04_the_event_stream_is_open_before_the_prompt_is_sent() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        // The turn ends before the answer to the prompt is read.
        fixture.fake.fault_once("POST", "/prompt_async", Fault::CutAfter);
        fixture.fake.queue(Turn::new().text("alpha", 1));
        let task = binding.send(fixture.client(), &message("message-1", "go")).await;
        assert_eq!((state(&task), texts(&task).concat().as_str()), ("COMPLETED", "alpha"), "{task:#}");
        let log = fixture.fake.log();
        let position = |path: &str| log.iter().position(|request| request.path.ends_with(path));
        assert!(position("/event").is_some() && position("/event") < position("/prompt_async"), "{log:#?}");
    }
}

/// More streams than the peer has slots for, twice: none hangs, and every slot is freed.
#[tokio::test]
async fn c05_many_streams_at_once_all_complete_and_free_their_slots() {
    const STREAMS: usize = 24;
    let fixture = Fixture::new().await;
    for round in 0..2 {
        let gate = Gate::new();
        for _ in 0..STREAMS {
            fixture.fake.queue(Turn::new().text("alpha ", 1).hold(&gate).text("bravo", 1));
        }
        let streams = (0..STREAMS).map(|nth| {
            let (binding, client) = (BOTH[nth % 2], fixture.client_with_extensions());
            async move {
                let params = message(&format!("message-{round}-{nth}"), "go");
                binding.stream(&client, &params).await.all().await
            }
        });
        let opening = async {
            // All turns run at the same time.
            fixture.fake.wait_for_request("POST", "/prompt_async", (round + 1) * STREAMS).await;
            gate.open();
        };
        let (streams, ()) = tokio::join!(join_all(streams), opening);
        for frames in streams {
            let seen = check(fixture.client(), frames).await;
            assert_eq!(
                (seen.state(), seen.text().as_str()),
                ("COMPLETED", "alpha bravo"),
                "{}",
                seen.reason()
            );
        }
    }
    let readers = fixture.fake.log().iter().filter(|request| request.path == "/event").count();
    assert_eq!(readers, 1, "one reader hears for all");
}

/// Several texts, and files for which OpenCode adds texts to the message of the user.
#[tokio::test]
async fn c06_parts_of_the_user_are_never_shown_as_the_reply() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        std::fs::write(fixture.fake.workspace().join("README.md"), "read me").expect("a file can be written");
        fixture.fake.play(&Play::new("prompt_options"));
        let mut params = message("message-1", "scn:text n=2");
        params["message"]["parts"] = json!([
            {"text": "scn:text n=2"},
            {"text": "and this"},
            {"url": format!("file://{}/README.md", fixture.fake.directory())},
            {"raw": "QUJD", "mediaType": "image/png", "filename": "dot.png"},
        ]);
        let frames = binding.stream(&fixture.client_with_extensions(), &params).await.all().await;
        let seen = check(fixture.client(), frames).await;
        assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha b bravo c "));
        for frame in &seen.frames[1..] {
            let reported = frame.json.to_string();
            for words in ["scn:text", "and this", "Called the Read tool", "<content>", "README.md"] {
                assert!(!reported.contains(words), "{binding:?}: {words} in {reported}");
            }
        }
    }
    // The same without a recording: each part of the prompt is an event of the message of the user.
    let fixture = Fixture::new().await;
    fixture.fake.queue(Turn::new().text("mine", 1));
    let mut params = message("message-1", "one");
    params["message"]["parts"] = json!([{"text": "one"}, {"text": "two"}]);
    let task = JsonRpc.send(fixture.client(), &params).await;
    assert_eq!(texts(&task), ["mine"]);
}

#[tokio::test]
async fn c07_spaces_and_newlines_at_the_borders_of_parts_survive() {
    let parts = ["Hello ", "world\n", "\n  indented\t", " \n", "\u{a0}end \r\n"];
    for binding in BOTH {
        let fixture = Fixture::new().await;
        let turn = parts.iter().fold(Turn::new(), |turn, part| turn.text(part, 3));
        fixture.fake.queue(turn);
        let frames =
            binding.stream(&fixture.client_with_extensions(), &message("message-1", "go")).await.all().await;
        let seen = check(fixture.client(), frames).await;
        assert_eq!(seen.text(), parts.concat(), "{binding:?}");
        assert_eq!(texts(&binding.get(fixture.client(), &seen.task).await), parts, "{binding:?}");
        // No text is sent again as a whole.
        let replaced = seen.frames.iter().filter(|frame| {
            let update = &frame.json["artifactUpdate"];
            !update.is_null() && update["append"] != true
        });
        assert_eq!(replaced.count(), parts.len(), "{binding:?}");
    }
}

#[tokio::test]
async fn c08_an_ask_of_a_sub_agent_is_answered_on_the_parent_task() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        let play = Play::new("task_permission");
        fixture.fake.play(&play);
        let asked = binding.send(fixture.client(), &message("message-1", &play.prompts()[0])).await;
        assert_eq!(state(&asked), "INPUT_REQUIRED", "{asked:#}");
        let done = binding.send(fixture.client(), &on_task("message-2", "once", &asked)).await;
        assert_eq!(state(&done), "COMPLETED", "{done:#}");
        assert_eq!(done["id"], asked["id"]);
    }
}

#[tokio::test]
async fn c09_a_unary_send_returns_at_an_ask_and_a_timed_out_turn_is_aborted() {
    for binding in BOTH {
        let fake = FakeOpenCode::start();
        let mut options = Options::default();
        options.engine.turn_timeout = Some(Duration::from_secs(2));
        let fixture = Fixture { gateway: TestGateway::start_with(&fake, options).await, fake };
        fixture.fake.queue(Turn::new().guarded_tool(Tool::bash("rm x", "")).text("done", 1));
        let asked = binding.send(fixture.client(), &message("message-1", "go")).await;
        assert_eq!(state(&asked), "INPUT_REQUIRED", "{asked:#}");
        let reported = asked["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
        assert!(reported.contains("rm x"), "it says what is asked: {reported}");
        let done = binding.send(fixture.client(), &on_task("message-2", "once", &asked)).await;
        assert_eq!(state(&done), "COMPLETED", "{done:#}");

        fixture.fake.queue(Turn::new().text("alpha ", 1).silence());
        let late = binding.send(fixture.client(), &message("message-3", "go")).await;
        assert_eq!((state(&late), texts(&late).concat().as_str()), ("FAILED", "alpha "), "{late:#}");
        fixture.fake.wait_for_request("POST", "/abort", 1).await;
    }
}

#[tokio::test]
async fn c10_the_task_of_a_unary_send_can_be_found_and_canceled() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        let gate = Gate::new();
        fixture.fake.queue(Turn::new().text("alpha ", 1).hold(&gate));
        let params = message("message-1", "go");
        let looking = async {
            gate.reached().await;
            let listed = binding.list(fixture.client(), &[]).await;
            let [task] = listed.as_slice() else { panic!("one task: {listed:?}") };
            assert_eq!(state(task), "WORKING");
            assert_eq!(history(&binding.get(fixture.client(), task).await), ["message-1"]);
            let canceled = binding.cancel(fixture.client(), task).await;
            assert_eq!((state(&canceled), id(&canceled)), ("CANCELED", id(task)));
            fixture.fake.wait_for_request("POST", "/abort", 1).await;
        };
        let (task, ()) = tokio::join!(binding.send(fixture.client(), &params), looking);
        assert_eq!(state(&task), "CANCELED", "{binding:?}");
    }
}

#[tokio::test]
async fn c11_a_clean_end_of_the_event_stream_does_not_end_the_turn() {
    for (binding, lose) in
        BOTH.into_iter().flat_map(|binding| [(binding, 0), (binding, 4), (binding, usize::MAX)])
    {
        let fixture = Fixture::new().await;
        fixture.fake.queue(
            Turn::new().text("alpha bravo charlie ", 6).tool(Tool::bash("ls", "x\n")).text("delta", 2),
        );
        fixture.fake.cut_events(Cut { after: 9, how: CutKind::CleanEnd, lose });
        let task = binding.send(fixture.client(), &message("message-1", "go")).await;
        assert_eq!(state(&task), "COMPLETED", "{lose} lost: {task:#}");
        assert_eq!(texts(&task), ["alpha bravo charlie ", "delta"], "{lose} lost");
        fixture.fake.wait_for_streams(2).await;
    }
}

#[tokio::test]
async fn c12_texts_of_earlier_steps_stay_and_parts_are_separate() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        let turn = Turn::new().text("First I look.", 3).tool(Tool::bash("ls", "x\n"));
        fixture.fake.queue(turn.text("Then I", 2).text("speak.", 2).step("tool-calls").text("Done.", 2));
        let expected = ["First I look.", "Then I", "speak.", "Done."];
        let task = binding.send(fixture.client(), &message("message-1", "go")).await;
        assert_eq!(texts(&task), expected, "{binding:?}");
        assert_eq!(texts(&ended(fixture.client(), &task).await), expected, "{binding:?}");
    }
}

#[tokio::test]
async fn c13_the_usage_of_a_turn_is_the_sum_of_its_steps() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        fixture.fake.queue(
            Turn::new()
                .text("one ", 1)
                .tool(Tool::bash("ls", "x\n"))
                .text("two ", 1)
                .step("tool-calls")
                .text("three", 1),
        );
        let frames =
            binding.stream(&fixture.client_with_extensions(), &message("message-1", "go")).await.all().await;
        let seen = check(fixture.client(), frames).await;
        let messages = fixture.fake.messages(&fixture.fake.sessions()[0]);
        let parts = messages.iter().filter_map(|message| message["parts"].as_array()).flatten();
        let steps = parts.filter(|part| part["type"] == "step-finish").count();
        assert_eq!(steps, 3, "a turn of several steps");
        let sum = Usage::of_opencode(&fixture.fake);
        assert_ne!(sum, Usage::default());
        assert_eq!(Usage::of_task(&seen), sum, "{binding:?}");
        // The stored task has it as well.
        let task = binding.get(&fixture.client_with_extensions(), &seen.task).await;
        let last = seen.frames.last().expect("an end");
        let reported = &last.json["statusUpdate"]["metadata"]["shared"]["usage"];
        assert_eq!(task["metadata"]["shared"]["usage"], *reported, "{binding:?}");
    }
}

#[tokio::test]
async fn c14_every_status_has_a_timestamp_and_lists_are_sorted_by_it() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        let mut tasks = Vec::new();
        for nth in 0..5 {
            let frames = binding
                .stream(&fixture.client_with_extensions(), &message(&format!("message-{nth}"), "go"))
                .await
                .all()
                .await;
            let seen = check(fixture.client(), frames).await;
            for frame in &seen.frames {
                let status = frame.json["task"].get("status").or(frame.json["statusUpdate"].get("status"));
                assert!(status.is_none_or(|status| status["timestamp"].is_string()), "{frame:#?}");
            }
            tasks.push(seen.task);
            // Two tasks of the same millisecond have no order.
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        let ids = |tasks: &[Value]| tasks.iter().map(|task| id(task).to_owned()).collect::<Vec<_>>();
        let newest_first: Vec<Value> = tasks.iter().rev().cloned().collect();
        let listed = binding.list(fixture.client(), &[]).await;
        assert_eq!(ids(&listed), ids(&newest_first), "{binding:?}");
        let since = tasks[3]["status"]["timestamp"].as_str().expect("a time");
        let listed = binding.list(fixture.client(), &[("statusTimestampAfter", since)]).await;
        assert_eq!(ids(&listed), ids(&newest_first[..2]), "{binding:?}");
    }
}

/// The gateway stops during a turn, and the next one finds an OpenCode that continued, or that died.
#[tokio::test]
async fn c15_no_task_stays_working_after_a_restart() {
    for dies in [false, true] {
        let fake = FakeOpenCode::start();
        let store: Arc<dyn Store> = Arc::new(longshore_store::memory());
        let options = || Options { store: store.clone(), ..Options::default() };
        let gate = Gate::new();
        fake.queue(Turn::new().text("alpha ", 1).hold(&gate).text("bravo", 1));
        let first = TestGateway::start_with(&fake, options()).await;
        let task = JsonRpc.send(&first.client, &immediately(message("message-1", "go"))).await;
        gate.reached().await;
        first.stop().await;
        if dies {
            fake.kill().await;
            fake.restart();
        } else {
            gate.open();
            fake.wait_until_idle().await;
        }
        let second = TestGateway::start_with(&fake, options()).await;
        let task = ended(&second.client, &task).await;
        let expected = if dies { ("FAILED", "alpha ") } else { ("COMPLETED", "alpha bravo") };
        assert_eq!((state(&task), texts(&task).concat().as_str()), expected, "{task:#}");
        let working = second.client.rpc("ListTasks", json!({"status": "TASK_STATE_WORKING"})).await;
        assert_eq!(working.result()["totalSize"], 0);
        assert_eq!(fake.prompts().len(), 1, "the prompt is not sent again");
    }
}

#[tokio::test]
async fn c16_canceling_a_waiting_message_starts_no_second_turn() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        let gate = Gate::new();
        fixture.fake.queue(Turn::new().text("first", 1).hold(&gate));
        fixture.fake.queue(Turn::new().text("third", 1));
        let first = binding.send(fixture.client(), &immediately(message("message-1", "one"))).await;
        gate.reached().await;
        let context = &first["contextId"];
        let waiting = |nth: u8| immediately(in_context(&format!("message-{nth}"), "more", context));
        let second = binding.send(fixture.client(), &waiting(2)).await;
        let third = binding.send(fixture.client(), &waiting(3)).await;
        assert_eq!(state(&binding.cancel(fixture.client(), &second).await), "CANCELED");
        // The running task is not touched, and the third one does not start.
        assert_eq!(state(&binding.get(fixture.client(), &first).await), "WORKING");
        assert_eq!(state(&binding.get(fixture.client(), &third).await), "SUBMITTED");
        gate.open();
        for (task, text) in [(first, "first"), (third, "third")] {
            let task = ended(fixture.client(), &task).await;
            assert_eq!((state(&task), texts(&task).concat().as_str()), ("COMPLETED", text), "{binding:?}");
        }
        let prompts = fixture.fake.prompts();
        assert_eq!(prompts.len(), 2, "the canceled one is never prompted");
        assert!(prompts.iter().all(|prompt| !prompt.while_busy), "{binding:?}: two turns at once");
        assert!(fixture.fake.log().iter().all(|request| !request.path.ends_with("/abort")), "{binding:?}");
    }
}

#[tokio::test]
async fn c17_a_cancel_keeps_the_context_in_its_session() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        let gate = Gate::new();
        fixture.fake.queue(Turn::new().text("alpha ", 1).hold(&gate));
        let task = binding.send(fixture.client(), &immediately(message("message-1", "go"))).await;
        gate.reached().await;
        binding.cancel(fixture.client(), &task).await;
        let next = binding.send(fixture.client(), &in_context("message-2", "on", &task["contextId"])).await;
        assert_eq!(state(&next), "COMPLETED", "{next:#}");
        let sessions = prompted(&fixture.fake);
        assert_eq!((sessions.len(), &sessions[0]), (2, &sessions[1]), "{binding:?}");
        assert_eq!(fixture.fake.sessions().len(), 1);
    }
}

#[tokio::test]
async fn c18_a_context_whose_session_was_deleted_continues_in_another() {
    for binding in BOTH {
        let fixture = Fixture::new().await;
        let first = binding.send(fixture.client(), &message("message-1", "one")).await;
        fixture.fake.wait_until_idle().await;
        fixture.fake.forget_session(&fixture.fake.sessions()[0]);
        for nth in 2..4 {
            let params = in_context(&format!("message-{nth}"), "more", &first["contextId"]);
            let next = binding.send(fixture.client(), &params).await;
            assert_eq!(state(&next), "COMPLETED", "{next:#}");
            assert_eq!(next["contextId"], first["contextId"]);
        }
        // Only the first prompt to the deleted session is refused; all others go to one new session.
        let sessions = prompted(&fixture.fake);
        let (old, new) = (&sessions[0], fixture.fake.sessions());
        let taken: Vec<&String> = sessions.iter().filter(|session| *session != old).collect();
        assert_eq!((taken.as_slice(), new.len()), ([&new[0], &new[0]].as_slice(), 1), "{binding:?}");
    }
}

/// A stream without events sends keep-alive comments, and ends only with its task.
#[tokio::test]
async fn c19_an_idle_stream_sends_keep_alives_and_does_not_end() {
    for binding in BOTH {
        let fake = FakeOpenCode::start();
        let options = Options { keep_alive: Duration::from_millis(50), ..Options::default() };
        let fixture = Fixture { gateway: TestGateway::start_with(&fake, options).await, fake };
        let gate = Gate::new();
        fixture.fake.queue(Turn::new().text("alpha ", 1).hold(&gate).text("bravo", 1));
        let mut stream = binding.stream(&fixture.client_with_extensions(), &message("message-1", "go")).await;
        gate.reached().await;
        let mut frames = Vec::new();
        // Without events only comments arrive.
        while stream.comments().len() < 5 {
            tokio::select! {
                frame = stream.next() => frames.push(frame.expect("the stream has not ended")),
                () = tokio::time::sleep(Duration::from_millis(60)) => {}
            }
        }
        assert!(stream.comments().iter().all(|comment| comment == "keep-alive"), "{:?}", stream.comments());
        gate.open();
        frames.extend(stream.all().await);
        let seen = check(fixture.client(), frames).await;
        assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha bravo"), "{binding:?}");
    }
}

#[tokio::test]
async fn c20_invalid_ids_envelopes_and_filters_are_refused() {
    let fixture = Fixture::new().await;
    let client = fixture.client();
    let call = |body: Value| async move {
        let answer = client.bytes("POST", "/", "application/json", body.to_string()).await;
        (answer.body["id"].clone(), answer.body["error"]["code"].clone())
    };
    let list = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "ListTasks", "params": {}});
    for wrong in [json!(true), json!(false), json!({}), json!([1]), json!(1.5)] {
        assert_eq!(call(list(wrong.clone())).await, (Value::Null, json!(-32600)), "{wrong}");
    }
    for good in [json!(1), json!("true"), json!(-7)] {
        assert_eq!(call(list(good.clone())).await, (good, Value::Null));
    }
    for envelope in [json!({}), json!({"jsonrpc": "1.0"}), json!({"jsonrpc": 2.0}), json!({"jsonrpc": null})]
    {
        let mut body = list(json!(1));
        body.as_object_mut().expect("an object").remove("jsonrpc");
        for (key, value) in envelope.as_object().expect("an object") {
            body[key] = value.clone();
        }
        assert_eq!(call(body.clone()).await, (json!(1), json!(-32600)), "{body}");
    }
    for status in ["TASK_STATE_NONSENSE", "working", "7.5"] {
        let rpc = fixture.client().rpc("ListTasks", json!({"status": status})).await;
        assert_eq!(rpc.body["error"]["code"], -32602, "{status}: {}", rpc.body);
        let rest = fixture.client().rest("GET", &format!("/tasks?status={status}"), None).await;
        assert_eq!(
            (rest.status, &rest.body["error"]["status"]),
            (400, &json!("INVALID_ARGUMENT")),
            "{status}"
        );
    }
    assert_eq!(fixture.fake.log(), [], "OpenCode is not asked");
}
