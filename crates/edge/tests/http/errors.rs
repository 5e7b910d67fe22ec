//! Bad input, and the exact response to it in each binding.

use longshore_edge::Extension;
use serde_json::{Value, json};

use crate::support::{BOB, Call, Case, Gateway, SESSION, case, message, transcript};

fn send_body(message: &Value) -> Value {
    json!({"message": message})
}

#[tokio::test]
async fn bodies_and_envelopes() {
    let gateway = Gateway::echoing().await;
    let (root, send) = (gateway.call("POST", "/"), gateway.call("POST", "/message:send"));
    let typed =
        |call: &Call, body: &'static str| call.clone().header("content-type", "application/json").body(body);
    let good = send_body(&message("m", "hi"));
    let rpc = json!({"jsonrpc": "2.0", "id": "a", "method": "SendMessage", "params": good});
    let cases = vec![
        case("malformed JSON", typed(&root, "{\"jsonrpc\""), typed(&send, "{\"message\"")),
        case("no JSON at all", typed(&root, "hello"), typed(&send, "hello")),
        case("an empty body", typed(&root, ""), typed(&send, "")),
        case("no UTF-8", typed(&root, "").body(&b"\"\xff\""[..]), typed(&send, "").body(&b"\"\xff\""[..])),
        case(
            "wrong content type",
            root.clone().json(&rpc).header("content-type", "text/plain"),
            send.clone().json(&good).header("content-type", "text/plain"),
        ),
        case(
            "wrong content type before malformed JSON",
            typed(&root, "{'a'").header("content-type", "text/plain"),
            typed(&send, "{'a'").header("content-type", "text/plain"),
        ),
        case("missing content type", root.clone().body(rpc.to_string()), send.clone().body(good.to_string())),
        case("batch", root.clone().json(&json!([rpc])), send.clone().json(&json!([good]))),
        case("unknown method", gateway.rpc("Nonsense", &json!({})), None),
        case("method of 0.3", gateway.rpc("message/send", &good).header("a2a-version", "1.0"), None),
        case("no method", root.clone().json(&json!({"jsonrpc": "2.0", "id": 7})), None),
        case(
            "wrong jsonrpc",
            root.clone().json(&json!({"jsonrpc": "1.0", "id": 7, "method": "GetTask"})),
            None,
        ),
        case(
            "id that is an object",
            root.clone().json(&json!({"jsonrpc": "2.0", "id": {}, "method": "GetTask"})),
            None,
        ),
        case(
            "params in an array",
            root.clone().json(&json!({"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": ["t"]})),
            None,
        ),
        case("no params", root.clone().json(&json!({"jsonrpc": "2.0", "id": 7, "method": "GetTask"})), None),
    ];
    insta::assert_snapshot!(transcript(cases).await);
    gateway.stop().await;
}

