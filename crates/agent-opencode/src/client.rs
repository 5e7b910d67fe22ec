//! Calls to OpenCode's HTTP API.

mod catalog;
mod connections;
mod control;
mod error;
mod messages;
mod slots;
mod statuses;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use longshore_engine::port::caller_trace;
use longshore_meter::label::{Call, Limit};
use longshore_meter::scale::ResponseTime;
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
use tokio::sync::Notify;
use url::Url;

use self::connections::Connections;
pub(crate) use self::error::CallError;
pub(crate) use self::slots::CallSlot;
use self::slots::{CallSlots, SlotWait};
use self::statuses::StatusQueries;
use crate::Endpoint;
use crate::address::{Address, Location};
use crate::api::{ErrorBody, Health, PermissionAsk, QuestionAsk, Session, Statuses};
use crate::id::{Kind, directory_value, segment};
use crate::redact;

/// The largest response, in bytes, that is read.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// How long the health check may take. OpenCode responds in milliseconds, or, when its one thread is busy, within seconds.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls OpenCode. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    waits: SlotWait,
    /// The trace for all calls of this client. `None`: each call belongs to the trace of the current request. Calls are not
    /// exported as spans of their own; the code that created the trace exports it.
    trace: Option<TraceContext>,
}

#[derive(Debug)]
struct Shared {
    connections: Connections,
    endpoint: Endpoint,
    /// How long one call may take. Does not apply to the event stream.
    timeout: Duration,
    max_body: usize,
    slots: CallSlots,
    /// The slots for calls that last as long as a model or a command runs. There are as many as in `slots`.
    long_slots: CallSlots,
    status_queries: StatusQueries,
    /// Notified when a call or a stream breaks, because OpenCode may then be down.
    suspected: Notify,
    metrics: Arc<Metrics>,
}

/// Checks that a response is a message, and ignores the content.
#[derive(Deserialize)]
struct AnyMessage {
    #[serde(rename = "info")]
    _info: IgnoredAny,
}

/// The result of a probe: a request that only tests OpenCode's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    /// A server at the address responded.
    Response,
    /// No connection could be opened.
    Unreachable,
    /// A connection was opened, but no response came in time.
    NoResponse,
}

type Result<T, E = CallError> = std::result::Result<T, E>;

impl Client {
    /// `calls`: how many short calls may run at the same time; 0 means no limit.
    pub(crate) fn new(
        endpoint: Endpoint,
        timeout: Duration,
        calls: usize,
        metrics: Arc<Metrics>,
    ) -> ModelResult<Self> {
        let shared = Shared {
            connections: Connections::new(CONNECT_TIMEOUT.min(timeout)).map_err(Error::internal)?,
            endpoint,
            timeout,
            max_body: MAX_BODY_BYTES,
            slots: CallSlots::new(calls),
            long_slots: CallSlots::new(calls),
            status_queries: StatusQueries::default(),
            suspected: Notify::new(),
            metrics,
        };
        Ok(Self { shared: Arc::new(shared), waits: SlotWait::Forever, trace: None })
    }

    /// A client for requests that the gateway has not accepted yet. A call fails if no slot becomes free within a second.
    pub(crate) fn for_callers(&self) -> Self {
        Self { waits: SlotWait::Briefly, ..self.clone() }
    }

    /// A client for calls that start a turn. They wait longer for a slot, so that an accepted task does not fail because of a short
    /// load peak.
    pub(crate) fn for_starts(&self) -> Self {
        Self { waits: SlotWait::UpTo(self.shared.timeout), ..self.clone() }
    }

    /// A client for calls that stop a turn and clean up after it. Such calls never wait for a slot.
    pub(crate) fn for_cleanup(&self) -> Self {
        Self { waits: SlotWait::NoSlot, ..self.clone() }
    }

    /// A client for several consecutive calls under one slot, which the caller already holds.
    pub(crate) fn with_slot(&self, _slot: &CallSlot<'_>) -> Self {
        Self { waits: SlotWait::NoSlot, ..self.clone() }
    }

