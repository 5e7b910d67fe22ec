//! Calls for callers who query or change OpenCode's sessions, workspaces and worktrees.
//!
//! A call that changes something is never repeated.

use std::fmt::Write as _;
use std::time::Duration;

use longshore_meter::label::Call;
use longshore_model::{Json, ModelName, NewWorkspace, Page, SessionQuery, WorkspaceId};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::messages::{Paged, message_path};
use super::{
    AnyMessage, CallError, CallSlot, Client, Result, check_accepted, decode, readable, session_path,
    without_session,
};
use crate::api::control::{
    Command, FileDiff, Message, MessageChanges, MessageHead, MessageInfo, Project, Providers, Session, Todo,
    Workspace, Worktree,
};
use crate::id::{Kind, query_value, segment};

/// The most sessions of a project that are read if the list must be complete. For a project with more sessions, the request is
/// refused.
const MAX_SESSIONS: usize = 50_000;

/// The largest size of a whole session's changes that is returned. The changes of one turn are limited only by the size of a
/// response.
const MAX_DIFF_BYTES: usize = 16 * 1024 * 1024;

/// Queries.
impl Client {
    pub(crate) async fn sessions(&self, directory: &str, query: &SessionQuery) -> Result<Vec<Session>> {
        let mut more = format!("&limit={}", query.limit);
        if let Some(roots) = query.roots {
            more.push_str(if roots { "&roots=true" } else { "&roots=false" });
        }
        if let Some(start) = query.start {
            let _ = write!(more, "&start={}", start.0);
        }
        if let Some(search) = &query.search {
            let _ = write!(more, "&search={}", query_value(search));
        }
        self.get(Call::Control, "session", directory, &more).await.map(readable).map_err(without_session)
    }

    /// The sessions in all directories of the project. Fails if the list may be incomplete.
    pub(crate) async fn project_sessions(&self, directory: &str) -> Result<Vec<super::Session>> {
        let more = format!("&scope=project&limit={MAX_SESSIONS}");
        let listed: Vec<super::Session> =
            self.get(Call::Control, "session", directory, &more).await.map_err(without_session)?;
        if listed.len() < MAX_SESSIONS { Ok(listed) } else { Err(CallError::TooLong) }
    }

    pub(crate) async fn whole_session(&self, directory: &str, session: &str) -> Result<Session> {
        let path = format!("session/{}", segment(Kind::Session, session)?);
        self.get(Call::Session, &path, directory, "").await
    }

    pub(crate) async fn whole_children(&self, directory: &str, session: &str) -> Result<Vec<Session>> {
        let path = session_path(session, "children")?;
        self.get(Call::Children, &path, directory, "").await.map(readable)
    }

    pub(crate) async fn todos(&self, directory: &str, session: &str) -> Result<Vec<Todo>> {
        self.get(Call::Control, &session_path(session, "todo")?, directory, "").await.map(readable)
    }

    /// The changes of the turn that this message began. Empty if there is no such message. If the session does not exist, OpenCode
    /// reports an internal error.
    pub(crate) async fn diff(&self, directory: &str, session: &str, message: &str) -> Result<Vec<FileDiff>> {
        let more = format!("&messageID={}", segment(Kind::Message, message)?);
        self.get(Call::Control, &session_path(session, "diff")?, directory, &more).await.map(readable)
    }

    /// The changes of all turns, the oldest first, each with the message that began the turn. Fails if they are too large.
    pub(crate) async fn diffs(&self, directory: &str, session: &str) -> Result<Vec<(String, Vec<FileDiff>)>> {
        let (mut newer, mut bytes) = (Vec::new(), 0);
        let read = self.pages(directory, session, |page: Vec<MessageChanges>| {
            for message in page.into_iter().rev() {
                if let Some(summary) = message.info.summary.filter(|summary| !summary.diffs.is_empty()) {
                    bytes += summary.diffs.iter().map(FileDiff::size).sum::<usize>();
                    newer.push((message.info.id, summary.diffs));
                }
            }
            bytes > MAX_DIFF_BYTES
        });
        if read.await? != Paged::All {
            return Err(CallError::TooLong);
        }
        newer.reverse();
        Ok(newer)
    }

    /// All messages without their content, oldest first.
    pub(crate) async fn message_infos(&self, directory: &str, session: &str) -> Result<Vec<MessageInfo>> {
        let mut newer = Vec::new();
        let read = self.pages(directory, session, |page: Vec<MessageHead>| {
            newer.extend(page.into_iter().rev().map(|message| message.info));
            false
        });
        if read.await? != Paged::All {
            return Err(CallError::TooLong);
        }
        newer.reverse();
        Ok(newer)
    }

