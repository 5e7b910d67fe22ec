//! OpenCode keeps the open asks of a turn in its lists after the turn was aborted, for good, and rejecting one of them during
//! a later turn ends that turn. So they are rejected right after the abort, while nothing runs in the session.

use std::collections::HashMap;

use longshore_engine::port::Session;
use longshore_model::{Answer, PermissionReply};

use crate::client::{CallError, Client};

/// Sub-agents can have sub-agents. From one that is deeper the way up is not looked for.
const MAX_DEPTH: usize = 8;

/// Rejects what the session and the sub-agents below it still ask. `known` are some of these, as a sub-agent can work in a
/// session from elsewhere. Best effort: what is left does no harm until somebody answers it.
pub(crate) async fn asks(client: &Client, session: &Session, known: Vec<String>) {
    if let Err(cause) = try_asks(client, session, known).await {
        tracing::debug!(session = %session.id, %cause, "asks of an aborted turn may be left in OpenCode");
    }
}

async fn try_asks(client: &Client, session: &Session, known: Vec<String>) -> Result<(), CallError> {
    let directory = session.directory.as_str();
    let mut below = DescendantFilter::of(client, session, known);
    let reject = Answer::Permission { reply: PermissionReply::Reject, message: None };
    for ask in client.permissions(directory).await? {
        if below.contains(&ask.session).await? {
            missing_is_ok(client.answer(directory, &ask.id, &reject).await)?;
        }
    }
    for ask in client.questions(directory).await? {
        if below.contains(&ask.session).await? {
            missing_is_ok(client.answer(directory, &ask.id, &Answer::RejectQuestion).await)?;
        }
    }
    Ok(())
}

/// The session and those below it.
pub(crate) struct DescendantFilter<'a> {
    client: &'a Client,
    directory: &'a str,
    known: HashMap<String, bool>,
}

impl<'a> DescendantFilter<'a> {
    /// `known` are some of those below it.
    pub(crate) fn of(client: &'a Client, session: &'a Session, known: Vec<String>) -> Self {
        let all = known.into_iter().chain([session.id.as_str().to_owned()]);
        let known = all.map(|session| (session, true)).collect();
        Self { client, directory: &session.directory, known }
    }

    pub(crate) async fn contains(&mut self, session: &str) -> Result<bool, CallError> {
        let mut way = vec![session.to_owned()];
        let mut found = false;
        while let Some(at) = way.last() {
            if let Some(known) = self.known.get(at) {
                found = *known;
                break;
            }
            if way.len() > MAX_DEPTH {
                break;
            }
            match self.client.session(self.directory, at).await {
                Ok(api) => match api.parent {
                    Some(parent) => way.push(parent),
                    None => break,
                },
                Err(CallError::NotFound) => break,
                Err(cause) => return Err(cause),
            }
        }
        self.known.extend(way.into_iter().map(|session| (session, found)));
        Ok(found)
    }
}

/// A rejection takes the other asks of the same session with it.
fn missing_is_ok(rejected: Result<(), CallError>) -> Result<(), CallError> {
    match rejected {
        Err(CallError::NotFound) => Ok(()),
        rejected => rejected,
    }
}
