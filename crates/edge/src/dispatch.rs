//! Routes a request by its head to the binding that answers it.
//!
//! The checks, in order: the guard of origins and hosts, whether the path is public, the credential, the rate limit, the
//! protocol version (for REST only; the version of a JSON-RPC call is checked when its method is known), the path, the verb, the
//! required extensions. So a caller without a credential learns nothing about paths. Files, health and documents are served in
//! the same way for every protocol version.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, StatusCode};
use longshore_engine::{Engine, Tasks};
use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::contract::{self, MissingVersion};
use longshore_wire::jsonrpc as envelope;
use longshore_wire::methods;
use longshore_wire::surface::Served;
use longshore_wire::v03::Dialect;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::EdgeConfig;
use crate::arrival::Arrival;
use crate::auth::Caller;
use crate::binding::Bindings;
use crate::body::BodyLimits;
use crate::compress;
use crate::count;
use crate::documents::Documents;
use crate::extensions;
use crate::file;
use crate::gate::Gate;
use crate::grpc::{self, GrpcServices, Protobuf};
use crate::guard::Bound;
use crate::incoming::{Incoming, verbs};
use crate::jsonrpc::{self, CallHead, Carrier};
use crate::limits::{Bodies, OpenRequest, Slots};
use crate::mcp::{self, McpService};
use crate::metrics::MetricsPage;
use crate::multiplexer::{MessageHead, Refusal};
use crate::operation::{MAX_BACKGROUND_CALLS, Operations};
use crate::page::{self, Page};
use crate::payload;
use crate::reply::{self, Response};
use crate::request_line::RequestLine;
use crate::rest;
use crate::route::{self, Route};
use crate::sse::{Budget, StreamSettings};
use crate::trace;
use crate::version::RequestedVersion;
use crate::websocket;

#[derive(Debug)]
pub(crate) struct Dispatcher {
    gate: Gate,
    missing_version: MissingVersion,
    gzip_minimum: usize,
    metrics: Arc<Metrics>,
    page: MetricsPage,
    html: Page,
    documents: Arc<Documents>,
    grpc: Option<&'static dyn Protobuf>,
    grpc_services: Option<Arc<dyn GrpcServices>>,
    mcp: Option<(String, Arc<dyn McpService>)>,
    bindings: Bindings,
    websocket_idle: Option<Duration>,
    requests_per_connection: usize,
}

impl Dispatcher {
    pub(crate) fn new(
        engine: Engine,
        mut config: EdgeConfig,
        bound: Bound,
        closing: CancellationToken,
        tasks: Tasks,
    ) -> Self {
        // If the agent does not support the control methods, they are neither documented nor served.
        config.deployment.control = engine.has_control();
        config.deployment.grpc = config.grpc.is_some();
        if config.grpc.is_none() {
            config.deployment.grpc_url = None;
        }
        count::set_names(&config.metrics);
        config.metrics.control_calls.set_names(methods::all(&config.deployment).map(|method| method.name));
        let deployment = Arc::new(config.deployment.clone());
        let documents = Arc::new(Documents::new(&config, engine.clone(), closing.clone()));
        // Half of the grace period is for waiting requests to finish, and half for writing their responses.
        let operations = Arc::new(Operations {
            engine: engine.clone(),
            closing: closing.clone(),
            shutdown_wait: config.shutdown_grace / 2,
            deployment: Arc::clone(&deployment),
            documents: Arc::clone(&documents),
            slots: Slots::new(&config.limits, Arc::clone(&config.metrics)),
            metrics: Arc::clone(&config.metrics),
            tasks,
            background_slots: Arc::new(Semaphore::new(MAX_BACKGROUND_CALLS)),
        });
        let streams = StreamSettings {
            keep_alive: config.keep_alive,
            budget: Budget::from_limits(&config.limits),
            closing,
            metrics: Arc::clone(&config.metrics),
        };
        Self {
            page: MetricsPage::new(&config, engine),
            html: Page::new(config.gzip_minimum),
            gzip_minimum: config.gzip_minimum,
            metrics: Arc::clone(&config.metrics),
            missing_version: config.deployment.missing_version,
            documents,
            grpc: config.grpc,
            websocket_idle: config.websocket_idle,
            requests_per_connection: config.limits.requests_per_connection,
            grpc_services: config.grpc_services.clone(),
            mcp: config.mcp.clone(),
            bindings: Bindings {
                operations,
                public_extensions: contract::public_extensions(&deployment),
                deployment,
                limits: BodyLimits { max_bytes: config.max_body_bytes, timeout: config.body_timeout },
                bodies: Bodies::new(&config.limits, Arc::clone(&config.metrics)),
                streams: Arc::new(streams),
                payload_log: config.payload_log,
            },
            gate: Gate::new(config, bound),
        }
    }

