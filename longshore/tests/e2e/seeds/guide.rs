//! Checks for the examples of the guide. It is about A2A 0.3, so no example names a version.

use serde_json::{Value, json};

use super::document::Example;
use super::shell::{Reply, SeedGateway};

const JSON: &str = "-H 'content-type: application/json'";

/// The text of the sent message, in the bodies of both bindings.
fn text_of(body: &Value) -> &str {
    let pointers = ["/params/message/parts/0/text", "/message/content/0/text"];
    pointers.iter().find_map(|pointer| body.pointer(pointer)?.as_str()).expect("the example sends a text")
}

fn session_of(task: &Value) -> &str {
    task.pointer("/metadata/shared/session/id").and_then(Value::as_str).expect("a task has a session")
}

/// Checks a send over REST, and returns its ended task. By default such a send does not wait.
fn sent(gateway: &SeedGateway, example: &Example, reply: &Reply) -> Value {
    assert_eq!((reply.status, reply.header("a2a-version")), (200, "0.3"), "{reply:#?}");
    let task = reply.json()["task"].take();
    let message = &task["history"][0];
    let expected = &example.body()["message"];
    for field in ["messageId", "role", "content"] {
        assert_eq!(message[field], expected[field], "{task:#}");
    }
    let id = task["id"].as_str().expect("a task has an id");
    let ended = gateway.finished(id);
    assert_eq!(ended["status"]["state"], "TASK_STATE_COMPLETED", "{ended:#}");
    ended
}

/// The model of the last request with this text.
fn asked_model(gateway: &SeedGateway, text: &str) -> String {
    let turns = gateway.model.journal().turns();
    let turn = turns.iter().rev().find(|turn| turn.prompt.contains(text));
    turn.expect("the model was asked").model.clone()
}

pub(super) fn tasks_are_listed(gateway: &mut SeedGateway, example: &Example) {
    let path = example.calls.strip_prefix("GET ").expect("a request");
    let reply = gateway.ask(path, "-X GET");
    assert_eq!((reply.status, reply.header("a2a-version")), (200, "0.3"));
    assert!(reply.json()["tasks"].is_array(), "{reply:#?}");
}

