//! Calls for callers who look at OpenCode's sessions and places, or change them.
//!
//! Nothing that changes something is tried twice.

use std::fmt::Write as _;
use std::time::Duration;

use longshore_meter::label::{Call, Limit};
use longshore_model::{Json, ModelName, NewWorkspace, Page, SessionQuery, WorkspaceId};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    CallError, Client, Paged, Place, Result, content_type, decode, of_a_directory, refusal, taken, understood,
};
use crate::api::control::{
    Changed, Command, FileDiff, Heading, Message, MessageInfo, Project, Providers, Session, Todo, Workspace,
    Worktree,
};
use crate::id::{Kind, query_value, segment};

/// So many sessions of a project are looked through, where none may be missed. Of one that has more that is not known.
const MAX_SESSIONS: usize = 50_000;

/// What all turns of a session changed is told if it is no more than this. What one turn changed is told up to the bound of any
/// answer.
const MAX_DIFF_BYTES: usize = 16 * 1024 * 1024;

/// What is looked at.
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
        self.look(Call::Control, "session", directory, &more).await.map(understood).map_err(of_a_directory)
    }

    /// Those of all directories of the project, without one missing.
    pub(crate) async fn project_sessions(&self, directory: &str) -> Result<Vec<super::Session>> {
        let more = format!("&scope=project&limit={MAX_SESSIONS}");
        let listed: Vec<super::Session> =
            self.look(Call::Control, "session", directory, &more).await.map_err(of_a_directory)?;
        if listed.len() < MAX_SESSIONS { Ok(listed) } else { Err(CallError::TooLong) }
    }

    pub(crate) async fn whole_session(&self, directory: &str, session: &str) -> Result<Session> {
        let path = format!("session/{}", segment(Kind::Session, session)?);
        self.look(Call::Session, &path, directory, "").await
    }

    pub(crate) async fn whole_children(&self, directory: &str, session: &str) -> Result<Vec<Session>> {
        let path = format!("session/{}/children", segment(Kind::Session, session)?);
        self.look(Call::Children, &path, directory, "").await.map(understood)
    }

    pub(crate) async fn todos(&self, directory: &str, session: &str) -> Result<Vec<Todo>> {
        let path = format!("session/{}/todo", segment(Kind::Session, session)?);
        self.look(Call::Control, &path, directory, "").await.map(understood)
    }

    /// What the turn of one message changed: nothing, if there is no such message. A session that is not there is told as a failure
    /// of OpenCode.
    pub(crate) async fn diff(&self, directory: &str, session: &str, message: &str) -> Result<Vec<FileDiff>> {
        let path = format!("session/{}/diff", segment(Kind::Session, session)?);
        let more = format!("&messageID={}", segment(Kind::Message, message)?);
        self.look(Call::Control, &path, directory, &more).await.map(understood)
    }

    /// What all turns changed, oldest first, each with the message that began it: all of it, or nothing if it is too much.
    pub(crate) async fn diffs(&self, directory: &str, session: &str) -> Result<Vec<(String, Vec<FileDiff>)>> {
        let (mut newer, mut bytes) = (Vec::new(), 0);
        let read = self.pages(directory, session, |page: Vec<Changed>| {
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

    /// What is known of all messages but their content, oldest first.
    pub(crate) async fn said(&self, directory: &str, session: &str) -> Result<Vec<MessageInfo>> {
        let mut newer = Vec::new();
        let read = self.pages(directory, session, |page: Vec<Heading>| {
            newer.extend(page.into_iter().rev().map(|message| message.info));
            false
        });
        if read.await? != Paged::All {
            return Err(CallError::TooLong);
        }
        newer.reverse();
        Ok(newer)
    }

    /// One page of messages, oldest first, and where older ones begin. It is shorter than wished if it would be too large to be
    /// read.
    pub(crate) async fn message_page(
        &self,
        directory: &str,
        session: &str,
        page: &Page,
    ) -> Result<(Vec<Message>, Option<String>)> {
        let path = format!("session/{}/message", segment(Kind::Session, session)?);
        let before = page.before.as_deref().map(|before| format!("&before={}", query_value(before)));
        let before = before.unwrap_or_default();
        let mut limit = page.limit;
        loop {
            let request = self.request(Method::GET, &path, directory, &format!("&limit={limit}{before}"))?;
            let _place = self.place().await?;
            let _time = self.time(Call::Messages);
            let response = request.timeout(self.shared.timeout).send().await?;
            let cursor = response.headers().get("x-next-cursor").and_then(|value| value.to_str().ok());
            let cursor = cursor.map(str::to_owned);
            match decode(response, self.shared.max_body).await {
                Err(CallError::TooLong) if limit > 1 => limit /= 2,
                listed => return Ok((understood(listed?), cursor)),
            }
        }
    }

    pub(crate) async fn message(&self, directory: &str, session: &str, message: &str) -> Result<Message> {
        let (session, message) = (segment(Kind::Session, session)?, segment(Kind::Message, message)?);
        self.look(Call::Messages, &format!("session/{session}/message/{message}"), directory, "").await
    }

    /// All providers that OpenCode knows, also those that it has no credentials for.
    pub(crate) async fn all_providers(&self, directory: &str) -> Result<Providers> {
        self.look(Call::Catalog, "provider", directory, "").await.map_err(of_a_directory)
    }

    pub(crate) async fn commands(&self, directory: &str) -> Result<Vec<Command>> {
        self.look(Call::Catalog, "command", directory, "").await.map_err(of_a_directory)
    }

    pub(crate) async fn projects(&self, directory: &str) -> Result<Vec<Project>> {
        self.look(Call::Catalog, "project", directory, "").await.map_err(of_a_directory)
    }

    pub(crate) async fn whole_project(&self, directory: &str) -> Result<Project> {
        self.look(Call::Catalog, "project/current", directory, "").await.map_err(of_a_directory)
    }

    pub(crate) async fn whole_workspaces(&self, directory: &str) -> Result<Vec<Workspace>> {
        self.look(Call::Catalog, "experimental/workspace", directory, "").await.map_err(of_a_directory)
    }

    async fn look<T: DeserializeOwned>(
        &self,
        call: Call,
        path: &str,
        directory: &str,
        more: &str,
    ) -> Result<T> {
        self.json(call, self.request(Method::GET, path, directory, more)?).await
    }
}

/// What is changed in sessions.
impl Client {
    /// A copy of the session, with the messages before this one or all.
    pub(crate) async fn fork(&self, directory: &str, session: &str, before: Option<&str>) -> Result<Session> {
        let body = before.map_or_else(|| json!({}), |message| json!({"messageID": message}));
        self.change(Method::POST, &of_session(session, "fork")?, directory, Some(body.to_string())).await
    }

    pub(crate) async fn share(&self, directory: &str, session: &str) -> Result<Session> {
        self.change(Method::POST, &of_session(session, "share")?, directory, None).await
    }

    pub(crate) async fn unshare(&self, directory: &str, session: &str) -> Result<Session> {
        self.change(Method::DELETE, &of_session(session, "share")?, directory, None).await
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
        self.change(Method::POST, &of_session(session, "revert")?, directory, Some(body.to_string())).await
    }

    pub(crate) async fn unrevert(&self, directory: &str, session: &str) -> Result<Session> {
        self.change(Method::POST, &of_session(session, "unrevert")?, directory, None).await
    }

    /// Returns when the model has summarized, and with `auto` when it has gone on as well.
    pub(crate) async fn summarize(
        &self,
        directory: &str,
        session: &str,
        model: &ModelName,
        auto: bool,
        limit: Option<Duration>,
    ) -> Result<bool> {
        let body = json!({"providerID": model.provider, "modelID": model.model, "auto": auto});
        self.change_at_length(&of_session(session, "summarize")?, directory, &body, limit).await
    }

    /// Returns when the command has ended.
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
        self.change_at_length(&of_session(session, "shell")?, directory, &body, limit).await
    }

    /// Says something in a session that nobody is to answer. The body says so.
    pub(crate) async fn note(&self, directory: &str, session: &str, body: String) -> Result<()> {
        let request = self.request(Method::POST, &of_session(session, "prompt_async")?, directory, "")?;
        let _place = self.place().await?;
        let _time = self.time(Call::Control);
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        taken(request.timeout(self.shared.timeout).send().await?).await
    }
}

/// What is changed in the project of a directory.
impl Client {
    /// Returns before the workspace can be used.
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
        let body = serde_json::to_string(&body).expect("texts are JSON");
        let made = self.change(Method::POST, "experimental/workspace", directory, Some(body)).await;
        made.map_err(of_a_directory)
    }

    /// `None`: there was none.
    pub(crate) async fn remove_workspace(
        &self,
        directory: &str,
        workspace: &str,
    ) -> Result<Option<Workspace>> {
        let path = format!("experimental/workspace/{}", segment(Kind::Workspace, workspace)?);
        self.change(Method::DELETE, &path, directory, None).await.map_err(of_a_directory)
    }

    /// Returns before the worktree can be used.
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
        made.map_err(of_a_directory)
    }

    /// OpenCode deletes whatever directory it is told here.
    pub(crate) async fn remove_worktree(&self, directory: &str, worktree: &str) -> Result<bool> {
        let body = json!({"directory": worktree});
        let removed =
            self.change(Method::DELETE, "experimental/worktree", directory, Some(body.to_string())).await;
        removed.map_err(of_a_directory)
    }

    /// Whatever was not committed there is gone.
    pub(crate) async fn reset_worktree(&self, directory: &str, worktree: &str) -> Result<bool> {
        let body = json!({"directory": worktree});
        let reset =
            self.change(Method::POST, "experimental/worktree/reset", directory, Some(body.to_string())).await;
        reset.map_err(of_a_directory)
    }

    /// Opens the stream of events of all directories. Only the head of the answer is bounded in time.
    pub(crate) async fn global_events(&self, patience: Duration) -> Result<Response> {
        let request = self.call(Method::GET, "global/event")?.header(ACCEPT, "text/event-stream");
        let _time = self.time(Call::Events);
        let answer = tokio::time::timeout(patience.min(self.shared.timeout), request.send()).await;
        let response = answer.map_err(|_| CallError::NoAnswer)??;
        match response.status() {
            StatusCode::OK if content_type(response.headers()).starts_with("text/event-stream") => {
                Ok(response)
            }
            StatusCode::OK => Err(CallError::Garbled("the event stream is no event stream".to_owned())),
            _ => Err(of_a_directory(refusal(response).await)),
        }
    }
}

impl Client {
    /// A place for something that takes as long as a model or a command takes. It would keep one of the short calls from all
    /// others, so it only waits until there is one, and then has a place among its like.
    pub(crate) async fn long_place(&self) -> Result<Place<'_>> {
        drop(self.place().await?);
        let long = &self.shared.long_places;
        long.take(self.waits).await.ok_or_else(|| {
            self.shared.metrics.refused.of(Limit::UpstreamCalls).increment();
            CallError::Crowded { calls: long.count() }
        })
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

    /// For a call that takes as long as a model or a command takes.
    async fn change_at_length<T: DeserializeOwned>(
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
        let _place = self.long_place().await?;
        let _time = self.time(Call::Control);
        decode(request.send().await?, self.shared.max_body).await
    }
}

fn of_session(session: &str, what: &str) -> Result<String> {
    Ok(format!("session/{}/{what}", segment(Kind::Session, session)?))
}