    /// A client whose calls belong to a trace.
    pub(crate) fn with_trace(&self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self.clone() }
    }

    /// Waits for a slot for a short call.
    pub(crate) async fn slot(&self) -> Result<CallSlot<'_>> {
        self.acquire(&self.shared.slots).await
    }

    /// A slot, if one is free now.
    pub(crate) fn try_slot(&self) -> Option<CallSlot<'_>> {
        self.shared.slots.try_acquire()
    }

    async fn acquire<'a>(&self, slots: &'a CallSlots) -> Result<CallSlot<'a>> {
        slots.acquire(self.waits).await.ok_or_else(|| {
            self.shared.metrics.refused.of(Limit::UpstreamCalls).increment();
            CallError::NoFreeSlot { calls: slots.count() }
        })
    }

    /// Opens the event stream of a directory. Only the response head has a time limit, because the reader of the stream detects
    /// silence.
    pub(crate) async fn events(&self, directory: &str, patience: Duration) -> Result<Response> {
        self.event_stream(self.request(Method::GET, "event", directory, "")?, patience).await
    }

    async fn event_stream(&self, request: RequestBuilder, patience: Duration) -> Result<Response> {
        let request = request.header(ACCEPT, "text/event-stream");
        let _time = self.time(Call::Events);
        let opening = async {
            let response = tokio::time::timeout(patience.min(self.shared.timeout), request.send()).await;
            let response = response.map_err(|_| CallError::NoAnswer)??;
            match response.status() {
                StatusCode::OK if content_type(response.headers()).starts_with("text/event-stream") => {
                    Ok(response)
                }
                StatusCode::OK => Err(CallError::Garbled("not an event stream".to_owned())),
                _ => Err(without_session(read_refusal(response).await)),
            }
        };
        self.in_run(opening).await
    }

    /// Creates a session. Without a title, OpenCode names the session after its first prompt.
    pub(crate) async fn create_session(&self, directory: &str, title: Option<&str>) -> Result<Session> {
        let body = title.map_or_else(|| json!({}), |title| json!({"title": title}));
        let request = self.request(Method::POST, "session", directory, "")?;
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        let made = self.json(Call::CreateSession, request).await;
        made.map_err(without_session)
    }

    /// Sends a prompt. Two errors prove that OpenCode did not accept it: the request [was not sent](CallError::was_not_sent), or
    /// OpenCode refused it with a 4xx status. After any other error OpenCode may have accepted it.
    pub(crate) async fn prompt(
        &self,
        _slot: CallSlot<'_>,
        directory: &str,
        session: &str,
        body: String,
    ) -> Result<()> {
        let request = self.request(Method::POST, &session_path(session, "prompt_async")?, directory, "")?;
        let _time = self.time(Call::Prompt);
        let request =
            request.timeout(self.shared.timeout).header(CONTENT_TYPE, "application/json").body(body);
        self.in_run(async { check_accepted(request.send().await?).await }).await
    }

    /// Runs a command. OpenCode responds when the turn is over, so there is no time limit. As for [`Self::prompt`], only some
    /// errors mean that OpenCode did not accept the command.
    pub(crate) async fn command(&self, directory: &str, session: &str, body: String) -> Result<()> {
        let request = self.request(Method::POST, &session_path(session, "command")?, directory, "")?;
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        let running = async { decode::<AnyMessage>(request.send().await?, self.shared.max_body).await };
        match self.in_run(running).await {
            // A response that is too long is also a success, because the event stream has already delivered the content.
            Ok(_) | Err(CallError::TooLong) => Ok(()),
            Err(cause) => Err(cause),
        }
    }

    pub(crate) async fn abort(&self, directory: &str, session: &str) -> Result<()> {
        self.post(Call::Abort, &session_path(session, "abort")?, directory, "{}".to_owned()).await
    }

    /// Answers an ask. OpenCode searches only the directory that the request names.
    pub(crate) async fn answer(&self, directory: &str, ask: &str, answer: &Answer) -> Result<()> {
        let (path, body) = match answer {
            Answer::Permission { message, .. } | Answer::PermissionOption { message, .. } => {
                let mut body = json!({"reply": answer.how()});
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

    /// OpenCode's report about its own health. The report is about the whole server, not about a directory.
    pub(crate) async fn health(&self) -> Result<Health> {
        let request = self.call(Method::GET, "global/health")?;
        let health = self.json_within(Call::Health, request, HEALTH_TIMEOUT.min(self.shared.timeout)).await;
        health.map_err(without_session)
    }

    /// Whether any response comes from OpenCode's address within this time. Sent even while OpenCode counts as down.
    pub(crate) async fn probe(&self, patience: Duration) -> Probe {
        let location = self.address().location();
        let request = self.call_at(&location, Method::GET, "global/health");
        let Ok(request) = request else { return Probe::Response };
        match tokio::time::timeout(patience, request.send()).await {
            Ok(Ok(_)) => Probe::Response,
            Ok(Err(cause)) if cause.is_connect() => Probe::Unreachable,
            Ok(Err(_)) | Err(_) => Probe::NoResponse,
        }
    }

    /// The address that all clients of this OpenCode share.
    pub(crate) fn address(&self) -> &Address {
        &self.shared.endpoint.base_url
    }

    /// Makes a call in the current run of OpenCode. The end of the run ends the call.
    async fn in_run<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let mut run = self.address().run().map_err(CallError::Down)?;
        let result = tokio::select! {
            biased;
            result = call => result,
            () = run.ended() => Err(CallError::Ended),
        };
        if let Err(CallError::Unreachable(_) | CallError::Cut(_)) = &result {
            self.shared.suspected.notify_one();
        }
        result
    }

    /// Notes that OpenCode may be down.
    pub(crate) fn suspect_outage(&self) {
        self.shared.suspected.notify_one();
    }

    /// Waits until a broken call or stream suggests that OpenCode may be down.
    pub(crate) async fn outage_suspected(&self) {
        self.shared.suspected.notified().await;
    }

    pub(crate) async fn session(&self, directory: &str, session: &str) -> Result<Session> {
        let path = format!("session/{}", segment(Kind::Session, session)?);
        self.get(Call::Session, &path, directory, "").await
    }

    /// The sessions that are not idle, as OpenCode determined them after this call began. Concurrent callers share a response.
    pub(crate) async fn statuses(&self, directory: &str) -> Result<Arc<Statuses>> {
        self.shared.status_queries.query(directory, || self.unshared_statuses(directory)).await
    }

    /// Like `statuses`, with a request of its own. So this never waits for other callers.
    pub(crate) async fn unshared_statuses(&self, directory: &str) -> Result<Statuses> {
        self.get(Call::Statuses, "session/status", directory, "").await.map_err(without_session)
    }

    pub(crate) async fn permissions(&self, directory: &str) -> Result<Vec<PermissionAsk>> {
        let listed = self.get(Call::Permissions, "permission", directory, "").await;
        listed.map(readable).map_err(without_session)
    }

    pub(crate) async fn questions(&self, directory: &str) -> Result<Vec<QuestionAsk>> {
        let listed = self.get(Call::Questions, "question", directory, "").await;
        listed.map(readable).map_err(without_session)
    }

    pub(crate) async fn children(&self, directory: &str, session: &str) -> Result<Vec<Session>> {
        self.get(Call::Children, &session_path(session, "children")?, directory, "").await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        call: Call,
        path: &str,
        directory: &str,
        more: &str,
    ) -> Result<T> {
        self.json(call, self.request(Method::GET, path, directory, more)?).await
    }

    /// Builds a request about a directory. `more`: further query parameters, each with its `&`.
    fn request(&self, method: Method, path: &str, directory: &str, more: &str) -> Result<RequestBuilder> {
        self.call(method, &format!("{path}?directory={}{more}", directory_value(directory)))
    }

    /// Builds a request. The base address may have a path, with or without a slash at its end.
    fn call(&self, method: Method, path_and_query: &str) -> Result<RequestBuilder> {
        let location = self.address().location();
        if let Some(outage) = location.outage {
            return Err(CallError::Down(outage.reason));
        }
        self.call_at(&location, method, path_and_query)
    }

    fn call_at(&self, location: &Location, method: Method, path_and_query: &str) -> Result<RequestBuilder> {
        let endpoint = &self.shared.endpoint;
        let base = location.url.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/{path_and_query}"))
            .map_err(|cause| CallError::Invalid(Error::internal(cause)))?;
        let mut request = self.shared.connections.of_run(location.run).request(method, url);
        // The calls of a turn belong to the turn's trace, all others to the trace of the current request.
        if let Some(trace) = self.trace.clone().or_else(caller_trace) {
            request = request.header(TRACEPARENT, trace.traceparent());
            if let Some(state) = trace.tracestate() {
                request = request.header(TRACESTATE, state);
            }
        }
        Ok(match location.password.as_ref().or(endpoint.password.as_ref()) {
            Some(password) => request.basic_auth(&endpoint.username, Some(password.expose_secret())),
            None => request,
        })
    }

    /// Sends a request that continues or stops a turn, and whose response has no content. It takes no slot, because it may be the
    /// request that ends the calls that hold the slots.
    async fn post(&self, call: Call, path: &str, directory: &str, body: String) -> Result<()> {
        let request = self.request(Method::POST, path, directory, "")?;
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        let _: IgnoredAny = self.json_without_slot(call, request).await?;
        Ok(())
    }

    async fn json<T: DeserializeOwned>(&self, call: Call, request: RequestBuilder) -> Result<T> {
        let _slot = self.slot().await?;
        self.json_without_slot(call, request).await
    }

    async fn json_without_slot<T: DeserializeOwned>(&self, call: Call, request: RequestBuilder) -> Result<T> {
        self.json_within(call, request, self.shared.timeout).await
    }

    async fn json_within<T: DeserializeOwned>(
        &self,
        call: Call,
        request: RequestBuilder,
        timeout: Duration,
    ) -> Result<T> {
        let _time = self.time(call);
        let request = request.timeout(timeout);
        self.in_run(async { decode(request.send().await?, self.shared.max_body).await }).await
    }

    /// Measures the time until the timer is dropped.
    fn time(&self, call: Call) -> Timer<'_, ResponseTime> {
        self.shared.metrics.opencode_request.of(call).time()
    }
}