pub(super) fn a_file_is_sent(gateway: &mut SeedGateway, example: &Example) {
    let reply = gateway.run(&example.text, &[]);
    assert_eq!(reply.header("a2a-version"), "0.3");
    assert_eq!(reply.json()["id"], example.body()["id"]);
    let task = reply.result();
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")), "{task:#}");
    // The model received the text and the file, and the history has both as sent.
    let text = text_of(&example.body()).to_owned();
    let turns = gateway.model.journal().turns();
    let turn = turns.iter().find(|turn| turn.prompt.contains(&text)).expect("the model was asked");
    let parts = &task["history"][0]["parts"];
    let sent = &example.body()["params"]["message"]["parts"];
    assert_eq!((&parts[0], &parts[1]["file"]["name"]), (&sent[0], &sent[1]["file"]["name"]), "{task:#}");
    // OpenCode reads the file for the model, and says so in the prompt.
    let name = sent[1]["file"]["name"].as_str().expect("the file has a name");
    let file = gateway.workspace.join(name).display().to_string();
    assert!(turn.prompt.contains(&file), "{turn:#?}");
    assert!(task["metadata"]["shared"]["usage"]["total_tokens"].is_number(), "{task:#}");
    session_of(&task).clone_into(&mut gateway.session);
    // Without its own model the message goes to the model of OpenCode's configuration.
    assert_eq!(asked_model(gateway, &text), "gemini-3-pro");
}

pub(super) fn a_session_goes_on(gateway: &mut SeedGateway, example: &Example) {
    let reply = gateway.run(&example.text, &[("<session_id>", &gateway.session)]);
    let task = sent(gateway, example, &reply);
    assert_eq!(session_of(&task), gateway.session);
}

pub(super) fn a_model_is_chosen(gateway: &mut SeedGateway, example: &Example) {
    let reply = gateway.run(&example.text, &[]);
    sent(gateway, example, &reply);
    let requested = example.body()["metadata"]["shared"]["model"].take();
    assert_eq!(asked_model(gateway, text_of(&example.body())), requested["modelID"]);
    // Both names are required, or none.
    let mut half = example.body();
    half["message"]["messageId"] = "half".into();
    half["metadata"]["shared"]["model"] = json!({"providerID": requested["providerID"]});
    assert_eq!(gateway.ask("/v1/message:send", &format!("{JSON} -d '{half}'")).status, 400);
}

/// The details of an ask in a status.
fn interrupt(frame: &Value) -> Option<&Value> {
    frame.pointer("/statusUpdate/metadata/shared/interrupt")
}

pub(super) fn a_permission_is_given(gateway: &mut SeedGateway, example: &Example) {
    let text = "scn:bash cmd=\"touch guarded\" scn:text n=3";
    let message = json!({"messageId": "ask", "role": "ROLE_USER", "content": [{"text": text}]});
    let prompt = format!("{JSON} -d '{}'", json!({ "message": message }));
    let mut stream = gateway.follow("/v1/message:stream", &prompt);
    let frames = stream.until("an ask", |frame| interrupt(frame).is_some());
    let asked = frames.last().expect("a frame");
    let update = &asked["statusUpdate"];
    assert_eq!(
        (&update["status"]["state"], &update["final"]),
        (&json!("TASK_STATE_INPUT_REQUIRED"), &json!(false)),
        "{asked:#}"
    );
    let asked = interrupt(asked).expect("an ask");
    assert_eq!((&asked["type"], &asked["phase"]), (&json!("permission"), &json!("asked")), "{asked:#}");
    let request = asked["request_id"].as_str().expect("an ask has an id");
    let ids = [("<request_id>", request)];

    let answered = gateway.run(&example.text, &ids);
    assert_eq!(answered.json()["id"], example.body()["id"]);
    assert_eq!(answered.result(), json!({"ok": true, "request_id": request}));
    let frames = stream.rest();
    let resolved = frames.iter().find(|frame| interrupt(frame).is_some()).expect("the ask is closed");
    let update = &resolved["statusUpdate"];
    assert_eq!(
        (&update["status"]["state"], &update["final"]),
        (&json!("TASK_STATE_WORKING"), &json!(false)),
        "{resolved:#}"
    );
    let resolved = interrupt(resolved).expect("an ask");
    assert_eq!((&resolved["phase"], &resolved["resolution"]), (&json!("resolved"), &json!("replied")));
    let last = &frames.last().expect("a stream has an end")["statusUpdate"];
    assert_eq!((&last["status"]["state"], &last["final"]), (&json!("TASK_STATE_COMPLETED"), &json!(true)));
    assert!(gateway.workspace.join("guarded").exists(), "the command did not run");

    // The ask is closed.
    let again = gateway.run(&example.text, &ids).error();
    assert_eq!(again["data"]["type"], "INTERRUPT_REQUEST_NOT_FOUND", "{again:#}");
}

pub(super) fn a_token_opens(gateway: &mut SeedGateway, example: &Example) {
    let closed = gateway.run(&example.text, &[("<your-token>", "another")]);
    assert_eq!(closed.status, 401, "{closed:#?}");
    let reply = gateway.run(&example.text, &[]);
    let task = sent(gateway, example, &reply);
    task["id"].as_str().expect("a task has an id").clone_into(&mut gateway.rest_task);
}

pub(super) fn a_send_waits(gateway: &mut SeedGateway, example: &Example) {
    let reply = gateway.run(&example.text, &[]);
    assert_eq!(reply.json()["id"], example.body()["id"]);
    let task = reply.result();
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")), "{task:#}");
    let said = task["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_default();
    assert!(said.contains(text_of(&example.body())), "{task:#}");
    // This is the message of the example above: sent twice, it is one task.
    assert_eq!(task["id"], gateway.rest_task);
}

pub(super) fn a_task_is_followed_again(gateway: &mut SeedGateway, example: &Example) {
    gateway.start_endless();
    let path =
        example.calls.strip_prefix("GET ").expect("a request").replace("{task_id}", &gateway.running.0);
    let mut stream = gateway.follow(&path, "-X GET");
    let frames = stream.until("more words", |frame| frame.get("artifactUpdate").is_some());
    assert_eq!(frames[0]["task"]["id"], gateway.running.0, "{frames:#?}");
    let canceled = gateway.ask(&format!("/v1/tasks/{}:cancel", gateway.running.0), "-X POST");
    assert_eq!(canceled.status, 200, "{canceled:#?}");
    let last = stream.rest().pop().expect("a stream has an end");
    assert_eq!(last["statusUpdate"]["final"], true, "{last:#}");
    // A subscription to an ended task returns one snapshot.
    let [snapshot] = gateway.ask(&path, "-X GET").frames().try_into().expect("one frame");
    assert_eq!(snapshot["task"]["status"]["state"], "TASK_STATE_CANCELLED", "{snapshot:#}");
}

pub(super) fn cards_are_where_they_should_be(gateway: &mut SeedGateway) {
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json"] {
        let reply = gateway.ask_with("", path, "");
        let card = reply.json();
        assert_eq!((reply.status, &card["supportsAuthenticatedExtendedCard"]), (200, &json!(true)));
        assert_eq!(card["preferredTransport"], "HTTP+JSON", "{card:#}");
        let offered = card["additionalInterfaces"].as_array().expect("the interfaces of 0.3");
        for transport in ["JSONRPC", "HTTP+JSON"] {
            assert!(offered.contains(&json!({"url": gateway.url, "transport": transport})), "{card:#}");
        }
        let tag = reply.header("etag");
        assert!(tag.starts_with("W/\"") && reply.header("cache-control").starts_with("public"), "{reply:#?}");
        assert_eq!(gateway.ask_with("", path, &format!("-H 'If-None-Match: {tag}'")).status, 304);
    }
    let extended = "/agent/authenticatedExtendedCard";
    assert_eq!(gateway.ask_with("", extended, "").status, 401);
    let plain = gateway.ask(extended, "");
    assert!(plain.body.len() > 8192 && plain.header("cache-control").starts_with("private"));
    let zipped = gateway.ask(extended, "--compressed");
    assert_eq!((zipped.header("content-encoding"), zipped.body == plain.body), ("gzip", true));
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard"}"#;
    let called = gateway.ask("/", &format!("{JSON} -d '{call}'")).result();
    assert_eq!(called["name"], plain.json()["name"]);
}

pub(super) fn a_stream_has_chunks_and_an_end(gateway: &mut SeedGateway) {
    for (id, prompt, blocks) in [
        ("thinks", "scn:reason rn=2 n=3", ["reasoning", "text"]),
        ("works", "scn:bash cmd=ls pre=listing scn:text n=3", ["tool_call", "text"]),
    ] {
        let message = json!({"messageId": id, "role": "ROLE_USER", "content": [{"text": prompt}]});
        let arguments = format!("{JSON} -d '{}'", json!({ "message": message }));
        let frames = gateway.ask("/v1/message:stream", &arguments).frames();
        let updates: Vec<&Value> = frames.iter().filter_map(|frame| frame.get("artifactUpdate")).collect();
        let (last, updates) = updates.split_last().expect("a stream has chunks");
        assert_eq!((&last["lastChunk"], &last["append"]), (&json!(true), &json!(true)), "{last:#}");
        assert!(updates.iter().all(|update| update["lastChunk"] == false), "{frames:#?}");
        let chunks: Vec<&Value> = updates.iter().map(|update| &update["artifact"]).collect();
        let hints: Vec<&Value> = chunks.iter().map(|chunk| &chunk["metadata"]["shared"]["stream"]).collect();
        for block in blocks {
            assert!(hints.iter().any(|hint| hint["block_type"] == block), "no {block} in {frames:#?}");
        }
        // All chunks belong to one artifact, and are ordered.
        assert!(chunks.iter().all(|chunk| chunk["artifactId"] == chunks[0]["artifactId"]), "{frames:#?}");
        let order: Vec<u64> = hints.iter().filter_map(|hint| hint["sequence"].as_u64()).collect();
        assert!(order.len() == hints.len() && order.is_sorted(), "{frames:#?}");
        assert!(hints.iter().all(|hint| hint["event_id"].is_string() && hint["message_id"].is_string()));
        let last = &frames.last().expect("a stream has an end")["statusUpdate"];
        assert_eq!(last["final"], true, "{last:#}");
        assert!(last["metadata"]["shared"]["usage"]["total_tokens"].is_number(), "{last:#}");
    }
}

pub(super) fn only_cards_are_public(gateway: &mut SeedGateway) {
    for path in ["/", "/v1/tasks", "/health", "/v1/card"] {
        let reply = gateway.ask_with("", path, "");
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, "Bearer"), "{path}");
    }
    let large = gateway.workspace.join("large");
    std::fs::write(&large, vec![b' '; 11_000_000]).expect("a file can be written");
    let arguments = format!("{JSON} --data-binary '@{}'", large.display());
    assert_eq!(gateway.ask("/v1/message:send", &arguments).status, 413);
    std::fs::remove_file(large).expect("a file can be removed");
}

