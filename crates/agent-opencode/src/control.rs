//! Lets callers query and change sessions, worktrees and workspaces in OpenCode. Implements [`longshore_engine::port::Control`].
//!
//! OpenCode does not check its input. It reports success for ids that it does not have, writes into the session that holds a
//! message even if the request names another session, and deletes any directory that a request names. So the driver looks up every
//! name before it uses the name, and refuses a request whose names it cannot look up. A call that changes something is never
//! repeated.

mod commands;
mod failure;
mod native_prompt;
mod queries;
mod readiness;
pub(crate) mod references;
mod results;
mod withheld;
mod workspaces;

use longshore_engine::port::{
    BoxFuture, Control, ExternalTurn, Input, KnownSession, NativePrompts, Removes, Session, SessionWatch,
};
use longshore_engine::to_control_error;
use longshore_model::{
    AgentMessageId, ControlCommand, ControlQuery, ControlResult, Error, NativePrompt, Offers, PromptId,
    PromptOptions, RequestedLocation, Result, SessionId, Timestamp, WorkspaceId,
};
use tokio::sync::mpsc;

pub(crate) use self::failure::{ForPurpose, Purpose};
use crate::client::CallError;
use crate::directories::DirectoryUse;
use crate::{OpenCode, id};

impl Control for OpenCode {
    fn resolve_location<'a>(&'a self, requested: &'a RequestedLocation) -> BoxFuture<'a, Result<String>> {
        Box::pin(async move { self.access.resolve_location(requested).await.map_err(to_control_error) })
    }

    fn find<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<KnownSession>>> {
        Box::pin(async move {
            // If an id is not in OpenCode's form, OpenCode returns an error other than "not found".
            if id::segment(id::Kind::Session, id.as_str()).is_err() {
                return Ok(None);
            }
            let purpose = Purpose::query("look up the session").in_session(id);
            let found = match self.for_callers.session(&self.access.root, id.as_str()).await {
                Err(CallError::NotFound) => return Ok(None),
                found => found.for_purpose(purpose)?,
            };
            let malformed = |what: &str| CallError::Garbled(what.to_owned()).into_control_error(purpose);
            let directory = found.directory.ok_or_else(|| malformed("a session without a directory"))?;
            // A session whose parent is unreadable must not be treated as a session without a parent.
            let parent = found.parent.as_deref().map(SessionId::parse).transpose();
            let workspace = found.workspace.as_deref().map(WorkspaceId::parse).transpose();
            let is_open = self.access.is_open_to_callers(&directory).await.map_err(to_control_error)?;
            Ok(Some(KnownSession {
                session: Session { id: id.clone(), directory },
                parent: parent.map_err(|_| malformed("a session with a malformed parent"))?,
                // OpenCode sends the events of a session in a workspace only to that workspace's stream, so the gateway does not
                // get them.
                is_followed: workspace
                    .map_err(|_| malformed("a session with a malformed workspace"))?
                    .is_none(),
                is_open,
            }))
        })
    }

    fn query<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        query: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(async move {
            let _in_use = self.enter_both(at, session).await?;
            self.withhold(session, self.answer_query(at, session, query).await?).await
        })
    }

    fn run_command<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        command: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(async move {
            let _in_use = self.enter_both(at, session).await?;
            self.withhold(session, self.execute(session, command).await?).await
        })
    }

    fn forks<'a>(
        &'a self,
        session: &'a Session,
        before: Option<&'a AgentMessageId>,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Session>>> {
        Box::pin(self.find_forks(session, before, since))
    }

    fn offers(&self) -> BoxFuture<'_, Result<Offers>> {
        Box::pin(async move {
            let (agents, commands) = self.access.catalog.offers().await?;
            Ok(results::offers(&agents, &commands))
        })
    }

    fn native_prompts(&self) -> Option<&dyn NativePrompts> {
        Some(self)
    }

    fn removes<'a>(&'a self, command: &'a ControlCommand) -> BoxFuture<'a, Result<Removes>> {
        Box::pin(self.removed_by(command))
    }

    fn session_watch(&self) -> Option<&dyn SessionWatch> {
        Some(self)
    }
}

impl NativePrompts for OpenCode {
    fn check_native_prompt<'a>(
        &'a self,
        session: &'a Session,
        native: &'a NativePrompt,
        input: &'a [Input],
        options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let _in_use = self.directories.enter_for_call(&session.directory).await?;
            self.check_prompt(session, native, input, options).await
        })
    }

    fn note<'a>(
        &'a self,
        session: &'a Session,
        native: &'a NativePrompt,
        input: &'a [Input],
        options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let _in_use = self.directories.enter_for_call(&session.directory).await?;
            self.send_note(session, native, input, options).await
        })
    }

    fn is_prompt(&self, message: &AgentMessageId, prompt: &PromptId) -> bool {
        crate::id::is_prompt(message.as_str(), prompt.as_str())
    }
}

impl SessionWatch for OpenCode {
    fn watch(&self, sessions: Vec<Session>) {
        let directories = sessions.iter().map(|session| session.directory.clone()).collect();
        self.watch.watch(sessions);
        self.directories.count_watched(directories);
    }

    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn> {
        self.watch.external_turns()
    }

    fn external_turn<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Option<ExternalTurn>>> {
        Box::pin(self.watch.external_turn(session))
    }
}

impl OpenCode {
    /// Marks the directory of a call as in use, and the directory of the call's session.
    async fn enter_both(&self, at: &str, session: Option<&Session>) -> Result<[Option<DirectoryUse>; 2]> {
        let own = match session {
            Some(session) => self.directories.enter_for_call(&session.directory).await?,
            None => None,
        };
        Ok([self.directories.enter_for_call(at).await?, own])
    }
}

/// The session of a query or command about a session. The engine always passes it.
fn required(session: Option<&Session>) -> Result<&Session> {
    session.ok_or_else(|| Error::internal("a query or command about a session came without the session"))
}
