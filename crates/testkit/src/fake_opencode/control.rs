//! Operations that change a session without a prompt: forks, shares, summaries, reverts and shell commands.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::{Answer, busy, failure, ok, tagged_bad_request, with_status};
use super::check;
use super::gate::Gate;
use super::ids::{fresh, now_ms};
use super::player::{self, TurnStage};
use super::project::Sharing;
use super::prompting::{error, last_message};
use super::responder::{Responder, unknown_agent};
use super::routes::new_session;
use super::script::{Prompt, Script, Step};
use super::state::Shared;
use super::world::{event, idle, message_updated, part_updated, status, text};
use super::writer::Writer;

/// The prompt that OpenCode itself writes when the model is to go on after a summary.
const CONTINUE: &str =
    "Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed.";

/// The result of a shell command.
#[derive(Clone, Debug, Default)]
pub struct Shell {
    pub output: String,
    /// The command runs until the test opens this gate.
    pub hold: Option<Gate>,
}

/// Copies the session, or the messages before a given one. An unknown message copies the whole session.
pub(super) async fn fork(shared: &Shared, session: &str, body: &Value) -> Answer {
    if body["messageID"].as_str().is_some_and(|id| !id.starts_with("msg")) {
        return tagged_bad_request();
    }
    let (original, directory, messages) = {
        let state = shared.lock();
        let original = state.world.session(session).cloned().unwrap_or_default();
        let directory = state.world.directory(session).unwrap_or_default().to_owned();
        (original, directory, state.world.messages(session).unwrap_or_default())
    };
    let mut info = new_session(shared, &fresh("ses"), &directory);
    info["title"] = forked_title(text(&original, "title")).into();
    let id = text(&info, "id").to_owned();
    shared.emit(&event("session.created", json!({"sessionID": id, "info": info}))).await;
    let mut copies: HashMap<String, String> = HashMap::new();
    let before = messages.iter().take_while(|message| message["info"]["id"] != body["messageID"]);
    for message in before {
        let mut copy = message["info"].clone();
        let new = fresh("msg");
        copies.insert(text(&copy, "id").to_owned(), new.clone());
        copy["id"] = new.as_str().into();
        copy["sessionID"] = id.as_str().into();
        if let Some(parent) = copy["parentID"].as_str().and_then(|parent| copies.get(parent)).cloned() {
            copy["parentID"] = parent.into();
        }
        shared.emit(&message_updated(&id, copy)).await;
        for part in message["parts"].as_array().into_iter().flatten() {
            let mut part = part.clone();
            part["id"] = fresh("prt").into();
            part["messageID"] = new.as_str().into();
            part["sessionID"] = id.as_str().into();
            shared.emit(&part_updated(&id, part, now_ms())).await;
        }
    }
    ok(info)
}

pub(super) async fn share(shared: &Shared, session: &str) -> Answer {
    let sharing = shared.lock().project.sharing;
    match sharing {
        Sharing::Forbidden => failure(500),
        Sharing::Offline => with_status(500, json!({"_tag": "InternalServerError"})),
        Sharing::Off => ok(shared.lock().world.session(session).cloned().unwrap_or_default()),
        Sharing::Works => {
            let secret: String = session.chars().rev().take(8).collect();
            let share = json!({"url": format!("https://opncd.ai/share/{secret}")});
            ok(change_session(shared, session, |info| info["share"] = share).await)
        }
    }
}

pub(super) async fn unshare(shared: &Shared, session: &str) -> Answer {
    ok(change_session(shared, session, |info| remove(info, "share")).await)
}

/// Sets a message, or a part of it, and everything after it aside, until a prompt drops them or an unrevert restores them.
pub(super) async fn revert(shared: &Shared, session: &str, body: &Value) -> Answer {
    let refused = check::texts(body, &["messageID"])
        .or_else(|| check::id(body, "messageID", "msg"))
        .or_else(|| check::id(body, "partID", "prt"));
    if let Some(refused) = refused {
        return refused;
    }
    if is_busy(shared, session) {
        return busy(session);
    }
    let messages = shared.lock().world.messages(session).unwrap_or_default();
    let is_named = |message: &Value| message["info"]["id"] == body["messageID"];
    let Some(position) = messages.iter().position(is_named) else { return unchanged(shared, session) };
    let mut revert = json!({"snapshot": "401b7ec87fed2ef62a4b30572a6231742d9abf42"});
    let first = match body["partID"].as_str() {
        Some(part) => {
            let mut parts = messages[position]["parts"].as_array().into_iter().flatten();
            if !parts.any(|known| known["id"] == part) {
                return unchanged(shared, session);
            }
            revert["partID"] = part.into();
            position
        }
        // A reverted reply takes its prompt with it.
        None => (0..=position).rev().find(|at| messages[*at]["info"]["role"] == "user").unwrap_or(position),
    };
    revert["messageID"] = messages[first]["info"]["id"].clone();
    let diffs = messages[first..].iter().filter_map(|message| message["info"]["summary"]["diffs"].as_array());
    let diffs: Vec<Value> = diffs.flatten().cloned().collect();
    let patches: Vec<&str> = diffs.iter().map(|diff| text(diff, "patch")).collect();
    revert["diff"] = patches.concat().into();
    shared.emit(&event("session.diff", json!({"sessionID": session, "diff": diffs}))).await;
    ok(change_session(shared, session, |info| info["revert"] = revert).await)
}

