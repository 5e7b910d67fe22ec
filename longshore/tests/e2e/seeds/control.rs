//! Checks for the examples of the guide about sessions, models and workspaces.

use std::time::Instant;

use longshore_demo_model::request::Purpose;
use serde_json::{Value, json};

use super::document::Example;
use super::shell::{Reply, SeedGateway};
use crate::client::PATIENCE;

/// Plays the call with these ids in the session of the examples, and checks the id of its answer.
fn play(gateway: &SeedGateway, example: &Example, ids: &[(&str, &str)]) -> Reply {
    let session = [("<session_id>", gateway.session.as_str())];
    let reply = gateway.run(&example.text, &[ids, &session].concat());
    assert_eq!((reply.status, reply.header("a2a-version")), (200, "0.3"), "{reply:#?}");
    assert_eq!(reply.json()["id"], example.body()["id"], "{reply:#?}");
    reply
}

/// Makes a call that the guide describes in prose.
fn call(gateway: &SeedGateway, method: &str, params: &Value) -> Reply {
    post(gateway, &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
}

fn post(gateway: &SeedGateway, call: &Value) -> Reply {
    gateway.ask("/", &format!("-H 'content-type: application/json' -d '{call}'"))
}

fn items(result: &Value) -> &[Value] {
    result["items"].as_array().unwrap_or_else(|| panic!("no items in {result:#}"))
}

/// The messages of the session of the examples in OpenCode.
fn messages(gateway: &SeedGateway) -> Vec<Value> {
    let found = gateway.upstream(&format!("/session/{}/message", gateway.session));
    found.as_array().expect("a list of messages").clone()
}

fn id_of(message: &Value) -> &str {
    message["info"]["id"].as_str().expect("a message has an id")
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no text at {pointer} in {value:#}"))
}

/// Sends a message for the directory of the examples.
fn send_below(
    gateway: &SeedGateway,
    id: &str,
    words: &str,
    context: Option<&str>,
    is_awaited: bool,
) -> Value {
    let mut message = json!({"kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": words}]});
    if let Some(context) = context {
        message["contextId"] = context.into();
    }
    let params = json!({"message": message, "configuration": {"blocking": is_awaited},
        "metadata": {"opencode": {"directory": "services/api"}}});
    call(gateway, "message/send", &params).result()
}

pub(super) fn the_busy_are_told(gateway: &mut SeedGateway, example: &Example) {
    let below = text(&example.body(), "/params/directory").to_owned();
    std::fs::create_dir_all(gateway.workspace.join(below)).expect("a directory can be made");
    let first = send_below(gateway, "plan", "Be the planner of this harbour.", None, true);
    let context = text(&first, "/contextId").to_owned();
    assert_eq!(play(gateway, example, &[]).result(), json!({"items": []}), "nothing works there");

    let endless = send_below(gateway, "on-and-on", "scn:forever", Some(&context), false);
    let task = text(&endless, "/id").to_owned();
    let mut stream = gateway.follow(&format!("/tasks/{task}:subscribe"), "");
    stream.until("the first words", |frame| frame.get("artifactUpdate").is_some());
    let reported = play(gateway, example, &[]).result();
    let [busy] = items(&reported) else { panic!("one session works there: {reported:#}") };
    assert_eq!(busy["type"], "busy", "{reported:#}");
    text(busy, "/session_id").clone_into(&mut gateway.planner);
    assert_eq!(gateway.ask(&format!("/tasks/{task}:cancel"), "-X POST").status, 200);
}

/// The title comes from the model, some time after the session began.
pub(super) fn sessions_are_listed(gateway: &mut SeedGateway, example: &Example) {
    let deadline = Instant::now() + PATIENCE;
    let reported = loop {
        let reported = play(gateway, example, &[]).result();
        if !items(&reported).is_empty() {
            break reported;
        }
        assert!(Instant::now() < deadline, "the session got no title");
    };
    let [task] = items(&reported) else { panic!("one session of this name: {reported:#}") };
    let context = format!("ctx:opencode-session:{}", gateway.planner);
    assert_eq!(
        (&task["kind"], &task["id"], &task["contextId"]),
        (&json!("task"), &json!(gateway.planner), &json!(context)),
        "{reported:#}"
    );
    assert_eq!(task["metadata"]["shared"]["session"]["id"], gateway.planner, "{reported:#}");
    assert!(text(task, "/metadata/shared/session/title").contains("planner"), "{reported:#}");
}

