//! Calls the operations of one agent.

use std::sync::Arc;

use longshore_model::TaskState;
use longshore_wire::surface::{Endpoint, Operation, ProtocolVersion, Verb};
use longshore_wire::v1::method::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName};
use reqwest::{RequestBuilder, Response};
use serde_json::{Map, Value, json};
use url::Url;

use crate::card::{Binding, Card, Interface};
use crate::connection::Source;
use crate::discovery::{Discovered, Discovery};
use crate::error::{Error, ErrorKind};
use crate::request::{Dialect, Outgoing};
use crate::settings::Settings;
use crate::task_stream::{Start, TaskStream};
use crate::value::{Event, Task};
use crate::{Result, grpc, http, polling, read, refusal};

/// The characters that are percent-encoded when an id is put into a path.
const ID: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The id of every JSON-RPC request. One id is enough, because each request has its own connection or stream.
const RPC_ID: &str = "1";

/// The parameters that a REST request has in its path.
const IN_PATH: [&str; 3] = ["id", "taskId", "pushNotificationConfigId"];

/// A client of one agent. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    /// The gRPC service. `None`: the interface has another binding.
    grpc: Option<grpc::Service>,
    interface: Interface,
    card: Option<Arc<Card>>,
    /// The headers of every request: the credential, the version and the extensions.
    headers: HeaderMap,
    settings: Settings,
}

/// The filter and page for listing tasks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    pub context_id: Option<String>,
    pub state: Option<TaskState>,
    /// The most tasks on a page, up to 100. `None`: the agent decides.
    pub page_size: Option<u32>,
    /// How many of its newest messages each task includes. `None`: the agent decides. 0.3 ignores this.
    pub history: Option<u32>,
    /// The token from the previous page.
    pub page_token: Option<String>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TaskList {
    /// The tasks, newest first.
    pub tasks: Vec<Task>,
    /// The token of the next page. `None`: this is the last page.
    pub next_page_token: Option<String>,
    /// The number of tasks on all pages, if the agent reports it.
    pub total: Option<u64>,
}

/// One call of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// The ids for the REST path: of a task, and of one of its webhooks.
    pub(crate) task: &'a str,
    pub(crate) push: &'a str,
    pub(crate) params: Value,
}

impl<'a> Call<'a> {
    pub(crate) fn of(method: Method, params: Value) -> Self {
        Self { method, task: "", push: "", params }
    }

    fn of_task(method: Method, task: &'a str) -> Self {
        Self { task, ..Self::of(method, json!({"id": task})) }
    }

    /// Whether REST has all parameters in the body, even those that are also in the path.
    fn is_whole_body(&self) -> bool {
        self.method == Method::CreateTaskPushNotificationConfig
    }
}

impl Client {
    /// Finds the card of an agent and chooses an interface. `url`: the URL of the agent or of its card.
    pub async fn connect(url: &str, settings: Settings) -> Result<Self> {
        let Discovered { card, url, .. } = Discovery::new().find(url, &settings).await?;
        Self::of_card(card, &url, settings)
    }

    /// A client for the agent of a card. `url`: where the card was found.
    pub fn of_card(card: Arc<Card>, url: &Url, settings: Settings) -> Result<Self> {
        let interface = card.choose(&settings)?.clone();
        // Send the credential only to the card's own server. Otherwise the author of a card could collect credentials of other
        // servers.
        if settings.credential.is_some() && !is_same_server(&interface, url) {
            return Err(Error::new(
                ErrorKind::Input,
                format!(
                    "The card of {} says that the agent is at {}. Your credential is for the first address and was not sent to \
                     the second. If you trust the second, call it directly.",
                    http::shown(url),
                    http::shown(&interface.url)
                ),
            ));
        }
        Self::new(interface, Some(card), settings)
    }

    /// A client for an interface that is already known.
    pub fn at(interface: Interface, settings: Settings) -> Result<Self> {
        Self::new(interface, None, settings)
    }

