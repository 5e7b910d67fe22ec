//! Stops orphaned turns: turns that are over in the gateway but may still run in OpenCode, because the abort call was lost or the
//! gateway died before it made the call.

use std::collections::{BTreeMap, HashSet};

use longshore_engine::port::TurnRecord;
use longshore_model::{Result, SessionId};

use crate::api::StoredMessage;
use crate::clear;
use crate::client::{CallError, Client};
use crate::id::is_prompt;

/// Stops those of these turns that still run in OpenCode, the newest turn of a session first. Returns the sessions in which one of
/// these turns may still run. Does not touch a session that works on another prompt, because another client sent that prompt. Does
/// not touch an idle session either, although asks of its turn may remain in OpenCode's lists.
pub(crate) async fn orphaned_turns(client: &Client, over: &[TurnRecord]) -> Result<Vec<SessionId>> {
    let mut by_directory: BTreeMap<&str, Vec<&TurnRecord>> = BTreeMap::new();
    for turn in over {
        by_directory.entry(&turn.session.directory).or_default().push(turn);
    }
    let mut pass = StopPass { client, may_run: Vec::new(), failure: None };
    for (directory, turns) in by_directory {
        pass.in_directory(directory, &turns).await;
    }
    match pass.failure {
        Some(cause) => Err(cause.into_error("stop a turn that is over")),
        None => Ok(pass.may_run),
    }
}

/// One pass over all turns. If one turn cannot be stopped, the others are still handled.
struct StopPass<'a> {
    client: &'a Client,
    may_run: Vec<SessionId>,
    failure: Option<CallError>,
}

impl StopPass<'_> {
    async fn in_directory(&mut self, directory: &str, turns: &[&TurnRecord]) {
        // One request shows which sessions of the directory are busy. Nearly all turns have ended, and need no further request.
        let busy = match self.client.statuses(directory).await {
            Ok(busy) => busy,
            Err(cause) => return self.failed(cause, turns),
        };
        let mut seen = HashSet::new();
        for turn in turns.iter().filter(|turn| busy.contains_key(turn.session.id.as_str())) {
            if seen.contains(&turn.session.id) {
                continue;
            }
            match stop(self.client, turn).await {
                // The turn was never prompted, perhaps because the turn before it still runs.
                Ok(Work::Unknown) => continue,
                Ok(Work::OtherPrompt) => {}
                Ok(Work::ThisTurn | Work::Unclear) => self.may_run.push(turn.session.id.clone()),
                Err(cause) => self.failed(cause, &[turn]),
            }
            seen.insert(&turn.session.id);
        }
    }

    fn failed(&mut self, cause: CallError, turns: &[&TurnRecord]) {
        match cause {
            CallError::Unreachable(_) | CallError::Down(_) | CallError::Unauthorized => {
                self.failure = Some(cause);
            }
            cause if cause.is_transient() => {
                tracing::debug!(%cause, "a turn that is over may still run");
                self.may_run.extend(turns.iter().map(|turn| turn.session.id.clone()));
            }
            cause => {
                tracing::warn!(%cause, "OpenCode does not show whether a turn that is over still runs");
            }
        }
    }
}

/// Stops a turn if its busy session works on this turn. Returns what the session works on.
async fn stop(client: &Client, turn: &TurnRecord) -> Result<Work, CallError> {
    let (directory, session) = (turn.session.directory.as_str(), turn.session.id.as_str());
    let prompts: Vec<String> =
        [&turn.prompt].into_iter().chain(&turn.joined).map(|prompt| prompt.as_str().to_owned()).collect();
    let messages = match client.messages_since(directory, session, &prompts).await {
        Err(CallError::NotFound) => return Ok(Work::Unknown),
        messages => messages?,
    };
    let work = work(&messages, &prompts);
    if work == Work::ThisTurn {
        tracing::info!(%session, "stopping a turn that is over in the gateway");
        client.abort(directory, session).await?;
        clear::reject_asks(client, &turn.session, Vec::new()).await;
    }
    Ok(work)
}

/// The work of a busy session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// OpenCode has no message of the turn.
    Unknown,
    ThisTurn,
    /// Another client sent a prompt after the turn's.
    OtherPrompt,
    /// No step of the turn runs, and there is no other prompt. Either the turn is between two steps, or OpenCode is about to store
    /// a prompt.
    Unclear,
}

