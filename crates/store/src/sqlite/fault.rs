//! Converts SQLite's errors to errors for callers. The public text never names the file; the cause goes to the log.

use longshore_model::{Error, ErrorKind};
use rusqlite::ErrorCode;

pub(super) type Outcome<T> = Result<T, Fault>;

/// An [`Error`] to which `?` converts SQLite's errors.
#[derive(Debug)]
pub(super) struct Fault(pub(super) Error);

impl Fault {
    /// Whether another program had locked the file. If so, nothing was written.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    /// Whether a conflicting row exists or a referenced row is missing. If so, nothing was written.
    pub(super) fn is_constraint_violation(&self) -> bool {
        self.code() == Some(ErrorCode::ConstraintViolation)
    }

    /// Whether the disk has no space, or the system refused the write for another reason.
    pub(super) fn is_failed_write(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure))
    }

    fn code(&self) -> Option<ErrorCode> {
        self.0.cause()?.downcast_ref::<rusqlite::Error>()?.sqlite_error_code()
    }
}

/// The text for a value that is too large for SQLite. A retry would fail again.
const TOO_BIG: &str = "The task, or one event of it, is larger than the gateway's store can hold, which is about a billion bytes. \
                       Send less in one message, ask for less output in one turn, or go on with another task of the context.";

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.0
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(cause: rusqlite::Error) -> Self {
        if is_bad_value(&cause) {
            return damaged("record", cause);
        }
        if cause.sqlite_error_code() == Some(ErrorCode::TooBig) {
            return Self(Error::new(ErrorKind::BodyTooLarge, TOO_BIG).caused_by(cause));
        }
        let text = match cause.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                "The gateway's store is in use by another program. Try again; if that does not help, \
                 make sure that nothing else uses the gateway's data directory."
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                "The gateway's store cannot be opened for writing. Make sure that the gateway owns its data \
                 directory, and that it is not mounted read-only."
            }
            Some(ErrorCode::DiskFull) => {
                "The disk that holds the gateway's store is full. Free some space, then try again."
            }
            // The system refused a write, and SQLite has no specific error code for the reason.
            Some(ErrorCode::SystemIoFailure) => {
                "The gateway's store cannot be written or read: the disk may be full or failing, or the files may have \
                 reached a limit. The gateway's log says which. Try again."
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                "The gateway's store is damaged, or is no database of the gateway. Restore it from a backup, keep what is \
                 whole with `longshore repair`, or start with an empty data directory."
            }
            _ => "The gateway's store failed; the gateway's log says why. Try again.",
        };
        Self(Error::new(ErrorKind::Unavailable, text).caused_by(cause))
    }
}

impl From<rusqlite::types::FromSqlError> for Fault {
    fn from(cause: rusqlite::types::FromSqlError) -> Self {
        rusqlite::Error::from(cause).into()
    }
}

/// Whether the row was read but a column has a value of a wrong type, such as invalid text. SQLite does not check that, so a
/// flipped bit in the file is first noticed here.
fn is_bad_value(cause: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(
        cause,
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..)
    )
}

/// The error after a store thread has ended, or a writer has panicked inside a transaction. The request was not written, or its
/// outcome is unknown. The kind is `Internal` because the store does not recover: a caller that retried would do so for ever.
pub(super) fn stopped() -> Error {
    Error::new(
        ErrorKind::Internal,
        "The gateway's store has stopped because of a defect; the gateway's log says which. Restart the gateway, \
         then try again.",
    )
}

/// The error for a write-ahead log that has reached its share of the disk and cannot be copied now.
pub(super) fn no_room() -> Fault {
    let text = "The disk that holds the gateway's store is nearly full. Free some space, then try again.";
    Fault(Error::new(ErrorKind::Unavailable, text).caused_by("the write-ahead log cannot be copied now"))
}

/// The error for a row with invalid content. A retry does not help.
pub(super) fn damaged(what: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Fault {
    let text = format!(
        "The stored {what} is damaged and cannot be read. The operator can restore the gateway's store from a backup; \
         `longshore check` names what is damaged, and `longshore repair` keeps what is whole."
    );
    Fault(Error::new(ErrorKind::Internal, text).caused_by(cause))
}
