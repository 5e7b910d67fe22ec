//! Calls to OpenCode's HTTP API.

mod catalog;
mod control;
mod error;
mod family;
mod places;
mod statuses;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use longshore_engine::port::trace_of_caller;
use longshore_meter::label::{Call, Limit};
use longshore_meter::scale::Answering;
use longshore_meter::{Metrics, Timer};
use longshore_model::trace::TraceContext;
use longshore_model::{Answer, Error, Result as ModelResult};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;
use serde_json::value::RawValue;
use url::Url;

pub(crate) use self::error::CallError;
pub(crate) use self::places::Place;
use self::places::{Places, Waits};
use self::statuses::Desks;
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

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// A connection that was not used for so long is closed: sooner than a server closes it that has the usual limit of 5 s, so
/// that no prompt goes out on one that is just being closed.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// Connections that are kept for the next calls. More are opened when they are needed, and closed after that.
const IDLE_CONNECTIONS: usize = 64;

/// How OpenCode is called. A clone costs next to nothing.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    waits: Waits,
    /// What the calls are for, if it is known beforehand. Whoever made it tells of it, and of single calls nobody does.
    trace: Option<TraceContext>,
}

#[derive(Debug)]
struct Shared {
    http: reqwest::Client,
    endpoint: Endpoint,
    /// How long one call may take, but for the event stream.
    timeout: Duration,
    max_body: usize,
    places: Places,
    /// Those of calls that take as long as a model or a command takes: as many again.
    long_places: Places,
    desks: Desks,
    metrics: Arc<Metrics>,
}

/// How the reading of a message list ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Paged {
    Enough,
    /// There are no more.
    All,
    /// There are more than [`MAX_MESSAGES`].
    TooMany,
}

/// A message, of which nothing is read but that it is one.
#[derive(Deserialize)]
struct Said {
    #[serde(rename = "info")]
    _info: IgnoredAny,
}

type Result<T, E = CallError> = std::result::Result<T, E>;

impl Client {
    /// `calls`: how many short calls may be under way at once; 0 is no limit.
    pub(crate) fn new(
        endpoint: Endpoint,
        timeout: Duration,
        calls: usize,
        metrics: Arc<Metrics>,
    ) -> ModelResult<Self> {
        let http = reqwest::Client::builder()
            // A proxy from the environment must not see prompts and the password.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT.min(timeout))
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build()
            .map_err(Error::internal)?;
        let shared = Shared {
            http,
            endpoint,
            timeout,
            max_body: MAX_BODY_BYTES,
            places: Places::new(calls),
            long_places: Places::new(calls),
            desks: Desks::default(),
            metrics,
        };
        Ok(Self { shared: Arc::new(shared), waits: Waits::ForEver, trace: None })
    }

    /// For calls that somebody waits for who was not promised anything yet: they are refused when all places stay taken.
    pub(crate) fn for_callers(&self) -> Self {
        Self { waits: Waits::Briefly, ..self.clone() }
    }

    /// For calls that begin a turn: a task that was taken on is not lost for a crowd that will pass.
    pub(crate) fn for_starts(&self) -> Self {
        Self { waits: Waits::UpTo(self.shared.timeout), ..self.clone() }
    }

    /// For calls that end what runs, and clear up behind it.
    pub(crate) fn for_ends(&self) -> Self {
        Self { waits: Waits::Never, ..self.clone() }
    }

    /// For calls that are made one after the other by somebody who has a place.
    pub(crate) fn placed(&self, _place: &Place<'_>) -> Self {
        Self { waits: Waits::Never, ..self.clone() }
    }

