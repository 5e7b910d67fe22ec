//! The decoders that both versions share. They convert requests into commands, and responses into values for an A2A client.
//!
//! Unknown fields are ignored, as the specification demands. A fault names its field in the caller's spelling.

pub(crate) mod answer;
pub(crate) mod message;
pub(crate) mod push;
pub(crate) mod query;
pub(crate) mod request;
pub(crate) mod send_options;

use longshore_model::IdError;

use crate::json::{Fault, Read};

/// Parses an identifier. An empty text counts as absent.
pub(crate) fn some_id<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, IdError>) -> Read<Option<T>> {
    match parse(text) {
        Ok(id) => Ok(Some(id)),
        Err(IdError::Empty) => Ok(None),
        Err(error) => Err(Fault::new(error.to_string())),
    }
}

pub(crate) fn id<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, IdError>) -> Read<T> {
    parse(text).map_err(|error| Fault::new(error.to_string()))
}