    fn new(interface: Interface, card: Option<Arc<Card>>, settings: Settings) -> Result<Self> {
        let mut headers = match &settings.credential {
            Some(credential) => {
                let name = card.as_ref().and_then(|card| card.api_key_header.as_deref());
                http::authorization(credential, name)?
            }
            None => HeaderMap::new(),
        };
        let is_old = interface.version == ProtocolVersion::V03;
        let version = interface.version.as_str();
        headers.insert("a2a-version", version.parse().map_err(|_| invalid_header())?);
        if !settings.extensions.is_empty() {
            let name = if is_old { "x-a2a-extensions" } else { "a2a-extensions" };
            headers.insert(name, settings.extensions.join(", ").parse().map_err(|_| invalid_header())?);
        }
        if let Some(trace) = &settings.trace {
            let texts = [
                ("traceparent", Some(trace.traceparent())),
                ("tracestate", trace.tracestate().map(str::to_owned)),
            ];
            for (name, text) in texts {
                headers.extend(
                    text.and_then(|text| text.parse().ok())
                        .map(|value| (HeaderName::from_static(name), value)),
                );
            }
        }
        let http = http::client(&interface.url, &settings)?;
        let grpc = match interface.binding {
            Binding::Grpc => Some(grpc::Service::new(&interface, settings.limits.event)?),
            Binding::JsonRpc | Binding::Rest => None,
        };
        Ok(Self(Arc::new(Inner { http, grpc, interface, card, headers, settings })))
    }