    /// Answers a request, even if its handler panics. `peer` is the other end of the connection. A proxy may be that peer, but
    /// headers that name the client behind a proxy are not trusted.
    pub(crate) async fn answer<B>(
        &self,
        peer: IpAddr,
        open: Option<&OpenRequest>,
        request: Request<B>,
    ) -> Response
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (mut parts, body) = request.into_parts();
        let grpc = self.grpc.filter(|_| grpc::is_call(&parts));
        let path = parts.uri.path();
        let target = match grpc {
            Some(_) => route::resolve_grpc(path, self.grpc_services.as_deref()),
            None if self.mcp.as_ref().is_some_and(|(own, _)| own == path) => route::mcp(),
            None => route::resolve(path, self.websocket_path()),
        };
        if target.is_websocket() {
            websocket::take_token(&mut parts.headers);
        }
        // gRPC has a separate service for each version, and clients generated from its descriptors send no version header.
        let missing = if grpc.is_some() { MissingVersion::ByRequest } else { self.missing_version };
        let requested = RequestedVersion::read(&parts, target.base, missing);
        let trace = trace::from_headers(&parts.headers);
        // The span has the highest level, so that every log line has the span at every configured log level.
        let span = tracing::error_span!("request", trace_id = %trace.trace_id());
        let name = if page::is_wanted(&parts) {
            Some("page")
        } else {
            route::logged_name(&target.resolved, &parts.method)
        };
        let line = RequestLine::begin(name, &span);
        let incoming = Incoming {
            peer,
            open,
            trace,
            span: span.clone(),
            line,
            parts: &parts,
            requested,
            target,
            grpc,
            called: OnceLock::new(),
        };
        let answered = AssertUnwindSafe(self.dispatch(&incoming, body)).catch_unwind().instrument(span).await;
        let mut response = answered.unwrap_or_else(|_| {
            // The panic hook has logged the panic and its location.
            let mut response = incoming.refuse(&Error::internal("a handler panicked"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        });
        reply::set_version(&mut response, incoming.format().version);
        trace::set_headers(&mut response, &incoming.trace);
        let operation = incoming.operation_format(&response);
        let operation = operation.map(|format| (format.version, count::binding(format)));
        count::count_response(&self.metrics, operation, incoming.called(), &response);
        incoming.line.set_response(&response);
        let mut response = compress::compress(response, &parts.headers, self.gzip_minimum).await;
        if parts.method == Method::HEAD {
            reply::strip_body(&mut response);
        }
        response
    }

    /// Answers one message of a connection that carries several requests, even if its handler panics.
    pub(crate) async fn answer_message(
        &self,
        head: &MessageHead,
        message: Bytes,
        refusal: Option<Refusal>,
    ) -> Response {
        let parsed = envelope::parse(&message);
        let (own, call) = (head.with_parameters(parsed.as_ref().ok()), CallHead::new(parsed.as_ref()));
        drop(parsed);
        let (parts, refusal) = match (&own, refusal) {
            (Ok(own), refusal) => (own.as_ref().unwrap_or(&head.parts), refusal),
            (Err(_), Some(refusal)) => (&head.parts, Some(refusal)),
            (Err(error), None) => (&head.parts, Some(Refusal { error: error.clone(), shows_id: true })),
        };
        let trace = trace::from_headers(&parts.headers);
        let span = tracing::error_span!("request", trace_id = %trace.trace_id());
        let incoming = Incoming {
            peer: head.peer,
            open: None,
            trace,
            line: RequestLine::begin(Some("JSON-RPC"), &span),
            span: span.clone(),
            parts,
            requested: RequestedVersion::read(parts, head.base, self.missing_version),
            target: route::rpc(head.base),
            grpc: None,
            called: OnceLock::new(),
        };
        incoming.line.set_caller(&head.caller);
        let answering = async {
            let admitted = self.gate.admit_message(&head.caller, head.peer);
            let admitted = admitted.map_err(|error| Refusal { error, shows_id: true });
            if let Err(Refusal { error, shows_id }) = admitted.and_then(|()| refusal.map_or(Ok(()), Err)) {
                self.gate.delay(&error).await;
                return jsonrpc::refuse(&self.bindings, &incoming, &call, &error, shows_id);
            }
            self.gate.wait_for_turn(&head.caller).await;
            jsonrpc::answer_text(&self.bindings, &head.caller, &incoming, Carrier::Message, message).await
        };
        let answered = AssertUnwindSafe(answering).catch_unwind().instrument(span).await;
        let response = answered.unwrap_or_else(|_| {
            // The panic hook has logged the panic and its location.
            let error = Error::internal("a handler panicked");
            jsonrpc::refuse(&self.bindings, &incoming, &call, &error, true)
        });
        let version = incoming.operation_format(&response).map(|format| (format.version, head.binding));
        count::count_response(&self.metrics, version, incoming.called(), &response);
        incoming.line.set_response(&response);
        response
    }

    pub(crate) fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// How long a WebSocket without an open request stays open. `None`: for ever.
    pub(crate) fn websocket_idle(&self) -> Option<Duration> {
        self.websocket_idle
    }

    /// How many requests may be open on one connection that carries several requests.
    pub(crate) fn requests_per_connection(&self) -> usize {
        match self.requests_per_connection {
            0 => usize::MAX,
            most => most,
        }
    }

    /// The error for a request beyond that limit.
    pub(crate) fn too_many_requests(&self) -> Error {
        self.metrics.refused.of(Limit::RequestsPerConnection).increment();
        let text = "Too many requests are open on this connection. Wait until one ends, or cancel one.";
        Error::new(ErrorKind::TooManyRequests, text)
            .detail("limit", "requests_per_connection")
            .detail("max", self.requests_per_connection.to_string())
    }

    /// The path of WebSockets. `None`: WebSockets are disabled.
    fn websocket_path(&self) -> Option<&str> {
        self.bindings.deployment.websocket.as_deref()
    }

    async fn dispatch<B>(&self, incoming: &Incoming<'_>, body: B) -> Response
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let caller = match self.gate.admit(&incoming.head()) {
            Ok(caller) => caller,
            Err(error) => {
                self.gate.delay(&error).await;
                let mut response = incoming.refuse(&error);
                if error.kind() == ErrorKind::Unauthenticated {
                    response.headers_mut().insert(WWW_AUTHENTICATE, self.gate.challenge());
                }
                return response;
            }
        };
        if incoming.grpc.is_none() && Arrival::of(incoming.parts).is_some_and(|arrival| arrival.only_grpc) {
            let text = "This port serves gRPC only; the card names the other interfaces.";
            return incoming.refuse(&Error::new(ErrorKind::RouteNotFound, text));
        }
        if page::is_wanted(incoming.parts) {
            return self.html.answer(&incoming.parts.headers);
        }
        if let Some(caller) = &caller {
            incoming.line.set_caller(caller);
        }
        let caller = caller.as_ref();
        if let Some(caller) = caller.filter(|_| !incoming.is_exempt_from_limits()) {
            self.gate.wait_for_turn(caller).await;
        }
        if let (true, Some(caller)) = (incoming.is_rpc(), caller) {
            return jsonrpc::answer(&self.bindings, caller, incoming, body).await;
        }
        let activated = extensions::activated(&incoming.parts.headers);
        if let (Some((_, service)), Some(caller), Some(Served::Mcp)) =
            (&self.mcp, caller, incoming.route().and_then(Route::served))
            && incoming.parts.method == Method::POST
        {
            let answered = mcp::answer(&self.bindings, service.as_ref(), caller, incoming, body).await;
            return answered.unwrap_or_else(|error| refusal(incoming, &error));
        }
        let answered = match self.version_independent(caller, incoming).await {
            Some(answered) => answered,
            None => self.operation(caller, incoming, body).await,
        };
        let mut response = answered.unwrap_or_else(|error| refusal(incoming, &error));
        let operation = incoming.route().and_then(Route::logged_path);
        payload::log_response(self.bindings.payload_log, operation, &response);
        if let Some(named) = incoming.echoed(activated, self.bindings.public_extensions) {
            extensions::echo(&mut response, &incoming.parts.headers, named);
        }
        response
    }

    /// Serves the routes that are the same in every protocol version and are not operations. `None`: the route is an operation.
    async fn version_independent(
        &self,
        caller: Option<&Arc<Caller>>,
        incoming: &Incoming<'_>,
    ) -> Option<Result<Response>> {
        let route = incoming.route()?;
        let served = route.served()?;
        let found = match served {
            Served::Card
            | Served::OpenApi
            | Served::Health
            | Served::Alive
            | Served::File
            | Served::WebSocket
            | Served::Mcp => Ok(()),
            Served::Metrics => self.page.served().map(drop),
            Served::Rpc => return None,
        };
        if let Err(error) = found.and_then(|()| incoming.check_verb(route)) {
            return Some(Err(error));
        }
        let known = caller.map(AsRef::as_ref);
        let request = incoming.document_request(known, incoming.requested.document_version(), Dialect::Rpc);
        Some(Ok(match (served, caller) {
            (Served::Card, _) => self.documents.card(&request),
            (Served::OpenApi, _) => self.documents.openapi(&request),
            // A document that describes a single version describes the version that the response names.
            (Served::Health, _) => self.documents.health(incoming.format().version).await,
            (Served::Metrics, _) => return Some(self.page.answer()),
            (Served::WebSocket, Some(caller)) => return Some(Ok(websocket::accept(caller, incoming))),
            (Served::File, Some(caller)) => {
                return Some(
                    file::answer(&self.bindings.operations.engine, caller, &route.id, incoming.parts).await,
                );
            }
            _ => reply::empty(StatusCode::OK),
        }))
    }

    /// Performs an operation of the REST or gRPC binding.
    async fn operation<B>(
        &self,
        caller: Option<&Arc<Caller>>,
        incoming: &Incoming<'_>,
        body: B,
    ) -> Result<Response>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (version, route) = incoming.served()?;
        incoming.check_verb(route)?;
        if let (true, Some(protobuf), Some(services)) =
            (route.is_grpc_service(), incoming.grpc, self.grpc_services.as_deref())
        {
            return grpc::services::answer(
                &self.bindings,
                protobuf,
                services,
                caller.map(AsRef::as_ref),
                incoming,
                body,
            )
            .await;
        }
        let caller = caller.ok_or_else(|| Error::internal("an operation without a caller"))?;
        match incoming.grpc {
            Some(protobuf) => {
                grpc::answer(&self.bindings, protobuf, caller, route, incoming, version, body).await
            }
            None => rest::answer(&self.bindings, caller, route, incoming, version, body).await,
        }
    }
}

fn refusal(incoming: &Incoming<'_>, error: &Error) -> Response {
    let mut response = incoming.refuse(error);
    if let (ErrorKind::VerbNotAllowed, Some(route)) = (error.kind(), incoming.route()) {
        let allow = HeaderValue::try_from(verbs(route)).expect("a header may hold the names of verbs");
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}

#[cfg(test)]
mod tests;