pub(super) async fn unrevert(shared: &Shared, session: &str) -> Answer {
    if is_busy(shared, session) {
        return busy(session);
    }
    let is_reverted = shared.lock().world.session(session).is_some_and(|info| info["revert"].is_object());
    if !is_reverted {
        return unchanged(shared, session);
    }
    ok(change_session(shared, session, |info| remove(info, "revert")).await)
}

/// Answers when the summary is written; with `auto`, when the model's following turn is over.
pub(super) async fn summarize(shared: &Arc<Shared>, session: &str, body: &Value, position: usize) -> Answer {
    if let Some(refused) = check::texts(body, &["providerID", "modelID"]) {
        return refused;
    }
    let auto = body["auto"] == true;
    let mut prompt = bare_prompt(shared, session, position);
    prompt.responder = Responder {
        provider: text(body, "providerID").to_owned(),
        model: text(body, "modelID").to_owned(),
        ..Responder::default()
    };
    prompt.parts = json!([{"type": "compaction", "auto": auto}]);
    let unknown = prompt.responder.unknown_model(&shared.lock().project);
    let fails = unknown.is_some();
    let mut stages = Vec::new();
    if let Some(error) = unknown {
        let mut steps = Writer::begin(&prompt).give_up(&error);
        // A prompt repeats the error; a summary does not.
        steps.pop();
        stages.push(TurnStage::Steps(prompt.clone(), steps));
    } else {
        let compacted = event("session.compacted", json!({"sessionID": session}));
        let mut steps = Writer::begin(&prompt).summary(!auto);
        if auto {
            let parts = json!([{
                "type": "text", "text": CONTINUE, "synthetic": true, "metadata": {"compaction_continue": true},
                "time": {"start": now_ms(), "end": now_ms()},
            }]);
            let next = Prompt { message: fresh("msg"), parts, ..prompt.clone() };
            steps.extend(Writer::note(&next).steps());
            steps.push(Step::Emit(compacted));
            steps.push(Step::Emit(status(session, "busy")));
            stages.push(TurnStage::Steps(prompt.clone(), steps));
            stages.push(match shared.lock().next_script() {
                Script::Written(turn) => TurnStage::GoOn(next, turn),
                recorded @ Script::Recorded(_) => TurnStage::Begin(next, recorded),
            });
        } else {
            stages.push(TurnStage::Steps(prompt.clone(), steps));
        }
    }
    // A script that panics fails the test by itself.
    let _ = player::start(shared, prompt, stages).await;
    if fails { failure(500) } else { ok(json!(true)) }
}

/// Runs a command in the session. OpenCode does not report the exit code.
pub(super) async fn shell(shared: &Arc<Shared>, session: &str, body: &Value, position: usize) -> Answer {
    if let Some(refused) = check::texts(body, &["agent", "command"]) {
        return refused;
    }
    if is_busy(shared, session) {
        return busy(session);
    }
    let prompt = bare_prompt(shared, session, position);
    let (responder, shell) = {
        let mut state = shared.lock();
        (Responder::for_request(&state, session, body), state.shells.pop_front())
    };
    let Ok(responder) = responder else {
        let message = unknown_agent(&shared.lock().project, text(body, "agent"));
        let mut steps = vec![Step::Emit(status(session, "busy"))];
        steps.push(Step::Emit(error(session, &message)));
        steps.extend(idle(session).map(Step::Emit));
        let _ = player::start(shared, prompt.clone(), vec![TurnStage::Steps(prompt, steps)]).await;
        return failure(500);
    };
    let command = text(body, "command");
    let shell = shell.unwrap_or_else(|| Shell { output: format!("ran: {command}\n"), hold: None });
    let parts = json!([{
        "type": "text", "text": "The following tool was executed by the user", "synthetic": true,
    }]);
    let prompt = Prompt { parts, responder, ..prompt };
    let steps = Writer::quiet(&prompt).shell(command, &shell.output, shell.hold.as_ref());
    let _ = player::start(shared, prompt.clone(), vec![TurnStage::Steps(prompt, steps)]).await;
    ok(last_message(shared, session))
}

/// Whether a turn of the session is running or waiting.
pub(super) fn is_busy(shared: &Shared, session: &str) -> bool {
    shared.lock().turns.get(session).is_some_and(|turns| *turns > 0)
}

/// A prompt without parts, for operations that no prompt started.
fn bare_prompt(shared: &Shared, session: &str, position: usize) -> Prompt {
    let directory = shared.lock().world.directory(session).unwrap_or_default().to_owned();
    Prompt {
        session: session.to_owned(),
        message: fresh("msg"),
        parts: json!([]),
        directory,
        logged_at: position,
        responder: Responder::default(),
        tools: Value::Null,
    }
}

async fn change_session(shared: &Shared, session: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut info = shared.lock().world.session(session).cloned().unwrap_or_default();
    change(&mut info);
    if info["time"].is_object() {
        info["time"]["updated"] = now_ms().into();
    }
    shared.emit(&event("session.updated", json!({"sessionID": session, "info": info}))).await;
    info
}

fn unchanged(shared: &Shared, session: &str) -> Answer {
    ok(shared.lock().world.session(session).cloned().unwrap_or_default())
}

fn remove(info: &mut Value, name: &str) {
    if let Some(fields) = info.as_object_mut() {
        fields.remove(name);
    }
}

/// The title of a copy counts the copies.
fn forked_title(title: &str) -> String {
    let count = title.strip_suffix(')').and_then(|title| title.rsplit_once(" (fork #"));
    match count.and_then(|(title, count)| Some((title, count.parse::<u32>().ok()?))) {
        Some((title, count)) => format!("{title} (fork #{})", count + 1),
        None => format!("{title} (fork #1)"),
    }
}
