//! Calls to OpenCode's HTTP API.

mod catalog;
mod error;
mod family;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use longshore_model::{Answer, Error, Result as ModelResult};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use secrecy::ExposeSecret;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;
use serde_json::value::RawValue;
use url::Url;

pub(crate) use self::error::CallError;
use crate::Endpoint;
use crate::api::{
    ErrorBody, Health, PermissionAsk, QuestionAsk, Session, Statuses, StoredInfo, StoredMessage,
};
use crate::id::{Kind, directory_value, query_value, segment};
use crate::redact;

/// The largest answer that is read. A longer one is refused. The message list is read in pages, and only one with very
/// large files in it comes near: such a page is asked for again with half as many messages, down to a single one.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Messages per page of the message list.
const PAGE: usize = 100;

/// Messages that are read to find a prompt. A turn with more than this is taken as unknown to OpenCode.
const MAX_MESSAGES: usize = 50 * PAGE;

/// A connection that is not made in this time will not be.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    endpoint: Endpoint,
    /// How long one call may take, but for the event stream.
    timeout: Duration,
    max_body: usize,
}

type Result<T, E = CallError> = std::result::Result<T, E>;

impl Client {
    pub(crate) fn new(endpoint: Endpoint, timeout: Duration) -> ModelResult<Self> {
        let http = reqwest::Client::builder()
            // A proxy from the environment must not see prompts and the password.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT.min(timeout))
            .tcp_nodelay(true)
            .build()
            .map_err(Error::internal)?;
        Ok(Self { http, endpoint, timeout, max_body: MAX_BODY_BYTES })
    }

    /// Opens the event stream of a directory. Only the head of the answer is bounded in time: its reader watches the rest
    /// for silence.
    pub(crate) async fn events(&self, directory: &str, patience: Duration) -> Result<Response> {
        let request = self.request(Method::GET, "event", directory, "")?.header(ACCEPT, "text/event-stream");
        let answer = tokio::time::timeout(patience.min(self.timeout), request.send()).await;
        let response = answer.map_err(|_| CallError::NoAnswer)??;
        match response.status() {
            StatusCode::OK if content_type(response.headers()).starts_with("text/event-stream") => {
                Ok(response)
            }
            StatusCode::OK => Err(CallError::Garbled("the event stream is no event stream".to_owned())),
            _ => Err(of_a_directory(refusal(response).await)),
        }
    }

    pub(crate) async fn create_session(&self, directory: &str) -> Result<Session> {
        // No title: OpenCode names the session after its first prompt, as it does for its own users.
        let request = self.request(Method::POST, "session", directory, "")?;
        let made = self.json(request.header(CONTENT_TYPE, "application/json").body("{}")).await;
        made.map_err(of_a_directory)
    }

    /// Sends a prompt. Only [`CallError::Unreachable`] and refusals with a 4xx status mean that it was not taken.
    pub(crate) async fn prompt(&self, directory: &str, session: &str, body: String) -> Result<()> {
        let path = format!("session/{}/prompt_async", segment(Kind::Session, session)?);
        let request = self.request(Method::POST, &path, directory, "")?;
        let request = request.timeout(self.timeout).header(CONTENT_TYPE, "application/json").body(body);
        let response = request.send().await?;
        match response.status() {
            status if status.is_success() && !is_html(response.headers()) => Ok(()),
            status if status.is_success() => Err(CallError::Garbled("a web page".to_owned())),
            _ => Err(refusal(response).await),
        }
    }

    pub(crate) async fn abort(&self, directory: &str, session: &str) -> Result<()> {
        let path = format!("session/{}/abort", segment(Kind::Session, session)?);
        self.post(&path, directory, "{}".to_owned()).await
    }

    /// Answers an ask. OpenCode looks for it only in the directory that the request names.
    pub(crate) async fn answer(&self, directory: &str, ask: &str, answer: &Answer) -> Result<()> {
        let (path, body) = match answer {
            Answer::Permission { reply, message } => {
                let mut body = json!({"reply": reply.as_str()});
                if let Some(message) = message {
                    body["message"] = message.as_str().into();
                }
                (format!("permission/{}/reply", segment(Kind::Permission, ask)?), body)
            }
            Answer::Question { answers } => {
                (format!("question/{}/reply", segment(Kind::Question, ask)?), json!({"answers": answers}))
            }
            Answer::RejectQuestion => {
                (format!("question/{}/reject", segment(Kind::Question, ask)?), json!({}))
            }
        };
        self.post(&path, directory, body.to_string()).await
    }