/// Decides what a busy session works on. `messages` starts with the first of the turn's prompts that OpenCode has.
fn work(messages: &[StoredMessage], prompts: &[String]) -> Work {
    let mut own: Vec<&StoredMessage> = Vec::new();
    for message in messages.iter().filter(|message| message.info.role == "user") {
        let is_own = prompts.iter().any(|prompt| is_prompt(&message.info.id, prompt))
            || is_compaction(message)
            || continues_after_compaction(message, &own, messages)
            || continues_after_subtask(message, &own, messages);
        if !is_own {
            return Work::OtherPrompt;
        }
        own.push(message);
    }
    if own.is_empty() {
        return Work::Unknown;
    }
    let newest = messages.iter().rfind(|message| message.info.role == "assistant");
    let answers_own =
        |step: &StoredMessage| own.iter().any(|message| step.info.parent.as_ref() == Some(&message.info.id));
    match newest {
        Some(step) if step.info.time.completed.is_none() && answers_own(step) => Work::ThisTurn,
        _ => Work::Unclear,
    }
}

/// Whether the message is a compaction that OpenCode itself started. A compaction that a user requested does not belong to the
/// turn.
fn is_compaction(message: &StoredMessage) -> bool {
    message.parts.iter().any(|part| part.kind == "compaction" && part.auto)
}

/// Whether OpenCode wrote this user message to continue its work after a compaction (OpenCode replaced a long conversation by a
/// summary). The message is then synthetic (OpenCode wrote all of it) or a copy of the prompt. Only a message directly after the
/// compaction and its finished summary counts, because a user's shell command also has a synthetic message.
fn continues_after_compaction(
    message: &StoredMessage,
    before: &[&StoredMessage],
    all: &[StoredMessage],
) -> bool {
    let Some(compaction) = before.last().filter(|last| is_compaction(last)) else { return false };
    let is_summarized = all.iter().any(|step| {
        let info = &step.info;
        let completed = info.time.completed.filter(|_| info.error.is_none());
        info.parent.as_ref() == Some(&compaction.info.id)
            && completed.is_some_and(|completed| message.info.time.created >= completed)
    });
    let is_synthetic = is_synthetic(message);
    let is_repeated = || {
        let texts = texts(message);
        !texts.is_empty() && before.iter().any(|earlier| self::texts(earlier) == texts)
    };
    is_summarized && (is_synthetic || is_repeated())
}

/// Whether OpenCode wrote this synthetic message to continue after a sub-agent that a command called.
fn continues_after_subtask(
    message: &StoredMessage,
    before: &[&StoredMessage],
    all: &[StoredMessage],
) -> bool {
    let parts = before.iter().flat_map(|earlier| &earlier.parts);
    let subtasks = parts.filter(|part| part.kind == "subtask" && part.command.is_some()).count();
    let continued = before.iter().filter(|earlier| is_synthetic(earlier)).count();
    let answers_own = |step: &StoredMessage| {
        before.iter().any(|earlier| step.info.parent.as_ref() == Some(&earlier.info.id))
            && step.info.finish.as_deref() == Some("tool-calls")
            && step.info.time.completed.is_some_and(|completed| message.info.time.created >= completed)
    };
    continued < subtasks && is_synthetic(message) && all.iter().any(answers_own)
}

/// Whether OpenCode wrote the whole message itself.
fn is_synthetic(message: &StoredMessage) -> bool {
    !message.parts.is_empty() && message.parts.iter().all(|part| part.synthetic)
}

fn texts(message: &StoredMessage) -> Vec<&str> {
    let written = message.parts.iter().filter(|part| part.kind == "text" && !part.synthetic);
    written.filter_map(|part| part.text.as_deref()).collect()
}

#[cfg(test)]
mod tests {
    use longshore_testkit::fake_opencode::Recording;
    use serde_json::{Value, json};

    use super::*;

    /// OpenCode called a sub-agent for a command and then continues with a synthetic message.
    #[test]
    fn a_command_continues_after_its_sub_agent_unless_another_client_prompted() {
        let recording = Recording::load("command");
        let (messages, _) = recording
            .final_messages("ses_e22b51dd5ffeHejKcc7Ok7L6gk")
            .expect("the recording lists the session");
        let mut messages = messages.as_array().unwrap()[2..].to_vec();
        messages[3]["info"]["time"] = json!({"created": messages[3]["info"]["time"]["created"]});
        let work_on = |messages: &[Value]| {
            let prompts = [messages[0]["info"]["id"].as_str().unwrap().to_owned()];
            work(&serde_json::from_value::<Vec<_>>(messages.into()).unwrap(), &prompts)
        };
        assert_eq!(messages[0]["parts"][0]["type"], "subtask");
        assert_eq!(work_on(&messages), Work::ThisTurn);
        let mut other_prompt = messages.clone();
        other_prompt[2]["parts"][0]["synthetic"] = false.into();
        assert_eq!(work_on(&other_prompt), Work::OtherPrompt);
        let mut no_command = messages;
        no_command[0]["parts"][0].as_object_mut().unwrap().remove("command");
        assert_eq!(work_on(&no_command), Work::OtherPrompt);
    }
}
