//! What the guide says of its examples for OpenCode's sessions, models and places.

use std::time::Instant;

use longshore_demo_model::request::Purpose;
use serde_json::{Value, json};

use super::document::Example;
use super::shell::{Reply, Stage};
use crate::client::PATIENCE;

/// Plays the call with these ids, in the session of the examples, and holds the id of its answer against it.
fn play(stage: &Stage, example: &Example, ids: &[(&str, &str)]) -> Reply {
    let session = [("<session_id>", stage.session.as_str())];
    let reply = stage.run(&example.text, &[ids, &session].concat());
    assert_eq!((reply.status, reply.header("a2a-version")), (200, "0.3"), "{reply:#?}");
    assert_eq!(reply.json()["id"], example.body()["id"], "{reply:#?}");
    reply
}

/// A call that the guide has in words.
fn call(stage: &Stage, method: &str, params: &Value) -> Reply {
    post(stage, &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
}

fn post(stage: &Stage, call: &Value) -> Reply {
    stage.ask("/", &format!("-H 'content-type: application/json' -d '{call}'"))
}

fn items(result: &Value) -> &[Value] {
    result["items"].as_array().unwrap_or_else(|| panic!("no items in {result:#}"))
}

/// The messages of the session of the examples, as OpenCode has them.
fn messages(stage: &Stage) -> Vec<Value> {
    let found = stage.upstream(&format!("/session/{}/message", stage.session));
    found.as_array().expect("a list of messages").clone()
}

fn id_of(message: &Value) -> &str {
    message["info"]["id"].as_str().expect("a message has an id")
}

fn text<'a>(value: &'a Value, place: &str) -> &'a str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_else(|| panic!("no text at {place} in {value:#}"))
}

/// Sends a message to be answered in the directory that the examples name.
fn send_below(stage: &Stage, id: &str, words: &str, context: Option<&str>, is_awaited: bool) -> Value {
    let mut message = json!({"kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": words}]});
    if let Some(context) = context {
        message["contextId"] = context.into();
    }
    let params = json!({"message": message, "configuration": {"blocking": is_awaited},
        "metadata": {"opencode": {"directory": "services/api"}}});
    call(stage, "message/send", &params).result()
}

pub(super) fn the_busy_are_told(stage: &mut Stage, example: &Example) {
    let below = text(&example.body(), "/params/directory").to_owned();
    std::fs::create_dir_all(stage.workspace.join(below)).expect("a directory can be made");
    let first = send_below(stage, "plan", "Be the planner of this harbour.", None, true);
    let context = text(&first, "/contextId").to_owned();
    assert_eq!(play(stage, example, &[]).result(), json!({"items": []}), "nothing works there");

    let endless = send_below(stage, "on-and-on", "scn:forever", Some(&context), false);
    let task = text(&endless, "/id").to_owned();
    let mut stream = stage.follow(&format!("/tasks/{task}:subscribe"), "");
    stream.until("the first words", |frame| frame.get("artifactUpdate").is_some());
    let told = play(stage, example, &[]).result();
    let [busy] = items(&told) else { panic!("one session works there: {told:#}") };
    assert_eq!(busy["type"], "busy", "{told:#}");
    text(busy, "/session_id").clone_into(&mut stage.planner);
    assert_eq!(stage.ask(&format!("/tasks/{task}:cancel"), "-X POST").status, 200);
}

/// The title is OpenCode's, which has it from its model some time after the session began.
pub(super) fn sessions_are_listed(stage: &mut Stage, example: &Example) {
    let deadline = Instant::now() + PATIENCE;
    let told = loop {
        let told = play(stage, example, &[]).result();
        if !items(&told).is_empty() {
            break told;
        }
        assert!(Instant::now() < deadline, "the session got no title");
    };
    let [task] = items(&told) else { panic!("one session of this name: {told:#}") };
    let context = format!("ctx:opencode-session:{}", stage.planner);
    assert_eq!(
        (&task["kind"], &task["id"], &task["contextId"]),
        (&json!("task"), &json!(stage.planner), &json!(context)),
        "{told:#}"
    );
    assert_eq!(task["metadata"]["shared"]["session"]["id"], stage.planner, "{told:#}");
    assert!(text(task, "/metadata/shared/session/title").contains("planner"), "{told:#}");
}