    /// What OpenCode says about itself. It looks at no directory for that.
    pub(crate) async fn is_healthy(&self) -> Result<bool> {
        let request = self.call(Method::GET, "global/health")?;
        let answer: Health = self.json(request).await.map_err(of_a_directory)?;
        Ok(answer.healthy)
    }

    pub(crate) async fn session(&self, directory: &str, session: &str) -> Result<Session> {
        let path = format!("session/{}", segment(Kind::Session, session)?);
        self.json(self.request(Method::GET, &path, directory, "")?).await
    }

    pub(crate) async fn statuses(&self, directory: &str) -> Result<Statuses> {
        self.json(self.request(Method::GET, "session/status", directory, "")?).await.map_err(of_a_directory)
    }

    pub(crate) async fn permissions(&self, directory: &str) -> Result<Vec<PermissionAsk>> {
        let listed = self.json(self.request(Method::GET, "permission", directory, "")?).await;
        listed.map(understood).map_err(of_a_directory)
    }

    pub(crate) async fn questions(&self, directory: &str) -> Result<Vec<QuestionAsk>> {
        let listed = self.json(self.request(Method::GET, "question", directory, "")?).await;
        listed.map(understood).map_err(of_a_directory)
    }

    pub(crate) async fn children(&self, directory: &str, session: &str) -> Result<Vec<Session>> {
        let path = format!("session/{}/children", segment(Kind::Session, session)?);
        self.json(self.request(Method::GET, &path, directory, "")?).await
    }

    /// The messages of a session from the first prompt on, oldest first, or from one of the others if OpenCode does not have
    /// that. Empty when it has none of them.
    pub(crate) async fn messages_since(
        &self,
        directory: &str,
        session: &str,
        prompts: &[String],
    ) -> Result<Vec<StoredMessage>> {
        let Some((first, joined)) = prompts.split_first() else { return Ok(Vec::new()) };
        segment(Kind::Message, first)?;
        let mut newer: Vec<StoredMessage> = Vec::new();
        let found = |mut page: Vec<StoredMessage>| {
            let at = page.iter().position(|message| message.info.id == *first);
            page.drain(..at.unwrap_or_default());
            page.append(&mut newer);
            newer = page;
            at.is_some()
        };
        if !self.pages(directory, session, found).await? {
            let at = newer.iter().position(|message| joined.contains(&message.info.id));
            newer.drain(..at.unwrap_or(newer.len()));
        }
        Ok(newer)
    }

    /// The messages of a sub-agent's session without their content, but for some that are older than this.
    pub(crate) async fn infos_since(
        &self,
        directory: &str,
        session: &str,
        created: f64,
    ) -> Result<Vec<StoredInfo>> {
        let mut all = Vec::new();
        let is_older = |message: &StoredInfo| message.info.time.created < created;
        self.pages(directory, session, |page: Vec<StoredInfo>| {
            let done = page.iter().any(is_older);
            all.extend(page);
            done
        })
        .await?;
        Ok(all)
    }

    /// Reads the message list from its end, page by page, until there is enough. Says whether there was.
    async fn pages<T: DeserializeOwned>(
        &self,
        directory: &str,
        session: &str,
        mut enough: impl FnMut(Vec<T>) -> bool,
    ) -> Result<bool> {
        let path = format!("session/{}/message", segment(Kind::Session, session)?);
        let mut before = String::new();
        let (mut limit, mut left) = (PAGE, MAX_MESSAGES);
        while left > 0 {
            let request = self.request(Method::GET, &path, directory, &format!("&limit={limit}{before}"))?;
            let response = request.timeout(self.timeout).send().await?;
            let cursor = response.headers().get("x-next-cursor").and_then(|value| value.to_str().ok());
            let cursor = cursor.map(query_value);
            let page = match decode(response, self.max_body).await {
                Err(CallError::TooLong) if limit > 1 => {
                    limit /= 2;
                    continue;
                }
                page => page?,
            };
            left = left.saturating_sub(limit);
            if enough(page) {
                return Ok(true);
            }
            match cursor {
                Some(cursor) => before = format!("&before={cursor}"),
                None => break,
            }
        }
        Ok(false)
    }