    pub fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// The card that the client was made from, if any.
    pub fn card(&self) -> Option<&Card> {
        self.0.card.as_deref()
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Reads the extended card, which agents show to callers with a credential. Returns its JSON unchanged.
    pub async fn extended_card(&self) -> Result<Value> {
        self.call(Call::of(Method::GetExtendedAgentCard, json!({}))).await
    }

    /// Sends a message, and returns the answer: the task in its state at the end of its stream, or a message. If the agent has no
    /// streams, polls the task, if the settings allow polling.
    pub async fn send(&self, message: Outgoing) -> Result<Event> {
        let answer = if self.streams() {
            let mut stream = self.stream(message).await?;
            let mut message = None;
            while let Some(event) = stream.next().await? {
                if let Event::Message(answer) = event {
                    message = Some(answer);
                }
            }
            match (message, stream.into_task()) {
                (Some(message), _) => Event::Message(message),
                (None, Some(task)) => Event::Task(task),
                (None, None) => return Err(read::malformed("the stream ended without a task")),
            }
        } else {
            self.send_once(&message, true).await?
        };
        match (answer, self.0.settings.polling) {
            (Event::Task(task), Some(polling)) if !task.is_settled() => {
                polling::until_settled(self, task, polling).await.map(Event::Task)
            }
            (answer, _) => Ok(answer),
        }
    }

    /// Sends a message, and follows the task that it starts.
    pub async fn stream(&self, message: Outgoing) -> Result<TaskStream> {
        TaskStream::open(self.clone(), Start::Message(message)).await
    }

    /// Follows an existing task.
    pub async fn subscribe(&self, task: &str) -> Result<TaskStream> {
        TaskStream::open(self.clone(), Start::Task(task.to_owned())).await
    }

    pub async fn get(&self, task: &str) -> Result<Task> {
        read::task(&self.call(Call::of_task(Method::GetTask, task)).await?, self.dialect())
    }

    /// Lists the caller's tasks. In A2A 0.3 this operation exists only over REST, and few agents serve it.
    pub async fn list(&self, listing: &Listing) -> Result<TaskList> {
        let mut params = json!({});
        if let Some(context) = &listing.context_id {
            params["contextId"] = context.as_str().into();
        }
        if let Some(state) = listing.state {
            params["status"] = format!("TASK_STATE_{}", state.as_str().to_uppercase()).into();
        }
        if let Some(size) = listing.page_size {
            params["pageSize"] = size.into();
        }
        if let (Some(count), Dialect::V1) = (listing.history, self.dialect()) {
            params["historyLength"] = count.into();
        }
        if let Some(token) = &listing.page_token {
            params["pageToken"] = token.as_str().into();
        }
        let page = self.call(Call::of(Method::ListTasks, params)).await?;
        let tasks = page["tasks"].as_array().ok_or_else(|| read::malformed("the list has no tasks"))?;
        Ok(TaskList {
            tasks: tasks.iter().map(|task| read::task(task, self.dialect())).collect::<Result<_>>()?,
            next_page_token: page["nextPageToken"]
                .as_str()
                .filter(|token| !token.is_empty())
                .map(str::to_owned),
            total: page["totalSize"].as_u64(),
        })
    }

    pub async fn cancel(&self, task: &str) -> Result<Task> {
        read::task(&self.call(Call::of_task(Method::CancelTask, task)).await?, self.dialect())
    }

    /// Whether the agent has streams. A client without a card calls a Longshore, which has streams.
    pub(crate) fn streams(&self) -> bool {
        self.0.card.as_ref().is_none_or(|card| card.streaming)
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.0.interface.dialect()
    }

    /// Sends a message without a stream. `waits`: whether the agent answers only when the task settles.
    pub(crate) async fn send_once(&self, message: &Outgoing, waits: bool) -> Result<Event> {
        let params = message.write(self.dialect(), waits);
        read::event(&self.call(Call::of(Method::SendMessage, params)).await?, self.dialect())
    }

    /// Opens a stream without reading an event.
    pub(crate) async fn open_stream(&self, start: &Start, last_event_id: Option<&str>) -> Result<Source> {
        let call = match start {
            Start::Message(message) => {
                Call::of(Method::SendStreamingMessage, message.write(self.dialect(), true))
            }
            Start::Task(task) => Call::of_task(Method::SubscribeToTask, task),
        };
        if let Some(grpc) = &self.0.grpc {
            let mut headers = self.0.headers.clone();
            if let Some(id) = last_event_id.and_then(|id| id.parse().ok()) {
                headers.insert("last-event-id", id);
            }
            self.0.settings.check_guard()?;
            // Boxed because gRPC futures are large, and the futures of all callers would contain this one.
            let opening = Box::pin(grpc.stream(call, &headers, self.0.settings.timeout));
            return opening.await.map(Source::Grpc);
        }
        let with_stream = |request: RequestBuilder| {
            let request = request.header(ACCEPT, "text/event-stream");
            match last_event_id {
                Some(id) => request.header("last-event-id", id),
                None => request,
            }
        };
        let response = self.perform(call, with_stream).await?;
        if http::is_type(&response, "text/event-stream") {
            return Ok(Source::of_sse(response, self.0.settings.limits.event));
        }
        // A response that is no stream can only be an error.
        self.result(response).await?;
        Err(Error::invalid_response("The agent answered a request for a stream with a single response."))
    }

    pub(crate) async fn call(&self, call: Call<'_>) -> Result<Value> {
        if let Some(grpc) = &self.0.grpc {
            self.0.settings.check_guard()?;
            return Box::pin(grpc.call(call, &self.0.headers, self.0.settings.timeout)).await;
        }
        let has_result = call.method != Method::DeleteTaskPushNotificationConfig;
        let response = self.perform(call, |request| request.header(ACCEPT, "application/json")).await?;
        let is_rest = self.0.interface.binding == Binding::Rest;
        // A REST response of an operation without a result may have no body.
        if !has_result && is_rest && response.status().is_success() {
            return Ok(Value::Null);
        }
        match self.read(response).await? {
            json if is_rest => Ok(json),
            // For an operation without a result, some agents omit the `result` field.
            json if !has_result && !json["error"].is_object() => Ok(Value::Null),
            json => result_of_rpc(json),
        }
    }

    /// Sends the request of an operation. Over REST, tries each known path and verb.
    async fn perform(
        &self,
        mut call: Call<'_>,
        adorn: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response> {
        let interface = &self.0.interface;
        let operation = Operation::of(call.method);
        if interface.binding == Binding::JsonRpc {
            if !interface.tenant.is_empty() {
                call.params["tenant"] = interface.tenant.as_str().into();
            }
            let request = self.rpc(operation.jsonrpc(interface.version), &call.params);
            return self.send_request(adorn(request)).await;
        }
        let endpoints =
            operation.rest(interface.version).iter().filter(|endpoint| endpoint.verb != Verb::Head);
        let mut refused = None;
        for endpoint in endpoints {
            let response = self.send_request(adorn(self.rest(*endpoint, &call))).await?;
            // Agents use different verbs for some paths, so these statuses lead to the next endpoint.
            let is_elsewhere = matches!(response.status().as_u16(), 404 | 405 | 501);
            if !is_elsewhere {
                return Ok(response);
            }
            match self.result(response).await {
                Err(error) if error.kind() == ErrorKind::TaskNotFound => return Err(error),
                Err(error) => refused = Some(refused.unwrap_or(error)),
                Ok(_) => {}
            }
        }
        Err(match refused {
            // The server has answered with something else than A2A, so it does not serve this operation here.
            Some(error) if error.kind() == ErrorKind::InvalidResponse => {
                Error::new(ErrorKind::Unsupported, error.message())
            }
            Some(error) => error,
            None => Error::new(ErrorKind::Unsupported, "This version of A2A lacks the operation."),
        })
    }

    fn rpc(&self, method: &str, params: &Value) -> RequestBuilder {
        let body = json!({"jsonrpc": "2.0", "id": RPC_ID, "method": method, "params": params});
        self.0
            .http
            .post(self.0.interface.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string())
    }

    fn rest(&self, endpoint: Endpoint, call: &Call<'_>) -> RequestBuilder {
        let interface = &self.0.interface;
        let mut path = interface.url.path().trim_end_matches('/').to_owned();
        if !interface.tenant.is_empty() {
            path.push('/');
            path.extend(utf8_percent_encode(&interface.tenant, ID));
        }
        let mut rest = endpoint.path.to_owned();
        for (place, id) in [("{id}", call.task), ("{push_id}", call.push)] {
            rest = rest.replace(place, &utf8_percent_encode(id, ID).to_string());
        }
        path.push_str(&rest);
        let mut url = interface.url.clone();
        url.set_path(&path);
        let fields = call.params.as_object().into_iter().flatten();
        let is_in_path = |name: &str| !call.is_whole_body() && IN_PATH.contains(&name);
        let fields = fields.filter(|(name, _)| !is_in_path(name));
        match endpoint.verb {
            Verb::Post => {
                let body: Map<String, Value> =
                    fields.map(|(name, value)| (name.clone(), value.clone())).collect();
                let request = self.0.http.post(url).header(CONTENT_TYPE, "application/json");
                request.body(Value::from(body).to_string())
            }
            Verb::Delete => self.0.http.delete(url),
            Verb::Get | Verb::Head => {
                for (name, value) in fields {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    url.query_pairs_mut().append_pair(name, &text);
                }
                self.0.http.get(url)
            }
        }
    }

    async fn send_request(&self, request: RequestBuilder) -> Result<Response> {
        self.0.settings.check_guard()?;
        http::send(request.headers(self.0.headers.clone()), self.0.settings.timeout).await
    }

    async fn read(&self, response: Response) -> Result<Value> {
        let settings = &self.0.settings;
        http::json(response, settings.limits.response, settings.timeout).await
    }

    /// Reads the result of an operation.
    async fn result(&self, response: Response) -> Result<Value> {
        let json = self.read(response).await?;
        if self.0.interface.binding == Binding::Rest { Ok(json) } else { result_of_rpc(json) }
    }
}

/// Whether a credential for the server of the card may be sent to the interface. gRPC often has another port.
fn is_same_server(interface: &Interface, url: &Url) -> bool {
    let same_host = || interface.url.host() == url.host() && interface.url.scheme() == url.scheme();
    interface.url.origin() == url.origin() || (interface.binding == Binding::Grpc && same_host())
}

/// The result in a JSON-RPC response. An error in the response becomes an `Err`.
pub(crate) fn result_of_rpc(mut response: Value) -> Result<Value> {
    if response["error"].is_object() {
        return Err(refusal::of_jsonrpc(&response["error"]));
    }
    match response.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(read::malformed("it is no JSON-RPC response")),
    }
}

fn invalid_header() -> Error {
    Error::new(ErrorKind::Input, "The name of an extension has characters that no header can have.")
}