pub(super) fn messages_are_listed(stage: &mut Stage, example: &Example) {
    let method = example.calls.as_str();
    let newest = call(stage, method, &json!({"session_id": stage.session, "limit": 1})).result();
    let cursor = text(&newest, "/next_cursor").to_owned();
    let older = play(stage, example, &[("<next_cursor_from_previous_page>", &cursor)]).result();
    assert_eq!(older["next_cursor"], Value::Null, "{older:#}");
    let told: Vec<&str> =
        items(&older).iter().chain(items(&newest)).map(|told| text(told, "/messageId")).collect();
    let all = messages(stage);
    assert_eq!(told, all.iter().map(id_of).collect::<Vec<_>>(), "{older:#}");
    let first = &items(&older)[0];
    let context = format!("ctx:opencode-session:{}", stage.session);
    assert_eq!(
        (&first["kind"], &first["role"], &first["contextId"]),
        (&json!("message"), &json!("user"), &json!(context)),
        "{older:#}"
    );
}

pub(super) fn a_message_is_read(stage: &mut Stage, example: &Example) {
    let all = messages(stage);
    let answer = all.last().expect("the session has messages");
    let told = play(stage, example, &[("<message_id>", id_of(answer))]).result()["item"].take();
    assert_eq!((&told["kind"], &told["role"]), (&json!("message"), &json!("agent")), "{told:#}");
    assert_eq!(told["messageId"], id_of(answer));
    let said = answer["parts"].as_array().into_iter().flatten().find(|part| part["type"] == "text");
    assert_eq!(told["parts"][0]["text"], said.expect("an answer has a text")["text"], "{told:#}");
}

/// Two examples: words that nobody answers, and work for a sub-agent.
pub(super) fn a_prompt_is_taken(stage: &mut Stage, example: &Example) {
    let part = example.body()["params"]["request"]["parts"][0].take();
    let mut told = play(stage, example, &[]).result();
    assert_eq!((&told["ok"], &told["session_id"]), (&json!(true), &json!(stage.session)), "{told:#}");
    if part["type"] == "text" {
        assert_eq!(told, json!({"ok": true, "session_id": stage.session}));
        let said = messages(stage).pop().expect("the session has messages");
        assert_eq!((&said["info"]["role"], &said["parts"][0]["text"]), (&json!("user"), &part["text"]));
        let model = json!({"providerID": "google", "modelID": "gemini-2.5-flash"});
        assert_eq!(said["info"]["model"], model, "{said:#}");
        let turns = stage.model.journal().turns();
        assert!(!turns.iter().any(|turn| turn.prompt.contains(text(&part, "/text"))), "the model was asked");
        return;
    }
    let task = told["task_id"].take();
    let task = stage.finished(task.as_str().expect("such a prompt is a task"));
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task:#}");
    let turns = stage.model.journal().turns();
    let asked = turns.iter().find(|turn| turn.prompt.contains(text(&part, "/prompt")));
    let asked = asked.unwrap_or_else(|| panic!("the sub-agent was not asked: {turns:#?}"));
    assert_eq!(asked.parent_session.as_deref(), Some(stage.session.as_str()), "{asked:#?}");
}

/// Its name has a slash before it, as one would type it.
pub(super) fn a_command_is_run(stage: &mut Stage, example: &Example) {
    let told = play(stage, example, &[]).result();
    let answer = &told["item"];
    assert_eq!((&answer["kind"], &answer["role"]), (&json!("message"), &json!("agent")), "{told:#}");
    let arguments = example.body()["params"]["request"]["arguments"].take();
    let arguments = arguments.as_str().expect("the command has arguments");
    assert!(text(answer, "/parts/0/text").contains(arguments), "{told:#}");
    let turns = stage.model.journal().turns();
    let asked = turns.iter().rev().find(|turn| turn.prompt.contains(arguments)).expect("the model was asked");
    assert_eq!(asked.model, "gemini-2.5-flash");
    assert!(asked.prompt.contains("Review this harbour"), "not the template of the command: {asked:#?}");
}

