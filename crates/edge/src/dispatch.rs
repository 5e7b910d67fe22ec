//! Routes a request by its head to the binding that answers it.
//!
//! The checks, in order: the guard of origins and hosts, whether the path is public, the credential, the rate limit, the
//! protocol version (for REST; that of a JSON-RPC call is checked later, when the method is known), the path, the verb, the
//! required extensions. So a caller without a credential learns nothing about paths. Files, health and documents are the same
//! for every protocol version.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode};
use longshore_engine::{Engine, Tasks};
use longshore_meter::Metrics;
use longshore_model::{Error, ErrorKind, Result, TraceContext};
use longshore_wire::contract::{self, Deployment, MissingVersion};
use longshore_wire::extension::{self, Activated};
use longshore_wire::jsonrpc::Id;
use longshore_wire::methods;
use longshore_wire::surface::Access;
use longshore_wire::v03::Dialect;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::arrival::Arrival;
use crate::auth::{self, Caller, Credentials};
use crate::body::BodyLimits;
use crate::compress;
use crate::count;
use crate::documents::{DocumentRequest, Documents};
use crate::extensions;
use crate::file;
use crate::guard::{Bound, Guard};
use crate::limits::{Bodies, FairThrottle, OpenRequest, RateLimiter, Slots};
use crate::metrics::MetricsPage;
use crate::operation::{MAX_BACKGROUND_CALLS, Operations};
use crate::page::{self, Page};
use crate::payload;
use crate::reply::{self, Response};
use crate::request_line::RequestLine;
use crate::response_format::ResponseFormat;
use crate::route::{self, Resolved, Route, Target};
use crate::sse::{Budget, StreamSettings};
use crate::trace;
use crate::version::{ProtocolVersion, RequestedVersion};
use crate::{EdgeConfig, PayloadLog};

#[derive(Debug)]
pub(crate) struct Dispatcher {
    guard: Guard,
    rate_limiter: RateLimiter,
    throttle: FairThrottle,
    credentials: Credentials,
    challenge: HeaderValue,
    missing_version: MissingVersion,
    gzip_minimum: usize,
    metrics: Arc<Metrics>,
    page: MetricsPage,
    html: Page,
    pub(crate) payload_log: PayloadLog,
    pub(crate) documents: Documents,
    /// The facts about this gateway from which its documents are built, such as the methods that are switched on.
    pub(crate) deployment: Arc<Deployment>,
    /// The extensions of the public card.
    pub(crate) public_extensions: Activated,
    pub(crate) limits: BodyLimits,
    pub(crate) bodies: Bodies,
    pub(crate) streams: Arc<StreamSettings>,
    pub(crate) operations: Operations,
}

/// The head of a request, with its route and requested version.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) peer: IpAddr,
    /// `None`: the request did not arrive on a connection.
    open: Option<&'a OpenRequest>,
    pub(crate) trace: TraceContext,
    /// The span of every log line about the request.
    pub(crate) span: Span,
    /// The one line about the request itself.
    pub(crate) line: RequestLine,
    pub(crate) parts: &'a Parts,
    pub(crate) requested: RequestedVersion,
    target: Target,
}

