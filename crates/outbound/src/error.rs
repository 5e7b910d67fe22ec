//! Why a call failed.

use std::fmt;

use crate::guard::Refusal;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// The address guard refused the URL. No connection was opened.
    Refused,
    /// The host has no address, or the resolver failed.
    Dns,
    /// No address of the host accepted a connection.
    Connect,
    /// The TLS handshake failed, for example because of the certificate.
    Tls,
    /// The time limit for the connection or the response was exceeded.
    Timeout,
    /// The connection ended before the response. The receiver may have the request.
    Closed,
    /// The response is not HTTP.
    InvalidResponse,
    /// The URL or a header cannot be written in a request.
    InvalidRequest,
}

impl ErrorKind {
    /// The name for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::InvalidResponse => "invalid_response",
            Self::InvalidRequest => "invalid_request",
        }
    }

    /// Whether the same call can succeed later. A refused URL stays refused until somebody changes a setting or a name.
    pub fn is_retryable(self) -> bool {
        !matches!(self, Self::Refused | Self::InvalidRequest)
    }
}

/// A failed call. The text names the host and the port, never the rest of the URL, a header or the body.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(ErrorKind::Refused, refusal.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {})", self.kind, self.text)
    }
}

impl std::error::Error for Error {}
