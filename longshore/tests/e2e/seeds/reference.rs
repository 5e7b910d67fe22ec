//! Checks for the examples of the reference. It is about A2A 1.0 over JSON-RPC.

use serde_json::{Value, json};

use super::document::Example;
use super::shell::{Reply, SeedGateway};

const OVER: &str = "TASK_STATE_COMPLETED";

/// The message of the call or of the task, without the fields that the server adds.
fn sent(message: &Value) -> (&Value, &Value, &Value, &Value) {
    (&message["messageId"], &message["role"], &message["parts"], &message["metadata"])
}

/// Plays the call with these ids, and checks the id of its answer.
fn play(gateway: &SeedGateway, example: &Example, ids: &[(&str, &str)]) -> Reply {
    let reply = gateway.call(&example.text, ids);
    assert_eq!((reply.status, reply.header("a2a-version")), (200, "1.0"), "{reply:#?}");
    assert_eq!(reply.json()["id"], example.body()["id"], "{reply:#?}");
    reply
}

pub(super) fn the_card_is_found(gateway: &mut SeedGateway, example: &Example) {
    let path = example.calls.strip_prefix("GET ").expect("a request");
    let reply = gateway.ask(path, "-X GET");
    let card = reply.json();
    let first = &card["supportedInterfaces"][0];
    assert_eq!(
        *first,
        json!({"url": gateway.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}),
        "{card:#}"
    );
    let capabilities = &card["capabilities"];
    assert_eq!(
        (&capabilities["streaming"], &capabilities["pushNotifications"], &capabilities["extendedAgentCard"]),
        (&json!(true), &json!(true), &json!(true))
    );
    for mode in [
        "text/plain",
        "application/json",
        "application/yaml",
        "image/png",
        "audio/wav",
        "application/octet-stream",
    ] {
        let modes = card["defaultInputModes"].as_array().expect("input modes");
        assert!(modes.contains(&json!(mode)), "{mode} is not in {modes:?}");
    }
    // Longshore also returns structured tool calls.
    assert_eq!(card["defaultOutputModes"][0], "text/plain");
    assert!(card["securitySchemes"]["bearerAuth"].is_object(), "{card:#}");
    // The card of Longshore may be cached longer.
    assert!(reply.header("cache-control").starts_with("public, max-age="), "{reply:#?}");
    assert!(!reply.header("last-modified").is_empty(), "{reply:#?}");
    let known = format!("-H 'If-None-Match: {}'", reply.header("etag"));
    assert_eq!(gateway.ask(path, &known).status, 304);
}

pub(super) fn a_message_is_sent(gateway: &mut SeedGateway, example: &Example) {
    let workspace = gateway.workspace.to_str().expect("a path of a test is UTF-8").to_owned();
    let task = play(gateway, example, &[]).result()["task"].take();
    assert_eq!(task["status"]["state"], OVER, "{task:#}");
    let mut message = example.body()["params"]["message"].take();
    message["metadata"]["iac_code"]["cwd"] = workspace.into();
    assert_eq!(sent(&task["history"][0]), sent(&message));
    gateway.ended = task;
}

pub(super) fn a_message_is_streamed(gateway: &mut SeedGateway, example: &Example) {
    let reply = gateway.call(&example.text, &[]);
    assert_eq!(reply.header("a2a-version"), "1.0");
    let frames = reply.frames();
    assert!(frames.iter().all(|frame| frame["jsonrpc"] == "2.0" && frame["id"] == example.body()["id"]));
    let frames: Vec<Value> = frames.into_iter().map(|mut frame| frame["result"].take()).collect();
    assert!(frames[0]["task"]["id"].is_string(), "{frames:#?}");
    let last = frames.last().expect("a stream has an end");
    assert_eq!(last["statusUpdate"]["status"]["state"], OVER, "{frames:#?}");
    gateway.streamed = frames;
}

pub(super) fn a_task_is_read(gateway: &mut SeedGateway, example: &Example) {
    let id = gateway.ended["id"].as_str().expect("a task has an id");
    let task = play(gateway, example, &[("task-id", id)]).result();
    assert_eq!(task, gateway.ended);
    assert!(task["history"].as_array().is_some_and(|history| (1..=10).contains(&history.len())), "{task:#}");
}

