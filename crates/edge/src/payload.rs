//! The bodies of requests and answers in the log, for whoever looks for a mistake. Off unless the operator wants it.
//!
//! What is written is what was sent, less what looks like a secret. Some bodies are never written, whatever is configured:
//! those of streams, those that are no JSON, and those of methods that extensions add: these carry the work of others
//! (sessions, workspaces), decisions about it (asks), or what the agent is configured with (providers).

mod redact;

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};

use crate::PayloadLog;
use crate::media;
use crate::reply::{Body, Response};

/// Nobody needs more of a path or of a method's name to know which one it is.
const MAX_NAME_CHARS: usize = 200;

/// What a request is for, as it says itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Called<'a> {
    /// A method of the protocol.
    Operation(&'a str),
    /// Any other method, also one that nobody knows.
    Extension(&'a str),
    /// A path, without the query.
    Path(&'a str),
}

impl Called<'_> {
    fn is_open(self) -> bool {
        match self {
            Self::Operation(_) | Self::Path(_) => true,
            Self::Extension(_) => false,
        }
    }

    /// As the log has it.
    fn name(self) -> String {
        let (Self::Operation(name) | Self::Extension(name) | Self::Path(name)) = self;
        redact::masked(name).chars().take(MAX_NAME_CHARS).collect()
    }
}

/// Writes a request's body.
pub(crate) fn log_request(config: PayloadLog, called: Called<'_>, headers: &HeaderMap, body: &[u8]) {
    if !is_wanted(config, called) || body.is_empty() || !is_within(config, declared_length(headers), body) {
        return;
    }
    if !is_json(headers) {
        return;
    }
    if let Some(body) = redact::json(body) {
        tracing::debug!(what = called.name(), body, "request body");
    }
}

/// The same for its answer.
pub(crate) fn log_answer(config: PayloadLog, called: Called<'_>, response: &Response) {
    if !is_wanted(config, called) {
        return;
    }
    // How long a whole answer is, is known; of streams and files nothing is written.
    let Body::Full(body) = response.body() else { return };
    if body.is_empty() || !is_within(config, Some(body.len()), body) || !is_json(response.headers()) {
        return;
    }
    if let Some(body) = redact::json(body) {
        let status = response.status().as_u16();
        tracing::debug!(what = called.name(), status, body, "response body");
    }
}

fn is_wanted(config: PayloadLog, called: Called<'_>) -> bool {
    config.enabled && tracing::enabled!(tracing::Level::DEBUG) && called.is_open()
}

fn is_within(config: PayloadLog, declared: Option<usize>, body: &[u8]) -> bool {
    let limit = config.body_limit;
    limit == 0 || declared.is_some_and(|declared| declared.max(body.len()) <= limit)
}

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_TYPE) && media::check_content_type(headers, true).is_ok()
}