    /// One page of messages, the oldest first, and the cursor of the next older page. If the page would be too large to read, it
    /// has fewer messages than requested.
    pub(crate) async fn message_page(
        &self,
        directory: &str,
        session: &str,
        page: &Page,
    ) -> Result<(Vec<Message>, Option<String>)> {
        let mut limit = page.limit as usize;
        let (listed, next) = self.page(directory, session, page.before.as_deref(), &mut limit).await?;
        Ok((readable(listed), next))
    }

    pub(crate) async fn message(&self, directory: &str, session: &str, message: &str) -> Result<Message> {
        self.get(Call::Messages, &message_path(session, message)?, directory, "").await
    }

    /// All providers that OpenCode knows, including those without credentials.
    pub(crate) async fn all_providers(&self, directory: &str) -> Result<Providers> {
        self.get_catalog("provider", directory).await
    }

    pub(crate) async fn commands(&self, directory: &str) -> Result<Vec<Command>> {
        self.get_catalog("command", directory).await
    }

    pub(crate) async fn projects(&self, directory: &str) -> Result<Vec<Project>> {
        self.get_catalog("project", directory).await
    }

    pub(crate) async fn whole_project(&self, directory: &str) -> Result<Project> {
        self.get_catalog("project/current", directory).await
    }

    pub(crate) async fn whole_workspaces(&self, directory: &str) -> Result<Vec<Workspace>> {
        self.get_catalog("experimental/workspace", directory).await
    }
}

/// Changes of sessions.
impl Client {
    /// Copies the session with all its messages, or with the messages before `before`.
    pub(crate) async fn fork(&self, directory: &str, session: &str, before: Option<&str>) -> Result<Session> {
        let body = before.map_or_else(|| json!({}), |message| json!({"messageID": message}));
        self.change(Method::POST, &session_path(session, "fork")?, directory, Some(body.to_string())).await
    }

    pub(crate) async fn share(&self, directory: &str, session: &str) -> Result<Session> {
        self.change(Method::POST, &session_path(session, "share")?, directory, None).await
    }

    pub(crate) async fn unshare(&self, directory: &str, session: &str) -> Result<Session> {
        self.change(Method::DELETE, &session_path(session, "share")?, directory, None).await
    }

    pub(crate) async fn revert(
        &self,
        directory: &str,
        session: &str,
        message: &str,
        part: Option<&str>,
    ) -> Result<Session> {
        let mut body = json!({"messageID": message});
        if let Some(part) = part {
            segment(Kind::Part, part)?;
            body["partID"] = part.into();
        }
        self.change(Method::POST, &session_path(session, "revert")?, directory, Some(body.to_string())).await
    }

    pub(crate) async fn unrevert(&self, directory: &str, session: &str) -> Result<Session> {
        self.change(Method::POST, &session_path(session, "unrevert")?, directory, None).await
    }

    /// Summarizes the session. Returns when the model has written the summary, and with `auto` when it has also continued its work.
    pub(crate) async fn summarize(
        &self,
        directory: &str,
        session: &str,
        model: &ModelName,
        auto: bool,
        limit: Option<Duration>,
    ) -> Result<bool> {
        let body = json!({"providerID": model.provider, "modelID": model.model, "auto": auto});
        self.change_slowly(&session_path(session, "summarize")?, directory, &body, limit).await
    }

    /// Runs a shell command. Returns when the command has ended.
    pub(crate) async fn shell(
        &self,
        directory: &str,
        session: &str,
        agent: &str,
        command: &str,
        model: Option<&ModelName>,
        limit: Option<Duration>,
    ) -> Result<Message> {
        let mut body = json!({"agent": agent, "command": command});
        if let Some(model) = model {
            body["model"] = json!({"providerID": model.provider, "modelID": model.model});
        }
        self.change_slowly(&session_path(session, "shell")?, directory, &body, limit).await
    }

    /// Prompts a session, and returns when the turn is over.
    pub(crate) async fn play_turn(&self, directory: &str, session: &str, text: &str) -> Result<()> {
        let body = json!({"parts": [{"type": "text", "text": text}]});
        let limit = Some(self.shared.timeout);
        self.change_slowly::<AnyMessage>(&session_path(session, "message")?, directory, &body, limit).await?;
        Ok(())
    }

    /// Makes OpenCode close a directory, which aborts everything that runs in it.
    pub(crate) async fn dispose(&self, directory: &str, limit: Duration) -> Result<()> {
        let request = self.request(Method::POST, "instance/dispose", directory, "")?;
        let closed: Result<bool> = self.json_within(Call::Control, request, limit).await;
        closed.map(drop).map_err(without_session)
    }

