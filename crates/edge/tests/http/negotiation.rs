//! Which protocol version a request uses, and what only one version supports.

use longshore_edge::contract::MissingVersion;
use longshore_wire::surface::{OPERATIONS, ProtocolVersion};
use longshore_wire::v1::method::Method;
use serde_json::{Value, json};

use crate::support::{Call, Gateway, INTERRUPT, ProtocolClient, RECOVERY};

/// The result of a request: the version of the response, its status, and the code or reason of its error.
async fn outcome(call: Call) -> (String, u16, String) {
    let answer = call.send().await;
    let body = if answer.body.is_empty() { Value::Null } else { answer.json() };
    let result = match (&body["error"], body.get("type")) {
        (_, Some(word)) => word.as_str().unwrap().to_owned(),
        (Value::Object(error), _) => match error.get("details") {
            Some(details) => details[0]["reason"].as_str().unwrap().to_owned(),
            None => error["code"].to_string(),
        },
        _ => "ok".to_owned(),
    };
    (answer.header("a2a-version").to_owned(), answer.status.as_u16(), result)
}

fn rpc(gateway: &Gateway, path: &str, method: &str) -> Call {
    let params = if method.contains('.') { json!({}) } else { json!({"id": "nope"}) };
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    gateway.call("POST", path).json(&body)
}

#[tokio::test]
async fn the_version_of_a_request_is_negotiated() {
    let gateway = Gateway::echoing().await;
    // Path, method, `A2A-Version`; the version of the response, and its result.
    let by_rpc = [
        ("/", "GetTask", "", "1.0", "-32001"),
        ("/", "tasks/get", "", "0.3", "-32001"),
        ("/", "GetTask", "1.0", "1.0", "-32001"),
        ("/", "GetTask", "1.0.7", "1.0", "-32001"),
        ("/", "tasks/get", "0.3", "0.3", "-32001"),
        ("/", "tasks/get", "0.3.26", "0.3", "-32001"),
        ("/", "tasks/get", " ", "0.3", "-32001"),
        // The header decides, and the other version does not have the method.
        ("/", "tasks/get", "1.0", "1.0", "-32601"),
        ("/", "GetTask", "0.3", "0.3", "-32601"),
        ("/", "nonsense", "", "1.0", "-32601"),
        ("/", "tasks/nonsense", "", "0.3", "-32601"),
        ("/", "opencode.nonsense", "", "0.3", "-32601"),
        // A refusal has the format of the version that has the method.
        ("/", "GetTask", "2.0", "1.0", "-32009"),
        ("/", "tasks/get", "0.2", "0.3", "-32001"),
        ("/?A2A-Version=0.3", "GetTask", "", "0.3", "-32601"),
        ("/?a2a-version=1.0", "GetTask", "", "1.0", "-32001"),
        ("/?A2A-Version=9.9", "GetTask", "1.0", "1.0", "-32001"),
        ("/?A2A-Version=9.9", "tasks/get", "", "0.3", "-32001"),
        // A base has one version.
        ("/a2a/1.0", "GetTask", "", "1.0", "-32001"),
        ("/a2a/1.0/", "GetTask", "1.0", "1.0", "-32001"),
        ("/a2a/1.0", "tasks/get", "", "1.0", "-32601"),
        ("/a2a/1.0", "GetTask", "0.3", "1.0", "-32009"),
        ("/a2a/0.3", "tasks/get", "", "0.3", "-32001"),
        ("/a2a/0.3/", "tasks/get", "0.3.0", "0.3", "-32001"),
        ("/a2a/0.3", "GetTask", "", "0.3", "-32601"),
        ("/a2a/0.3", "tasks/get", "1.0", "0.3", "-32001"),
    ];
    for (path, method, version, response_version, result) in by_rpc {
        let call = rpc(&gateway, path, method).header("a2a-version", version);
        let expected = (response_version.to_owned(), 200, result.to_owned());
        assert_eq!(rpc_outcome(call).await, expected, "{path} {method} {version:?}");
    }
    let by_rest = [
        ("/tasks/nope", "", "1.0", 404, "TASK_NOT_FOUND"),
        ("/v1/tasks/nope", "", "0.3", 404, "TASK_NOT_FOUND"),
        ("/tasks/nope", "1.0.1", "1.0", 404, "TASK_NOT_FOUND"),
        ("/v1/tasks/nope?A2A-Version=0.3", "", "0.3", 404, "TASK_NOT_FOUND"),
        ("/tasks/nope", "0.3", "0.3", 404, "ROUTE_NOT_FOUND"),
        ("/v1/tasks/nope", "1.0", "1.0", 404, "ROUTE_NOT_FOUND"),
        ("/nope", "", "1.0", 404, "ROUTE_NOT_FOUND"),
        ("/v1/nope", "", "0.3", 404, "ROUTE_NOT_FOUND"),
        ("/tasks/nope", "2.0", "1.0", 400, "VERSION_NOT_SUPPORTED"),
        ("/v1/tasks/nope", "2.0", "0.3", 400, "VERSION_NOT_SUPPORTED"),
        ("/nope", "2.0", "1.0", 400, "VERSION_NOT_SUPPORTED"),
        ("/a2a/1.0/tasks/nope", "", "1.0", 404, "TASK_NOT_FOUND"),
        ("/a2a/0.3/v1/tasks/nope", "", "0.3", 404, "TASK_NOT_FOUND"),
        ("/a2a/1.0/v1/tasks/nope", "", "1.0", 404, "ROUTE_NOT_FOUND"),
        ("/a2a/0.3/tasks/nope", "", "0.3", 404, "ROUTE_NOT_FOUND"),
        ("/a2a/1.0/tasks/nope", "0.3", "1.0", 400, "VERSION_NOT_SUPPORTED"),
        ("/a2a/0.3/v1/tasks/nope", "1.0", "0.3", 400, "VERSION_NOT_SUPPORTED"),
    ];
    for (path, version, response_version, status, result) in by_rest {
        let call = gateway.call("GET", path).header("a2a-version", version);
        assert_eq!(
            outcome(call).await,
            (response_version.to_owned(), status, result.to_owned()),
            "{path} {version:?}"
        );
    }
    gateway.stop().await;
}

