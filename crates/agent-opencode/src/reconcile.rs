//! Reads the state of a turn from OpenCode when its event stream is not enough: after a gap, when its end is doubtful, and when a
//! turn is resumed. This module never guesses: it reports only what OpenCode shows.

use std::collections::HashSet;

use futures_util::future::{join, try_join, try_join_all};
use longshore_engine::fail_point;
use longshore_engine::port::Session;

use crate::api::{self, Status, Statuses, StoredMessage};
use crate::client::{CallError, Client};
use crate::translate::Translator;

/// Maximum depth of sub-agents that is read. Sub-agents can call sub-agents, but OpenCode allows one level unless it is configured
/// otherwise.
const MAX_TREE_DEPTH: usize = 4;

/// How much to read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Depth {
    /// The activity and the messages of the session, which is enough if no event was lost.
    Messages,
    /// In addition the session's title, the sub-agents and their usage, and the open asks.
    Everything,
}

#[derive(Debug)]
pub(crate) enum Reading {
    /// The reading succeeded. Contains the sub-agents that were found, each after the agent that called it.
    Done(Vec<Found>),
    /// OpenCode has no such session.
    Gone,
    /// OpenCode did not respond. The state must be read again later.
    NoAnswer(CallError),
}

/// A sub-agent that works or has worked for the turn.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) session: String,
    pub(crate) parent: String,
    pub(crate) title: Option<String>,
}

/// The state of a sub-agent.
#[derive(Debug)]
pub(crate) struct ChildReading {
    /// The activity of the sub-agent. `None`: it is idle.
    pub(crate) status: Option<Status>,
    pub(crate) messages: Vec<StoredMessage>,
}

/// Reads the state of the session and passes it to the translator. The sub-agents in `followed` have their own translators, so only
/// their activity is read here.
///
/// `update_joins` is called before the messages are passed on, because a message may have joined the turn since the request was
/// sent. Without this update, the answer to that message would count as the answer to another client's prompt.
pub(crate) async fn read(
    client: &Client,
    session: &Session,
    translator: &mut Translator,
    update_joins: impl FnMut(&mut Translator),
    depth: Depth,
    followed: &[String],
) -> Reading {
    match try_read(client, session, translator, update_joins, depth, followed).await {
        Ok(found) => Reading::Done(found),
        Err(CallError::NotFound) => Reading::Gone,
        Err(cause) if cause.is_transient() => Reading::NoAnswer(cause),
        Err(cause) => {
            tracing::warn!(session = %session.id, %cause, "OpenCode does not show the state of a session");
            Reading::Done(Vec::new())
        }
    }
}

/// Reads the state of a sub-agent, with its messages since a time.
pub(crate) async fn read_child(
    client: &Client,
    directory: &str,
    child: &str,
    since: f64,
) -> Result<ChildReading, CallError> {
    // The status is read before the messages, for the same reason as in `try_read`.
    let status = client.statuses(directory).await?.get(child).cloned();
    let messages = client.messages_created_since(directory, child, since).await?;
    Ok(ChildReading { status, messages })
}

