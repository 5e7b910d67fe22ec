//! Answers the queries of control methods with requests to OpenCode.

use longshore_engine::port::Session;
use longshore_model::{
    AgentMessageId, ControlQuery, ControlResult, Error, FileDiff, Project, Result, Worktree,
};

use super::{Purpose, failure, required, results};
use crate::OpenCode;
use crate::admit::last_segment;
use crate::api::control as api;
use crate::client::CallError;

impl OpenCode {
    pub(super) async fn answer_query(
        &self,
        at: &str,
        session: Option<&Session>,
        query: &ControlQuery,
    ) -> Result<ControlResult> {
        let found = self.fetch_result(at, session, query).await;
        found.map_err(|cause| match (cause, query) {
            (CallError::NoMessage, ControlQuery::Message { .. }) => no_message("message_id"),
            (CallError::Refused { status: 400, .. }, ControlQuery::Messages { page, .. })
                if page.before.is_some() =>
            {
                Error::invalid(
                    "before",
                    "OpenCode does not know this cursor; use the next_cursor of a page of this session.",
                )
            }
            (CallError::TooLong, ControlQuery::Diffs { message: None, .. }) => failure::too_long(
                "The session changed more than one response can hold. Name one turn by its message_id; \
                 opencode.sessions.messages.list lists the messages.",
            ),
            (CallError::TooLong, ControlQuery::Sessions(_)) => failure::too_long(
                "OpenCode's list of sessions is too long to read. Request fewer with limit, or narrow it with start and search.",
            ),
            (cause, query) => {
                let purpose = Purpose::query(describe(query));
                cause.into_control_error(query.session().map_or(purpose, |session| purpose.in_session(session)))
            }
        })
    }

    /// Sends the request of a query. A session is queried in its own directory. Project queries use the workspace root.
    async fn fetch_result(
        &self,
        at: &str,
        session: Option<&Session>,
        query: &ControlQuery,
    ) -> Result<ControlResult, CallError> {
        let (client, root) = (&self.for_callers, self.access.root.as_str());
        let own = |session: &'_ Session| (session.directory.clone(), session.id.clone());
        Ok(match query {
            ControlQuery::Statuses => {
                ControlResult::Statuses(results::statuses(&client.unshared_statuses(at).await?))
            }
            ControlQuery::Sessions(query) => {
                ControlResult::Sessions(results::sessions(client.sessions(at, query).await?))
            }
            ControlQuery::Session(_) => {
                let (at, id) = own(required(session)?);
                ControlResult::Session(results::session(client.whole_session(&at, id.as_str()).await?)?)
            }
            ControlQuery::Children(_) => {
                let (at, id) = own(required(session)?);
                ControlResult::Sessions(results::sessions(client.whole_children(&at, id.as_str()).await?))
            }
            ControlQuery::Todos(_) => {
                let (at, id) = own(required(session)?);
                ControlResult::Todos(results::todos(client.todos(&at, id.as_str()).await?))
            }
            ControlQuery::Diffs { message, .. } => {
                ControlResult::Diffs(self.diffs(required(session)?, message.as_ref()).await?)
            }
            ControlQuery::Messages { page, .. } => {
                let (at, id) = own(required(session)?);
                let (found, next) = client.message_page(&at, id.as_str(), page).await?;
                let items = found.iter().filter_map(|found| results::message(&id, found).ok()).collect();
                ControlResult::Messages { items, next }
            }
            ControlQuery::Message { message, .. } => {
                let session = required(session)?;
                ControlResult::Message(results::message(
                    &session.id,
                    &self.find_message(session, message).await?,
                )?)
            }
            ControlQuery::Providers => {
                ControlResult::Providers(results::providers(client.all_providers(at).await?))
            }
            ControlQuery::Models { provider } => {
                ControlResult::Models(results::models(client.all_providers(at).await?, provider.as_deref()))
            }
            ControlQuery::Projects => {
                let mut projects = results::projects(client.projects(root).await?, root);
                for project in &mut projects {
                    project.sandboxes = self.usable_worktrees(std::mem::take(&mut project.sandboxes)).await;
                }
                ControlResult::Projects(projects)
            }
            ControlQuery::Project => {
                let project = results::project(client.whole_project(root).await?);
                let sandboxes = self.usable_worktrees(project.sandboxes).await;
                ControlResult::Project(Project { sandboxes, ..project })
            }
            ControlQuery::Workspaces => {
                let found = client.whole_workspaces(root).await?.into_iter();
                ControlResult::Workspaces(found.map(results::workspace).collect::<Result<_, _>>()?)
            }
            ControlQuery::Worktrees => {
                let mut items = Vec::new();
                for directory in self.usable_worktrees(client.worktrees(root).await?).await {
                    let name = last_segment(&directory).unwrap_or(&directory).to_owned();
                    items.push(Worktree { name, branch: self.access.branch(&directory).await, directory });
                }
                ControlResult::Worktrees(items)
            }
        })
    }

    /// Reads a message. OpenCode does not check the session when it looks up a message. So if the message does not exist, this
    /// function checks whether the session exists.
    pub(super) async fn find_message(
        &self,
        session: &Session,
        message: &AgentMessageId,
    ) -> Result<api::Message, CallError> {
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let found = self.for_callers.message(at, id, message.as_str()).await;
        if matches!(found, Err(CallError::NoMessage)) {
            self.for_callers.session(at, id).await?;
        }
        found
    }

    /// Filters OpenCode's list of worktrees, which also contains clones and every other directory of the project that OpenCode has
    /// ever seen. Keeps only the worktrees of the workspace's own repository, as the disk shows them. If OpenCode runs on another
    /// machine, the disk cannot show that, and the list is returned unchanged.
    async fn usable_worktrees(&self, listed: Vec<String>) -> Vec<String> {
        if !self.is_root_here {
            return listed;
        }
        let mut own = Vec::new();
        for directory in listed {
            if self.access.is_own_worktree(&directory).await {
                own.push(directory);
            }
        }
        own
    }

    /// The file changes of one message, or of the whole session.
    async fn diffs(
        &self,
        session: &Session,
        message: Option<&AgentMessageId>,
    ) -> Result<Vec<FileDiff>, CallError> {
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        if let Some(message) = message {
            // If the session does not exist, OpenCode would answer the next request with an internal error instead of "not found".
            self.for_callers.session(at, id).await?;
            return Ok(results::diffs(None, self.for_callers.diff(at, id, message.as_str()).await?));
        }
        let mut all = Vec::new();
        for (message, found) in self.for_callers.diffs(at, id).await? {
            all.extend(results::diffs(AgentMessageId::parse(&message).ok().as_ref(), found));
        }
        Ok(all)
    }
}

pub(super) fn no_message(field: &str) -> Error {
    Error::invalid(
        field,
        "The session has no message with this id; opencode.sessions.messages.list lists the messages.",
    )
}

/// The purpose of a query. Completes the error text "could not ...".
fn describe(query: &ControlQuery) -> &'static str {
    match query {
        ControlQuery::Statuses => "read which sessions are busy",
        ControlQuery::Sessions(_) => "list the sessions",
        ControlQuery::Session(_) => "look up the session",
        ControlQuery::Children(_) => "list the child sessions",
        ControlQuery::Todos(_) => "read the session's to-do list",
        ControlQuery::Diffs { .. } => "read what the session changed",
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
