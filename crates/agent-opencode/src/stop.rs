//! Turns that are over here and may go on in OpenCode: the call that was to abort them got lost, or the gateway died before
//! it made the call.

use std::collections::{BTreeMap, HashSet};

use longshore_engine::port::TurnRecord;
use longshore_model::{Result, SessionId};

use crate::api::StoredMessage;
use crate::clear;
use crate::client::{CallError, Client};

/// Stops what still runs of these turns, the newest of a session first. Gives the sessions in which one may run yet. A session
/// that works on something else by now is left alone: that is somebody else's. In one that is idle nothing is done: what its
/// turn asked may be left in the lists.
pub(crate) async fn turns(client: &Client, over: &[TurnRecord]) -> Result<Vec<SessionId>> {
    let mut by_directory: BTreeMap<&str, Vec<&TurnRecord>> = BTreeMap::new();
    for turn in over {
        by_directory.entry(&turn.session.directory).or_default().push(turn);
    }
    let mut look = StopPass { client, may_run: Vec::new(), trouble: None };
    for (directory, turns) in by_directory {
        look.in_directory(directory, &turns).await;
    }
    match look.trouble {
        Some(cause) => Err(cause.into_error("stop a turn that is over")),
        None => Ok(look.may_run),
    }
}

/// A look at all turns. What goes wrong with one keeps nobody from looking at the others.
struct StopPass<'a> {
    client: &'a Client,
    may_run: Vec<SessionId>,
    trouble: Option<CallError>,
}

impl StopPass<'_> {
    async fn in_directory(&mut self, directory: &str, turns: &[&TurnRecord]) {
        // One answer is enough for all turns that have ended there, which is nearly always every one.
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
                // It was never prompted. The one before may be what kept it from that.
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
            CallError::Unreachable(_) | CallError::Unauthorized => self.trouble = Some(cause),
            cause if cause.is_transient() => {
                tracing::debug!(%cause, "a turn that is over may still run");
                self.may_run.extend(turns.iter().map(|turn| turn.session.id.clone()));
            }
            cause => {
                tracing::warn!(%cause, "OpenCode does not say whether a turn that is over still runs");
            }
        }
    }
}

/// Stops a turn whose session is busy, if it is with this turn. Says what it is busy with.
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
        tracing::info!(%session, "stopping a turn that is over here");
        client.abort(directory, session).await?;
        clear::asks(client, &turn.session, Vec::new()).await;
    }
    Ok(work)
}

/// What a busy session is at work on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// OpenCode does not have the turn.
    Unknown,
    Ours,
    /// Somebody said something after it.
    Theirs,
    /// Nothing of the turn runs, and nobody said anything else: it is between two steps, or somebody is about to.
    Unclear,
}

/// `messages` begin with the first prompt that OpenCode has.
fn work(messages: &[StoredMessage], prompts: &[String]) -> Work {
    let mut ours: Vec<&StoredMessage> = Vec::new();
    for message in messages.iter().filter(|message| message.info.role == "user") {
        let is_ours = prompts.contains(&message.info.id)
            || is_compaction(message)
            || goes_on_after_compaction(message, &ours, messages)
            || goes_on_after_subtask(message, &ours, messages);
        if !is_ours {
            return Work::OtherPrompt;
        }
        ours.push(message);
    }
    if ours.is_empty() {
        return Work::Unknown;
    }
    let newest = messages.iter().rfind(|message| message.info.role == "assistant");
    let answers_us =
        |step: &StoredMessage| ours.iter().any(|message| step.info.parent.as_ref() == Some(&message.info.id));
    match newest {
        Some(step) if step.info.time.completed.is_none() && answers_us(step) => Work::ThisTurn,
        _ => Work::Unclear,
    }
}

/// OpenCode itself found it necessary. One that somebody asked for is theirs.
fn is_compaction(message: &StoredMessage) -> bool {
    message.parts.iter().any(|part| part.kind == "compaction" && part.auto)
}

/// After its summary OpenCode goes on with one user message: words of its own, or the prompt once more. What somebody runs
/// in a shell has words of OpenCode too, so the place matters.
fn goes_on_after_compaction(
    message: &StoredMessage,
    before: &[&StoredMessage],
    all: &[StoredMessage],
) -> bool {
    let Some(compaction) = before.last().filter(|last| is_compaction(last)) else { return false };
    let is_summed_up = all.iter().any(|step| {
        let info = &step.info;
        let completed = info.time.completed.filter(|_| info.error.is_none());
        info.parent.as_ref() == Some(&compaction.info.id)
            && completed.is_some_and(|completed| message.info.time.created >= completed)
    });
    let is_synthetic = is_synthetic(message);
    let is_said_again = || {
        let words = words(message);
        !words.is_empty() && before.iter().any(|said| self::words(said) == words)
    };
    is_summed_up && (is_synthetic || is_said_again())
}

/// After a sub-agent that was called for a command OpenCode goes on with words of its own.
fn goes_on_after_subtask(message: &StoredMessage, before: &[&StoredMessage], all: &[StoredMessage]) -> bool {
    let parts = before.iter().flat_map(|said| &said.parts);
    let subtasks = parts.filter(|part| part.kind == "subtask" && part.command.is_some()).count();
    let reported = before.iter().filter(|said| is_synthetic(said)).count();
    let answers_us = |step: &StoredMessage| {
        before.iter().any(|said| step.info.parent.as_ref() == Some(&said.info.id))
            && step.info.finish.as_deref() == Some("tool-calls")
            && step.info.time.completed.is_some_and(|completed| message.info.time.created >= completed)
    };
    reported < subtasks && is_synthetic(message) && all.iter().any(answers_us)
}

/// OpenCode wrote all of it.
fn is_synthetic(message: &StoredMessage) -> bool {
    !message.parts.is_empty() && message.parts.iter().all(|part| part.synthetic)
}

fn words(message: &StoredMessage) -> Vec<&str> {
    let written = message.parts.iter().filter(|part| part.kind == "text" && !part.synthetic);
    written.filter_map(|part| part.text.as_deref()).collect()
}

#[cfg(test)]
mod tests {
    use longshore_testkit::fake_opencode::Recording;
    use serde_json::{Value, json};

    use super::*;

    /// A command for which OpenCode called a sub-agent, and that goes on with words of OpenCode's own.
    #[test]
    fn a_command_goes_on_after_its_sub_agent_unless_somebody_else_spoke() {
        let recording = Recording::load("command");
        let (messages, _) =
            recording.final_messages("ses_e22b51dd5ffeHejKcc7Ok7L6gk").expect("it was listed");
        let mut messages = messages.as_array().unwrap()[2..].to_vec();
        messages[3]["info"]["time"] = json!({"created": messages[3]["info"]["time"]["created"]});
        let work_on = |messages: &[Value]| {
            let prompts = [messages[0]["info"]["id"].as_str().unwrap().to_owned()];
            work(&serde_json::from_value::<Vec<_>>(messages.into()).unwrap(), &prompts)
        };
        assert_eq!(messages[0]["parts"][0]["type"], "subtask");
        assert_eq!(work_on(&messages), Work::ThisTurn);
        let mut theirs = messages.clone();
        theirs[2]["parts"][0]["synthetic"] = false.into();
        assert_eq!(work_on(&theirs), Work::OtherPrompt);
        let mut no_command = messages;
        no_command[0]["parts"][0].as_object_mut().unwrap().remove("command");
        assert_eq!(work_on(&no_command), Work::OtherPrompt);
    }
}
