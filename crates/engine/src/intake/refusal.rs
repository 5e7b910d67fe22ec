//! Errors for refused parts that several modules use.

use longshore_model::{Error, ErrorKind};

use super::media_type;
use crate::config::IntakeRules;

/// The error for a kind of content that the gateway does not accept.
pub(super) fn not_accepted(field: &str, text: &str, rules: &IntakeRules) -> Error {
    Error::new(ErrorKind::ContentTypeNotSupported, format!("{field}: {text}"))
        .detail("field", field)
        .detail("supportedTypes", media_type::accepted(rules))
}

/// The error for a file that the caller may not read. All reasons have the same text, so that the error does not reveal
/// whether the file exists.
pub(super) fn not_readable(field: &str) -> Error {
    Error::invalid(
        field,
        "the file:// URL names no file of the workspace that can be read; name a regular file inside it, or send the \
         file itself in the part",
    )
}

pub(super) fn not_utf8(field: &str) -> Error {
    Error::invalid(
        field,
        "is text by its media type and must be UTF-8; convert it, or send it as application/octet-stream",
    )
}

pub(super) fn text_too_large(field: &str, rules: &IntakeRules) -> Error {
    let text = format!(
        "is larger than {}, the most for one text; send less, or name a file of the workspace in words for the agent \
         to read",
        size(rules.max_text_bytes)
    );
    Error::invalid(field, text)
}

pub(super) fn file_too_large(field: &str, rules: &IntakeRules) -> Error {
    let text = format!(
        "is larger than {}, the most for a file of the workspace; name it in words for the agent to look at",
        size(rules.max_file_bytes)
    );
    Error::invalid(field, text)
}

/// A number of bytes as text for people.
pub(crate) fn size(bytes: u64) -> String {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    if bytes >= MIB && bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else if bytes >= KIB && bytes.is_multiple_of(KIB) {
        format!("{} KiB", bytes / KIB)
    } else {
        format!("{bytes} bytes")
    }
}
