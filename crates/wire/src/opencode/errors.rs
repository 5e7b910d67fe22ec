//! Lists of errors that several methods share.

use longshore_model::ErrorKind;

/// The errors of every request to OpenCode.
pub(super) const UPSTREAM: &[ErrorKind] = &[
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// The errors of methods about one session.
pub(super) const SESSION: &[ErrorKind] = &[
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// The errors of methods that publish a session.
pub(super) const SHARED_SESSION: &[ErrorKind] = &[
    ErrorKind::AuthorizationForbidden,
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// The errors of methods that start a turn. The turn may have files, may exceed the limit of tasks, and may run a shell.
pub(super) const TURN: &[ErrorKind] = &[
    ErrorKind::AuthorizationForbidden,
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::ContentTypeNotSupported,
    ErrorKind::TooManyRequests,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// The errors of methods that start a turn or add a message that expects no answer.
pub(super) const TURN_OR_NOTE: &[ErrorKind] = &[
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::ContentTypeNotSupported,
    ErrorKind::TooManyRequests,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// The errors of methods that need an idle session.
pub(super) const IDLE_SESSION: &[ErrorKind] = &[
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// The errors of methods that need an idle session and a capability.
pub(super) const GUARDED_IDLE_SESSION: &[ErrorKind] = &[
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::AuthorizationForbidden,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];