async fn decode<T: DeserializeOwned>(response: Response, max_body: usize) -> Result<T> {
    if !response.status().is_success() {
        return Err(read_refusal(response).await);
    }
    if !content_type(response.headers()).starts_with("application/json") {
        let what = if is_html(response.headers()) { "a web page" } else { "a response that is not JSON" };
        return Err(CallError::Garbled(what.to_owned()));
    }
    let body = read(response, max_body).await?;
    serde_json::from_slice(&body).map_err(|cause| {
        CallError::Garbled(format!("unexpected JSON at line {}, column {}", cause.line(), cause.column()))
    })
}

/// Parses the elements of a list, and leaves out malformed ones. A list covers a whole directory, so one malformed ask, session or
/// message of another session must not stop every turn in the directory.
fn readable<T: DeserializeOwned>(listed: Vec<Box<RawValue>>) -> Vec<T> {
    let read = |raw: Box<RawValue>| {
        let element = serde_json::from_str(raw.get());
        if element.is_err() {
            tracing::warn!(bytes = raw.get().len(), "skipped a malformed entry in a list from OpenCode");
        }
        element.ok()
    };
    listed.into_iter().filter_map(read).collect()
}

/// Checks that OpenCode accepted a prompt, which only status 204 shows. Any other success comes from another server or operation.
async fn check_accepted(response: Response) -> Result<()> {
    match response.status() {
        StatusCode::NO_CONTENT => Ok(()),
        status if status.is_success() && is_html(response.headers()) => {
            Err(CallError::Garbled("a web page".to_owned()))
        }
        status if status.is_success() => Err(CallError::Garbled(format!("status {}", status.as_u16()))),
        _ => Err(read_refusal(response).await),
    }
}