pub(super) fn a_session_is_forked(stage: &mut Stage, example: &Example) {
    let all = messages(stage);
    let is_user = |message: &&Value| message["info"]["role"] == "user";
    let second = all.iter().filter(is_user).nth(1).expect("the session was prompted twice");
    let fork = play(stage, example, &[("<message_id>", id_of(second))]).result()["item"].take();
    assert_ne!(fork["id"], stage.session);
    assert!(text(&fork, "/title").contains("fork"), "{fork:#}");
    // It has what came before that message, and is the caller's.
    let copied = call(stage, "opencode.sessions.messages.list", &json!({"session_id": fork["id"]})).result();
    let before = all.iter().position(|message| id_of(message) == id_of(second)).expect("it is one of them");
    assert_eq!(items(&copied).len(), before, "{copied:#}");
}

/// By a model of the caller's choice, and then the work goes on.
pub(super) fn a_session_is_summarized(stage: &mut Stage, example: &Example) {
    let told = play(stage, example, &[]).result();
    assert_eq!(told, json!({"ok": true, "session_id": stage.session}));
    let entries = stage.model.journal().entries();
    let summary = entries.iter().find(|entry| entry.purpose == Purpose::Summary);
    assert_eq!(summary.expect("the model was asked for a summary").model, "gpt-5");
    let asked = entries.last().expect("an entry");
    assert_eq!((asked.purpose, asked.session.as_str()), (Purpose::Turn, stage.session.as_str()));
}

pub(super) fn a_session_is_reverted(stage: &mut Stage, example: &Example) {
    // The part behind the words of the first message: what is before it stays.
    let all = messages(stage);
    let (message, part) = (id_of(&all[0]), text(&all[0], "/parts/1/id"));
    let told = play(stage, example, &[("<message_id>", message), ("<part_id>", part)]).result();
    let item = &told["item"];
    assert_eq!(item["id"], stage.session, "{told:#}");
    let revert = &item["revert"];
    assert_eq!((&revert["message_id"], &revert["part_id"]), (&json!(message), &json!(part)), "{told:#}");
    let back = call(stage, "opencode.sessions.unrevert", &json!({"session_id": stage.session})).result();
    assert_eq!((&back["item"]["id"], back["item"].get("revert")), (&json!(stage.session), None), "{back:#}");
}

/// An OpenCode that is kept from calling out shares nothing.
pub(super) fn sharing_is_refused_offline(stage: &mut Stage, example: &Example) {
    let error = play(stage, example, &[]).error();
    assert_eq!((&error["code"], &error["data"]["type"]), (&json!(-32003), &json!("UPSTREAM_HTTP_ERROR")));
    assert_eq!(error["data"]["upstream_status"], 500, "{error:#}");
    let told = call(stage, "opencode.sessions.unshare", &json!({"session_id": stage.session})).result();
    assert_eq!((&told["item"]["id"], told["item"].get("share_url")), (&json!(stage.session), None));
}

pub(super) fn a_shell_is_used(stage: &mut Stage, example: &Example) {
    let told = play(stage, example, &[]).result();
    let printed = &told["item"];
    assert_eq!((&printed["kind"], &printed["role"]), (&json!("message"), &json!("agent")), "{told:#}");
    assert!(text(printed, "/parts/0/text").contains("?? report.pdf"), "{told:#}");
}

pub(super) fn providers_are_listed(stage: &mut Stage, example: &Example) {
    let reply = play(stage, example, &[]);
    assert!(!reply.body.contains("none-needed"), "the key of a provider is told");
    let told = reply.result();
    for id in ["demo", "google", "openai"] {
        assert!(told["connected"].as_array().expect("a list").contains(&json!(id)), "{told:#}");
        let provider = items(&told).iter().find(|provider| provider["provider_id"] == id);
        let provider = provider.unwrap_or_else(|| panic!("{id} is not in {told:#}"));
        assert_eq!(provider["connected"], true, "{told:#}");
        assert_eq!(provider["default_model_id"], told["default_by_provider"][id], "{told:#}");
    }
}