pub(super) fn tasks_are_listed(gateway: &mut SeedGateway, example: &Example) {
    gateway.start_endless();
    let page = play(gateway, example, &[("ctx-id", &gateway.running.1)]).result();
    let [task] = page["tasks"].as_array().expect("a list").as_slice() else { panic!("one task: {page:#}") };
    assert_eq!(task["id"], gateway.running.0);
    assert_eq!(task["status"]["state"], example.body()["params"]["status"]);
    assert_eq!((task.get("artifacts"), &page["nextPageToken"]), (None, &json!("")), "{page:#}");
}

pub(super) fn a_task_is_canceled(gateway: &mut SeedGateway, example: &Example) {
    let ids = [("task-id", gateway.running.0.as_str())];
    let task = play(gateway, example, &ids).result();
    assert_eq!(
        (&task["id"], &task["status"]["state"]),
        (&json!(gateway.running.0), &json!("TASK_STATE_CANCELED"))
    );
    let error = play(gateway, example, &ids).error();
    assert_eq!(
        (&error["code"], &error["data"][0]["reason"]),
        (&json!(-32002), &json!("TASK_NOT_CANCELABLE"))
    );
}

pub(super) fn a_task_is_subscribed_to(gateway: &mut SeedGateway, example: &Example) {
    gateway.start_endless();
    let ids = [("task-id", gateway.running.0.as_str())];
    let mut stream = gateway.open(&example.text, &ids);
    let frames = stream.until("more words", |frame| frame["result"].get("artifactUpdate").is_some());
    assert_eq!(frames[0]["result"]["task"]["id"], gateway.running.0, "{frames:#?}");
    let canceled = gateway.ask(&format!("/tasks/{}:cancel", gateway.running.0), "-X POST");
    assert_eq!(canceled.status, 200, "{canceled:#?}");
    let last = stream.rest().pop().expect("a stream has an end");
    assert_eq!(last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "{last:#}");
    // The error of the specification for an ended task; the reference has the error for an unknown task.
    let over = play(gateway, example, &ids).error();
    assert_eq!(
        (&over["code"], &over["data"][0]["reason"]),
        (&json!(-32004), &json!("UNSUPPORTED_OPERATION"))
    );
    let unknown = play(gateway, example, &[]).error();
    assert_eq!((&unknown["code"], &unknown["data"][0]["reason"]), (&json!(-32001), &json!("TASK_NOT_FOUND")));
}

/// The configuration is stored, and shown without its secrets.
pub(super) fn push_is_registered(gateway: &mut SeedGateway, example: &Example) {
    let id = gateway.ended["id"].as_str().expect("a task has an id");
    let result = play(gateway, example, &[("task-id", id)]).result();
    assert_eq!(
        result,
        json!({
            "taskId": id,
            "id": "webhook-1",
            "url": "https://hooks.example.com/a2a",
            "authentication": {"scheme": "bearer"},
        })
    );
}

pub(super) fn the_extended_card_is_given(gateway: &mut SeedGateway, example: &Example) {
    let extended = play(gateway, example, &[]).result();
    let public = gateway.ask("/.well-known/agent-card.json", "-H 'A2A-Version: 1.0'").json();
    for (field, value) in public.as_object().expect("a card is an object") {
        let more = &extended[field];
        assert!(
            more == value || ["description", "capabilities", "skills"].contains(&field.as_str()),
            "{field}: {more:#}"
        );
    }
    let length = |card: &Value| card["capabilities"]["extensions"].to_string().len();
    assert!(length(&extended) > length(&public), "it has no more than the public card");
    let closed = gateway.ask_with("", "/extendedAgentCard", "");
    assert_eq!(closed.status, 401, "{closed:#?}");
}