/// Reads an error response.
async fn read_refusal(response: Response) -> CallError {
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        return CallError::Unauthorized;
    }
    // OpenCode sends its reasons as JSON. Anything else comes from a proxy in front of OpenCode and is not shown to callers.
    let json = content_type(response.headers()).starts_with("application/json");
    let body = match read(response, MAX_BODY_BYTES).await {
        // The missing rest of the text would say whether the session or the path is unknown, so the 404 cannot be interpreted.
        Err(cause @ (CallError::Cut(_) | CallError::Ended)) if status == StatusCode::NOT_FOUND => {
            return cause;
        }
        body => body.ok().filter(|_| json),
    };
    let body: ErrorBody = body.and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    if status == StatusCode::NOT_FOUND {
        return if !is_opencode_not_found(&body) {
            CallError::NoSuchPath
        } else if error_message(body).starts_with("Message not found") {
            CallError::NoMessage
        } else {
            CallError::NotFound
        };
    }
    let message = error_message(body);
    // OpenCode's database errors contain the query, which is not shown to callers.
    let message = if message.contains("Failed query") { String::new() } else { redact::public(&message) };
    let message = if message.is_empty() { "OpenCode gave no reason".to_owned() } else { message };
    CallError::Refused { status: status.as_u16(), message }
}

/// Whether a 404 comes from OpenCode itself. A 404 from a proxy says nothing about the session.
fn is_opencode_not_found(body: &ErrorBody) -> bool {
    let name = body.name.as_ref().or(body.tag.as_ref());
    name.is_some_and(|name| name.ends_with("NotFoundError"))
}

/// Converts the error of a call that names no session, where a 404 cannot mean that a session does not exist.
fn without_session(cause: CallError) -> CallError {
    if matches!(cause, CallError::NotFound | CallError::NoMessage) { CallError::NoSuchPath } else { cause }
}

/// The text of an error body, in any of OpenCode's three shapes.
fn error_message(body: ErrorBody) -> String {
    body.data.message.or(body.message).or(body.name).or(body.tag).unwrap_or_default()
}

/// The path of an operation on a session.
fn session_path(session: &str, operation: &str) -> Result<String> {
    Ok(format!("session/{}/{operation}", segment(Kind::Session, session)?))
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
