//! Prompts and commands: what each changes at once, and the turn that it starts.

use std::sync::Arc;

use longshore_opencode_shapes::{NamedError, Properties};
use serde_json::{Value, json};

use super::answer::{Answer, failure, ok};
use super::check;
use super::ids::fresh;
use super::player::{self, TurnStage};
use super::responder::Responder;
use super::script::{Prompt, Step};
use super::state::Shared;
use super::subtask;
use super::world::{event, idle, text};
use super::writer::Writer;

/// A prompt by `prompt_async`, or with `blocking` by `message`.
pub(super) async fn prompt(
    shared: &Arc<Shared>,
    session: &str,
    body: &Value,
    position: usize,
    blocking: bool,
) -> Answer {
    if let Some(refused) = check::prompt(body) {
        return refused;
    }
    let asked = match ask(shared, session, body, &body["parts"], position).await {
        Ok(asked) => asked,
        Err(message) => {
            emit_errors(shared, session, &[&message, "UnknownError: UnknownError\n    at <anonymous>"]).await;
            return if blocking { failure(500) } else { accepted(None) };
        }
    };
    let message = asked.message.clone();
    if body["noReply"] == true {
        for step in Writer::note(&asked).steps() {
            if let Step::Emit(event) = step {
                shared.emit(&event).await;
            }
        }
        return if blocking { ok(stored(shared, session, &message)) } else { accepted(None) };
    }
    let stages = match stages(shared, &asked) {
        Some(stages) => stages,
        // The message was written to another session: this session has nothing to answer.
        None => vec![TurnStage::Steps(asked.clone(), nothing_to_answer(shared, &asked))],
    };
    let fails = asked.responder.unknown_model(&shared.lock().project).is_some();
    let playing = player::start(shared, asked, stages);
    if blocking {
        // A script that panics fails the test by itself.
        let _ = playing.await;
        return if fails { failure(500) } else { ok(last_message(shared, session)) };
    }
    accepted(Some((session.to_owned(), message)))
}

/// A command is a prompt with a name. OpenCode answers it when its turn is over.
pub(super) async fn command(shared: &Arc<Shared>, session: &str, body: &Value, position: usize) -> Answer {
    let refused = check::texts(body, &["command", "arguments"])
        .or_else(|| check::optional_texts(body, &["model", "agent", "variant"], "string | null"))
        .or_else(|| check::id(body, "messageID", "msg"))
        .or_else(|| check::parts(body, &["file"]));
    if let Some(refused) = refused {
        return refused;
    }
    let (name, arguments) = (text(body, "command"), text(body, "arguments"));
    let known = shared.lock().project.commands.clone();
    let Some(command) = known.iter().find(|command| command.name == name) else {
        let names: Vec<&str> = known.iter().map(|command| command.name.as_str()).collect();
        let error = format!("Command not found: \"{name}\". Available commands: {}", names.join(", "));
        emit_errors(shared, session, &[&error]).await;
        return failure(500);
    };
    let mut body = body.clone();
    if body["agent"].is_null() && !command.subtask {
        body["agent"] = command.agent.clone().into();
    }
    let words = command.template.replace("$ARGUMENTS", arguments);
    let mut parts = match &command.agent {
        Some(agent) if command.subtask => vec![json!({
            "type": "subtask", "agent": agent, "description": command.description, "command": name, "prompt": words,
        })],
        _ => vec![json!({"type": "text", "text": words})],
    };
    parts.extend(body["parts"].as_array().into_iter().flatten().cloned());
    let responder = Responder::for_request(&shared.lock(), session, &body);
    let unknown = responder.map_or_else(Some, |responder| responder.unknown_model(&shared.lock().project));
    if let Some(error) = unknown {
        emit_errors(shared, session, &[&error]).await;
        return failure(500);
    }
    let Ok(asked) = ask(shared, session, &body, &parts.into(), position).await else { return failure(500) };
    let stages = stages(shared, &asked).unwrap_or_default();
    let playing = player::start(shared, asked, stages);
    // A script that panics fails the test by itself.
    let _ = playing.await;
    let answer = last_message(shared, session);
    let executed = json!({
        "sessionID": session, "name": name, "arguments": arguments, "messageID": answer["info"]["id"],
    });
    shared.emit(&event("command.executed", executed)).await;
    ok(answer)
}

/// Waits until the prompt's message is in the message list, or its script has ended without one.
pub(super) async fn until_stored(shared: &Shared, session: &str, message: &str) {
    shared
        .wait_for(|state| {
            let messages = state.world.messages(session).unwrap_or_default();
            let stored = messages.iter().any(|listed| listed["info"]["id"] == message);
            let over = state.turns.get(session) == Some(&0);
            (stored || over).then_some(())
        })
        .await;
}

