//! The operations with a single response, in both bindings.

use std::time::Duration;

use longshore_engine::port::Input;
use longshore_model::{AgentEvent, Error, ErrorKind, Failure, Outcome};
use serde_json::{Value, json};

use crate::support::{BOB, Gateway, message, redacted};

/// The result of a response, by JSON-RPC or by REST.
fn result_of(answer: &crate::support::Answer) -> Value {
    let body = answer.json();
    assert_eq!(answer.status.as_u16(), 200, "{body}");
    match body.get("jsonrpc") {
        Some(_) => body["result"].clone(),
        None => body,
    }
}

#[tokio::test]
async fn a_send_blocks_until_the_task_is_over() {
    let gateway = Gateway::echoing().await;
    let by_rpc = gateway.rpc("SendMessage", &json!({"message": message("m1", "one two")})).send().await;
    let by_rest = gateway
        .call("POST", "/message:send")
        .json(&json!({"message": message("m2", "one two")}))
        .send()
        .await;
    assert_eq!(by_rpc.json()["id"], 1);
    let [mut rpc, mut rest] = [by_rpc, by_rest].map(|answer| redacted(result_of(&answer)));
    insta::assert_json_snapshot!(rpc);
    // Except for what the caller chose and the scripted agent counts, both are equal.
    for (result, id) in [(&mut rpc, "m1"), (&mut rest, "m2")] {
        assert_eq!(result["task"]["history"][0]["messageId"], id);
        result["task"]["history"][0]["messageId"] = Value::Null;
        result["task"]["artifacts"][0]["artifactId"] = Value::Null;
    }
    assert_eq!(rpc, rest);
    gateway.stop().await;
}

