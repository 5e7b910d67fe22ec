//! From a request's head to the binding that answers it.
//!
//! In order: the guard of origins and hosts, what is public, the credential, the rate, the line (REST: from the head;
//! JSON-RPC: with the method), the path, the verb, the extensions that every caller must know. So a caller without a
//! credential learns nothing about paths. A file is a file to clients of every line, and so are health and the documents.

use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{ALLOW, AUTHORIZATION, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode};
use longshore_engine::{Engine, Tasks};
use longshore_meter::Metrics;
use longshore_model::{Error, ErrorKind, Result, TraceContext};
use longshore_wire::contract::{Deployment, MissingVersion};
use longshore_wire::extension::{self, Activated};
use longshore_wire::jsonrpc::Id;
use longshore_wire::surface::Access;
use longshore_wire::v1::card::API_KEY_HEADER;
use longshore_wire::v03::Dialect;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::auth::{Caller, Credentials};
use crate::body::BodyLimits;
use crate::compress;
use crate::count;
use crate::documents::{Asked, Documents};
use crate::extensions;
use crate::file;
use crate::guard::Guard;
use crate::limits::{Pace, Slots, Turnstile};
use crate::line::{Head, ProtocolVersion};
use crate::metrics::MetricsPage;
use crate::operation::{MAX_LEFT, Operations};
use crate::payload::{self, Called};
use crate::reply::{self, Response};
use crate::route::{self, Resolved, Route, Target};
use crate::shape::Shape;
use crate::sse::{Budget, StreamSettings};
use crate::trace;
use crate::{EdgeConfig, PayloadLog};

#[derive(Debug)]
pub(crate) struct Dispatcher {
    guard: Guard,
    turnstile: Turnstile,
    pace: Pace,
    credentials: Credentials,
    challenge: HeaderValue,
    missing_version: MissingVersion,
    gzip_minimum: usize,
    metrics: Arc<Metrics>,
    page: MetricsPage,
    pub(crate) payload_log: PayloadLog,
    pub(crate) documents: Documents,
    /// What is served, as the documents say.
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) limits: BodyLimits,
    pub(crate) streams: Arc<StreamSettings>,
    pub(crate) operations: Operations,
}

/// The head of a request, looked at.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) peer: IpAddr,
    pub(crate) trace: TraceContext,
    /// In which every line of the log about it is.
    pub(crate) span: Span,
    pub(crate) parts: &'a Parts,
    pub(crate) head: Head,
    target: Target,
}

impl Dispatcher {
    /// `bound`: the address that is listened on.
    pub(crate) fn new(
        engine: Engine,
        mut config: EdgeConfig,
        bound: SocketAddr,
        closing: CancellationToken,
        tasks: Tasks,
    ) -> Self {
        // Methods for what the agent cannot do are neither named nor served.
        config.deployment.control = engine.has_control();
        let deployment = Arc::new(config.deployment.clone());
        let challenge = HeaderValue::try_from(config.credentials.challenge())
            .expect("the challenges are made of fixed words");
        Self {
            guard: Guard::new(
                &config.limits,
                &config.deployment.public_url,
                bound,
                Arc::clone(&config.metrics),
            ),
            turnstile: Turnstile::new(&config.limits, Arc::clone(&config.metrics)),
            pace: Pace::of_runtime(),
            documents: Documents::new(&config, engine.clone(), closing.clone()),
            page: MetricsPage::new(&config, engine.clone()),
            credentials: config.credentials,
            challenge,
            gzip_minimum: config.gzip_minimum,
            metrics: Arc::clone(&config.metrics),
            payload_log: config.payload_log,
            missing_version: config.deployment.missing_version,
            limits: BodyLimits { max_bytes: config.max_body_bytes, timeout: config.body_timeout },
            streams: Arc::new(StreamSettings {
                keep_alive: config.keep_alive,
                budget: Budget::of(&config.limits),
                closing: closing.clone(),
                metrics: Arc::clone(&config.metrics),
            }),
            // Half of the grace to wait, half to write the answer.
            operations: Operations {
                engine,
                closing,
                patience: config.shutdown_grace / 2,
                deployment: Arc::clone(&deployment),
                slots: Slots::new(&config.limits, Arc::clone(&config.metrics)),
                metrics: Arc::clone(&config.metrics),
                tasks,
                left: Arc::new(Semaphore::new(MAX_LEFT)),
            },
            deployment,
        }
    }

