//! The handshake of a WebSocket, and the credential in the handshake.
//!
//! A browser cannot add headers to a handshake. So a client may send the bearer token as a second subprotocol:
//! `longshore.bearer.` and the token, percent-encoded. This module turns it into the header `Authorization` before anything else
//! reads the request, and no response contains it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, EXPECT, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Version};
use longshore_meter::label::Binding;
use longshore_model::{Error, ErrorKind, Result};
use percent_encoding::percent_decode_str;
use tokio_tungstenite::tungstenite::handshake::server::create_response;

use crate::auth::{self, Caller};
use crate::incoming::Incoming;
use crate::multiplexer::MessageHead;
use crate::reply::{self, Body, Response};

/// The subprotocol: JSON-RPC in text messages.
pub(crate) const SUBPROTOCOL: &str = "longshore.jsonrpc";

/// The prefix of a subprotocol that holds a bearer token.
const BEARER: &str = "longshore.bearer.";

/// Turns a token among the subprotocols into an `Authorization` header, unless the request already has a credential in a header.
/// Removes the token in both cases.
pub(crate) fn take_token(headers: &mut HeaderMap) {
    let offered = offered(headers);
    let Some(token) = offered.iter().find_map(|name| name.strip_prefix(BEARER)) else { return };
    let kept: Vec<&str> =
        offered.iter().filter(|name| !name.starts_with(BEARER)).map(String::as_str).collect();
    let kept = HeaderValue::try_from(kept.join(", "));
    // A token that is not valid in a header counts as a wrong credential, and not as a missing one.
    let bearer = percent_decode_str(token).decode_utf8().ok();
    let bearer = bearer.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
    let mut bearer = bearer.unwrap_or(HeaderValue::from_static("Bearer"));
    bearer.set_sensitive(true);
    if auth::has_none(headers) {
        headers.insert(AUTHORIZATION, bearer);
    }
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Ok(kept) = kept.map_err(drop)
        && !kept.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

/// Answers the handshake of a caller that has passed the gate. The connection is taken over by the body of the response.
pub(crate) fn accept(caller: &Arc<Caller>, incoming: &Incoming<'_>) -> Response {
    let Incoming { peer, parts, target, .. } = incoming;
    match shake_hands(parts) {
        Ok(mut response) => {
            let head =
                MessageHead::new(*peer, Arc::clone(caller), Binding::WebSocket, target.base, Some(parts));
            *response.body_mut() = Body::Socket(Arc::new(head));
            response
        }
        Err(error) => {
            let mut response = incoming.refuse(&error);
            *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
            response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
            response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            response
        }
    }
}

fn shake_hands(parts: &Parts) -> Result<Response> {
    let refused = |problem: &str| {
        let text = format!("This path takes WebSockets only: {problem}.");
        Error::new(ErrorKind::InvalidRequest, text)
    };
    if parts.version != Version::HTTP_11 || parts.headers.contains_key(EXPECT) {
        return Err(refused("send a plain handshake over HTTP/1.1"));
    }
    let mut request = Request::new(());
    *request.version_mut() = parts.version;
    *request.headers_mut() = parts.headers.clone();
    let shaken = create_response(&request).map_err(|_| refused("send the handshake of RFC 6455"))?;
    let mut response = reply::full(shaken.status(), Bytes::new());
    response.headers_mut().extend(shaken.headers().iter().map(|(name, value)| (name.clone(), value.clone())));
    if offered(&parts.headers).iter().any(|name| name == SUBPROTOCOL) {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    }
    Ok(response)
}

/// The subprotocols that the client offers.
fn offered(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|name| name.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn a_token_among_the_subprotocols_becomes_a_credential() {
        type Headers = &'static [(&'static str, &'static str)];

        const OFFERED: &str = "sec-websocket-protocol";
        // The columns: the headers, the resulting credential, and the remaining subprotocols.
        let cases: [(Headers, Option<&str>, Option<&str>); 7] = [
            (&[], None, None),
            (&[(OFFERED, "longshore.jsonrpc")], None, Some("longshore.jsonrpc")),
            (&[(OFFERED, "longshore.bearer.t0k")], Some("Bearer t0k"), None),
            (
                &[(OFFERED, "longshore.jsonrpc, longshore.bearer.a%2Fb%3D,x")],
                Some("Bearer a/b="),
                Some("longshore.jsonrpc, x"),
            ),
            (&[(OFFERED, "x"), (OFFERED, "longshore.bearer.t")], Some("Bearer t"), Some("x")),
            (&[(OFFERED, "longshore.bearer.%0A")], Some("Bearer"), None),
            (
                &[("authorization", "Bearer other"), (OFFERED, "x,longshore.bearer.t")],
                Some("Bearer other"),
                Some("x"),
            ),
        ];
        for (given, credential, left) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            take_token(&mut headers);
            let found = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap());
            assert_eq!(found(AUTHORIZATION.as_str()), credential, "{given:?}");
            assert_eq!(found(OFFERED), left, "{given:?}");
        }
    }
}