async fn try_read(
    client: &Client,
    session: &Session,
    translator: &mut Translator,
    mut update_joins: impl FnMut(&mut Translator),
    depth: Depth,
    followed: &[String],
) -> Result<Vec<Found>, CallError> {
    fail_point::hit("reconcile.before");
    let (directory, root) = (session.directory.as_str(), session.id.as_str());
    let prompts: Vec<String> = translator.prompts().map(str::to_owned).collect();
    let messages = async {
        // The status is read before the messages: if the session was idle, the messages that are read afterwards are final.
        let statuses = client.statuses(directory).await?;
        Ok::<_, CallError>((statuses, client.messages_since(directory, root, &prompts).await))
    };
    // Both reads run at the same time, because each response of a busy OpenCode takes a while.
    let (messages, family) = if depth == Depth::Everything {
        let (messages, family) = join(messages, family(client, directory, root)).await;
        (messages, Some(family))
    } else {
        (messages.await, None)
    };
    let (statuses, messages) = messages?;
    let busy = statuses.contains_key(root);
    update_joins(translator);
    match messages {
        Ok(messages) => translator.merge_messages(messages),
        Err(cause @ CallError::NotFound) => return Err(cause),
        Err(cause) if cause.is_transient() => return Err(cause),
        // OpenCode itself fails to list the messages of some sessions. Then only the stream and the lists of asks are left.
        Err(cause) => {
            tracing::warn!(session = %session.id, %cause, "OpenCode does not show the messages of a session");
            translator.messages_unavailable();
        }
    }
    translator.confirm_status(statuses.get(root));
    let (named, children) = match family {
        Some(family) => family?,
        None if translator.has_open_asks() => self::family(client, directory, root).await?,
        None => return Ok(Vec::new()),
    };
    translator.title(named.title.as_deref());
    let tree = Tree { client, directory, statuses: &statuses, since: translator.prompt_created() };
    let found = tree.read(root, children).await?;
    for child in found.iter().filter(|child| !followed.contains(&child.session)) {
        if let Some(since) = tree.since {
            let messages =
                none_if_deleted(client.infos_created_since(directory, &child.session, since).await)?;
            translator.merge_child_messages(messages.iter().flatten().map(|message| &message.info));
        }
    }
    // `followed` is included, because a sub-agent can work in a session from elsewhere, or deeper than the tree was read.
    let mut busy_sessions: HashSet<String> =
        found.iter().map(|child| &child.session).chain(followed).cloned().collect();
    busy_sessions.insert(root.to_owned());
    // If the root session is idle, no agent waits for its sub-agents, so their asks do not count.
    busy_sessions.retain(|session| busy && statuses.contains_key(session));
    if busy || translator.has_open_asks() {
        let (permissions, questions) =
            try_join(client.permissions(directory), client.questions(directory)).await?;
        translator.merge_asks(&permissions, &questions, &busy_sessions);
    }
    fail_point::hit("reconcile.after");
    Ok(found)
}

/// The session itself and its children.
async fn family(
    client: &Client,
    directory: &str,
    root: &str,
) -> Result<(api::Session, Vec<api::Session>), CallError> {
    let children = async { none_if_deleted(client.children(directory, root).await) };
    let (session, children) = try_join(client.session(directory, root), children).await?;
    Ok((session, children.unwrap_or_default()))
}

/// The sub-agents below a session.
struct Tree<'a> {
    client: &'a Client,
    directory: &'a str,
    statuses: &'a Statuses,
    /// When the turn began. Sub-agents without a change since then belong to earlier turns.
    since: Option<f64>,
}

impl Tree<'_> {
    /// The sub-agents that work, or have worked, for the turn.
    async fn read(&self, root: &str, children: Vec<api::Session>) -> Result<Vec<Found>, CallError> {
        let mut found: Vec<Found> = Vec::new();
        let mut level = vec![(root.to_owned(), children)];
        for depth in 1.. {
            let mut next = Vec::new();
            for (parent, children) in level {
                for child in children {
                    let is_new = !found.iter().any(|found| found.session == child.id);
                    if is_new && self.belongs_to_turn(&child) {
                        next.push(child.id.clone());
                        found.push(Found { session: child.id, parent: parent.clone(), title: child.title });
                    }
                }
            }
            if next.is_empty() || depth == MAX_TREE_DEPTH {
                break;
            }
            level = try_join_all(next.into_iter().map(|parent| self.children(parent))).await?;
        }
        Ok(found)
    }

    async fn children(&self, parent: String) -> Result<(String, Vec<api::Session>), CallError> {
        let children = none_if_deleted(self.client.children(self.directory, &parent).await)?;
        Ok((parent, children.unwrap_or_default()))
    }

    fn belongs_to_turn(&self, child: &api::Session) -> bool {
        let is_older = child.time.updated.zip(self.since).is_some_and(|(updated, since)| updated < since);
        !is_older || self.statuses.contains_key(&child.id)
    }
}

/// Turns "not found" into `None`. A user may delete a sub-agent's session at any time, which does not end the turn.
fn none_if_deleted<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(CallError::NotFound) => Ok(None),
        Err(cause) => Err(cause),
    }
}
