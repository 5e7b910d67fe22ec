//! Looks.

use longshore_engine::port::Session;
use longshore_model::{Error, FileDiff, Look, MessageRef, Project, Result, Told, Worktree};

use super::{Doing, failure, given, told};
use crate::OpenCode;
use crate::admit::last_segment;
use crate::api::control as api;
use crate::client::CallError;

impl OpenCode {
    pub(super) async fn looked(&self, at: &str, session: Option<&Session>, look: &Look) -> Result<Told> {
        let seen = self.seen(at, session, look).await;
        seen.map_err(|cause| match (cause, look) {
            (CallError::NoMessage, Look::Message { .. }) => no_message("message_id"),
            (CallError::Refused { status: 400, .. }, Look::Messages { page, .. })
                if page.before.is_some() =>
            {
                Error::invalid(
                    "before",
                    "OpenCode does not know this cursor; give the next_cursor of a page of this session.",
                )
            }
            (CallError::TooLong, Look::Diffs { message: None, .. }) => failure::too_long(
                "The session changed more than is told at once. Name one turn by its message_id; \
                 opencode.sessions.messages.list tells them.",
            ),
            (CallError::TooLong, Look::Sessions(_)) => failure::too_long(
                "OpenCode's list of sessions is too long to be read. Ask for fewer with limit, or with start and search.",
            ),
            (cause, look) => {
                let doing = Doing::looking(what(look));
                cause.told(&look.session().map_or(doing, |session| doing.of(session)))
            }
        })
    }

    /// A session is looked at in its own directory, and the project is the root's.
    async fn seen(&self, at: &str, session: Option<&Session>, look: &Look) -> Result<Told, CallError> {
        let (client, root) = (&self.for_callers, self.gate.root.as_str());
        let own = |session: &'_ Session| (session.directory.clone(), session.id.clone());
        Ok(match look {
            Look::Statuses => Told::Statuses(told::statuses(&client.own_statuses(at).await?)),
            Look::Sessions(query) => Told::Sessions(told::sessions(client.sessions(at, query).await?)),
            Look::Session(_) => {
                let (at, id) = own(given(session)?);
                Told::Session(told::session(client.whole_session(&at, id.as_str()).await?)?)
            }
            Look::Children(_) => {
                let (at, id) = own(given(session)?);
                Told::Sessions(told::sessions(client.whole_children(&at, id.as_str()).await?))
            }
            Look::Todos(_) => {
                let (at, id) = own(given(session)?);
                Told::Todos(told::todos(client.todos(&at, id.as_str()).await?))
            }
            Look::Diffs { message, .. } => {
                Told::Diffs(self.changes(given(session)?, message.as_ref()).await?)
            }
            Look::Messages { page, .. } => {
                let (at, id) = own(given(session)?);
                let (found, next) = client.message_page(&at, id.as_str(), page).await?;
                let items = found.iter().filter_map(|found| told::message(&id, found).ok()).collect();
                Told::Messages { items, next }
            }
            Look::Message { message, .. } => {
                let session = given(session)?;
                Told::Message(told::message(&session.id, &self.message_in(session, message).await?)?)
            }
            Look::Providers => Told::Providers(told::providers(client.all_providers(at).await?)),
            Look::Models { provider } => {
                Told::Models(told::models(client.all_providers(at).await?, provider.as_deref()))
            }
            Look::Projects => {
                let mut projects = told::projects(client.projects(root).await?, root);
                for project in &mut projects {
                    project.sandboxes = self.own_worktrees(std::mem::take(&mut project.sandboxes)).await;
                }
                Told::Projects(projects)
            }
            Look::Project => {
                let project = told::project(client.whole_project(root).await?);
                let sandboxes = self.own_worktrees(project.sandboxes).await;
                Told::Project(Project { sandboxes, ..project })
            }
            Look::Workspaces => {
                let found = client.whole_workspaces(root).await?.into_iter();
                Told::Workspaces(found.map(told::workspace).collect::<Result<_, _>>()?)
            }
            Look::Worktrees => {
                let mut items = Vec::new();
                for directory in self.own_worktrees(client.worktrees(root).await?).await {
                    let name = last_segment(&directory).unwrap_or(&directory).to_owned();
                    items.push(Worktree { name, branch: self.gate.branch(&directory).await, directory });
                }
                Told::Worktrees(items)
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
fn what(look: &Look) -> &'static str {
    match look {
        Look::Statuses => "see which sessions are at work",
        Look::Sessions(_) => "list the sessions",
        Look::Session(_) => "look up the session",
        Look::Children(_) => "list the sessions below this one",
        Look::Todos(_) => "read the session's list of things to do",
        Look::Diffs { .. } => "see what the session changed",
        Look::Messages { .. } => "read the session's messages",
        Look::Message { .. } => "read the message",
        Look::Providers => "list the providers",
        Look::Models { .. } => "list the models",
        Look::Projects => "list the projects",
        Look::Project => "look up the project",
        Look::Workspaces => "list the workspaces",
        Look::Worktrees => "list the worktrees",
    }
}
