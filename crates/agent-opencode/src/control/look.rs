//! Looks.

use longshore_engine::port::Session;
use longshore_model::{ControlQuery, ControlResult, Error, FileDiff, MessageRef, Project, Result, Worktree};

use super::{Doing, failure, given, told};
use crate::OpenCode;
use crate::admit::last_segment;
use crate::api::control as api;
use crate::client::CallError;

impl OpenCode {
    pub(super) async fn looked(
        &self,
        at: &str,
        session: Option<&Session>,
        look: &ControlQuery,
    ) -> Result<ControlResult> {
        let seen = self.seen(at, session, look).await;
        seen.map_err(|cause| match (cause, look) {
            (CallError::NoMessage, ControlQuery::Message { .. }) => no_message("message_id"),
            (CallError::Refused { status: 400, .. }, ControlQuery::Messages { page, .. })
                if page.before.is_some() =>
            {
                Error::invalid(
                    "before",
                    "OpenCode does not know this cursor; give the next_cursor of a page of this session.",
                )
            }
            (CallError::TooLong, ControlQuery::Diffs { message: None, .. }) => failure::too_long(
                "The session changed more than is told at once. Name one turn by its message_id; \
                 opencode.sessions.messages.list tells them.",
            ),
            (CallError::TooLong, ControlQuery::Sessions(_)) => failure::too_long(
                "OpenCode's list of sessions is too long to be read. Ask for fewer with limit, or with start and search.",
            ),
            (cause, look) => {
                let doing = Doing::looking(what(look));
                cause.told(&look.session().map_or(doing, |session| doing.of(session)))
            }
        })
    }

    /// A session is looked at in its own directory, and the project is the root's.
    async fn seen(
        &self,
        at: &str,
        session: Option<&Session>,
        look: &ControlQuery,
    ) -> Result<ControlResult, CallError> {
        let (client, root) = (&self.for_callers, self.gate.root.as_str());
        let own = |session: &'_ Session| (session.directory.clone(), session.id.clone());
        Ok(match look {
            ControlQuery::Statuses => {
                ControlResult::Statuses(told::statuses(&client.own_statuses(at).await?))
            }
            ControlQuery::Sessions(query) => {
                ControlResult::Sessions(told::sessions(client.sessions(at, query).await?))
            }
            ControlQuery::Session(_) => {
                let (at, id) = own(given(session)?);
                ControlResult::Session(told::session(client.whole_session(&at, id.as_str()).await?)?)
            }
            ControlQuery::Children(_) => {
                let (at, id) = own(given(session)?);
                ControlResult::Sessions(told::sessions(client.whole_children(&at, id.as_str()).await?))
            }
            ControlQuery::Todos(_) => {
                let (at, id) = own(given(session)?);
                ControlResult::Todos(told::todos(client.todos(&at, id.as_str()).await?))
            }
            ControlQuery::Diffs { message, .. } => {
                ControlResult::Diffs(self.changes(given(session)?, message.as_ref()).await?)
            }
            ControlQuery::Messages { page, .. } => {
                let (at, id) = own(given(session)?);
                let (found, next) = client.message_page(&at, id.as_str(), page).await?;
                let items = found.iter().filter_map(|found| told::message(&id, found).ok()).collect();
                ControlResult::Messages { items, next }
            }
            ControlQuery::Message { message, .. } => {
                let session = given(session)?;
                ControlResult::Message(told::message(&session.id, &self.message_in(session, message).await?)?)
            }
            ControlQuery::Providers => {
                ControlResult::Providers(told::providers(client.all_providers(at).await?))
            }
            ControlQuery::Models { provider } => {
                ControlResult::Models(told::models(client.all_providers(at).await?, provider.as_deref()))
            }
            ControlQuery::Projects => {
                let mut projects = told::projects(client.projects(root).await?, root);
                for project in &mut projects {
                    project.sandboxes = self.own_worktrees(std::mem::take(&mut project.sandboxes)).await;
                }
                ControlResult::Projects(projects)
            }
            ControlQuery::Project => {
                let project = told::project(client.whole_project(root).await?);
                let sandboxes = self.own_worktrees(project.sandboxes).await;
                ControlResult::Project(Project { sandboxes, ..project })
            }
            ControlQuery::Workspaces => {
                let found = client.whole_workspaces(root).await?.into_iter();
                ControlResult::Workspaces(found.map(told::workspace).collect::<Result<_, _>>()?)
            }
            ControlQuery::Worktrees => {
                let mut items = Vec::new();
                for directory in self.own_worktrees(client.worktrees(root).await?).await {
                    let name = last_segment(&directory).unwrap_or(&directory).to_owned();
                    items.push(Worktree { name, branch: self.gate.branch(&directory).await, directory });
                }
                ControlResult::Worktrees(items)
            }
        })
    }

    /// OpenCode looks for a message without looking for its session. Whether it is the session that is missing is asked then.
    pub(super) async fn message_in(
        &self,
        session: &Session,
        message: &MessageRef,
    ) -> Result<api::Message, CallError> {
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let found = self.for_callers.message(at, id, message.as_str()).await;
        if matches!(found, Err(CallError::NoMessage)) {
            self.for_callers.session(at, id).await?;
        }
        found
    }

    /// OpenCode lists clones and whatever else it ever saw among the worktrees. Callers are told of those that they may use, as far
    /// as the disk is here to tell.
    async fn own_worktrees(&self, listed: Vec<String>) -> Vec<String> {
        if !self.is_root_here {
            return listed;
        }
        let mut own = Vec::new();
        for directory in listed {
            if self.gate.is_own_worktree(&directory).await {
                own.push(directory);
            }
        }
        own
    }

    /// Of one message, or of all.
    async fn changes(
        &self,
        session: &Session,
        message: Option<&MessageRef>,
    ) -> Result<Vec<FileDiff>, CallError> {
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        if let Some(message) = message {
            // OpenCode fails at what it is asked for next when it does not have the session.
            self.for_callers.session(at, id).await?;
            return Ok(told::diffs(None, self.for_callers.diff(at, id, message.as_str()).await?));
        }
        let mut all = Vec::new();
        for (message, found) in self.for_callers.diffs(at, id).await? {
            all.extend(told::diffs(MessageRef::parse(&message).ok().as_ref(), found));
        }
        Ok(all)
    }
}

pub(super) fn no_message(field: &str) -> Error {
    Error::invalid(
        field,
        "The session has no message of this name; opencode.sessions.messages.list tells them.",
    )
}

/// Completes "could not ...".
fn what(look: &ControlQuery) -> &'static str {
    match look {
        ControlQuery::Statuses => "see which sessions are at work",
        ControlQuery::Sessions(_) => "list the sessions",
        ControlQuery::Session(_) => "look up the session",
        ControlQuery::Children(_) => "list the sessions below this one",
        ControlQuery::Todos(_) => "read the session's list of things to do",
        ControlQuery::Diffs { .. } => "see what the session changed",
        ControlQuery::Messages { .. } => "read the session's messages",
        ControlQuery::Message { .. } => "read the message",
        ControlQuery::Providers => "list the providers",
        ControlQuery::Models { .. } => "list the models",
        ControlQuery::Projects => "list the projects",
        ControlQuery::Project => "look up the project",
        ControlQuery::Workspaces => "list the workspaces",
        ControlQuery::Worktrees => "list the worktrees",
    }
}
