//! Prompts and commands: what they are for, what they change at once, and what they set going.

use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::{Answer, failure, ok};
use super::check;
use super::ids::fresh;
use super::player::{self, ControlCommand};
use super::script::{Prompt, Step};
use super::state::Shared;
use super::subtask;
use super::voice::Voice;
use super::world::{event, idle, text};
use super::writer::Writer;

/// A prompt of `prompt_async`, or with `blocking` of `message`.
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
        Err(said) => {
            tell_errors(shared, session, &[&said, "UnknownError: UnknownError\n    at <anonymous>"]).await;
            return if blocking { failure(500) } else { taken(None) };
        }
    };
    let message = asked.message.clone();
    if body["noReply"] == true {
        for step in Writer::note(&asked).steps() {
            if let Step::Emit(event) = step {
                shared.emit(&event).await;
            }
        }
        return if blocking { ok(stored(shared, session, &message)) } else { taken(None) };
    }
    let acts = match acts(shared, &asked) {
        Some(acts) => acts,
        // The message went to another session: this one has nothing to answer.
        None => vec![ControlCommand::Steps(asked.clone(), nothing_to_answer(shared, &asked))],
    };
    let fails = asked.voice.unknown_model(&shared.lock().project).is_some();
    let playing = player::start(shared, asked, acts);
    if blocking {
        // A script that panics fails the test by itself.
        let _ = playing.await;
        return if fails { failure(500) } else { ok(last_message(shared, session)) };
    }
    taken(Some((session.to_owned(), message)))
}

/// A command is a prompt with a name. Its answer comes when the turn is over.
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
        let said = format!("Command not found: \"{name}\". Available commands: {}", names.join(", "));
        tell_errors(shared, session, &[&said]).await;
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
    let voice = Voice::of(&shared.lock(), session, &body);
    let unknown = voice.map_or_else(Some, |voice| voice.unknown_model(&shared.lock().project));
    if let Some(said) = unknown {
        tell_errors(shared, session, &[&said]).await;
        return failure(500);
    }
    let Ok(asked) = ask(shared, session, &body, &parts.into(), position).await else { return failure(500) };
    let acts = acts(shared, &asked).unwrap_or_default();
    let playing = player::start(shared, asked, acts);
    // A script that panics fails the test by itself.
    let _ = playing.await;
    let answer = last_message(shared, session);
    let executed = json!({
        "sessionID": session, "name": name, "arguments": arguments, "messageID": answer["info"]["id"],
    });
    shared.emit(&event("command.executed", executed)).await;
    ok(answer)
}

/// Waits until the prompt's message is in the list, or its script is over without one.
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

/// The errors of a session, as they are told one after the other.
pub(super) async fn tell_errors(shared: &Shared, session: &str, said: &[&str]) {
    for said in said {
        shared.emit(&error(session, said)).await;
    }
}

pub(super) fn error(session: &str, said: &str) -> Value {
    let error = json!({"name": "UnknownError", "data": {"message": said}});
    event("session.error", json!({"sessionID": session, "error": error}))
}

pub(super) fn last_message(shared: &Shared, session: &str) -> Value {
    let messages = shared.lock().world.messages(session).unwrap_or_default();
    let mut replies = messages.into_iter().rev();
    replies.find(|message| message["info"]["role"] == "assistant").unwrap_or_default()
}

/// What the prompt asks for. It changes the session before anything is said: its voice, what is allowed in it, and
/// what was reverted is gone.
async fn ask(
    shared: &Shared,
    session: &str,
    body: &Value,
    parts: &Value,
    position: usize,
) -> Result<Prompt, String> {
    let voice = Voice::of(&shared.lock(), session, body)?;
    drop_reverted(shared, session).await;
    let message = body["messageID"].as_str().map_or_else(|| fresh("msg"), str::to_owned);
    let directory = shared.change(|state| {
        voice.stay(state, session);
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
        voice,
        tools: body["tools"].clone(),
    })
}

/// What the prompt sets going. `None`: its message is another session's.
fn acts(shared: &Shared, prompt: &Prompt) -> Option<Vec<ControlCommand>> {
    let mut state = shared.lock();
    if state.world.is_lent(&prompt.message) {
        return None;
    }
    if let Some(said) = prompt.voice.unknown_model(&state.project) {
        return Some(vec![ControlCommand::Steps(prompt.clone(), Writer::begin(prompt).give_up(&said))]);
    }
    state.truth.prompted(
        &prompt.session,
        &prompt.message,
        prompt.parts.as_array().map_or(&[], Vec::as_slice),
    );
    let parts = prompt.parts.as_array().into_iter().flatten();
    if let Some(part) = parts.into_iter().find(|part| part["type"] == "subtask") {
        return Some(subtask::acts(&mut state, prompt, part));
    }
    Some(vec![ControlCommand::Begin(prompt.clone(), state.next_script())])
}

/// Busy for a moment: there is no message of the user, or the last one is answered.
fn nothing_to_answer(shared: &Shared, prompt: &Prompt) -> Vec<Step> {
    let is_new = shared.lock().world.messages(&prompt.session).is_none_or(|messages| messages.is_empty());
    let mut steps = Writer::begin(prompt).steps();
    steps.extend(idle(&prompt.session).map(Step::Emit));
    if is_new {
        let said = "Error: No user message found in stream. This should never happen.";
        steps.push(Step::Emit(error(&prompt.session, said)));
    }
    steps
}

/// A prompt in a reverted session drops what was reverted.
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

fn taken(stored: Option<(String, String)>) -> Answer {
    Answer::Json { status: 204, body: Value::Null, stored }
}
