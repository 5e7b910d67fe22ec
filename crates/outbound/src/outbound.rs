//! Sends one `POST` to a URL that a caller provided.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::connection::{Connection, Failure, Stream};
use crate::dial::{Dialer, TcpDialer};
use crate::error::{Error, ErrorKind};
use crate::guard::{Guard, Refusal, Scheme};
use crate::idle::{Idle, Place};
use crate::resolve::{Resolver, SystemResolver};
use crate::retry_after::RetryAfter;
use crate::spelling::{Target, TargetHost};
use crate::tls::Trust;

/// The most addresses of a host that one call tries. The next call resolves the name again.
const MAX_ADDRESSES: usize = 4;

/// How long the check of a new URL waits for the resolver. It is short because the caller waits too.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// The limit for resolving the name, connecting and the TLS handshake together.
    pub connect: Duration,
    /// The limit from sending the request to the head of the response.
    pub response: Duration,
    /// The limit for reading the body of the response, which is dropped.
    pub body: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            response: Duration::from_secs(15),
            body: Duration::from_secs(5),
        }
    }
}

/// A request to send.
#[derive(Debug)]
pub struct Post<'a> {
    pub url: &'a str,
    /// The headers. `Host` and `Content-Length` are added.
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The response of a receiver. A redirect is a response like any other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub retry_after: Option<RetryAfter>,
}

/// Calls receivers. Cloning is cheap, and the clones share their connections.
#[derive(Clone, Debug)]
pub struct Outbound(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    guard: Guard,
    trust: Trust,
    timeouts: Timeouts,
    resolver: Arc<dyn Resolver>,
    dialer: Arc<dyn Dialer>,
    idle: Idle,
}

impl Outbound {
    pub fn new(guard: Guard, trust: Trust, timeouts: Timeouts) -> Self {
        Self::with(guard, trust, timeouts, Arc::new(SystemResolver::default()), Arc::new(TcpDialer))
    }

    /// Like `new`, but with another resolver and dialer, for tests.
    pub fn with(
        guard: Guard,
        trust: Trust,
        timeouts: Timeouts,
        resolver: Arc<dyn Resolver>,
        dialer: Arc<dyn Dialer>,
    ) -> Self {
        Self(Arc::new(Inner { guard, trust, timeouts, resolver, dialer, idle: Idle::default() }))
    }

    /// Checks a URL before it is stored. A name without an address is accepted, because it may get one later, and each call checks
    /// the addresses again.
    pub async fn check(&self, url: &str) -> Result<(), Refusal> {
        let target = self.0.guard.read(url)?;
        let found = tokio::time::timeout(CHECK_TIMEOUT, self.0.resolve(&target)).await;
        match found {
            Ok(Ok(addresses)) => self.0.guard.check_addresses(&target, &addresses),
            _ => Ok(()),
        }
    }

    /// Sends a request to a checked address of its URL. A response with any status is an `Ok`.
    pub async fn post(&self, post: Post<'_>) -> Result<Answer, Error> {
        let Inner { guard, timeouts, idle, .. } = &*self.0;
        let target = guard.read(post.url)?;
        let request = request(&target, post)?;
        let deadline = Instant::now() + timeouts.connect;
        let addresses = timeout_at(deadline, self.0.resolve(&target)).await.map_err(|_| {
            Error::new(ErrorKind::Timeout, format!("the resolver did not find {target} in time"))
        })??;
        guard.check_addresses(&target, &addresses)?;
        let places: Vec<Place> = addresses
            .iter()
            .take(MAX_ADDRESSES)
            .map(|address| Place::new(&target, SocketAddr::new(*address, target.port())))
            .collect();
        let mut request = Box::new(request);
        while let Some((place, connection)) =
            places.iter().find_map(|place| Some((place.clone(), idle.take(place)?)))
        {
            match self.exchange(&target, place, connection, *request).await? {
                Ok(answer) => return Ok(answer),
                Err(unsent) => request = unsent,
            }
        }
        let (place, connection) = self.0.connect(&target, places, deadline).await?;
        match self.exchange(&target, place, connection, *request).await? {
            Ok(answer) => Ok(answer),
            Err(_) => Err(closed(&target)),
        }
    }