pub(super) fn models_are_listed(stage: &mut Stage, example: &Example) {
    let told = play(stage, example, &[]).result();
    assert!(items(&told).iter().all(|model| model["provider_id"] == "openai"), "{told:#}");
    let model = items(&told).iter().find(|model| model["model_id"] == "gpt-5");
    let model = model.unwrap_or_else(|| panic!("the model is not in {told:#}"));
    assert_eq!(
        (&model["connected"], &model["context_window"], &model["supports_tool_call"]),
        (&json!(true), &json!(200_000), &json!(true)),
        "{model:#}"
    );
    assert!(told["default_by_provider"].is_object() && told["connected"].is_array(), "{told:#}");
}

pub(super) fn the_project_is_told(stage: &mut Stage, example: &Example) {
    let told = play(stage, example, &[]).result();
    let workspace = stage.workspace.display().to_string();
    assert_eq!(
        (&told["item"]["vcs"], &told["item"]["worktree"]),
        (&json!("git"), &json!(workspace)),
        "{told:#}"
    );
    let all = call(stage, "opencode.projects.list", &json!({})).result();
    assert!(items(&all).iter().any(|project| project["id"] == told["item"]["id"]), "{all:#}");
}

/// The OpenCode of today has no such type.
pub(super) fn a_workspace_of_git_is_refused(stage: &mut Stage, example: &Example) {
    let error = play(stage, example, &[]).error();
    assert_eq!((&error["code"], &error["data"]["type"]), (&json!(-32003), &json!("UPSTREAM_HTTP_ERROR")));
    assert_eq!(error["data"]["upstream_status"], 400, "{error:#}");
    assert!(text(&error, "/data/detail").contains("git"), "{error:#}");
    let all = call(stage, "opencode.workspaces.list", &json!({})).result();
    assert_eq!(all, json!({"items": []}));
}

pub(super) fn a_worktree_is_reset(stage: &mut Stage, example: &Example) {
    let made = call(stage, "opencode.worktrees.create", &json!({"request": {"name": "api"}})).result();
    let directory = text(&made, "/item/directory").to_owned();
    let all = call(stage, "opencode.worktrees.list", &json!({})).result();
    assert!(items(&all).contains(&json!(directory)), "{all:#}");
    let file = std::path::Path::new(&directory).join("left-over.txt");
    std::fs::write(&file, "what was tried\n").expect("the worktree is there");

    let example_path = text(&example.body(), "/params/request/directory").to_owned();
    let told = play(stage, example, &[(&example_path, &directory)]).result();
    assert_eq!(told, json!({"ok": true}));
    assert!(!file.exists(), "the worktree was not reset");

    let which = json!({"request": {"directory": directory}});
    assert_eq!(call(stage, "opencode.worktrees.remove", &which).result(), json!({"ok": true}));
    assert!(!std::path::Path::new(&directory).exists(), "the worktree was not removed");
}

/// A call without an id gets no answer, and is done; pages have a most.
pub(super) fn notifications_and_limits(stage: &mut Stage) {
    let session = stage.session.clone();
    let request = json!({"parts": [{"type": "text", "text": "Nobody answers this."}], "noReply": true});
    for (method, params) in [
        ("opencode.sessions.list", json!({})),
        ("opencode.sessions.prompt_async", json!({"session_id": session, "request": request})),
    ] {
        let reply = post(stage, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
        assert_eq!((reply.status, reply.body.as_str()), (204, ""), "{method}");
    }
    let deadline = Instant::now() + PATIENCE;
    while messages(stage).last().is_none_or(|last| last["parts"][0]["text"] != "Nobody answers this.") {
        assert!(Instant::now() < deadline, "what was said without an id was not said");
    }
    let error = call(stage, "opencode.sessions.list", &json!({"limit": 101})).error();
    assert_eq!(error["code"], -32602, "{error:#}");
    assert!(error.to_string().contains("limit"), "{error:#}");
}