    pub(crate) async fn delete_session(&self, directory: &str, session: &str) -> Result<bool> {
        let path = format!("session/{}", segment(Kind::Session, session)?);
        self.change(Method::DELETE, &path, directory, None).await
    }

    /// Adds a message to a session without prompting the model. The body must contain the option for that.
    pub(crate) async fn note(&self, directory: &str, session: &str, body: String) -> Result<()> {
        let request = self.request(Method::POST, &session_path(session, "prompt_async")?, directory, "")?;
        let _slot = self.slot().await?;
        let _time = self.time(Call::Control);
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        let request = request.timeout(self.shared.timeout);
        self.in_run(async { check_accepted(request.send().await?).await }).await
    }
}

/// Changes of a directory's project.
impl Client {
    /// Creates a workspace. Returns before the workspace can be used.
    pub(crate) async fn create_workspace(&self, directory: &str, new: &NewWorkspace) -> Result<Workspace> {
        #[derive(Serialize)]
        struct Body<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<&'a str>,
            branch: Option<&'a str>,
            extra: Option<&'a Json>,
        }
        let body = Body {
            kind: &new.kind,
            id: new.id.as_ref().map(WorkspaceId::as_str),
            branch: new.branch.as_deref(),
            extra: new.extra.as_ref(),
        };
        let body = serde_json::to_string(&body).expect("strings serialize to JSON");
        let made = self.change(Method::POST, "experimental/workspace", directory, Some(body)).await;
        made.map_err(without_session)
    }

    /// Removes a workspace. `None`: there was no such workspace.
    pub(crate) async fn remove_workspace(
        &self,
        directory: &str,
        workspace: &str,
    ) -> Result<Option<Workspace>> {
        let path = format!("experimental/workspace/{}", segment(Kind::Workspace, workspace)?);
        self.change(Method::DELETE, &path, directory, None).await.map_err(without_session)
    }

    /// Creates a worktree. Returns before the worktree can be used.
    pub(crate) async fn create_worktree(
        &self,
        directory: &str,
        name: Option<&str>,
        start_command: Option<&str>,
    ) -> Result<Worktree> {
        let mut body = json!({});
        if let Some(name) = name {
            body["name"] = name.into();
        }
        if let Some(command) = start_command {
            body["startCommand"] = command.into();
        }
        let made =
            self.change(Method::POST, "experimental/worktree", directory, Some(body.to_string())).await;
        made.map_err(without_session)
    }

    /// Removes a worktree. OpenCode deletes any directory that this request names.
    pub(crate) async fn remove_worktree(&self, directory: &str, worktree: &str) -> Result<bool> {
        let body = json!({"directory": worktree});
        let removed =
            self.change(Method::DELETE, "experimental/worktree", directory, Some(body.to_string())).await;
        removed.map_err(without_session)
    }

    /// Resets a worktree, which discards all its uncommitted changes.
    pub(crate) async fn reset_worktree(&self, directory: &str, worktree: &str) -> Result<bool> {
        let body = json!({"directory": worktree});
        let reset =
            self.change(Method::POST, "experimental/worktree/reset", directory, Some(body.to_string())).await;
        reset.map_err(without_session)
    }

    /// Opens the event stream of all directories. Only the response head has a time limit.
    pub(crate) async fn global_events(&self, patience: Duration) -> Result<Response> {
        self.event_stream(self.call(Method::GET, "global/event")?, patience).await
    }

    /// Acquires a slot for a call that lasts as long as a model or a command runs. Such calls have separate slots, so that they
    /// cannot block short calls. The call first waits until a short slot is free, but does not keep that slot.
    pub(crate) async fn long_slot(&self) -> Result<CallSlot<'_>> {
        drop(self.slot().await?);
        self.acquire(&self.shared.long_slots).await
    }

    async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        directory: &str,
        body: Option<String>,
    ) -> Result<T> {
        let mut request = self.request(method, path, directory, "")?;
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        self.json(Call::Control, request).await
    }

    /// Makes a call that lasts as long as a model or a command runs.
    async fn change_slowly<T: DeserializeOwned>(
        &self,
        path: &str,
        directory: &str,
        body: &serde_json::Value,
        limit: Option<Duration>,
    ) -> Result<T> {
        let request = self.request(Method::POST, path, directory, "")?;
        let mut request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        if let Some(limit) = limit {
            request = request.timeout(limit);
        }
        let _slot = self.long_slot().await?;
        let _time = self.time(Call::Control);
        self.in_run(async { decode(request.send().await?, self.shared.max_body).await }).await
    }
}
