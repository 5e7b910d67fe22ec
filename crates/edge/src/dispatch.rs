//! From a request's head to the binding that answers it.
//!
//! In order: what is public, the credential, the line (REST: from the head; JSON-RPC: with the method), the path, the
//! verb, the extensions that every caller must know. So a caller without a credential learns nothing about paths. A file is
//! a file to clients of every line.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode};
use longshore_engine::Engine;
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::extension::{self, Activated, Extension};
use longshore_wire::jsonrpc::Id;
use tokio_util::sync::CancellationToken;

use crate::EdgeConfig;
use crate::auth::{Caller, Credentials};
use crate::body::BodyLimits;
use crate::card::CardAnswer;
use crate::extensions;
use crate::file;
use crate::line::{self, Line, VERSION_HEADER};
use crate::media::Media;
use crate::operation::Operations;
use crate::query;
use crate::reply::{self, Response};
use crate::route::{self, Resolved, Route};
use crate::sse::StreamSettings;

#[derive(Debug)]
pub(crate) struct Dispatcher {
    credentials: Credentials,
    challenge: HeaderValue,
    card: CardAnswer,
    required: Vec<Extension>,
    pub(crate) limits: BodyLimits,
    pub(crate) streams: StreamSettings,
    pub(crate) operations: Operations,
}

impl Dispatcher {
    pub(crate) fn new(engine: Engine, config: EdgeConfig, closing: CancellationToken) -> Self {
        let challenge = HeaderValue::try_from(config.credentials.challenge())
            .expect("the challenges are made of fixed words");
        Self {
            card: CardAnswer::new(&config.card),
            credentials: config.credentials,
            challenge,
            required: config.required_extensions,
            limits: BodyLimits { max_bytes: config.max_body_bytes, timeout: config.body_timeout },
            streams: StreamSettings { keep_alive: config.keep_alive, closing: closing.clone() },
            // Half of the grace to wait, half to write the answer.
            operations: Operations {
                engine,
                closing,
                patience: config.shutdown_grace / 2,
                exposure: config.exposure,
            },
        }
    }

    /// Answers a request, whatever happens in it.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (parts, body) = request.into_parts();
        let answered = AssertUnwindSafe(self.dispatch(&parts, body)).catch_unwind().await;
        let mut response = answered.unwrap_or_else(|_| {
            // The panic hook has written what and where.
            let mut response = refuse(&parts, &Error::internal("a handler panicked"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        });
        response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(Line::V1.version()));
        response
    }

    async fn dispatch<B>(&self, parts: &Parts, body: B) -> Response
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let resolved = route::resolve(parts.uri.path());
        if let Resolved::Route(route) = &resolved
            && route.is_public()
        {
            return self.public(route, parts);
        }
        let caller = match self.credentials.authenticate(&parts.headers) {
            Ok(caller) => caller,
            Err(error) => {
                let mut response = refuse(parts, &error);
                response.headers_mut().insert(WWW_AUTHENTICATE, self.challenge.clone());
                return response;
            }
        };
        if is_rpc(parts) {
            return self.rpc(&caller, parts, body).await;
        }
        if let Resolved::Route(route @ Route::File(id)) = &resolved {
            return self.file(&caller, route, id, parts).await;
        }
        let route = match served(parts, resolved) {
            Ok(route) => route,
            Err(error) => return refuse(parts, &error),
        };
        if !route.verbs().contains(&parts.method) {
            return wrong_verb(&route, parts);
        }
        let activated = extensions::activated(&parts.headers);
        let answered = match self.check_required(activated) {
            Ok(()) => self.rest(&caller, &route, parts, body).await,
            Err(error) => Err(error),
        };
        match answered {
            Ok(mut response) => {
                extensions::echo(&mut response, extensions::public(activated));
                response
            }
            Err(error) => refuse(parts, &error),
        }
    }

    /// Refuses an operation whose caller does not know what every caller must know.
    pub(crate) fn check_required(&self, activated: Activated) -> Result<()> {
        extension::check_required(activated, &self.required)
    }

    async fn file(&self, caller: &Caller, route: &Route, id: &str, parts: &Parts) -> Response {
        if !route.verbs().contains(&parts.method) {
            return wrong_verb(route, parts);
        }
        let answered = file::answer(&self.operations.engine, caller, id, parts).await;
        answered.unwrap_or_else(|error| refuse(parts, &error))
    }

    /// The card is served to clients of every line: it is where they learn which lines there are.
    fn public(&self, route: &Route, parts: &Parts) -> Response {
        if !route.verbs().contains(&parts.method) {
            return wrong_verb(route, parts);
        }
        match route {
            Route::Card => {
                let mut response = self.card.answer(&parts.method, &parts.headers);
                extensions::echo(&mut response, extensions::public(extensions::activated(&parts.headers)));
                response
            }
            _ => reply::empty(StatusCode::OK),
        }
    }
}