    /// Answers a request, whatever happens in it. `peer` is whoever holds the other end of the connection; what headers say
    /// about others behind it is not believed.
    pub(crate) async fn answer<B>(&self, peer: IpAddr, request: Request<B>) -> Response
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (parts, body) = request.into_parts();
        let target = route::resolve(parts.uri.path());
        let head = Head::of(&parts, target.base, self.missing_version);
        let trace = trace::taken(&parts.headers);
        // Of the highest level, so that every line of the log that there is has it.
        let span = tracing::error_span!("request", trace_id = %trace.trace_id());
        let incoming = Incoming { peer, trace, span: span.clone(), parts: &parts, head, target };
        let answered = AssertUnwindSafe(self.dispatch(&incoming, body)).catch_unwind().instrument(span).await;
        let mut response = answered.unwrap_or_else(|_| {
            // The panic hook has written what and where.
            let mut response = incoming.refuse(&Error::internal("a handler panicked"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        });
        reply::of_line(&mut response, incoming.shape().line);
        trace::tell(&mut response, &incoming.trace);
        count::answer(&self.metrics, incoming.operation_shape(&response), &response);
        let mut response = compress::answer(response, &parts.headers, self.gzip_minimum).await;
        if parts.method == Method::HEAD {
            reply::without_body(&mut response);
        }
        response
    }

    async fn dispatch<B>(&self, incoming: &Incoming<'_>, body: B) -> Response
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let caller = match self.admitted(incoming) {
            Ok(caller) => caller,
            Err(error) => {
                self.turnstile.hold(&error).await;
                let mut response = incoming.refuse(&error);
                if error.kind() == ErrorKind::Unauthenticated {
                    response.headers_mut().insert(WWW_AUTHENTICATE, self.challenge.clone());
                }
                return response;
            }
        };
        let caller = caller.as_deref();
        if let Some(caller) = caller.filter(|_| !incoming.is_free()) {
            self.pace.keep(&caller.principal).await;
        }
        if let (true, Some(caller)) = (incoming.is_rpc(), caller) {
            return self.rpc(caller, incoming, body).await;
        }
        let activated = extensions::activated(&incoming.parts.headers);
        let answered = match self.served_to_all(caller, incoming).await {
            Some(answered) => answered,
            None => self.operation(caller, incoming, body).await,
        };
        let mut response = answered.unwrap_or_else(|error| refused(incoming, &error));
        if incoming.operation_shape(&response).is_some() {
            payload::log_answer(self.payload_log, Called::Path(incoming.parts.uri.path()), &response);
        }
        if let Some(named) = incoming.echoed(activated) {
            extensions::echo(&mut response, &incoming.parts.headers, named);
        }
        response
    }

    /// Who asks, if they may now. Nothing of the body is read before.
    fn admitted(&self, incoming: &Incoming<'_>) -> Result<Option<Arc<Caller>>> {
        self.guard.check(incoming.parts)?;
        let caller = self.caller(incoming)?;
        if !incoming.is_free() {
            self.turnstile.admit(caller.as_deref(), incoming.peer)?;
        }
        Ok(caller)
    }

    /// Who asks. `None`: nobody that we know, and what is asked for is for everybody.
    fn caller(&self, incoming: &Incoming<'_>) -> Result<Option<Arc<Caller>>> {
        let headers = &incoming.parts.headers;
        let access = incoming.route().map_or(Access::Credential, Route::access);
        let shows_none = || !headers.contains_key(AUTHORIZATION) && !headers.contains_key(API_KEY_HEADER);
        match access {
            Access::Anybody => Ok(None),
            // Whoever shows a credential is told when it is a wrong one.
            Access::Graded if shows_none() => Ok(None),
            // Nobody guesses by showing nothing.
            Access::Credential if shows_none() => self.credentials.authenticate(headers).map(Some),
            Access::Graded | Access::Credential => {
                self.turnstile.may_log_in(incoming.peer)?;
                let found = self.credentials.authenticate(headers);
                if found.is_err() {
                    self.turnstile.note_failed_login(incoming.peer);
                }
                found.map(Some)
            }
        }
    }

    /// What is no operation, and the same on every line. `None`: it is something else.
    async fn served_to_all(
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
        let asked = incoming.asked(caller, incoming.head.wanted(), Dialect::Rpc);
        Some(Ok(match (route, caller) {
            (Route::Card, _) => self.documents.card(&asked),
            (Route::OpenApi, _) => self.documents.openapi(&asked),
            // It is always of one line: that which the answer says.
            (Route::Health, _) => self.documents.health(incoming.shape().line).await,
            (Route::Metrics, _) => return Some(self.page.answer()),
            (Route::File(id), Some(caller)) => {
                return Some(file::answer(&self.operations.engine, caller, id, incoming.parts).await);
            }
            _ => reply::empty(StatusCode::OK),
        }))
    }

    /// An operation by REST.
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
        let (line, route) = incoming.served()?;
        incoming.check_verb(route)?;
        let caller = caller.ok_or_else(|| Error::internal("an operation without a caller"))?;
        // The card is where callers learn what they must know.
        if let Route::ExtendedCard(dialect) = route {
            let asked = incoming.asked(Some(caller), Some(line), *dialect);
            return Ok(self.documents.extended_card(&asked).await);
        }
        self.check_required(Shape::rest(line).rules().activated(&incoming.parts.headers))?;
        self.rest(caller, route, incoming, line, body).await
    }

