//! Asks: how a client receives them, and the two ways to answer.

use std::fmt::Write;

use longshore_model::{
    AgentEvent, Answer, Ask, AskKind, AskOption, AskOptions, Json, OptionKind, PermissionReply, Question,
};
use longshore_testkit::scripted_agent::{StartedTurn, permission};
use serde_json::{Value, json};

use crate::support::{
    BOB, Call, Events, Frame, Gateway, HINTS, INTERRUPT, RECOVERY, message, redacted, shown,
};

fn state(frame: &Frame) -> &str {
    let data = frame.data.get("result").unwrap_or(&frame.data);
    let status = if data.get("task").is_some() { &data["task"] } else { &data["statusUpdate"] };
    status["status"]["state"].as_str().unwrap_or_default()
}

fn question(turn: &StartedTurn, request: &str) -> Ask {
    let asked =
        Question { text: "Which?".to_owned(), options: vec!["A".to_owned()], multiple: false, custom: true };
    Ask {
        kind: AskKind::Question,
        details: Json::parse(r#"{"questions":[{"question":"Which?","options":[{"label":"A"}]}]}"#).unwrap(),
        questions: vec![asked],
        call: None,
        permission: None,
        options: AskOptions::default(),
        ..permission(&turn.request.session.id, request)
    }
}

/// Starts a task that waits for the answer to a permission request.
async fn asking(gateway: &mut Gateway, message_id: &str, request: &str) -> (StartedTurn, Events) {
    let (id, turn) = gateway.working_task(message_id).await;
    let mut events = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
    turn.ask(request).await;
    until(&mut events, "TASK_STATE_INPUT_REQUIRED").await;
    (turn, events)
}

/// Reads events until the task is in this state.
async fn until(events: &mut Events, expected: &str) {
    while state(&events.next().await.unwrap()) != expected {}
}

fn reply(gateway: &Gateway, request: &str) -> Call {
    let params = json!({"request_id": request, "reply": "once"});
    gateway.rpc("a2a.interrupt.permission.reply", &params).header("a2a-extensions", INTERRUPT)
}

fn on_task(task: &str, message_id: &str, text: &str) -> Value {
    let mut message = message(message_id, text);
    message["taskId"] = json!(task);
    json!({"message": message})
}

#[tokio::test]
async fn a_streamed_send_closes_at_an_ask_and_the_answer_opens_a_new_stream() {
    let mut gateway = Gateway::manual().await;
    let body = json!({"message": message("m1", "go")});
    let mut first = gateway.call("POST", "/message:stream").json(&body).stream().await;
    let turn = gateway.turns.recv().await.unwrap();
    turn.ask("per_1").await;
    let frames = first.rest().await;
    assert_eq!(state(frames.last().unwrap()), "TASK_STATE_INPUT_REQUIRED");
    assert!(frames.iter().all(|frame| !frame.raw.contains("metadata")), "{frames:?}");

    let task = turn.request.task.to_string();
    let answer = gateway.rpc("SendStreamingMessage", &on_task(&task, "m2", "once"));
    let mut second = answer.stream().await;
    let opening = second.next().await.unwrap();
    assert_eq!(opening.data["result"]["task"]["id"], json!(task));
    assert_eq!(state(&opening), "TASK_STATE_WORKING");
    assert!(opening.id.unwrap() > frames.last().unwrap().id.unwrap());
    turn.say("b", "done").await;
    turn.complete().await;
    let rest = second.rest().await;
    assert_eq!(rest[0].id.unwrap(), opening.id.unwrap() + 1);
    assert_eq!(state(rest.last().unwrap()), "TASK_STATE_COMPLETED");
    gateway.stop().await;
}

#[tokio::test]
async fn each_request_calls_the_agent_under_its_own_trace() {
    let mut gateway = Gateway::manual().await;
    let parent = |request: u32| format!("00-{request:032x}-00f067aa0ba902b7-01");
    let body = json!({"message": message("m1", "go")});
    let sent = gateway.call("POST", "/message:stream").json(&body).header("traceparent", &parent(1));
    let mut sent = sent.header("a2a-extensions", INTERRUPT).stream().await;
    let turn = gateway.turns.recv().await.unwrap();
    let task = turn.request.task.to_string();
    turn.ask("per_1").await;
    until(&mut sent, "TASK_STATE_INPUT_REQUIRED").await;
    reply(&gateway, "per_1").header("traceparent", &parent(2)).send().await;
    turn.ask("per_2").await;
    until(&mut sent, "TASK_STATE_INPUT_REQUIRED").await;
    let answer = gateway.call("POST", "/message:send").json(&on_task(&task, "m2", "once"));
    let canceling = gateway.call("POST", &format!("/tasks/{task}:cancel")).header("traceparent", &parent(4));
    let (_, answered) = tokio::join!(
        async {
            until(&mut sent, "TASK_STATE_WORKING").await;
            canceling.send().await
        },
        answer.header("traceparent", &parent(3)).send()
    );
    assert_eq!(answered.status.as_u16(), 200);
    // The turn is aborted after the response to the cancel.
    while gateway.agent.log().aborted.is_empty() {
        tokio::task::yield_now().await;
    }
    let calls = gateway.agent.log().called_for.clone();
    let calls: Vec<(&str, String)> = calls
        .into_iter()
        .map(|(call, trace)| (call, trace.map_or_else(String::new, |trace| trace.traceparent())))
        .collect();
    let expected = [("admit", 1), ("open_session", 1), ("reply", 2), ("reply", 3), ("abort", 4)]
        .map(|(call, request)| (call, parent(request)));
    assert_eq!(calls, expected);
    gateway.stop().await;
}

#[tokio::test]
async fn a_streamed_send_stays_open_at_an_ask_if_the_client_activated_the_extension() {
    let mut gateway = Gateway::manual().await;
    let body = json!({"message": message("m1", "go")});
    let call = gateway.call("POST", "/message:stream").json(&body);
    let extensions = format!("{HINTS},{INTERRUPT}");
    let mut sent = call.header("a2a-extensions", &extensions).stream().await;
    let turn = gateway.turns.recv().await.unwrap();
    let path = format!("/tasks/{}:subscribe", turn.request.task);
    let mut subscribed = gateway.call("GET", &path).stream().await;
    turn.ask("per_1").await;
    turn.report(AgentEvent::Asked(Box::new(question(&turn, "que_1")))).await;
    let mut frames = Vec::new();
    while frames.iter().filter(|frame| state(frame) == "TASK_STATE_INPUT_REQUIRED").count() < 2 {
        frames.push(sent.next().await.unwrap());
    }
    let task = gateway.call("GET", &format!("/tasks/{}", turn.request.task));
    let waiting = task.header("a2a-extensions", INTERRUPT).send().await.json();
    assert_eq!(waiting["metadata"]["shared"]["interrupt"]["request_id"], "per_1", "the oldest: {waiting}");

    assert_eq!(
        reply(&gateway, "per_1").send().await.json()["result"],
        json!({"ok": true, "request_id": "per_1"})
    );
    let rejecting = gateway.rpc("a2a.interrupt.question.reject", &json!({"request_id": "que_1"}));
    let rejecting = rejecting.header("a2a-version", "1.0");
    let rejected = rejecting.header("x-a2a-extensions", "urn:a2a:interactive-interrupt").send().await;
    assert_eq!(rejected.json()["result"], json!({"ok": true, "request_id": "que_1"}));
    turn.complete().await;
    frames.extend(sent.rest().await);
    assert_eq!(state(frames.last().unwrap()), "TASK_STATE_COMPLETED");
    assert_eq!(subscribed.rest().await.last().unwrap().id, frames.last().unwrap().id);
    let updates: Vec<Value> = frames
        .into_iter()
        .map(|frame| redacted(frame.data)["statusUpdate"].take())
        .filter(|update| !update.is_null())
        .collect();
    insta::assert_snapshot!(updates.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_blocking_send_returns_at_an_ask_and_its_answer_returns_at_the_end() {
    let mut gateway = Gateway::manual().await;
    let sending = gateway.rpc("SendMessage", &json!({"message": message("m1", "go")})).send();
    let (asked, turn) = tokio::join!(sending, async {
        let turn = gateway.turns.recv().await.unwrap();
        turn.ask("per_1").await;
        turn
    });
    let task = asked.json()["result"]["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let path = format!("/tasks/{}:subscribe", turn.request.task);
    let mut events = gateway.call("GET", &path).stream().await;
    let body = on_task(task["id"].as_str().unwrap(), "m2", "always");
    let answering = gateway.call("POST", "/message:send").json(&body).send();
    let (done, ()) = tokio::join!(answering, async {
        until(&mut events, "TASK_STATE_WORKING").await;
        turn.complete().await;
    });
    assert_eq!(done.json()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    gateway.stop().await;
}

#[tokio::test]
async fn the_methods_for_asks_and_their_errors() {
    let mut gateway = Gateway::manual().await;
    let (turn, _) = asking(&mut gateway, "m1", "per_1").await;
    let (other, mut events) = asking(&mut gateway, "m2", "per_2").await;
    other.report(AgentEvent::Asked(Box::new(question(&other, "que_1")))).await;
    until(&mut events, "TASK_STATE_INPUT_REQUIRED").await;
    let both = format!("{INTERRUPT},{RECOVERY}");
    let call = |method: &str, params: Value| gateway.rpc(method, &params).header("a2a-extensions", &both);
    let permission = "a2a.interrupt.permission.reply";
    let answers = "a2a.interrupt.question.reply";
    let steps = [
        ("a list", call("opencode.permissions.list", json!({}))),
        ("nothing of others", call("opencode.permissions.list", json!({})).header("authorization", BOB)),
        ("a list takes nothing", call("opencode.questions.list", json!({"metadata": {}}))),
        (
            "not activated",
            gateway
                .rpc(permission, &json!({"request_id": "per_1", "reply": "once"}))
                .header("a2a-version", "1.0"),
        ),
        (
            "another is activated",
            gateway.rpc("opencode.questions.list", &json!({})).header("a2a-extensions", INTERRUPT),
        ),
        ("no ask named", call(permission, json!({"reply": "once"}))),
        (
            "unknown parameter",
            call(permission, json!({"request_id": "per_1", "reply": "once", "force": true})),
        ),
        ("bad word", call(permission, json!({"request_id": "per_1", "reply": "perhaps"}))),
        ("unknown ask", call(permission, json!({"request_id": "per_9", "reply": "once"}))),
        (
            "of another",
            call(permission, json!({"request_id": "per_1", "reply": "once"})).header("authorization", BOB),
        ),
        ("wrong kind", call(answers, json!({"request_id": "per_1", "answers": [["A"]]}))),
        (
            "answered",
            call(permission, json!({"request_id": "per_1", "reply": " Reject ", "message": "use ls"})),
        ),
        ("answered again", call(permission, json!({"request_id": "per_1", "reply": "once"}))),
        ("a question", call(answers, json!({"request_id": "que_1", "answers": [["A", ""]]}))),
        ("what is left", call("opencode.permissions.list", json!({}))),
        ("no questions are left", call("opencode.questions.list", json!({}))),
        ("unknown method", call("a2a.interrupt.permission.reject", json!({"request_id": "per_2"}))),
    ];
    let mut transcript = String::new();
    for (name, call) in steps {
        writeln!(transcript, "# {name}\n{}", shown(&call.send().await)).unwrap();
    }
    insta::assert_snapshot!(transcript);
    let replied: Vec<Answer> = gateway.agent.log().replied.into_iter().map(|(_, answer)| answer).collect();
    let expected = [
        Answer::Permission { reply: PermissionReply::Reject, message: Some("use ls".to_owned()) },
        Answer::Question { answers: vec![vec!["A".to_owned()]] },
    ];
    assert_eq!(replied, expected, "nothing that was refused has reached the agent");
    drop((turn, other));
    gateway.stop().await;
}

/// The options of Qwen Code for a shell command.
fn own_options() -> AskOptions {
    let option = |id: &str, name: &str, kind| AskOption { id: id.to_owned(), name: name.to_owned(), kind };
    AskOptions::new([
        option("proceed_always_user", "Always Allow for user: touch *", OptionKind::AllowAlways),
        option("proceed_once", "Allow", OptionKind::AllowOnce),
        option("cancel", "Reject", OptionKind::RejectOnce),
    ])
}

#[tokio::test]
async fn both_versions_show_the_agents_options_and_take_their_ids_and_names() {
    let mut gateway = Gateway::manual().await;
    for (version, get) in [("1.0", "GetTask"), ("0.3", "tasks/get")] {
        let (id, turn) = gateway.working_task(&format!("m{version}")).await;
        let call = |method: &str, params: &Value| {
            let call = gateway.rpc(method, params).header("a2a-version", version);
            call.header("a2a-extensions", &format!("{INTERRUPT},{RECOVERY}"))
        };
        let mut events = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
        let options = json!([
            {"id": "proceed_always_user", "name": "Always Allow for user: touch *", "kind": "allow_always"},
            {"id": "proceed_once", "name": "Allow", "kind": "allow_once"},
            {"id": "cancel", "name": "Reject", "kind": "reject_once"},
        ]);
        for (number, (answer, expected)) in
            [("proceed_once", "proceed_once"), ("reject ", "reject"), ("allow", "proceed_once")]
                .into_iter()
                .enumerate()
        {
            let request = format!("per_{version}_{number}");
            let ask = permission(&turn.request.session.id, &request);
            turn.report(AgentEvent::Asked(Box::new(Ask { options: own_options(), ..ask }))).await;
            until(&mut events, "TASK_STATE_INPUT_REQUIRED").await;
            let task = call(get, &json!({"id": id})).send().await.json();
            let task = task["result"].get("task").unwrap_or(&task["result"]);
            assert_eq!(task["metadata"]["shared"]["interrupt"]["options"], options, "{task}");
            let list = call("opencode.permissions.list", &json!({})).send().await.json();
            assert_eq!(list["result"]["items"][0]["options"], options, "{list}");
            for wrong in ["perhaps", "proceed_always_user"] {
                let params = json!({"request_id": request, "reply": wrong});
                let refused = call("a2a.interrupt.permission.reply", &params).send().await.json();
                assert_eq!(refused["error"]["code"], -32602, "{refused}");
                assert!(refused.to_string().contains("proceed_once (Allow), cancel (Reject)"), "{refused}");
            }
            let params = json!({"request_id": request, "reply": answer});
            let taken = call("a2a.interrupt.permission.reply", &params).send().await.json();
            assert_eq!(taken["result"], json!({"ok": true, "request_id": request}), "{taken}");
            let (name, answer) = gateway.agent.log().replied.last().cloned().unwrap();
            assert_eq!((name.as_str(), answer.how().as_str()), (request.as_str(), expected));
        }
        drop(turn);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_late_answer_gets_an_error() {
    let mut gateway = Gateway::impatient().await;
    let (id, turn) = gateway.working_task("m1").await;
    let path = format!("/tasks/{id}:subscribe");
    let mut events = gateway.call("GET", &path).header("a2a-extensions", INTERRUPT).stream().await;
    turn.ask("per_1").await;
    loop {
        let frame = events.next().await.unwrap();
        let interrupt = &frame.data["statusUpdate"]["metadata"]["shared"]["interrupt"];
        if interrupt["phase"] == "resolved" {
            assert_eq!(
                (&interrupt["resolution"], &interrupt["outcome"]),
                (&json!("rejected"), &json!("expired"))
            );
            break;
        }
    }
    insta::assert_snapshot!(shown(&reply(&gateway, "per_1").send().await));
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_ask_can_be_answered_by_a_notification() {
    let mut gateway = Gateway::manual().await;
    let (turn, _) = asking(&mut gateway, "m1", "per_1").await;
    let notify = |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params});
        gateway.call("POST", "/").json(&body).header("a2a-extensions", INTERRUPT)
    };
    for call in [
        notify("opencode.permissions.list", json!({})),
        notify("a2a.interrupt.permission.reply", json!({"request_id": "per_1", "reply": "nonsense"})),
        notify("a2a.interrupt.permission.reply", json!({"request_id": "per_1", "reply": "once"})),
    ] {
        let answer = call.send().await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (204, 0));
    }
    let task = gateway.call("GET", &format!("/tasks/{}", turn.request.task)).send().await.json();
    assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(gateway.agent.log().replied.len(), 1);
    drop(turn);
    gateway.stop().await;
}