/// The route of a REST request, if its line is served and its path is known.
fn served(parts: &Parts, resolved: Resolved) -> Result<Route> {
    line::named(&parts.headers, &query::pairs(parts.uri.query()))?;
    match resolved {
        Resolved::Route(route) => Ok(route),
        Resolved::UnknownTenant(tenant) => Err(Error::new(
            ErrorKind::RouteNotFound,
            "The path begins with a tenant, and no tenants are configured; leave the first segment out.",
        )
        .detail("tenant", tenant)),
        Resolved::Unknown => Err(Error::new(
            ErrorKind::RouteNotFound,
            "There is no such path; the card at /.well-known/agent-card.json lists the interfaces.",
        )),
    }
}

fn wrong_verb(route: &Route, parts: &Parts) -> Response {
    let verbs: Vec<&str> = route.verbs().iter().map(Method::as_str).collect();
    let verbs = verbs.join(", ");
    let error = Error::new(
        ErrorKind::VerbNotAllowed,
        format!("This path does not take this verb; it takes {verbs}."),
    );
    let mut response = refuse(parts, &error);
    let allow = HeaderValue::try_from(verbs).expect("verbs may stand in a header");
    response.headers_mut().insert(ALLOW, allow);
    response
}

/// Tells an error in the shape of the binding that the request was meant for.
fn refuse(parts: &Parts, error: &Error) -> Response {
    if is_rpc(parts) {
        reply::log(error, "JSON-RPC");
        reply::rpc_error(&Id::Null, error)
    } else {
        reply::log(error, "REST");
        reply::rest_error(error, Media::of_answer(&parts.headers))
    }
}

fn is_rpc(parts: &Parts) -> bool {
    parts.method == Method::POST && route::is_root(parts.uri.path())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use http_body::Frame;
    use http_body_util::BodyExt;
    use longshore_engine::port::SystemClock;
    use longshore_engine::{EngineConfig, EngineParts, Tasks};
    use longshore_model::card::Card;
    use longshore_testkit::scripted_agent::ScriptedAgent;

    use super::*;

    struct Panicking;

    impl http_body::Body for Panicking {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            panic!("on purpose")
        }
    }

    fn dispatcher() -> Dispatcher {
        let engine = Engine::new(EngineParts {
            store: Arc::new(longshore_store::memory()),
            agent: ScriptedAgent::echo(),
            clock: Arc::new(SystemClock),
            tasks: Tasks::new(),
            config: EngineConfig::default(),
        });
        let card = Card {
            name: String::new(),
            description: String::new(),
            version: String::new(),
            documentation_url: None,
            interfaces: Vec::new(),
            streaming: true,
            extended: false,
            extensions: Vec::new(),
            schemes: Vec::new(),
            input_modes: Vec::new(),
            output_modes: Vec::new(),
            skills: Vec::new(),
        };
        let credentials = Credentials::builder().api_key("key".into(), "ada").build().unwrap();
        Dispatcher::new(engine, EdgeConfig::new(card, credentials), CancellationToken::new())
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_not_the_end() {
        let dispatcher = dispatcher();
        for (path, shape) in [
            ("/", "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,"),
            ("/message:send", "{\"error\":{\"code\":500,\"status\":\"INTERNAL\","),
        ] {
            let request = Request::post(path)
                .header("x-api-key", "key")
                .header("content-type", "application/json")
                .body(Panicking)
                .unwrap();
            let response = dispatcher.answer(request).await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert!(body.starts_with(shape.as_bytes()), "{body:?}");
        }
    }
}