pub(super) fn messages_are_listed(gateway: &mut SeedGateway, example: &Example) {
    let method = example.calls.as_str();
    let newest = call(gateway, method, &json!({"session_id": gateway.session, "limit": 1})).result();
    let cursor = text(&newest, "/next_cursor").to_owned();
    let older = play(gateway, example, &[("<next_cursor_from_previous_page>", &cursor)]).result();
    assert_eq!(older["next_cursor"], Value::Null, "{older:#}");
    let reported: Vec<&str> =
        items(&older).iter().chain(items(&newest)).map(|reported| text(reported, "/messageId")).collect();
    let all = messages(gateway);
    assert_eq!(reported, all.iter().map(id_of).collect::<Vec<_>>(), "{older:#}");
    let first = &items(&older)[0];
    let context = format!("ctx:opencode-session:{}", gateway.session);
    assert_eq!(
        (&first["kind"], &first["role"], &first["contextId"]),
        (&json!("message"), &json!("user"), &json!(context)),
        "{older:#}"
    );
}

pub(super) fn a_message_is_read(gateway: &mut SeedGateway, example: &Example) {
    let all = messages(gateway);
    let answer = all.last().expect("the session has messages");
    let reported = play(gateway, example, &[("<message_id>", id_of(answer))]).result()["item"].take();
    assert_eq!((&reported["kind"], &reported["role"]), (&json!("message"), &json!("agent")), "{reported:#}");
    assert_eq!(reported["messageId"], id_of(answer));
    let said = answer["parts"].as_array().into_iter().flatten().find(|part| part["type"] == "text");
    assert_eq!(reported["parts"][0]["text"], said.expect("an answer has a text")["text"], "{reported:#}");
}

/// Two examples: a prompt without reply, and a prompt for a sub-agent.
pub(super) fn a_prompt_is_taken(gateway: &mut SeedGateway, example: &Example) {
    let part = example.body()["params"]["request"]["parts"][0].take();
    let mut reported = play(gateway, example, &[]).result();
    assert_eq!(
        (&reported["ok"], &reported["session_id"]),
        (&json!(true), &json!(gateway.session)),
        "{reported:#}"
    );
    if part["type"] == "text" {
        assert_eq!(reported, json!({"ok": true, "session_id": gateway.session}));
        let said = messages(gateway).pop().expect("the session has messages");
        assert_eq!((&said["info"]["role"], &said["parts"][0]["text"]), (&json!("user"), &part["text"]));
        let model = json!({"providerID": "google", "modelID": "gemini-2.5-flash"});
        assert_eq!(said["info"]["model"], model, "{said:#}");
        let turns = gateway.model.journal().turns();
        assert!(!turns.iter().any(|turn| turn.prompt.contains(text(&part, "/text"))), "the model was asked");
        return;
    }
    let task = reported["task_id"].take();
    let task = gateway.finished(task.as_str().expect("such a prompt is a task"));
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task:#}");
    let turns = gateway.model.journal().turns();
    let asked = turns.iter().find(|turn| turn.prompt.contains(text(&part, "/prompt")));
    let asked = asked.unwrap_or_else(|| panic!("the sub-agent was not asked: {turns:#?}"));
    assert_eq!(asked.parent_session.as_deref(), Some(gateway.session.as_str()), "{asked:#?}");
}

/// The name of the command begins with a slash.
pub(super) fn a_command_is_run(gateway: &mut SeedGateway, example: &Example) {
    let reported = play(gateway, example, &[]).result();
    let answer = &reported["item"];
    assert_eq!((&answer["kind"], &answer["role"]), (&json!("message"), &json!("agent")), "{reported:#}");
    let arguments = example.body()["params"]["request"]["arguments"].take();
    let arguments = arguments.as_str().expect("the command has arguments");
    assert!(text(answer, "/parts/0/text").contains(arguments), "{reported:#}");
    let turns = gateway.model.journal().turns();
    let asked = turns.iter().rev().find(|turn| turn.prompt.contains(arguments)).expect("the model was asked");
    assert_eq!(asked.model, "gemini-2.5-flash");
    assert!(asked.prompt.contains("Review this harbour"), "not the template of the command: {asked:#?}");
}

