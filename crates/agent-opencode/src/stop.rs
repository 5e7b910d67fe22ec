//! Turns that are over here and may go on in OpenCode: the call that was to abort them got lost, or the gateway died before
//! it made the call.

use std::collections::BTreeMap;

use longshore_engine::port::TurnRecord;
use longshore_model::Result;

use crate::api::{Part, StoredMessage};
use crate::clear;
use crate::client::{CallError, Client};

/// Stops what still runs of these turns. True: nothing of them does. A session that works on something else by now is left
/// alone: that is somebody else's.
pub(crate) async fn turns(client: &Client, over: &[TurnRecord]) -> Result<bool> {
    let mut by_directory: BTreeMap<&str, Vec<&TurnRecord>> = BTreeMap::new();
    for turn in over {
        by_directory.entry(&turn.session.directory).or_default().push(turn);
    }
    let (mut is_quiet, mut trouble) = (true, None);
    for (directory, turns) in by_directory {
        match in_directory(client, directory, &turns).await {
            Ok(quiet) => is_quiet &= quiet,
            // The others are looked at all the same.
            Err(cause @ (CallError::Unreachable(_) | CallError::Unauthorized)) => trouble = Some(cause),
            Err(cause) if cause.is_transient() => {
                tracing::debug!(%cause, directory, "a turn that is over may still run");
                is_quiet = false;
            }
            Err(cause) => {
                tracing::warn!(%cause, "OpenCode does not say whether turns that are over still run");
            }
        }
    }
    match trouble {
        Some(cause) => Err(cause.into_error("stop a turn that is over")),
        None => Ok(is_quiet),
    }
}

async fn in_directory(client: &Client, directory: &str, turns: &[&TurnRecord]) -> Result<bool, CallError> {
    // One answer is enough for all turns that have ended there, which is nearly always every one.
    let busy = client.statuses(directory).await?;
    let mut is_quiet = true;
    for turn in turns.iter().filter(|turn| busy.contains_key(turn.session.id.as_str())) {
        if is_at_work_on(client, turn).await? {
            let session = turn.session.id.as_str();
            tracing::info!(%session, "stopping a turn that is over here");
            client.abort(directory, session).await?;
            clear::asks(client, &turn.session, Vec::new()).await;
            is_quiet = false;
        }
    }
    Ok(is_quiet)
}

/// Whether the last that anybody said in the session is a message of this turn.
async fn is_at_work_on(client: &Client, turn: &TurnRecord) -> Result<bool, CallError> {
    let prompts: Vec<String> =
        [&turn.prompt].into_iter().chain(&turn.joined).map(|prompt| prompt.as_str().to_owned()).collect();
    let session = &turn.session;
    let messages = match client.messages_since(&session.directory, session.id.as_str(), &prompts).await {
        Err(CallError::NotFound) => return Ok(false),
        messages => messages?,
    };
    let is_theirs = |message: &StoredMessage| {
        message.info.role == "user" && !prompts.contains(&message.info.id) && !is_of_opencode(message)
    };
    Ok(!messages.is_empty() && !messages.iter().any(is_theirs))
}

/// OpenCode says this to itself, when it compacts the conversation.
fn is_of_opencode(message: &StoredMessage) -> bool {
    let is_own = |part: &Part| part.synthetic || part.kind == "compaction";
    !message.parts.is_empty() && message.parts.iter().all(is_own)
}
