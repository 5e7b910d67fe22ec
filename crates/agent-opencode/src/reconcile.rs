//! Reads from OpenCode what its event stream did not bring, after a gap, at a doubtful end, and when a turn is taken
//! up again. Nothing is guessed: what OpenCode does not say is not reported.

use std::collections::HashSet;

use longshore_engine::port::Session;

use crate::api::{self, Statuses};
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
    /// Also the session's name, the sub-agents and what they used, and the open asks.
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
        // OpenCode itself cannot read the messages of some sessions. Then the stream is all there is, and its asks.
        Err(cause) => {
            tracing::warn!(session = %session.id, %cause, "OpenCode does not show the messages of a session");
            translator.no_list();
        }
    }
    translator.asked_status(busy);
    if depth == Depth::Messages && !translator.has_open_asks() {
        return Ok(());
    }
    let named = client.session(directory, root).await?;
    translator.title(named.title.as_deref());
    let tree = Tree { client, directory, lease, statuses: &statuses, since: translator.prompt_created() };
    let mut at_work: HashSet<String> = HashSet::new();
    for child in tree.read(root).await? {
        if let Some(since) = tree.since {
            let messages = known(client.infos_since(directory, &child, since).await)?;
            translator.list_below(&messages.unwrap_or_default());
        }
        if statuses.contains_key(&child) {
            at_work.insert(child);
        }
    }
    if busy {
        at_work.insert(root.to_owned());
    } else {
        // Nobody waits for a sub-agent of an idle session.
        at_work.clear();
    }
    if busy || translator.has_open_asks() {
        let permissions = client.permissions(directory).await?;
        let questions = client.questions(directory).await?;
        translator.open_asks(&permissions, &questions, &at_work);
    }
    Ok(())
}

/// The sub-agents below a session.
struct Tree<'a> {
    client: &'a Client,
    directory: &'a str,
    lease: &'a Lease,
    statuses: &'a Statuses,
    /// When the turn began. Sub-agents that rest since before that are of earlier turns.
    since: Option<f64>,
}

impl Tree<'_> {
    /// Those that work, or have worked, for the turn. The lease learns of them.
    async fn read(&self, root: &str) -> Result<Vec<String>, CallError> {
        let mut found: Vec<String> = Vec::new();
        let mut level = vec![root.to_owned()];
        for _ in 0..MAX_TREE_DEPTH {
            let mut next = Vec::new();
            for parent in level {
                let children = known(self.client.children(self.directory, &parent).await)?;
                for child in children.unwrap_or_default() {
                    if self.is_of_this_turn(&child) && !found.contains(&child.id) {
                        self.lease.add_child(&child.id, &parent);
                        found.push(child.id.clone());
                        next.push(child.id);
                    }
                }
            }
            level = next;
        }
        Ok(found)
    }

    fn is_of_this_turn(&self, child: &api::Session) -> bool {
        let rests = child.time.updated.zip(self.since).is_some_and(|(updated, since)| updated < since);
        !rests || self.statuses.contains_key(&child.id)
    }
}

/// Somebody may delete a sub-agent's session at any time; that is not the end of the turn.
fn known<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(CallError::NotFound) => Ok(None),
        Err(cause) => Err(cause),
    }
}