impl Dispatcher {
    pub(crate) fn new(
        engine: Engine,
        mut config: EdgeConfig,
        bound: Bound,
        closing: CancellationToken,
        tasks: Tasks,
    ) -> Self {
        // Methods that the agent does not support are neither documented nor served.
        config.deployment.control = engine.has_control();
        config.metrics.control_calls.set_names(methods::all(&config.deployment).map(|method| method.name));
        let deployment = Arc::new(config.deployment.clone());
        let challenge = HeaderValue::try_from(config.credentials.challenge())
            .expect("the challenges consist of fixed words that a header may hold");
        Self {
            guard: Guard::new(
                &config.limits,
                &config.deployment.public_url,
                bound,
                Arc::clone(&config.metrics),
            ),
            rate_limiter: RateLimiter::new(&config.limits, Arc::clone(&config.metrics)),
            throttle: FairThrottle::for_current_runtime(),
            documents: Documents::new(&config, engine.clone(), closing.clone()),
            page: MetricsPage::new(&config, engine.clone()),
            html: Page::new(config.gzip_minimum),
            credentials: config.credentials,
            challenge,
            gzip_minimum: config.gzip_minimum,
            metrics: Arc::clone(&config.metrics),
            payload_log: config.payload_log,
            missing_version: config.deployment.missing_version,
            limits: BodyLimits { max_bytes: config.max_body_bytes, timeout: config.body_timeout },
            bodies: Bodies::new(&config.limits, Arc::clone(&config.metrics)),
            streams: Arc::new(StreamSettings {
                keep_alive: config.keep_alive,
                budget: Budget::from_limits(&config.limits),
                closing: closing.clone(),
                metrics: Arc::clone(&config.metrics),
            }),
            // Half of the grace period is for waiting, half for writing the response.
            operations: Operations {
                engine,
                closing,
                shutdown_wait: config.shutdown_grace / 2,
                deployment: Arc::clone(&deployment),
                slots: Slots::new(&config.limits, Arc::clone(&config.metrics)),
                metrics: Arc::clone(&config.metrics),
                tasks,
                background_slots: Arc::new(Semaphore::new(MAX_BACKGROUND_CALLS)),
            },
            public_extensions: contract::public_extensions(&deployment),
            deployment,
        }
    }