#[tokio::test]
async fn a_send_may_return_at_once_while_the_task_runs() {
    let mut gateway = Gateway::manual().await;
    let body = json!({"message": message("m1", "go"), "configuration": {"returnImmediately": true, "historyLength": 0}});
    let sent = gateway.rpc("SendMessage", &body).send().await;
    let task = result_of(&sent)["task"].clone();
    assert!(
        ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&task["status"]["state"].as_str().unwrap())
    );
    assert_eq!(task.get("history"), None);
    let id = task["id"].as_str().unwrap();
    let mut events = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
    gateway.turns.recv().await.unwrap().complete().await;
    events.rest().await;
    let by_rest = gateway.call("GET", &format!("/tasks/{id}")).send().await;
    let by_rpc = gateway.rpc("GetTask", &json!({"id": id})).send().await;
    assert_eq!(result_of(&by_rest)["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(result_of(&by_rest), result_of(&by_rpc));
    assert_eq!(result_of(&by_rest)["history"].as_array().unwrap().len(), 1);
    let bare = gateway.call("GET", &format!("/tasks/{id}?historyLength=0")).send().await;
    assert_eq!(result_of(&bare).get("history"), None);
    gateway.stop().await;
}

#[tokio::test]
async fn a_failed_turn_is_a_failed_task_and_no_error() {
    let mut gateway = Gateway::manual().await;
    let call = gateway.rpc("SendMessage", &json!({"message": message("m1", "go")}));
    let (answer, ()) = tokio::join!(call.send(), async {
        let turn = gateway.turns.recv().await.unwrap();
        turn.report(AgentEvent::Ended(Outcome::Failed(Failure::new("The model said no.")))).await;
    });
    let task = result_of(&answer)["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "The model said no.");
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_stop_its_task() {
    let mut gateway = Gateway::manual().await;
    let call = gateway.rpc("SendMessage", &json!({"message": message("m1", "go")}));
    let turn = tokio::select! {
        _ = call.send() => panic!("the send blocks"),
        turn = gateway.turns.recv() => turn.unwrap(),
    };
    // The call was dropped, and its connection with it.
    let id = turn.request.task.clone();
    let mut events = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
    turn.say("b", "still here").await;
    turn.complete().await;
    assert_eq!(
        events.rest().await.last().unwrap().data["statusUpdate"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
    assert!(gateway.agent.log().aborted.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn the_same_send_twice_is_one_task() {
    let gateway = Gateway::echoing().await;
    let body = json!({"message": message("m1", "hello")});
    let first = gateway.rpc("SendMessage", &body).send().await;
    let second = gateway.call("POST", "/message:send").json(&body).send().await;
    assert_eq!(result_of(&first), result_of(&second));
    assert_eq!(gateway.agent.log().prompted.len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_to_a_working_task_joins_its_turn() {
    let mut gateway = Gateway::manual().await;
    let (id, mut turn) = gateway.working_task("m0").await;
    for (binding, message_id) in [("rpc", "m1"), ("rest", "m2")] {
        let mut more = message(message_id, binding);
        more["taskId"] = json!(id);
        let body = json!({"message": more, "configuration": {"returnImmediately": true}});
        let call = match binding {
            "rpc" => gateway.rpc("SendMessage", &body),
            _ => gateway.call("POST", "/message:send").json(&body),
        };
        let (answer, (_, input)) = tokio::join!(call.send(), turn.joined());
        let task = result_of(&answer)["task"].clone();
        assert_eq!((&task["id"], &task["status"]["state"]), (&json!(id), &json!("TASK_STATE_WORKING")));
        assert_eq!(task["history"].as_array().unwrap().last().unwrap()["messageId"], message_id);
        assert_eq!(input, [Input::Text(binding.to_owned())]);
    }
    assert_eq!(gateway.agent.log().prompted.len(), 1);
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn cancel_ends_the_task() {
    let mut gateway = Gateway::manual().await;
    for binding in ["rpc", "rest"] {
        let (id, turn) = gateway.working_task(binding).await;
        let cancel = match binding {
            "rpc" => gateway.rpc("CancelTask", &json!({"id": id})),
            _ => gateway.call("POST", &format!("/tasks/{id}:cancel")),
        };
        let canceled = result_of(&cancel.send().await);
        assert_eq!(
            (&canceled["id"], &canceled["status"]["state"]),
            (&json!(id), &json!("TASK_STATE_CANCELED"))
        );
        drop(turn);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn lists_are_paged_and_private() {
    let gateway = Gateway::echoing().await;
    let mut sent = Vec::new();
    for number in 0..5 {
        let body = json!({"message": message(&format!("m{number}"), "hi")});
        let answer = gateway.call("POST", "/message:send").json(&body).send().await;
        sent.push(answer.json()["task"]["id"].as_str().unwrap().to_owned());
    }
    for binding in ["rpc", "rest"] {
        let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), Vec::new());
        loop {
            let call = match binding {
                "rpc" => gateway.rpc("ListTasks", &json!({"pageSize": 2, "pageToken": token})),
                _ => gateway.call("GET", &format!("/tasks?pageSize=2&pageToken={token}")),
            };
            let page = result_of(&call.send().await);
            assert_eq!((&page["pageSize"], &page["totalSize"]), (&json!(2), &json!(5)));
            let tasks = page["tasks"].as_array().unwrap();
            pages.push(tasks.len());
            for task in tasks {
                assert_eq!(task.get("artifacts"), None);
                seen.push(task["id"].as_str().unwrap().to_owned());
            }
            page["nextPageToken"].as_str().unwrap().clone_into(&mut token);
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(pages, [2, 2, 1]);
        let mut expected = sent.clone();
        expected.sort();
        seen.sort();
        assert_eq!(seen, expected, "{binding}");
    }
    let whole = gateway.call("GET", "/tasks?includeArtifacts=true&historyLength=0&pageSize=1").send().await;
    insta::assert_json_snapshot!(redacted(whole.json()), {
        ".nextPageToken" => "[token]",
        ".tasks[].artifacts[].artifactId" => "[prompt]",
    });
    let foreign = gateway.rpc("ListTasks", &json!({})).header("authorization", BOB).send().await;
    assert_eq!(
        result_of(&foreign),
        json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0})
    );
    gateway.stop().await;
}

#[tokio::test]
async fn rest_responds_in_the_requested_media_type() {
    let gateway = Gateway::echoing().await;
    let body = json!({"message": message("m", "hi")});
    let call = gateway.call("POST", "/message:send").json(&body);
    let cases = [
        (call.clone(), "application/json"),
        (call.clone().header("content-type", "application/a2a+json"), "application/a2a+json"),
        (call.header("accept", "application/a2a+json"), "application/a2a+json"),
        (gateway.call("GET", "/tasks").header("accept", "application/a2a+json"), "application/a2a+json"),
        (gateway.call("GET", "/tasks/nope").header("accept", "application/a2a+json"), "application/a2a+json"),
        (gateway.rpc("ListTasks", &json!({})).header("accept", "application/a2a+json"), "application/json"),
        (
            gateway.rpc("ListTasks", &json!({})).header("content-type", "application/a2a+json"),
            "application/json",
        ),
    ];
    for (call, expected) in cases {
        assert_eq!(call.send().await.header("content-type"), expected);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_notification_is_executed_and_gets_no_response() {
    let mut gateway = Gateway::manual().await;
    let notify = |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params});
        gateway.call("POST", "/").json(&body)
    };
    let calls = [
        notify("SendMessage", json!({"message": message("m1", "go")})),
        notify("SendMessage", json!({})),
        notify("GetTask", json!({"id": "nope"})),
        notify("Nonsense", json!({})),
    ];
    for call in calls {
        let answer = call.send().await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (204, 0));
    }
    // Temporary errors are not reported either.
    let later = Error::new(ErrorKind::TooManyRequests, "Later.").after(Duration::from_secs(5));
    gateway.agent.refuse_next_admission(later);
    let refused = notify("SendMessage", json!({"message": message("m2", "go")})).send().await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (204, ""));
    // The first notification did start a turn, and no client waits for it.
    let turn = gateway.turns.recv().await.unwrap();
    assert_eq!(turn.request.input, [Input::Text("go".to_owned())]);
    gateway.stop().await;
}
