//! HTTP requests with a limit for every read and a timeout for every wait. This module follows no redirects.

use std::error::Error as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{RequestBuilder, Response};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use url::{Host, Url};

use crate::error::{Error, ErrorKind};
use crate::plain::is_plain;
use crate::settings::{Credential, Settings};
use crate::{Result, pinned, refusal};

/// How long a connection attempt may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The header for an API key, if the card names none.
const API_KEY_HEADER: &str = "x-api-key";

/// A client for one server. It uses the proxy of the environment, except for servers on this machine.
pub(crate) fn client(url: &Url, settings: &Settings) -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")));
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    let builder = match (&settings.addresses, url.host_str()) {
        (Some(addresses), Some(host)) => builder.no_proxy().resolve_to_addrs(host, addresses),
        _ => builder,
    };
    let builder = match &settings.certificate {
        Some(certificate) => builder.tls_backend_preconfigured(pinned::tls(certificate)?),
        None => builder,
    };
    builder
        .build()
        .map_err(|error| Error::new(ErrorKind::Input, format!("Cannot set up HTTP: {}.", innermost(&error))))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// The header for a credential. `api_key_header`: the header name on the card, if any.
pub(crate) fn authorization(credential: &Credential, api_key_header: Option<&str>) -> Result<HeaderMap> {
    let invalid = || Error::new(ErrorKind::Input, "The credential has characters that no header can have.");
    let (name, text) = match credential {
        Credential::Bearer(token) => (AUTHORIZATION, format!("Bearer {}", token.expose_secret())),
        Credential::Basic { username, password } => {
            let pair = STANDARD.encode(format!("{username}:{}", password.expose_secret()));
            (AUTHORIZATION, format!("Basic {pair}"))
        }
        Credential::ApiKey(key) => {
            let name = api_key_header.unwrap_or(API_KEY_HEADER);
            let name = HeaderName::try_from(name).map_err(|_| invalid())?;
            (name, key.expose_secret().to_owned())
        }
    };
    let mut value = HeaderValue::try_from(text).map_err(|_| invalid())?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(name, value)]))
}

/// Sends a request, and waits for the response head.
pub(crate) async fn send(request: RequestBuilder, timeout: Duration) -> Result<Response> {
    match tokio::time::timeout(timeout, request.send()).await {
        Ok(sent) => sent.map_err(|error| of_transport(&error)),
        Err(_) => Err(timed_out(timeout)),
    }
}

pub(crate) fn timed_out(timeout: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("The agent did not respond within {} s.", timeout.as_secs_f32()))
}

pub(crate) fn of_transport(error: &reqwest::Error) -> Error {
    let place = error.url().map_or_else(|| "the agent".to_owned(), place);
    let why = innermost(error);
    if error.is_timeout() {
        return Error::new(ErrorKind::Timeout, format!("{place} did not respond in time."));
    }
    if error.is_connect() {
        return Error::new(ErrorKind::Unreachable, format!("Cannot connect to {place}: {why}."));
    }
    Error::new(ErrorKind::Lost, format!("The connection to {place} broke: {why}."))
}

/// The host and the port of a URL, for error messages.
pub(crate) fn place(url: &Url) -> String {
    let known = || Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?));
    known().unwrap_or_else(|| "the agent".to_owned())
}

/// The text of the innermost error, because it is the one that a person understands, such as "Connection refused".
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(words) = pinned::explain(inner) {
            return words.to_owned();
        }
        cause = inner;
        source = inner.source();
    }
    plain(&cause.to_string())
}

/// Removes the operating system's error number, because the text before it says the same.
pub(crate) fn plain(cause: &str) -> String {
    cause.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Reads a body of at most `limit` bytes.
pub(crate) async fn body(mut response: Response, limit: usize, timeout: Duration) -> Result<Vec<u8>> {
    let too_large = || {
        Error::new(
            ErrorKind::TooLarge,
            format!("The response of the agent is longer than {limit} bytes, and was not read."),
        )
    };
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    let read = async {
        while let Some(chunk) = response.chunk().await.map_err(|error| of_transport(&error))? {
            if body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(())
    };
    tokio::time::timeout(timeout, read).await.map_err(|_| timed_out(timeout))??;
    Ok(body)
}

/// Reads a JSON body. If the status or the body is an error, returns that error.
pub(crate) async fn json(response: Response, limit: usize, timeout: Duration) -> Result<Value> {
    let status = response.status();
    let (is_html, url) = (is_type(&response, "text/html"), response.url().clone());
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    if status.is_redirection() {
        return Err(redirected(&response));
    }
    let body = body(response, limit, timeout).await?;
    let json = serde_json::from_slice::<Value>(&body).ok();
    if !status.is_success() {
        let error = json.as_ref().and_then(|json| refusal::of_body(status.as_u16(), json));
        return Err(error.unwrap_or_else(|| {
            let kind = refusal::kind_of_status(status.as_u16());
            let what = if is_html { ", a web page" } else { "" };
            Error::new(kind, format!("{} answered with HTTP status {status}{what}.", shown(&url)))
                .after(retry_after.map(Duration::from_secs))
                .throttled(status.as_u16() == refusal::TOO_MANY_REQUESTS)
        }));
    }
    json.ok_or_else(|| {
        let what = if is_html { "a web page" } else { "no JSON" };
        Error::invalid_response(format!("{} answered with {what}. Check the URL of the agent.", shown(&url)))
    })
}

/// The error for a redirect.
pub(crate) fn redirected(response: &Response) -> Error {
    let target =
        response.headers().get("location").and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
    let target: String = target.chars().filter(|c| is_plain(*c)).take(200).collect();
    Error::invalid_response(format!(
        "{} redirects to {target}, and redirects to other servers are not followed. If you trust that address, call it directly.",
        shown(response.url())
    ))
}

pub(crate) fn is_type(response: &Response, essence: &str) -> bool {
    let value =
        response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(essence)
}

/// A URL for error messages, without query and fragment, because they could hold a secret.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}