async fn emit_errors(shared: &Shared, session: &str, messages: &[&str]) {
    for message in messages {
        shared.emit(&error(session, message)).await;
    }
}

pub(super) fn error(session: &str, message: &str) -> Value {
    let error = NamedError::new("UnknownError", message);
    let properties: Properties<'_> = Properties::Error { session, error };
    event("session.error", properties)
}

pub(super) fn last_message(shared: &Shared, session: &str) -> Value {
    let messages = shared.lock().world.messages(session).unwrap_or_default();
    let mut replies = messages.into_iter().rev();
    replies.find(|message| message["info"]["role"] == "assistant").unwrap_or_default()
}

/// Reads the prompt. Before its turn starts, the prompt changes the session: its agent and model, its permissions, and
/// reverted messages are dropped.
async fn ask(
    shared: &Shared,
    session: &str,
    body: &Value,
    parts: &Value,
    position: usize,
) -> Result<Prompt, String> {
    let responder = Responder::for_request(&shared.lock(), session, body)?;
    drop_reverted(shared, session).await;
    let message = body["messageID"].as_str().map_or_else(|| fresh("msg"), str::to_owned);
    let directory = shared.change(|state| {
        responder.keep_in_session(state, session);
        if let Some(tools) = body["tools"].as_object().filter(|tools| !tools.is_empty()) {
            let rules = tools.iter().map(|(name, allowed)| {
                let action = if *allowed == true { "allow" } else { "deny" };
                json!({"permission": name, "pattern": "*", "action": action})
            });
            let rules: Value = rules.collect();
            state.world.patch_session(session, &json!({"permission": rules}));
        }
        state.world.lend(session, &message, parts);
        state.world.directory(session).unwrap_or_default().to_owned()
    });
    Ok(Prompt {
        session: session.to_owned(),
        message,
        parts: parts.clone(),
        directory,
        logged_at: position,
        responder,
        tools: body["tools"].clone(),
    })
}

/// The turn of the prompt. `None`: its message belongs to another session.
fn stages(shared: &Shared, prompt: &Prompt) -> Option<Vec<TurnStage>> {
    let mut state = shared.lock();
    if state.world.is_lent(&prompt.message) {
        return None;
    }
    if let Some(error) = prompt.responder.unknown_model(&state.project) {
        return Some(vec![TurnStage::Steps(prompt.clone(), Writer::begin(prompt).give_up(&error))]);
    }
    state.prompt_records.prompted(
        &prompt.session,
        &prompt.message,
        prompt.parts.as_array().map_or(&[], Vec::as_slice),
    );
    let parts = prompt.parts.as_array().into_iter().flatten();
    if let Some(part) = parts.into_iter().find(|part| part["type"] == "subtask") {
        return Some(subtask::stages(&mut state, prompt, part));
    }
    Some(vec![TurnStage::Begin(prompt.clone(), state.next_script())])
}

/// Busy for a moment: the session has no message of a user, or the last one is answered.
fn nothing_to_answer(shared: &Shared, prompt: &Prompt) -> Vec<Step> {
    let is_new = shared.lock().world.messages(&prompt.session).is_none_or(|messages| messages.is_empty());
    let mut steps = Writer::begin(prompt).steps();
    steps.extend(idle(&prompt.session).map(Step::Emit));
    if is_new {
        let message = "Error: No user message found in stream. This should never happen.";
        steps.push(Step::Emit(error(&prompt.session, message)));
    }
    steps
}

/// A prompt in a reverted session drops the reverted messages.
async fn drop_reverted(shared: &Shared, session: &str) {
    let (mut info, messages) = {
        let state = shared.lock();
        let Some(info) = state.world.session(session).cloned() else { return };
        (info, state.world.messages(session).unwrap_or_default())
    };
    let Some(first) = info["revert"]["messageID"].as_str().map(str::to_owned) else { return };
    let ids = messages.iter().map(|message| text(&message["info"], "id"));
    for id in ids.skip_while(|id| *id != first) {
        let removed = json!({"sessionID": session, "messageID": id});
        shared.emit(&event("message.removed", removed)).await;
    }
    if let Some(fields) = info.as_object_mut() {
        fields.remove("revert");
    }
    shared.emit(&event("session.updated", json!({"sessionID": session, "info": info}))).await;
}

fn stored(shared: &Shared, session: &str, message: &str) -> Value {
    let messages = shared.lock().world.messages(session).unwrap_or_default();
    messages.into_iter().find(|listed| listed["info"]["id"] == message).unwrap_or_default()
}

fn accepted(stored: Option<(String, String)>) -> Answer {
    Answer::Json { status: 204, body: Value::Null, stored }
}