/// As [`outcome`], with the error code.
async fn rpc_outcome(call: Call) -> (String, u16, String) {
    let answer = call.send().await;
    let code = answer.json()["error"]["code"].to_string();
    (answer.header("a2a-version").to_owned(), answer.status.as_u16(), code)
}

#[tokio::test]
async fn extension_methods_are_0_3_unless_the_caller_activates_an_extension() {
    let gateway = Gateway::echoing().await;
    let list = |headers: &[(&'static str, &str)]| {
        headers.iter().fold(rpc(&gateway, "/", "opencode.permissions.list"), |call, (name, value)| {
            call.header(name, value)
        })
    };
    for (headers, response_version, result) in [
        (&[][..], "0.3", "ok"),
        (&[("a2a-version", "0.3")], "0.3", "ok"),
        (&[("a2a-version", "1.0")], "1.0", "-32004"),
        (&[("a2a-extensions", RECOVERY)], "1.0", "ok"),
        (&[("x-a2a-extensions", RECOVERY)], "0.3", "ok"),
        (&[("x-a2a-extensions", "urn:unknown")], "0.3", "ok"),
        (&[("x-a2a-extensions", RECOVERY), ("a2a-version", "1.0")], "1.0", "ok"),
        (&[("a2a-extensions", INTERRUPT)], "1.0", "-32004"),
        (&[("a2a-extensions", "urn:unknown")], "1.0", "-32004"),
        (&[("a2a-extensions", INTERRUPT), ("a2a-version", "0.3")], "0.3", "ok"),
    ] {
        assert_eq!(
            outcome(list(headers)).await,
            (response_version.to_owned(), 200, result.to_owned()),
            "{headers:?}"
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_strict_gateway_treats_a_missing_version_as_0_3() {
    let gateway =
        Gateway::manual_with(|config| config.deployment.missing_version = MissingVersion::V03).await;
    for (call, response_version, status, result) in [
        (rpc(&gateway, "/", "GetTask"), "0.3", 200, "-32601"),
        (rpc(&gateway, "/", "GetTask").header("a2a-version", "1.0"), "1.0", 200, "-32001"),
        (rpc(&gateway, "/a2a/1.0", "GetTask"), "1.0", 200, "-32001"),
        (rpc(&gateway, "/", "tasks/get"), "0.3", 200, "-32001"),
    ] {
        assert_eq!(rpc_outcome(call).await, (response_version.to_owned(), status, result.to_owned()));
    }
    for (path, version, response_version, result) in [
        ("/tasks/nope", "", "0.3", "ROUTE_NOT_FOUND"),
        ("/tasks/nope", "1.0", "1.0", "TASK_NOT_FOUND"),
        ("/v1/tasks/nope", "", "0.3", "TASK_NOT_FOUND"),
        // An unknown path implies no version.
        ("/nope", "", "1.0", "ROUTE_NOT_FOUND"),
        ("/v1/nope", "", "0.3", "ROUTE_NOT_FOUND"),
        ("/acme/tasks", "", "1.0", "ROUTE_NOT_FOUND"),
    ] {
        let call = gateway.call("GET", path).header("a2a-version", version);
        assert_eq!(
            outcome(call).await,
            (response_version.to_owned(), 404, result.to_owned()),
            "{path} {version}"
        );
    }
    // The error tells a 1.0 client without a version what to do, in text that 0.3 does not define.
    for version in ["", "0.3"] {
        let result = rpc(&gateway, "/", "GetTask").header("a2a-version", version).send().await.json();
        assert_eq!(result["error"]["message"], "Unsupported method: GetTask");
        let hint = result["error"]["data"]["hint"].as_str().unwrap();
        assert!(hint.contains("send A2A-Version: 1.0"), "{hint}");
    }
    // An unknown version is not a missing one.
    for (call, response_version) in [
        (gateway.call("POST", "/message:send").json(&json!({})), "1.0"),
        (gateway.call("POST", "/v1/message:send").json(&json!({})), "0.3"),
    ] {
        let expected = (response_version.to_owned(), 400, "VERSION_NOT_SUPPORTED".to_owned());
        assert_eq!(outcome(call.header("a2a-version", "9")).await, expected);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_base_has_every_operation_of_its_version() {
    let gateway = Gateway::echoing().await;
    for client in ProtocolClient::ALL {
        let base = client.version.base();
        let message = client.message(&client.name().replace(' ', "-"), "hi");
        let body = client.send_body(&message, true);
        let sent = client.call_under(base, &gateway, Method::SendMessage, "", &body).send().await;
        let task = client.sent(&sent).id.to_string();
        for operation in &OPERATIONS {
            let params = match operation.method {
                Method::SendMessage | Method::SendStreamingMessage => body.clone(),
                Method::ListTasks => json!({}),
                _ => json!({"id": task}),
            };
            let call = |base| client.call_under(base, &gateway, operation.method, &task, &params);
            let (here, at_root) = (call(base).send().await, call("").send().await);
            assert_eq!(here.status, at_root.status, "{} {:?}", client.name(), operation.method);
            if operation.method != Method::GetExtendedAgentCard {
                assert_eq!(here.body, at_root.body, "{} {:?}", client.name(), operation.method);
            }
            let other = ProtocolVersion::ALL.into_iter().find(|version| *version != client.version).unwrap();
            let refused = call(base).header("a2a-version", other.as_str()).send().await;
            let result = str::from_utf8(&refused.body).unwrap();
            assert!(result.contains("VERSION_NOT_SUPPORTED"), "{} {result}", client.name());
            assert_eq!(refused.header("a2a-version"), client.version.as_str());
        }
    }
    // Documents and health are not served under a base.
    for path in ["/a2a/1.0/livez", "/a2a/0.3/health", "/a2a/1.0/openapi.json", "/a2a/0.3/artifacts/x"] {
        assert_eq!(gateway.call("GET", path).send().await.status.as_u16(), 404, "{path}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn in_0_3_only_extension_methods_can_be_notifications() {
    let mut gateway = Gateway::manual().await;
    let notify = |method: &str, params: Value| {
        gateway.call("POST", "/").json(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    };
    let message = ProtocolClient::ALL[2].message("m1", "go");
    for (call, expected) in [
        (notify("opencode.permissions.list", json!({})), (204, Value::Null)),
        (
            notify("a2a.interrupt.permission.reply", json!({"request_id": "x", "reply": "once"})),
            (204, Value::Null),
        ),
        (notify("a2a.interrupt.permission.reply", json!({})), (204, Value::Null)),
        (notify("opencode.permissions.list", json!({})).header("a2a-version", "0.9"), (204, Value::Null)),
        // Every other request of 0.3 needs an id, and is not executed without one.
        (notify("tasks/nonsense", json!({})), (200, json!(-32601))),
        (notify("opencode.nonsense", json!({})), (200, json!(-32601))),
        (notify("message/ssend", json!({})).header("a2a-version", "0.9"), (200, json!(-32001))),
        (notify("message/send", json!({"message": message})), (200, json!(-32602))),
        (notify("message/stream", json!({"message": message})), (200, json!(-32602))),
        (notify("message/send", json!({})), (200, json!(-32602))),
        (notify("tasks/get", json!({"id": "nope"})), (200, json!(-32602))),
        (notify("tasks/pushNotificationConfig/list", json!({"id": "nope"})), (200, json!(-32602))),
        (notify("agent/getAuthenticatedExtendedCard", json!({})), (200, json!(-32602))),
    ] {
        let answer = call.send().await;
        let body = if answer.body.is_empty() { Value::Null } else { answer.json() };
        assert_eq!((answer.status.as_u16(), body["error"]["code"].clone()), expected, "{body}");
        assert_eq!(answer.header("a2a-version"), "0.3");
        assert_eq!(body["id"], Value::Null);
        if body["error"]["code"] == -32602 {
            // The envelope is wrong, so the error names no parameter.
            let text = body["error"]["message"].as_str().unwrap_or_default();
            assert!(
                text.starts_with("The request has no id") && body["error"]["data"]["field"].is_null(),
                "{body}"
            );
        }
    }
    assert!(gateway.agent.log().prompted.is_empty() && gateway.turns.try_recv().is_err());
    gateway.stop().await;
}

#[tokio::test]
async fn a_broken_envelope_is_refused_in_the_format_of_the_method_that_it_names() {
    let gateway = Gateway::echoing().await;
    for (method, response_version) in [("GetTask", "1.0"), ("tasks/get", "0.3")] {
        for broken in [
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": ["t"]}),
            json!({"jsonrpc": "1.0", "id": 1, "method": method}),
            json!({"jsonrpc": "2.0", "id": 1.5, "method": method}),
        ] {
            let answer = gateway.call("POST", "/").json(&broken).send().await;
            let body = answer.json();
            assert_eq!(answer.header("a2a-version"), response_version, "{body}");
            assert_eq!(body["error"]["data"].is_array(), response_version == "1.0", "{body}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn ids_come_back_with_their_type() {
    let gateway = Gateway::echoing().await;
    for method in ["GetTask", "tasks/get"] {
        for id in ["1", "\"1\"", "\"\"", "-7", "null", "123456789012345678901234567890"] {
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"id":"nope"}}}}"#);
            let call = gateway.call("POST", "/").header("content-type", "application/json").body(body);
            let answer = call.send().await;
            let text = str::from_utf8(&answer.body).unwrap();
            assert!(text.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"#)), "{text}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn unusual_json_is_accepted_or_refused_in_0_3() {
    let gateway = Gateway::echoing().await;
    let rpc = |message: &str| {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"message/send","params":{{"message":{message}}}}}"#);
        gateway.call("POST", "/").header("content-type", "application/json").body(body)
    };
    let rest = |message: &str| {
        let body = format!(r#"{{"message":{message},"configuration":{{"blocking":true}}}}"#);
        gateway.call("POST", "/v1/message:send").header("content-type", "application/json").body(body)
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{}1{}", "[".repeat(40), "]".repeat(40));
    let long = "9".repeat(200);
    for (id, metadata, is_taken) in [
        ("long", format!(r#"{{"n":{long},"e":1e300,"i":1700000000000}}"#), true),
        ("huge", r#"{"e":1e999}"#.to_owned(), false),
        ("nested", format!(r#"{{"n":{nested}}}"#), true),
        ("deep", format!(r#"{{"n":{deep}}}"#), false),
    ] {
        let by_rpc = rpc(&format!(
            r#"{{"kind":"message","messageId":"rpc-{id}","role":"user","parts":[{{"kind":"text","text":"hi"}}],"metadata":{metadata}}}"#
        ));
        let by_rest = rest(&format!(
            r#"{{"messageId":"rest-{id}","role":"ROLE_USER","content":[{{"text":"hi"}}],"metadata":{metadata}}}"#
        ));
        for call in [by_rpc, by_rest] {
            let answer = call.send().await;
            let text = str::from_utf8(&answer.body).unwrap();
            assert_eq!(answer.header("a2a-version"), "0.3");
            assert_eq!(text.contains(&metadata), is_taken, "{id} {}", &text[..text.len().min(600)]);
            let is_refused = answer.status.as_u16() == 400 || text.contains("\"error\":{\"code\":-3");
            assert_eq!(is_refused, !is_taken, "{id} {}", &text[..text.len().min(600)]);
        }
    }
    // A duplicate key neither crashes nor merges two messages.
    let twice = r#"{"kind":"message","messageId":"a","messageId":"b","role":"user","parts":[{"kind":"text","text":"hi"}]}"#;
    let answer = rpc(twice).send().await;
    assert_eq!(answer.status.as_u16(), 200);
    let answer = answer.json();
    assert!(answer["error"]["code"].is_i64() || answer["result"]["kind"] == "task", "{answer}");
    gateway.stop().await;
}