    /// For calls that belong to somebody's trace.
    pub(crate) fn within(&self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self.clone() }
    }

    /// Waits for a place among the calls that are under way.
    pub(crate) async fn place(&self) -> Result<Place<'_>> {
        let place = self.shared.places.take(self.waits).await;
        place.ok_or_else(|| {
            self.shared.metrics.refused.of(Limit::UpstreamCalls).increment();
            CallError::Crowded { calls: self.shared.places.count() }
        })
    }

    /// A place without waiting. `None`: all are taken.
    pub(crate) fn place_now(&self) -> Option<Place<'_>> {
        self.shared.places.take_now()
    }

    /// Opens the event stream of a directory. Only the head of the answer is bounded in time: its reader watches the rest
    /// for silence.
    pub(crate) async fn events(&self, directory: &str, patience: Duration) -> Result<Response> {
        let request = self.request(Method::GET, "event", directory, "")?.header(ACCEPT, "text/event-stream");
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

    pub(crate) async fn create_session(&self, directory: &str) -> Result<Session> {
        // No title: OpenCode names the session after its first prompt, as it does for its own users.
        let request = self.request(Method::POST, "session", directory, "")?;
        let request = request.header(CONTENT_TYPE, "application/json").body("{}");
        let made = self.json(Call::CreateSession, request).await;
        made.map_err(of_a_directory)
    }

    /// Sends a prompt. Only [`CallError::Unreachable`] and refusals with a 4xx status mean that it was not taken.
    pub(crate) async fn prompt(
        &self,
        _place: Place<'_>,
        directory: &str,
        session: &str,
        body: String,
    ) -> Result<()> {
        let path = format!("session/{}/prompt_async", segment(Kind::Session, session)?);
        let request = self.request(Method::POST, &path, directory, "")?;
        let _time = self.time(Call::Prompt);
        let request =
            request.timeout(self.shared.timeout).header(CONTENT_TYPE, "application/json").body(body);
        taken(request.send().await?).await
    }

    /// Has a command carried out. OpenCode answers when its turn is over, so there is no limit of time. The same errors as those of
    /// [`Self::prompt`] mean that it was not taken.
    pub(crate) async fn command(&self, directory: &str, session: &str, body: String) -> Result<()> {
        let path = format!("session/{}/command", segment(Kind::Session, session)?);
        let request = self.request(Method::POST, &path, directory, "")?;
        let response = request.header(CONTENT_TYPE, "application/json").body(body).send().await?;
        match decode::<Said>(response, self.shared.max_body).await {
            // What it says came by the event stream.
            Ok(_) | Err(CallError::TooLong) => Ok(()),
            Err(cause) => Err(cause),
        }
    }

    pub(crate) async fn abort(&self, directory: &str, session: &str) -> Result<()> {
        let path = format!("session/{}/abort", segment(Kind::Session, session)?);
        self.post(Call::Abort, &path, directory, "{}".to_owned()).await
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
        self.post(Call::Answer, &path, directory, body.to_string()).await
    }

    /// What OpenCode says about itself. It looks at no directory for that.
    pub(crate) async fn is_healthy(&self) -> Result<bool> {
        let request = self.call(Method::GET, "global/health")?;
        let answer: Health = self.json_at_once(Call::Health, request).await.map_err(of_a_directory)?;
        Ok(answer.healthy)
    }

    pub(crate) async fn session(&self, directory: &str, session: &str) -> Result<Session> {
        let path = format!("session/{}", segment(Kind::Session, session)?);
        self.json(Call::Session, self.request(Method::GET, &path, directory, "")?).await
    }

    /// The sessions that are not idle, as OpenCode saw it after this was asked. Those who ask at once share an answer.
    pub(crate) async fn statuses(&self, directory: &str) -> Result<Arc<Statuses>> {
        self.shared.desks.ask(directory, || self.own_statuses(directory)).await
    }

    /// The same, asked for by this caller alone, who need not wait for others then.
    pub(crate) async fn own_statuses(&self, directory: &str) -> Result<Statuses> {
        let request = self.request(Method::GET, "session/status", directory, "")?;
        self.json(Call::Statuses, request).await.map_err(of_a_directory)
    }

    pub(crate) async fn permissions(&self, directory: &str) -> Result<Vec<PermissionAsk>> {
        let listed =
            self.json(Call::Permissions, self.request(Method::GET, "permission", directory, "")?).await;
        listed.map(understood).map_err(of_a_directory)
    }

    pub(crate) async fn questions(&self, directory: &str) -> Result<Vec<QuestionAsk>> {
        let listed = self.json(Call::Questions, self.request(Method::GET, "question", directory, "")?).await;
        listed.map(understood).map_err(of_a_directory)
    }

    pub(crate) async fn children(&self, directory: &str, session: &str) -> Result<Vec<Session>> {
        let path = format!("session/{}/children", segment(Kind::Session, session)?);
        self.json(Call::Children, self.request(Method::GET, &path, directory, "")?).await
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
        if self.pages(directory, session, found).await? != Paged::Enough {
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

    /// Reads the message list from its end, page by page, until there is enough.
    async fn pages<T: DeserializeOwned>(
        &self,
        directory: &str,
        session: &str,
        mut enough: impl FnMut(Vec<T>) -> bool,
    ) -> Result<Paged> {
        let path = format!("session/{}/message", segment(Kind::Session, session)?);
        let mut before = String::new();
        let (mut limit, mut left) = (PAGE, MAX_MESSAGES);
        while left > 0 {
            let request = self.request(Method::GET, &path, directory, &format!("&limit={limit}{before}"))?;
            let _place = self.place().await?;
            let _time = self.time(Call::Messages);
            let response = request.timeout(self.shared.timeout).send().await?;
            let cursor = response.headers().get("x-next-cursor").and_then(|value| value.to_str().ok());
            let cursor = cursor.map(query_value);
            let page = match decode(response, self.shared.max_body).await {
                Err(CallError::TooLong) if limit > 1 => {
                    limit /= 2;
                    continue;
                }
                page => page?,
            };
            left = left.saturating_sub(limit);
            if enough(page) {
                return Ok(Paged::Enough);
            }
            match cursor {
                Some(cursor) => before = format!("&before={cursor}"),
                None => return Ok(Paged::All),
            }
        }
        Ok(Paged::TooMany)
    }

    fn request(&self, method: Method, path: &str, directory: &str, more: &str) -> Result<RequestBuilder> {
        self.call(method, &format!("{path}?directory={}{more}", directory_value(directory)))
    }

    /// The base address may have a path of its own, with or without a slash at its end.
    fn call(&self, method: Method, path_and_query: &str) -> Result<RequestBuilder> {
        let endpoint = &self.shared.endpoint;
        let place = endpoint.base_url.place();
        let base = place.url.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/{path_and_query}"))
            .map_err(|cause| CallError::Invalid(Error::internal(cause)))?;
        let mut request = self.shared.http.request(method, url);
        // A turn has its own; what is done for a request at once belongs to that.
        if let Some(trace) = self.trace.clone().or_else(trace_of_caller) {
            request = request.header(TRACEPARENT, trace.traceparent());
            if let Some(state) = trace.tracestate() {
                request = request.header(TRACESTATE, state);
            }
        }
        Ok(match place.password.as_ref().or(endpoint.password.as_ref()) {
            Some(password) => request.basic_auth(&endpoint.username, Some(password.expose_secret())),
            None => request,
        })
    }

    /// A call that lets a turn go on, or ends it, and whose answer says nothing but yes. It takes no place: what holds the
    /// others up may be what this puts an end to.
    async fn post(&self, call: Call, path: &str, directory: &str, body: String) -> Result<()> {
        let request = self.request(Method::POST, path, directory, "")?;
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        let _: IgnoredAny = self.json_at_once(call, request).await?;
        Ok(())
    }

    async fn json<T: DeserializeOwned>(&self, call: Call, request: RequestBuilder) -> Result<T> {
        let _place = self.place().await?;
        self.json_at_once(call, request).await
    }

    async fn json_at_once<T: DeserializeOwned>(&self, call: Call, request: RequestBuilder) -> Result<T> {
        let _time = self.time(call);
        decode(request.timeout(self.shared.timeout).send().await?, self.shared.max_body).await
    }

    /// Counts the time until this is dropped.
    fn time(&self, call: Call) -> Timer<'_, Answering> {
        self.shared.metrics.opencode_request.of(call).time()
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
/// hold up every turn there. The same goes for sessions and messages that somebody looks through.
fn understood<T: DeserializeOwned>(listed: Vec<Box<RawValue>>) -> Vec<T> {
    let read = |raw: Box<RawValue>| {
        let element = serde_json::from_str(raw.get());
        if element.is_err() {
            tracing::warn!(bytes = raw.get().len(), "an entry that OpenCode does not write so was skipped");
        }
        element.ok()
    };
    listed.into_iter().filter_map(read).collect()
}

/// OpenCode says that it took a prompt with a status of its own. Whoever says yes in another way is somebody else, or did something
/// else.
async fn taken(response: Response) -> Result<()> {
    match response.status() {
        StatusCode::NO_CONTENT => Ok(()),
        status if status.is_success() && is_html(response.headers()) => {
            Err(CallError::Garbled("a web page".to_owned()))
        }
        status if status.is_success() => Err(CallError::Garbled(format!("status {}", status.as_u16()))),
        _ => Err(refusal(response).await),
    }
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
        let what = if says_not_found(&body) { message_of(body) } else { return CallError::NoSuchPath };
        return if what.starts_with("Message not found") {
            CallError::NoMessage
        } else {
            CallError::NotFound
        };
    }
    let message = message_of(body);
    // What was asked of its database is nobody's business.
    let message = if message.contains("Failed query") { String::new() } else { redact::public(&message) };
    let message = if message.is_empty() { "it gave no reason".to_owned() } else { message };
    CallError::Refused { status: status.as_u16(), message }
}

/// Whether a 404 is OpenCode's own. A proxy, too, answers 404, and that says nothing about a session.
fn says_not_found(body: &ErrorBody) -> bool {
    let name = body.name.as_ref().or(body.tag.as_ref());
    name.is_some_and(|name| name.ends_with("NotFoundError"))
}

/// What asks about no session in particular cannot learn that one is gone.
fn of_a_directory(cause: CallError) -> CallError {
    if matches!(cause, CallError::NotFound | CallError::NoMessage) { CallError::NoSuchPath } else { cause }
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