    /// Answers a request, also if its handler panics. `peer` is the other end of the connection. Headers that name another
    /// client behind it are not trusted.
    pub(crate) async fn answer<B>(
        &self,
        peer: IpAddr,
        open: Option<&OpenRequest>,
        request: Request<B>,
    ) -> Response
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (parts, body) = request.into_parts();
        let target = route::resolve(parts.uri.path());
        let requested = RequestedVersion::read(&parts, target.base, self.missing_version);
        let trace = trace::from_headers(&parts.headers);
        // At the highest level, so that every log line has the span, whatever level is configured.
        let span = tracing::error_span!("request", trace_id = %trace.trace_id());
        let name = if page::is_wanted(&parts) { Some("page") } else { route::logged_name(&target.resolved) };
        let line = RequestLine::begin(name, &span);
        let incoming =
            Incoming { peer, open, trace, span: span.clone(), line, parts: &parts, requested, target };
        let answered = AssertUnwindSafe(self.dispatch(&incoming, body)).catch_unwind().instrument(span).await;
        let mut response = answered.unwrap_or_else(|_| {
            // The panic hook has logged the panic and its location.
            let mut response = incoming.refuse(&Error::internal("a handler panicked"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        });
        reply::set_version(&mut response, incoming.format().version);
        trace::set_headers(&mut response, &incoming.trace);
        count::count_response(&self.metrics, incoming.operation_format(&response), &response);
        incoming.line.set_response(&response);
        let mut response = compress::compress(response, &parts.headers, self.gzip_minimum).await;
        if parts.method == Method::HEAD {
            reply::strip_body(&mut response);
        }
        response
    }

    async fn dispatch<B>(&self, incoming: &Incoming<'_>, body: B) -> Response
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let caller = match self.admit(incoming) {
            Ok(caller) => caller,
            Err(error) => {
                self.rate_limiter.delay(&error).await;
                let mut response = incoming.refuse(&error);
                if error.kind() == ErrorKind::Unauthenticated {
                    response.headers_mut().insert(WWW_AUTHENTICATE, self.challenge.clone());
                }
                return response;
            }
        };
        if page::is_wanted(incoming.parts) {
            return self.html.answer(&incoming.parts.headers);
        }
        if let Some(caller) = &caller {
            incoming.line.set_caller(caller);
        }
        let caller = caller.as_deref();
        if let Some(caller) = caller.filter(|_| !incoming.is_exempt_from_limits()) {
            self.throttle.wait(&caller.principal).await;
        }
        if let (true, Some(caller)) = (incoming.is_rpc(), caller) {
            return self.rpc(caller, incoming, body).await;
        }
        let activated = extensions::activated(&incoming.parts.headers);
        let answered = match self.version_independent(caller, incoming).await {
            Some(answered) => answered,
            None => self.operation(caller, incoming, body).await,
        };
        let mut response = answered.unwrap_or_else(|error| refusal(incoming, &error));
        let operation = incoming.route().and_then(Route::operation);
        payload::log_response(self.payload_log, operation, &response);
        if let Some(named) = incoming.echoed(activated, self.public_extensions) {
            extensions::echo(&mut response, &incoming.parts.headers, named);
        }
        response
    }

    /// Checks origin, host, credential and rate before any byte of the body is read. Returns the caller, or `None` if the path
    /// needs no credential.
    fn admit(&self, incoming: &Incoming<'_>) -> Result<Option<Arc<Caller>>> {
        self.guard.check(incoming.parts)?;
        let caller = self.caller(incoming)?;
        if !incoming.is_exempt_from_limits() {
            self.rate_limiter.admit(caller.as_deref(), incoming.peer)?;
        }
        if let (Some(_), Some(open)) = (&caller, incoming.open) {
            open.keep_place()?;
        }
        Ok(caller)
    }

    /// The authenticated caller. `None`: the request has no credential and the path needs none.
    fn caller(&self, incoming: &Incoming<'_>) -> Result<Option<Arc<Caller>>> {
        let headers = &incoming.parts.headers;
        if page::is_wanted(incoming.parts) {
            return Ok(None);
        }
        let access = incoming.route().map_or(Access::Credential, Route::access);
        let of_connection = || Arrival::of(incoming.parts)?.caller.clone();
        match access {
            Access::Anybody => Ok(None),
            _ if auth::has_none(headers)
                && let Some(caller) = of_connection() =>
            {
                Ok(Some(caller))
            }
            // On such a path a credential is optional, but a wrong one is still refused.
            Access::Graded if auth::has_none(headers) => Ok(None),
            // A request without a credential guesses nothing, so it is not counted as a failed login.
            Access::Credential if auth::has_none(headers) => self.credentials.authenticate(headers).map(Some),
            Access::Graded | Access::Credential => {
                self.rate_limiter.check_login(incoming.peer)?;
                let found = self.credentials.authenticate(headers);
                if found.is_err() {
                    self.rate_limiter.record_failed_login(incoming.peer);
                }
                found.map(Some)
            }
        }
    }

    /// Serves the routes that are the same in every protocol version and are not operations. `None`: the route is an operation.
    async fn version_independent(
        &self,
        caller: Option<&Caller>,
        incoming: &Incoming<'_>,
    ) -> Option<Result<Response>> {
        let route = incoming.route()?;
        let found = match route {
            Route::Card | Route::OpenApi | Route::Health | Route::Livez | Route::File(_) => Ok(()),
            Route::Metrics => self.page.served().map(drop),
            _ => return None,
        };
        if let Err(error) = found.and_then(|()| incoming.check_verb(route)) {
            return Some(Err(error));
        }
        let request = incoming.document_request(caller, incoming.requested.document_version(), Dialect::Rpc);
        Some(Ok(match (route, caller) {
            (Route::Card, _) => self.documents.card(&request),
            (Route::OpenApi, _) => self.documents.openapi(&request),
            // The document describes one version: the one that the response names.
            (Route::Health, _) => self.documents.health(incoming.format().version).await,
            (Route::Metrics, _) => return Some(self.page.answer()),
            (Route::File(id), Some(caller)) => {
                return Some(file::answer(&self.operations.engine, caller, id, incoming.parts).await);
            }
            _ => reply::empty(StatusCode::OK),
        }))
    }

    /// Performs an operation of the REST binding.
    async fn operation<B>(
        &self,
        caller: Option<&Caller>,
        incoming: &Incoming<'_>,
        body: B,
    ) -> Result<Response>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (version, route) = incoming.served()?;
        incoming.check_verb(route)?;
        let caller = caller.ok_or_else(|| Error::internal("an operation without a caller"))?;
        // The extended card tells callers which extensions are required, so it requires none itself.
        if let Route::ExtendedCard(dialect) = route {
            let request = incoming.document_request(Some(caller), Some(version), *dialect);
            return Ok(self.documents.extended_card(&request).await);
        }
        self.check_required(ResponseFormat::rest(version).rules().activated(&incoming.parts.headers))?;
        self.rest(caller, route, incoming, version, body).await
    }