    /// Refuses an operation whose caller does not know what every caller must know.
    pub(crate) fn check_required(&self, activated: Activated) -> Result<()> {
        extension::check_required(activated, &self.deployment.required_extensions)
    }
}

impl Incoming<'_> {
    /// How it is answered as long as only the head is known.
    pub(crate) fn shape(&self) -> Shape {
        let line = match self.target.resolved {
            Resolved::Route(_) => self.head.shape(self.target.line),
            Resolved::UnknownTenant(_) | Resolved::Unknown => self.head.shape_of_unknown(self.target.line),
        };
        if self.is_rpc() { Shape::rpc(line) } else { Shape::rest(line) }
    }

    /// Tells an error in the shape of the line and binding that the request was meant for.
    pub(crate) fn refuse(&self, error: &Error) -> Response {
        self.shape().refuse(&Id::Null, &self.parts.headers, error)
    }

    pub(crate) fn asked<'a>(
        &'a self,
        caller: Option<&'a Caller>,
        line: Option<ProtocolVersion>,
        dialect: Dialect,
    ) -> Asked<'a> {
        Asked { line, base: self.target.base, caller, dialect, parts: self.parts }
    }

    /// The shape in which an operation is answered. `None`: it is none.
    fn operation_shape(&self, response: &Response) -> Option<Shape> {
        match self.route()? {
            Route::Card | Route::OpenApi | Route::Health | Route::Metrics | Route::Livez | Route::File(_) => {
                None
            }
            _ => {
                let shape = self.shape();
                Some(Shape { line: reply::line_of(response).unwrap_or(shape.line), ..shape })
            }
        }
    }

    /// Whether it is not counted how often it is asked for: it costs next to nothing, and those who ask are not to be kept
    /// from learning that the gateway is there, how to call it, and, with a credential, what it is busy with.
    fn is_free(&self) -> bool {
        let is_free = |route: &Route| matches!(route, Route::Card | Route::Livez | Route::Metrics);
        self.parts.method == Method::OPTIONS || self.route().is_some_and(is_free)
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

    /// The line and route of a REST request, if its line is served and has its path.
    fn served(&self) -> Result<(ProtocolVersion, &Route)> {
        let line = self.head.line(self.target.line)?;
        let elsewhere = self.target.line.filter(|own| *own != line);
        let problem = match (&self.target.resolved, elsewhere) {
            (Resolved::Route(route), None) => return Ok((line, route)),
            (Resolved::Route(_), Some(own)) => {
                let (line, own) = (line.version(), own.version());
                format!("This path is of A2A {own}, and the request of {line}; send A2A-Version: {own}.")
            }
            (Resolved::UnknownTenant(tenant), _) => {
                return Err(Error::new(
                    ErrorKind::RouteNotFound,
                    "The path begins with a tenant, and no tenants are configured; leave the first segment out.",
                )
                .detail("tenant", tenant));
            }
            (Resolved::Unknown, _) => {
                "There is no such path; the card at /.well-known/agent-card.json lists the interfaces."
                    .to_owned()
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

    /// The extensions that the answer names, of those that were asked for. The extended card has all of them. What others
    /// may keep names none: it is the same for everybody.
    fn echoed(&self, activated: Activated) -> Option<Activated> {
        match self.route()? {
            Route::Card | Route::OpenApi | Route::Health | Route::Metrics | Route::Livez | Route::File(_) => {
                None
            }
            Route::ExtendedCard(_) => Some(activated),
            _ => Some(extensions::public(activated)),
        }
    }
}

fn refused(incoming: &Incoming<'_>, error: &Error) -> Response {
    let mut response = incoming.refuse(error);
    if let (ErrorKind::VerbNotAllowed, Some(route)) = (error.kind(), incoming.route()) {
        let allow = HeaderValue::try_from(verbs(route)).expect("verbs may stand in a header");
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