    /// Sends the request over a connection. The inner `Err` returns a request that was not sent because the connection had ended.
    async fn exchange(
        &self,
        target: &Target,
        place: Place,
        mut connection: Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<Result<Answer, Box<Request<Full<Bytes>>>>, Error> {
        let Timeouts { response, body, .. } = self.0.timeouts;
        match connection.exchange(request, response, body).await {
            Ok(head) => {
                if connection.is_open() {
                    self.0.idle.put(place, connection);
                }
                let retry_after = RetryAfter::read(&head.headers);
                Ok(Ok(Answer { status: head.status, retry_after }))
            }
            Err(Failure::Unsent(request)) => Ok(Err(request)),
            Err(Failure::Timeout) => {
                let text = format!("{target} did not answer within {} s", response.as_secs_f32());
                Err(Error::new(ErrorKind::Timeout, text))
            }
            Err(Failure::Broken(error)) if error.is_parse() || error.is_parse_too_large() => {
                Err(Error::new(ErrorKind::InvalidResponse, format!("{target} did not answer with HTTP/1.1")))
            }
            Err(Failure::Broken(_)) => Err(closed(target)),
        }
    }
}

impl Inner {
    async fn resolve(&self, target: &Target) -> Result<Vec<IpAddr>, Error> {
        let name = match target.target_host() {
            TargetHost::Address(address) => return Ok(vec![*address]),
            TargetHost::Name(name) => name,
        };
        let found = self.resolver.resolve(name).await.map_err(|error| {
            Error::new(ErrorKind::Dns, format!("the name of {target} cannot be resolved: {error}"))
        })?;
        if found.is_empty() {
            return Err(Error::new(ErrorKind::Dns, format!("the name of {target} has no address")));
        }
        Ok(found)
    }

    /// Connects to the first address that accepts. Each address gets an equal share of the time that is left.
    async fn connect(
        &self,
        target: &Target,
        places: Vec<Place>,
        deadline: Instant,
    ) -> Result<(Place, Connection), Error> {
        let (mut left, mut last_error) = (places.len(), None);
        for place in places {
            let rest = deadline.saturating_duration_since(Instant::now());
            let share = Instant::now() + rest / u32::try_from(left).unwrap_or(1).max(1);
            left -= 1;
            match timeout_at(share, self.open(target, place.address)).await {
                Ok(Ok(connection)) => return Ok((place, connection)),
                Ok(Err(error)) => last_error = Some(error),
                Err(_) => {
                    let text = format!("cannot connect to {target} in time");
                    last_error = Some(Error::new(ErrorKind::Timeout, text));
                }
            }
        }
        Err(last_error.unwrap_or_else(|| Error::new(ErrorKind::Dns, format!("{target} has no address"))))
    }

    async fn open(&self, target: &Target, address: SocketAddr) -> Result<Connection, Error> {
        let failed = |kind, what: &str, error: &dyn std::fmt::Display| {
            Error::new(kind, format!("{what} {target}: {error}"))
        };
        let stream = self.dialer.dial(address).await;
        let stream = stream.map_err(|error| failed(ErrorKind::Connect, "cannot connect to", &error))?;
        let stream: Box<dyn Stream> = match target.scheme() {
            Scheme::Http => Box::new(stream),
            Scheme::Https => {
                let tls = |error: &dyn std::fmt::Display| {
                    failed(ErrorKind::Tls, "cannot make a TLS connection to", error)
                };
                let connector = self.trust.connector().map_err(|error| tls(&error))?;
                let name = match target.target_host() {
                    TargetHost::Address(address) => ServerName::from(*address),
                    TargetHost::Name(name) => {
                        ServerName::try_from(name.clone()).map_err(|error| tls(&error))?
                    }
                };
                Box::new(connector.connect(name, stream).await.map_err(|error| tls(&error))?)
            }
        };
        Connection::open(stream).await.map_err(|_| closed(target))
    }
}

fn request(target: &Target, post: Post<'_>) -> Result<Request<Full<Bytes>>, Error> {
    let invalid = || {
        Error::new(ErrorKind::InvalidRequest, format!("the URL at {target} cannot be written in a request"))
    };
    let mut headers = post.headers;
    // Remove the headers that decide where a request ends and where it goes. Only the target and the body may determine them.
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, UPGRADE] {
        headers.remove(name);
    }
    headers.insert(HOST, HeaderValue::from_str(target.authority()).map_err(|_| invalid())?);
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("longshore/", env!("CARGO_PKG_VERSION"))));
    let mut request = Request::new(Full::new(post.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.path_and_query().parse().map_err(|_| invalid())?;
    *request.headers_mut() = headers;
    Ok(request)
}

fn closed(target: &Target) -> Error {
    Error::new(ErrorKind::Closed, format!("{target} closed the connection before it answered"))
}
