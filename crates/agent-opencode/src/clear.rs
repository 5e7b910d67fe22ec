//! Rejects the asks that an aborted turn left open in OpenCode.
//!
//! OpenCode never removes them from its lists, and rejecting one during a later turn of the session ends that turn. So the gateway
//! rejects them right after the abort, while no turn runs in the session.

use std::collections::HashMap;

use longshore_engine::port::Session;
use longshore_model::{Answer, PermissionReply};

use crate::client::{CallError, Client};

/// How many ancestors of a session are read. The asks of a sub-agent that is nested more deeply are not found.
const MAX_DEPTH: usize = 8;

/// Rejects the open asks of the session and of its sub-agents. `known`: the sessions of sub-agents that the turn called; such a
/// session may have existed before, and then it is no descendant of this session. Best effort: an ask that remains does no harm
/// until somebody answers it.
pub(crate) async fn reject_asks(client: &Client, session: &Session, known: Vec<String>) {
    if let Err(cause) = try_reject_asks(client, session, known).await {
        tracing::debug!(session = %session.id, %cause, "asks of an aborted turn may remain open in OpenCode");
    }
}

async fn try_reject_asks(client: &Client, session: &Session, known: Vec<String>) -> Result<(), CallError> {
    let directory = session.directory.as_str();
    let mut tree = DescendantFilter::new(client, session, known);
    let reject = Answer::Permission { reply: PermissionReply::Reject, message: None };
    for ask in client.permissions(directory).await? {
        if tree.contains(&ask.session).await? {
            missing_is_ok(client.answer(directory, &ask.id, &reject).await)?;
        }
    }
    for ask in client.questions(directory).await? {
        if tree.contains(&ask.session).await? {
            missing_is_ok(client.answer(directory, &ask.id, &Answer::RejectQuestion).await)?;
        }
    }
    Ok(())
}

/// Finds out whether a session is a given session or one of its descendants.
pub(crate) struct DescendantFilter<'a> {
    client: &'a Client,
    directory: &'a str,
    known: HashMap<String, bool>,
}

impl<'a> DescendantFilter<'a> {
    /// `known`: sessions that are known to be descendants.
    pub(crate) fn new(client: &'a Client, session: &'a Session, known: Vec<String>) -> Self {
        let all = known.into_iter().chain([session.id.as_str().to_owned()]);
        let known = all.map(|session| (session, true)).collect();
        Self { client, directory: &session.directory, known }
    }

    pub(crate) async fn contains(&mut self, session: &str) -> Result<bool, CallError> {
        let mut ancestors = vec![session.to_owned()];
        let mut found = false;
        while let Some(at) = ancestors.last() {
            if let Some(known) = self.known.get(at) {
                found = *known;
                break;
            }
            if ancestors.len() > MAX_DEPTH {
                break;
            }
            match self.client.session(self.directory, at).await {
                Ok(api) => match api.parent {
                    Some(parent) => ancestors.push(parent),
                    None => break,
                },
                Err(CallError::NotFound) => break,
                Err(cause) => return Err(cause),
            }
        }
        self.known.extend(ancestors.into_iter().map(|session| (session, found)));
        Ok(found)
    }
}

/// Ignores the error "not found": rejecting one ask also removes the other asks of the same session.
fn missing_is_ok(rejected: Result<(), CallError>) -> Result<(), CallError> {
    match rejected {
        Err(CallError::NotFound) => Ok(()),
        rejected => rejected,
    }
}