pub(super) fn versions_are_negotiated(gateway: &mut SeedGateway) {
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": {"id": "none"}});
    let call = &format!("{JSON} -d '{call}'");
    for (path, arguments, line) in [
        ("/v1/tasks", "", "0.3"),
        ("/v1/tasks", "-H 'A2A-Version: 0.3'", "0.3"),
        ("/v1/tasks?A2A-Version=0.3.0", "", "0.3"),
        ("/tasks", "-H 'A2A-Version: 1.0'", "1.0"),
        ("/tasks?A2A-Version=1.0.4", "", "1.0"),
        ("/", call, "0.3"),
    ] {
        let reply = gateway.ask(path, arguments);
        assert_eq!((reply.status, reply.header("a2a-version")), (200, line), "{path} {arguments}");
    }
    // The errors of the versions: an object with a type, or a list of details.
    let old = gateway.ask("/", call).error();
    assert_eq!(old["data"]["type"], "TASK_NOT_FOUND", "{old:#}");
    let new =
        gateway.call(r#"{"jsonrpc":"2.0","id":7,"method":"GetTask","params":{"id":"none"}}"#, &[]).error();
    assert_eq!(new["data"][0]["reason"], "TASK_NOT_FOUND", "{new:#}");
    let flat = gateway.ask("/v1/tasks/none", "").json();
    assert_eq!((&flat["type"], flat["message"].is_string()), (&json!("TASK_NOT_FOUND"), true), "{flat:#}");
    let nested = gateway.ask("/tasks/none", "").json();
    assert_eq!(nested["error"]["details"][0]["reason"], "TASK_NOT_FOUND", "{nested:#}");
    // An unsupported version is refused before anything else is checked.
    let unknown = "-H 'A2A-Version: 9.9'";
    let rpc = gateway.ask("/", &format!("{unknown} {call}")).error()["data"].take();
    let rest = gateway.ask("/v1/no/such/path", unknown);
    assert_eq!(rest.status, 400, "{rest:#?}");
    for said in [rpc, rest.json()] {
        assert_eq!(said["type"], "VERSION_NOT_SUPPORTED", "{said:#}");
        assert_eq!(said["requested_version"], "9.9", "{said:#}");
        assert_eq!(said["default_protocol_version"], "0.3", "{said:#}");
        let mut versions: Vec<&str> = said["supported_protocol_versions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        versions.sort_unstable();
        assert_eq!(versions, ["0.3", "1.0"], "{said:#}");
    }
}

pub(super) fn health_has_the_profile(gateway: &mut SeedGateway) {
    let health = gateway.ask("/health", "").json();
    let profile = &health["profile"];
    assert_eq!(profile["profile_id"], "opencode-a2a-single-tenant-coding-v1");
    assert_eq!(
        profile["deployment"],
        json!({"id": "single_tenant_shared_workspace", "single_tenant": true,
            "shared_workspace_across_consumers": true, "tenant_isolation": "none"})
    );
    let features = &profile["runtime_features"];
    for (pointer, value) in [
        ("/directory_binding/allow_override", json!(true)),
        ("/directory_binding/scope", json!("workspace_root_or_descendant")),
        ("/session_shell/enabled", json!(true)),
        ("/session_shell/availability", json!("enabled")),
        ("/execution_environment/sandbox/mode", json!("unknown")),
        ("/execution_environment/network/access", json!("unknown")),
        ("/execution_environment/approval/policy", json!("unknown")),
        ("/execution_environment/write_access/scope", json!("unknown")),
        ("/service_features/streaming/enabled", json!(true)),
        ("/service_features/health_endpoint/enabled", json!(true)),
    ] {
        assert_eq!(features.pointer(pointer), Some(&value), "{pointer} of {features:#}");
    }
    // Declared only if it was configured.
    assert_eq!(features.pointer("/execution_environment/sandbox/writable_roots"), None);
}

pub(super) fn canceling_again_gives_the_task(gateway: &mut SeedGateway) {
    gateway.start_endless();
    let params = json!({"id": gateway.running.0});
    let call = json!({"jsonrpc": "2.0", "id": 8, "method": "tasks/cancel", "params": params});
    let call = format!("{JSON} -d '{call}'");
    for _ in 0..2 {
        let task = gateway.ask("/", &call).result();
        assert_eq!((&task["id"], &task["status"]["state"]), (&json!(gateway.running.0), &json!("canceled")));
    }
}