    /// Refuses an operation whose caller did not activate all required extensions.
    pub(crate) fn check_required(&self, activated: Activated) -> Result<()> {
        extension::check_required(activated, &self.deployment.required_extensions)
    }
}

impl Incoming<'_> {
    /// The response format as far as the head of the request determines it.
    pub(crate) fn format(&self) -> ResponseFormat {
        let version = match self.target.resolved {
            Resolved::Route(_) => self.requested.response_version(self.target.version),
            Resolved::UnknownTenant(_) | Resolved::Unknown => {
                self.requested.response_version_of_unknown(self.target.version)
            }
        };
        if self.is_rpc() { ResponseFormat::rpc(version) } else { ResponseFormat::rest(version) }
    }

    /// Answers with an error, in the version and binding that the request used.
    pub(crate) fn refuse(&self, error: &Error) -> Response {
        self.format().refuse(&Id::Null, &self.parts.headers, error)
    }

    pub(crate) fn document_request<'a>(
        &'a self,
        caller: Option<&'a Caller>,
        version: Option<ProtocolVersion>,
        dialect: Dialect,
    ) -> DocumentRequest<'a> {
        DocumentRequest { version, base: self.target.base, caller, dialect, parts: self.parts }
    }

    /// The format in which an operation is answered. `None`: the request is not an operation.
    fn operation_format(&self, response: &Response) -> Option<ResponseFormat> {
        self.route()?.operation()?;
        let format = self.format();
        Some(ResponseFormat { version: reply::version_of(response).unwrap_or(format.version), ..format })
    }

    /// Whether the rate limit and the throttle ignore the request. Such requests cost next to nothing, and every client must be
    /// able to learn that the gateway is up, how to call it, and, with a credential, how busy it is.
    fn is_exempt_from_limits(&self) -> bool {
        let is_exempt = |route: &Route| matches!(route, Route::Card | Route::Livez | Route::Metrics);
        self.parts.method == Method::OPTIONS || self.route().is_some_and(is_exempt)
    }

    fn is_rpc(&self) -> bool {
        self.parts.method == Method::POST && self.route() == Some(&Route::Rpc)
    }

    fn route(&self) -> Option<&Route> {
        match &self.target.resolved {
            Resolved::Route(route) => Some(route),
            Resolved::UnknownTenant(_) | Resolved::Unknown => None,
        }
    }

    /// The version and route of a REST request, if the version is served and has the path.
    fn served(&self) -> Result<(ProtocolVersion, &Route)> {
        let version = self.requested.resolve(self.target.version)?;
        let other = self.target.version.filter(|own| *own != version);
        let problem = match (&self.target.resolved, other) {
            (Resolved::Route(route), None) => return Ok((version, route)),
            (Resolved::Route(_), Some(own)) => {
                let (version, own) = (version.as_str(), own.as_str());
                format!(
                    "This path belongs to A2A {own}, and the request uses {version}; send A2A-Version: {own}."
                )
            }
            (Resolved::UnknownTenant(tenant), _) => {
                return Err(Error::new(
                    ErrorKind::RouteNotFound,
                    "The path begins with a tenant, and no tenants are configured; leave the first segment out.",
                )
                .detail("tenant", tenant));
            }
            (Resolved::Unknown, _) => {
                "There is no such path; the OpenAPI document at /openapi.json lists the paths.".to_owned()
            }
        };
        Err(Error::new(ErrorKind::RouteNotFound, problem))
    }

    fn check_verb(&self, route: &Route) -> Result<()> {
        if route.verbs().contains(&self.parts.method) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::VerbNotAllowed,
            format!("This path does not take this verb; it takes {}.", verbs(route)),
        ))
    }

    /// The extensions that the response names, out of the activated ones. The extended card names all of them. Documents and
    /// files name none, because a shared cache may keep them.
    fn echoed(&self, activated: Activated, public: Activated) -> Option<Activated> {
        let route = self.route()?;
        route.operation()?;
        let is_extended_card = matches!(route, Route::ExtendedCard(_));
        Some(if is_extended_card { activated } else { activated.and(public) })
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

fn verbs(route: &Route) -> String {
    let verbs: Vec<&str> = route.verbs().iter().map(Method::as_str).collect();
    verbs.join(", ")
}

#[cfg(test)]
mod tests;
