//! Reads from OpenCode what its event stream did not bring, after a gap, at a doubtful end, and when a turn is taken
//! up again. Nothing is guessed: what OpenCode does not say is not reported.

use std::collections::HashSet;

use longshore_engine::port::Session;

use crate::api::Statuses;
use crate::client::{CallError, Client};
use crate::reader::Lease;
use crate::translate::Translator;

/// Sub-agents can have sub-agents. OpenCode allows one level unless it is configured otherwise.
const MAX_TREE_DEPTH: usize = 4;

/// How much to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    /// The session's activity and its messages: enough when no event was lost.
    Messages,
    /// Also the sub-agents and the open asks.
    Everything,
}

#[derive(Debug)]
pub(crate) enum Reading {
    Done,
    /// OpenCode has no such session.
    Gone,
    /// Ask again later.
    NoAnswer(CallError),
}

/// Reads, and lets the translator make events of the news.
pub(crate) async fn read(
    client: &Client,
    session: &Session,
    prompt: &str,
    lease: &Lease,
    translator: &mut Translator,
    depth: Depth,
) -> Reading {
    match try_read(client, session, prompt, lease, translator, depth).await {
        Ok(()) => Reading::Done,
        Err(CallError::NotFound) => Reading::Gone,
        Err(cause) if cause.is_transient() => Reading::NoAnswer(cause),
        Err(cause) => {
            tracing::warn!(session = %session.id, %cause, "OpenCode does not show how a session stands");
            Reading::Done
        }
    }
}

async fn try_read(
    client: &Client,
    session: &Session,
    prompt: &str,
    lease: &Lease,
    translator: &mut Translator,
    depth: Depth,
) -> Result<(), CallError> {
    let (directory, root) = (session.directory.as_str(), session.id.as_str());
    // The activity first: when it says idle, the messages that are read after it are the final ones.
    let statuses = client.statuses(directory).await?;
    let busy = statuses.contains_key(root);
    match client.messages_since(directory, root, prompt).await {
        Ok(messages) => translator.list(messages),
        Err(cause @ CallError::NotFound) => return Err(cause),
        Err(cause) if cause.is_transient() => return Err(cause),
        // OpenCode itself cannot read the messages of some sessions.
        Err(cause) => {
            tracing::warn!(session = %session.id, %cause, "OpenCode does not show the messages of a session");
            translator.no_list();
        }
    }
    translator.asked_status(busy);
    // An idle session asks nothing. What the lists still hold of it was left by an abort.
    if depth == Depth::Everything && busy {
        let tree = busy_tree(client, directory, root, &statuses, lease).await?;
        let open = |session: &str| session == root || tree.contains(session);
        let mut permissions = client.permissions(directory).await?;
        permissions.retain(|ask| open(&ask.session));
        let mut questions = client.questions(directory).await?;
        questions.retain(|ask| open(&ask.session));
        translator.open_asks(&permissions, &questions);
    }
    Ok(())
}

/// The sub-agents that are at work below a session. The lease learns of them.
async fn busy_tree(
    client: &Client,
    directory: &str,
    root: &str,
    statuses: &Statuses,
    lease: &Lease,
) -> Result<HashSet<String>, CallError> {
    let mut found = HashSet::new();
    let mut level = vec![root.to_owned()];
    for _ in 0..MAX_TREE_DEPTH {
        let mut next = Vec::new();
        for parent in level {
            let children = match client.children(directory, &parent).await {
                // Somebody deleted it; that is not the end of the turn.
                Err(CallError::NotFound) => continue,
                children => children?,
            };
            for child in children {
                if statuses.contains_key(&child.id) && found.insert(child.id.clone()) {
                    lease.add_child(&child.id, &parent);
                    next.push(child.id);
                }
            }
        }
        level = next;
    }
    Ok(found)
}