pub(super) fn a_session_is_forked(gateway: &mut SeedGateway, example: &Example) {
    let all = messages(gateway);
    let is_user = |message: &&Value| message["info"]["role"] == "user";
    let second = all.iter().filter(is_user).nth(1).expect("the session was prompted twice");
    let fork = play(gateway, example, &[("<message_id>", id_of(second))]).result()["item"].take();
    assert_ne!(fork["id"], gateway.session);
    assert!(text(&fork, "/title").contains("fork"), "{fork:#}");
    // The fork has the messages before this one, and belongs to the caller.
    let copied =
        call(gateway, "opencode.sessions.messages.list", &json!({"session_id": fork["id"]})).result();
    let before = all.iter().position(|message| id_of(message) == id_of(second)).expect("it is one of them");
    assert_eq!(items(&copied).len(), before, "{copied:#}");
}

/// The caller chooses the model, and the turn continues afterwards.
pub(super) fn a_session_is_summarized(gateway: &mut SeedGateway, example: &Example) {
    let reported = play(gateway, example, &[]).result();
    assert_eq!(reported, json!({"ok": true, "session_id": gateway.session}));
    let entries = gateway.model.journal().entries();
    let summary = entries.iter().find(|entry| entry.purpose == Purpose::Summary);
    assert_eq!(summary.expect("the model was asked for a summary").model, "gpt-5");
    let asked = entries.last().expect("an entry");
    assert_eq!((asked.purpose, asked.session.as_str()), (Purpose::Turn, gateway.session.as_str()));
}

pub(super) fn a_session_is_reverted(gateway: &mut SeedGateway, example: &Example) {
    // The part after the text of the first message: earlier parts stay.
    let all = messages(gateway);
    let (message, part) = (id_of(&all[0]), text(&all[0], "/parts/1/id"));
    let reported = play(gateway, example, &[("<message_id>", message), ("<part_id>", part)]).result();
    let item = &reported["item"];
    assert_eq!(item["id"], gateway.session, "{reported:#}");
    let revert = &item["revert"];
    assert_eq!((&revert["message_id"], &revert["part_id"]), (&json!(message), &json!(part)), "{reported:#}");
    let back = call(gateway, "opencode.sessions.unrevert", &json!({"session_id": gateway.session})).result();
    assert_eq!(
        (&back["item"]["id"], back["item"].get("revert")),
        (&json!(gateway.session), None),
        "{back:#}"
    );
}

/// An OpenCode without network access shares nothing.
pub(super) fn sharing_is_refused_offline(gateway: &mut SeedGateway, example: &Example) {
    let error = play(gateway, example, &[]).error();
    assert_eq!((&error["code"], &error["data"]["type"]), (&json!(-32003), &json!("UPSTREAM_HTTP_ERROR")));
    assert_eq!(error["data"]["upstream_status"], 500, "{error:#}");
    let reported =
        call(gateway, "opencode.sessions.unshare", &json!({"session_id": gateway.session})).result();
    assert_eq!((&reported["item"]["id"], reported["item"].get("share_url")), (&json!(gateway.session), None));
}

pub(super) fn a_shell_is_used(gateway: &mut SeedGateway, example: &Example) {
    let reported = play(gateway, example, &[]).result();
    let printed = &reported["item"];
    assert_eq!((&printed["kind"], &printed["role"]), (&json!("message"), &json!("agent")), "{reported:#}");
    assert!(text(printed, "/parts/0/text").contains("?? report.pdf"), "{reported:#}");
}

pub(super) fn providers_are_listed(gateway: &mut SeedGateway, example: &Example) {
    let reply = play(gateway, example, &[]);
    assert!(!reply.body.contains("none-needed"), "the answer contains the key of a provider");
    let reported = reply.result();
    for id in ["demo", "google", "openai"] {
        assert!(reported["connected"].as_array().expect("a list").contains(&json!(id)), "{reported:#}");
        let provider = items(&reported).iter().find(|provider| provider["provider_id"] == id);
        let provider = provider.unwrap_or_else(|| panic!("{id} is not in {reported:#}"));
        assert_eq!(provider["connected"], true, "{reported:#}");
        assert_eq!(provider["default_model_id"], reported["default_by_provider"][id], "{reported:#}");
    }
}

