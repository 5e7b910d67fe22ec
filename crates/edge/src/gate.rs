//! The checks that every request passes before any of it is decoded: origin and host, credential, and rate. All bindings share
//! one gate, so that the limits count the requests of all bindings together.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use http::request::Parts;
use longshore_model::{Error, Result};
use longshore_wire::surface::Access;

use crate::EdgeConfig;
use crate::arrival::Arrival;
use crate::auth::{self, Caller, Credentials};
use crate::guard::{Bound, Guard};
use crate::limits::{FairThrottle, OpenRequest, RateLimiter};

#[derive(Debug)]
pub(crate) struct Gate {
    guard: Guard,
    rate_limiter: RateLimiter,
    throttle: FairThrottle,
    credentials: Credentials,
    challenge: HeaderValue,
}

/// The parts of a request's head that the gate checks.
#[derive(Debug)]
pub(crate) struct RequestHead<'a> {
    pub(crate) peer: IpAddr,
    pub(crate) parts: &'a Parts,
    pub(crate) access: Access,
    /// Whether the rate limit ignores the request.
    pub(crate) is_exempt_from_limits: bool,
    /// The open request on its connection. `None`: the request did not arrive on a connection.
    pub(crate) open: Option<&'a OpenRequest>,
}

impl Gate {
    pub(crate) fn new(config: EdgeConfig, bound: Bound) -> Self {
        let EdgeConfig { limits, metrics, deployment, credentials, .. } = config;
        let challenge = HeaderValue::try_from(credentials.challenge())
            .expect("the challenges consist of fixed words that a header may hold");
        let urls = [Some(deployment.public_url.as_str()), deployment.grpc_url.as_deref()];
        Self {
            guard: Guard::new(&limits, urls.into_iter().flatten(), bound, Arc::clone(&metrics)),
            rate_limiter: RateLimiter::new(&limits, metrics),
            throttle: FairThrottle::for_current_runtime(),
            credentials,
            challenge,
        }
    }

    /// Checks origin, host, credential and rate before any byte of the body is read. Returns the caller. `None`: the path needs no
    /// credential, and the request has none.
    pub(crate) fn admit(&self, head: &RequestHead<'_>) -> Result<Option<Arc<Caller>>> {
        self.guard.check(head.parts)?;
        let caller = self.caller(head)?;
        if !head.is_exempt_from_limits {
            self.rate_limiter.admit(caller.as_deref(), head.peer)?;
        }
        if let (Some(_), Some(open)) = (&caller, head.open) {
            open.keep_place()?;
        }
        Ok(caller)
    }

    /// Checks the rate limit for a later request on a connection whose first request was admitted.
    pub(crate) fn admit_message(&self, caller: &Caller, peer: IpAddr) -> Result<()> {
        self.rate_limiter.admit(Some(caller), peer)
    }

    /// Delays the response if the error is a refusal by the rate limit.
    pub(crate) async fn delay(&self, error: &Error) {
        self.rate_limiter.delay(error).await;
    }

    /// Waits until the throttle lets the caller's request start.
    pub(crate) async fn wait_for_turn(&self, caller: &Caller) {
        self.throttle.wait(&caller.principal).await;
    }

    /// The value of `WWW-Authenticate`: the schemes by which a caller can authenticate.
    pub(crate) fn challenge(&self) -> HeaderValue {
        self.challenge.clone()
    }

    /// The authenticated caller. `None`: the request has no credential and the path needs none.
    fn caller(&self, head: &RequestHead<'_>) -> Result<Option<Arc<Caller>>> {
        let headers = &head.parts.headers;
        let of_connection = || Arrival::of(head.parts)?.caller.clone();
        match head.access {
            Access::Anybody => Ok(None),
            _ if auth::has_none(headers)
                && let Some(caller) = of_connection() =>
            {
                Ok(Some(caller))
            }
            // On such a path a credential is optional, but an invalid one is still refused.
            Access::Graded if auth::has_none(headers) => Ok(None),
            // A request without a credential is no guess, so it does not count as a failed login.
            Access::Credential if auth::has_none(headers) => self.credentials.authenticate(headers).map(Some),
            Access::Graded | Access::Credential => {
                self.rate_limiter.check_login(head.peer)?;
                let found = self.credentials.authenticate(headers);
                if found.is_err() {
                    self.rate_limiter.record_failed_login(head.peer);
                }
                found.map(Some)
            }
        }
    }
}