/// Everything but the text, which Longshore sends as an artifact.
pub(super) fn updates_have_the_shape(gateway: &mut SeedGateway, example: &Example) {
    let shown = example.body()["statusUpdate"].take();
    let is_working = |frame: &&Value| frame["statusUpdate"]["status"]["state"] == shown["status"]["state"];
    let update =
        &gateway.streamed.iter().find(is_working).expect("a task that works says so")["statusUpdate"];
    for field in shown.as_object().expect("an update is an object").keys() {
        assert!(update.get(field).is_some(), "{field} is not in {update:#}");
    }
    let mut texts =
        gateway.streamed.iter().filter_map(|frame| frame.pointer("/artifactUpdate/artifact/parts/0/text"));
    assert!(texts.any(|text| text.as_str().is_some_and(|text| !text.is_empty())), "{:#?}", gateway.streamed);
}

pub(super) fn the_card_has_the_extension(gateway: &mut SeedGateway, example: &Example) {
    let card = gateway.ask("/.well-known/agent-card.json", "").json();
    let extensions = card["capabilities"]["extensions"].as_array().expect("extensions");
    let found = extensions.iter().find(|extension| extension["uri"] == example.text);
    let found = found.unwrap_or_else(|| panic!("{} is not in {card:#}", example.text));
    if example.text.contains("thinking") {
        assert!(found["params"]["enabledTypes"].is_array(), "{found:#}");
    }
}

/// The status has the spelling of the other seed.
pub(super) fn health_is_served(gateway: &mut SeedGateway) {
    let reply = gateway.ask("/health", "");
    assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("ok")));
}

fn message(fields: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"SendMessage","params":{{"message":{{"role":"ROLE_USER",{fields}}}}}}}"#
    )
}

pub(super) fn a_context_keeps_its_conversation(gateway: &mut SeedGateway) {
    let context = gateway.ended["contextId"].as_str().expect("a task has a context").to_owned();
    let ids = [("ctx-id", context.as_str())];
    let text = |id: &str, more: &str| {
        message(&format!(
            r#""messageId":"{id}","contextId":"ctx-id","parts":[{{"text":"scn:text n=2"}}]{more}"#
        ))
    };
    let task = gateway.call(&text("again", ""), &ids).result()["task"].take();
    assert_eq!((&task["contextId"], &task["status"]["state"]), (&json!(context), &json!(OVER)), "{task:#}");
    assert!(task["id"] != gateway.ended["id"]);
    let turns = gateway.model.journal().turns();
    assert!(
        turns.last().is_some_and(|turn| turn.user_messages == 2),
        "the model does not know the first message"
    );
    // A context keeps its directory.
    let elsewhere = text("elsewhere", r#","metadata":{"iac_code":{"cwd":"/path/inside/workspace"}}"#);
    let error = gateway.call(&elsewhere, &ids).error();
    assert_eq!(error["code"], -32602, "{error:#}");
}

pub(super) fn what_is_wrong_is_refused(gateway: &mut SeedGateway) {
    for (id, part) in [
        ("no-text", r#"{"text":""}"#),
        ("remote", r#"{"url":"https://example.com/a.txt","mediaType":"text/plain"}"#),
        ("outside", r#"{"url":"file:///etc/hostname","mediaType":"text/plain"}"#),
        ("kind", r#"{"raw":"AAAA","mediaType":"video/unheard-of"}"#),
    ] {
        let error = gateway.call(&message(&format!(r#""messageId":"{id}","parts":[{part}]"#)), &[]).error();
        let expected = if id == "kind" { -32005 } else { -32602 };
        assert_eq!(error["code"], expected, "{id}: {error:#}");
        assert!(
            !error.to_string().contains(gateway.workspace.to_str().unwrap_or_default()),
            "{id}: {error:#}"
        );
    }
    let lost = r#","metadata":{"iac_code":{"cwd":"/absolute/path/to/project/nowhere"}}"#;
    let lost = message(&format!(r#""messageId":"lost","parts":[{{"text":"hi"}}]{lost}"#));
    assert_eq!(gateway.call(&lost, &[]).error()["code"], -32602);
    // The reference has its own word; Longshore uses the error of the version.
    let closed = gateway.ask_with("another", "/tasks", "");
    assert_eq!((closed.status, &closed.json()["error"]["status"]), (401, &json!("UNAUTHENTICATED")));
}