pub(super) fn models_are_listed(gateway: &mut SeedGateway, example: &Example) {
    let reported = play(gateway, example, &[]).result();
    assert!(items(&reported).iter().all(|model| model["provider_id"] == "openai"), "{reported:#}");
    let model = items(&reported).iter().find(|model| model["model_id"] == "gpt-5");
    let model = model.unwrap_or_else(|| panic!("the model is not in {reported:#}"));
    assert_eq!(
        (&model["connected"], &model["context_window"], &model["supports_tool_call"]),
        (&json!(true), &json!(200_000), &json!(true)),
        "{model:#}"
    );
    assert!(reported["default_by_provider"].is_object() && reported["connected"].is_array(), "{reported:#}");
}

pub(super) fn the_project_is_told(gateway: &mut SeedGateway, example: &Example) {
    let reported = play(gateway, example, &[]).result();
    let workspace = gateway.workspace.display().to_string();
    assert_eq!(
        (&reported["item"]["vcs"], &reported["item"]["worktree"]),
        (&json!("git"), &json!(workspace)),
        "{reported:#}"
    );
    let all = call(gateway, "opencode.projects.list", &json!({})).result();
    assert!(items(&all).iter().any(|project| project["id"] == reported["item"]["id"]), "{all:#}");
}

/// The current OpenCode has no such type.
pub(super) fn a_workspace_of_git_is_refused(gateway: &mut SeedGateway, example: &Example) {
    let error = play(gateway, example, &[]).error();
    assert_eq!((&error["code"], &error["data"]["type"]), (&json!(-32003), &json!("UPSTREAM_HTTP_ERROR")));
    assert_eq!(error["data"]["upstream_status"], 400, "{error:#}");
    assert!(text(&error, "/data/detail").contains("git"), "{error:#}");
    let all = call(gateway, "opencode.workspaces.list", &json!({})).result();
    assert_eq!(all, json!({"items": []}));
}

pub(super) fn a_worktree_is_reset(gateway: &mut SeedGateway, example: &Example) {
    let made = call(gateway, "opencode.worktrees.create", &json!({"request": {"name": "api"}})).result();
    let directory = text(&made, "/item/directory").to_owned();
    let all = call(gateway, "opencode.worktrees.list", &json!({})).result();
    assert!(items(&all).contains(&json!(directory)), "{all:#}");
    let file = std::path::Path::new(&directory).join("left-over.txt");
    std::fs::write(&file, "what was tried\n").expect("the worktree is there");

    let example_path = text(&example.body(), "/params/request/directory").to_owned();
    let reported = play(gateway, example, &[(&example_path, &directory)]).result();
    assert_eq!(reported, json!({"ok": true}));
    assert!(!file.exists(), "the worktree was not reset");

    let which = json!({"request": {"directory": directory}});
    assert_eq!(call(gateway, "opencode.worktrees.remove", &which).result(), json!({"ok": true}));
    assert!(!std::path::Path::new(&directory).exists(), "the worktree was not removed");
}

/// A notification has no answer, and its change is made; pages have a maximum size.
pub(super) fn notifications_and_limits(gateway: &mut SeedGateway) {
    let session = gateway.session.clone();
    let request = json!({"parts": [{"type": "text", "text": "Nobody answers this."}], "noReply": true});
    for (method, params) in [
        ("opencode.sessions.list", json!({})),
        ("opencode.sessions.prompt_async", json!({"session_id": session, "request": request})),
    ] {
        let reply = post(gateway, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
        assert_eq!((reply.status, reply.body.as_str()), (204, ""), "{method}");
    }
    let deadline = Instant::now() + PATIENCE;
    while messages(gateway).last().is_none_or(|last| last["parts"][0]["text"] != "Nobody answers this.") {
        assert!(Instant::now() < deadline, "what was said without an id was not said");
    }
    let error = call(gateway, "opencode.sessions.list", &json!({"limit": 101})).error();
    assert_eq!(error["code"], -32602, "{error:#}");
    assert!(error.to_string().contains("limit"), "{error:#}");
}