#[tokio::test]
async fn parameters() {
    let mut gateway = Gateway::manual().await;
    let (task, turn) = gateway.working_task("m0").await;
    let both =
        |name, rpc_method, params: Value, rest: Call| case(name, gateway.rpc(rpc_method, &params), rest);
    let send = |name, message: Value| {
        let body = send_body(&message);
        let rest = gateway.call("POST", "/message:send").json(&body);
        both(name, "SendMessage", body, rest)
    };
    let get =
        |name, id: &str, path: &str| both(name, "GetTask", json!({"id": id}), gateway.call("GET", path));
    let list = |name, params: Value, query: &str| {
        both(name, "ListTasks", params, gateway.call("GET", &format!("/tasks?{query}")))
    };
    let configured = |name, configuration: Value| {
        let body = json!({"message": message("m", "hi"), "configuration": configuration});
        both(name, "SendMessage", body.clone(), gateway.call("POST", "/message:send").json(&body))
    };
    let in_query =
        |name, path: &str| case(name, None, gateway.call("POST", path).json(&send_body(&message("m", "hi"))));
    let mut wrong_context = message("m1", "more");
    wrong_context["taskId"] = json!(task);
    wrong_context["contextId"] = json!("another");
    let mut on_nothing = message("m1", "more");
    on_nothing["taskId"] = json!("nope");
    let mut tenant = send_body(&message("m", "hi"));
    tenant["tenant"] = json!("acme");
    let long = "x".repeat(129);
    let cases = vec![
        send("missing parts", json!({"messageId": "m", "role": "ROLE_USER"})),
        send("empty parts", json!({"messageId": "m", "role": "ROLE_USER", "parts": []})),
        send(
            "two contents in one part",
            json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a", "url": "b"}]}),
        ),
        send("no message id", json!({"role": "ROLE_USER", "parts": [{"text": "a"}]})),
        send("message id against the rule", message("a/b", "hi")),
        send(
            "file part",
            json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"url": "http://x.test/a.png"}]}),
        ),
        both("no message", "SendMessage", json!({}), gateway.call("POST", "/message:send").json(&json!({}))),
        send("message to an unknown task", on_nothing),
        send("wrong context", wrong_context),
        both(
            "tenant in a field",
            "SendMessage",
            tenant.clone(),
            gateway.call("POST", "/message:send").json(&tenant),
        ),
        in_query("tenant in the query of a send", "/message:send?tenant=acme"),
        in_query("tenant in the query of a stream", "/message:stream?tenant=acme"),
        both(
            "tenant in a cancellation",
            "CancelTask",
            json!({"id": "nope", "tenant": "acme"}),
            gateway.call("POST", "/tasks/nope:cancel?tenant=acme"),
        ),
        configured("negative historyLength in a send", json!({"historyLength": -1})),
        configured("push configuration", json!({"taskPushNotificationConfig": {"url": "http://x.test/"}})),
        configured("no output mode fits", json!({"acceptedOutputModes": ["image/png"]})),
        get("unknown task", "nope", "/tasks/nope"),
        get("dots", "..", "/tasks/.."),
        get("id with a slash", "a/b", "/tasks/a%2Fb"),
        get("id with a percent sign", "a%2Fb", "/tasks/a%252Fb"),
        get("empty id", "", "/tasks/"),
        get("long id", &long, &format!("/tasks/{long}")),
        both(
            "negative historyLength in a get",
            "GetTask",
            json!({"id": "nope", "historyLength": -1}),
            gateway.call("GET", "/tasks/nope?historyLength=-1"),
        ),
        case(
            "foreign task",
            gateway.rpc("GetTask", &json!({"id": task})).header("authorization", BOB),
            gateway.call("GET", &format!("/tasks/{task}")).header("authorization", BOB),
        ),
        case(
            "cancel a foreign task",
            gateway.rpc("CancelTask", &json!({"id": task})).header("authorization", BOB),
            gateway.call("POST", &format!("/tasks/{task}:cancel")).header("authorization", BOB),
        ),
        case(
            "subscribe to a foreign task",
            gateway.rpc("SubscribeToTask", &json!({"id": task})).header("authorization", BOB),
            gateway.call("GET", &format!("/tasks/{task}:subscribe")).header("authorization", BOB),
        ),
        both(
            "cancel an unknown task",
            "CancelTask",
            json!({"id": "nope"}),
            gateway.call("POST", "/tasks/nope:cancel"),
        ),
        both(
            "cancel with an id against the rule",
            "CancelTask",
            json!({"id": "a/b"}),
            gateway.call("POST", "/tasks/a%2Fb:cancel"),
        ),
        case(
            "cancel with another id in the body",
            None,
            gateway.call("POST", "/tasks/a:cancel").json(&json!({"id": "b"})),
        ),
        both(
            "subscribe to an unknown task",
            "SubscribeToTask",
            json!({"id": "nope"}),
            gateway.call("POST", "/tasks/nope:subscribe"),
        ),
        case(
            "malformed Last-Event-ID",
            gateway.rpc("SubscribeToTask", &json!({"id": task})).header("last-event-id", "x1"),
            gateway.call("GET", &format!("/tasks/{task}:subscribe")).header("last-event-id", "-1"),
        ),
        both(
            "tenant in a subscription",
            "SubscribeToTask",
            json!({"id": "nope", "tenant": "acme"}),
            gateway.call("GET", "/tasks/nope:subscribe?tenant=acme"),
        ),
        list("pageSize 0", json!({"pageSize": 0}), "pageSize=0"),
        list("pageSize 101", json!({"pageSize": 101}), "pageSize=101"),
        list("bad pageToken", json!({"pageToken": "%%%"}), "pageToken=%25%25%25"),
        list("negative historyLength in a list", json!({"historyLength": -1}), "historyLength=-1"),
        list("unknown status", json!({"status": "DONE"}), "status=DONE"),
        list("bad timestamp", json!({"statusTimestampAfter": "noon"}), "statusTimestampAfter=noon"),
        list("context id against the rule", json!({"contextId": "a b"}), "contextId=a+b"),
        both(
            "push list",
            "ListTaskPushNotificationConfigs",
            json!({"taskId": "t"}),
            gateway.call("GET", "/tasks/t/pushNotificationConfigs"),
        ),
        both(
            "push create",
            "CreateTaskPushNotificationConfig",
            json!({}),
            gateway.call("POST", "/tasks/t/pushNotificationConfigs").json(&json!({})),
        ),
        both(
            "push get",
            "GetTaskPushNotificationConfig",
            json!({}),
            gateway.call("GET", "/tasks/t/pushNotificationConfigs/c"),
        ),
        both(
            "push delete",
            "DeleteTaskPushNotificationConfig",
            json!({}),
            gateway.call("DELETE", "/tasks/t/pushNotificationConfigs/c"),
        ),
    ];
    insta::assert_snapshot!(transcript(cases).await);
    // None of these requests reached the agent.
    assert_eq!(gateway.agent.log().prompted.len(), 1);
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn sessions() {
    let mut gateway = Gateway::manual().await;
    let (_, turn) = gateway.working_task("m0").await;
    // The session of ada's first task, which bob may not use.
    let session = turn.request.session.id.as_str();
    let named = |id: &str| json!({"shared": {"session": {"id": id}}});
    let cases = |rpc_method: &str, path: &str| -> Vec<Case> {
        let ids = [
            ("a slash", "a/b"),
            ("dots", ".."),
            ("a percent sign", "a%2Fb"),
            ("unknown", "ses_unknown"),
            ("foreign", session),
        ];
        let locations = |id| {
            let mut in_message = message("m1", "hi");
            in_message["metadata"] = named(id);
            let in_request = json!({"message": message("m1", "hi"), "metadata": named(id)});
            [("request", in_request), ("message", send_body(&in_message))]
        };
        let both = |name, (location, body): (&str, Value)| {
            let by_bob = |call: Call| call.header("authorization", BOB).header("a2a-extensions", SESSION);
            case(
                &format!("{name}, in the {location}"),
                by_bob(gateway.rpc(rpc_method, &body)),
                by_bob(gateway.call("POST", path).json(&body)),
            )
        };
        ids.into_iter().flat_map(|(name, id)| locations(id).map(|location| both(name, location))).collect()
    };
    let sent = transcript(cases("SendMessage", "/message:send")).await;
    let streamed = transcript(cases("SendStreamingMessage", "/message:stream")).await;
    assert_eq!(sent, streamed);
    insta::assert_snapshot!(sent);
    assert_eq!(gateway.agent.log().prompted.len(), 1);
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn extensions_that_are_not_activated() {
    let gateway = Gateway::manual().await;
    let strict =
        Gateway::manual_with(|config| config.deployment.required_extensions = vec![Extension::StreamHints])
            .await;
    let model = json!({"shared": {"model": {"providerID": "p", "modelID": "m"}}});
    let body = json!({"message": message("m1", "hi"), "metadata": model});
    let both = |name, gateway: &Gateway| {
        case(name, gateway.rpc("SendMessage", &body), gateway.call("POST", "/message:send").json(&body))
    };
    let cases = vec![both("for an option", &gateway), both("for everything", &strict)];
    insta::assert_snapshot!(transcript(cases).await);
    strict.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_finished_task_refuses_messages() {
    let mut gateway = Gateway::manual().await;
    let (task, turn) = gateway.working_task("m0").await;
    let mut events = gateway.call("GET", &format!("/tasks/{task}:subscribe")).stream().await;
    turn.complete().await;
    events.rest().await;
    let mut more = message("m1", "more");
    more["taskId"] = json!(task);
    let more = send_body(&more);
    let cases = vec![
        case(
            "cancel",
            gateway.rpc("CancelTask", &json!({"id": task})),
            gateway.call("POST", &format!("/tasks/{task}:cancel")),
        ),
        case(
            "subscribe",
            gateway.rpc("SubscribeToTask", &json!({"id": task})),
            gateway.call("POST", &format!("/tasks/{task}:subscribe")),
        ),
        case("message", gateway.rpc("SendMessage", &more), gateway.call("POST", "/message:send").json(&more)),
        case(
            "stream",
            gateway.rpc("SendStreamingMessage", &more),
            gateway.call("POST", "/message:stream").json(&more),
        ),
    ];
    insta::assert_snapshot!(transcript(cases).await);
    gateway.stop().await;
}