    fn request(&self, method: Method, path: &str, directory: &str, more: &str) -> Result<RequestBuilder> {
        self.call(method, &format!("{path}?directory={}{more}", directory_value(directory)))
    }

    /// The base address may have a path of its own, with or without a slash at its end.
    fn call(&self, method: Method, path_and_query: &str) -> Result<RequestBuilder> {
        let place = self.endpoint.base_url.place();
        let base = place.url.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/{path_and_query}"))
            .map_err(|cause| CallError::Invalid(Error::internal(cause)))?;
        let request = self.http.request(method, url);
        Ok(match place.password.as_ref().or(self.endpoint.password.as_ref()) {
            Some(password) => request.basic_auth(&self.endpoint.username, Some(password.expose_secret())),
            None => request,
        })
    }

    /// A call whose answer says nothing but yes.
    async fn post(&self, path: &str, directory: &str, body: String) -> Result<()> {
        let request = self.request(Method::POST, path, directory, "")?;
        let _: IgnoredAny = self.json(request.header(CONTENT_TYPE, "application/json").body(body)).await?;
        Ok(())
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T> {
        decode(request.timeout(self.timeout).send().await?, self.max_body).await
    }
}

async fn decode<T: DeserializeOwned>(response: Response, max_body: usize) -> Result<T> {
    if !response.status().is_success() {
        return Err(refusal(response).await);
    }
    if !content_type(response.headers()).starts_with("application/json") {
        let what = if is_html(response.headers()) { "a web page" } else { "an answer that is no JSON" };
        return Err(CallError::Garbled(what.to_owned()));
    }
    let body = read(response, max_body).await?;
    serde_json::from_slice(&body).map_err(|cause| {
        CallError::Garbled(format!("unexpected JSON at line {}, column {}", cause.line(), cause.column()))
    })
}

/// The elements of a list that can be read. Lists of asks are of a whole directory: one odd ask of somebody else must not
/// hold up every turn there.
fn understood<T: DeserializeOwned>(listed: Vec<Box<RawValue>>) -> Vec<T> {
    let read = |raw: Box<RawValue>| {
        let element = serde_json::from_str(raw.get());
        if element.is_err() {
            tracing::warn!(bytes = raw.get().len(), "an ask that is no ask of OpenCode was skipped");
        }
        element.ok()
    };
    listed.into_iter().filter_map(read).collect()
}

/// Reads an answer that says no.
async fn refusal(response: Response) -> CallError {
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        return CallError::Unauthorized;
    }
    // OpenCode gives its reasons in JSON. Anything else is the page of something on the way to it, and nobody's business.
    let json = content_type(response.headers()).starts_with("application/json");
    let body = match read(response, MAX_BODY_BYTES).await {
        // Which of the two it is stands in the words that did not come.
        Err(cause @ CallError::Cut(_)) if status == StatusCode::NOT_FOUND => return cause,
        body => body.ok().filter(|_| json),
    };
    let body: ErrorBody = body.and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    if status == StatusCode::NOT_FOUND {
        return if says_not_found(&body) { CallError::NotFound } else { foreign_not_found() };
    }
    let message = redact::public(&message_of(body));
    let message = if message.is_empty() { "it gave no reason".to_owned() } else { message };
    CallError::Refused { status: status.as_u16(), message }
}

/// Whether a 404 is OpenCode's own. A proxy, too, answers 404, and that says nothing about a session.
fn says_not_found(body: &ErrorBody) -> bool {
    let name = body.name.as_ref().or(body.tag.as_ref());
    name.is_some_and(|name| name.ends_with("NotFoundError"))
}

fn foreign_not_found() -> CallError {
    CallError::Garbled("status 404".to_owned())
}

/// What asks about no session in particular cannot learn that one is gone.
fn of_a_directory(cause: CallError) -> CallError {
    if matches!(cause, CallError::NotFound) { foreign_not_found() } else { cause }
}

/// The text of an error body, in any of OpenCode's three shapes.
fn message_of(body: ErrorBody) -> String {
    body.data.message.or(body.message).or(body.name).or(body.tag).unwrap_or_default()
}

async fn read(mut response: Response, max: usize) -> Result<Bytes> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max {
            return Err(CallError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn is_html(headers: &HeaderMap) -> bool {
    content_type(headers).starts_with("text/html")
}

#[cfg(test)]
mod tests;
