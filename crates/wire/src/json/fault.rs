//! What is wrong with a value, and where it stands.

use std::borrow::Cow;

use longshore_model::{Error, ErrorKind};

pub(crate) type Read<T> = Result<T, Fault>;

/// A broken rule. The path grows from the inside out while the fault travels up, so reading good input builds none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    path: String,
    text: Cow<'static, str>,
}

impl Fault {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self { path: String::new(), text: text.into() }
    }

    /// The value that is wrong is the field `key` of an object, as the caller spelled it.
    pub(crate) fn under(mut self, key: &str) -> Self {
        let joint = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{key}{joint}{}", self.path);
        self
    }

    /// The value that is wrong is an element of an array.
    pub(crate) fn at(self, index: usize) -> Self {
        self.under(&format!("[{index}]"))
    }

    /// As the error of a caller who sent it.
    pub(crate) fn into_params_error(self) -> Error {
        if self.path.is_empty() {
            return Error::new(ErrorKind::InvalidParams, format!("The parameters: {}.", self.text));
        }
        Error::invalid(self.path, self.text)
    }

    /// As the error of an agent who answered so.
    pub(crate) fn into_answer_error(self) -> Error {
        let place = if self.path.is_empty() { "the answer" } else { &self.path };
        Error::new(ErrorKind::InvalidAgentResponse, format!("{place}: {}", self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_join_fields_and_indexes() {
        let fault = Fault::new("x").under("raw").at(1).under("parts").under("message");
        assert_eq!(fault.path, "message.parts[1].raw");
        assert_eq!(Fault::new("x").at(0).under("tags").path, "tags[0]");
    }
}
