//! Describes what is wrong with a JSON value, and where the value is.

use std::borrow::Cow;

use longshore_model::{Error, ErrorKind};

use super::writer::text_of_list;

pub(crate) type Read<T> = Result<T, Fault>;

/// A violated rule, and the path of the value. The path is built from the inside out while the fault is returned, so valid input
/// costs nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    path: String,
    text: Cow<'static, str>,
    more: Option<Box<More>>,
}

/// The fields that only a few faults need.
#[derive(Debug, Default, PartialEq, Eq)]
struct More {
    /// The paths of further unknown names, in addition to `path`.
    others: Vec<String>,
    /// Whether the fault is about unknown names. If so, the error lists all their paths.
    are_unknown: bool,
    /// Machine-readable details of the error.
    facts: Vec<(&'static str, String)>,
}

impl Fault {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self { path: String::new(), text: text.into(), more: None }
    }

    /// A fault about unknown names in an object. There must be at least one.
    pub(crate) fn unknown(names: Vec<String>, text: impl Into<Cow<'static, str>>) -> Self {
        let mut names = names.into_iter();
        let path = names.next().unwrap_or_default();
        let more = More { others: names.collect(), are_unknown: true, ..More::default() };
        Self { path, text: text.into(), more: Some(Box::new(more)) }
    }

    /// Adds a machine-readable detail to the error.
    pub(crate) fn fact(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.more.get_or_insert_default().facts.push((name, value.into()));
        self
    }

    /// Adds a field to the beginning of the path: the invalid value is in the field `key`, in the caller's spelling.
    pub(crate) fn under(mut self, key: &str) -> Self {
        let joined = |path: &str| {
            let joint = if path.is_empty() || path.starts_with('[') { "" } else { "." };
            format!("{key}{joint}{path}")
        };
        self.path = joined(&self.path);
        for other in self.more.iter_mut().flat_map(|more| &mut more.others) {
            *other = joined(other);
        }
        self
    }

    /// Adds an index to the beginning of the path: the invalid value is in this element of an array.
    pub(crate) fn at(self, index: usize) -> Self {
        self.under(&format!("[{index}]"))
    }

    /// Converts the fault into the error for the caller that sent the value.
    pub(crate) fn into_params_error(self) -> Error {
        if self.path.is_empty() {
            return Error::new(ErrorKind::InvalidParams, format!("The parameters: {}.", self.text));
        }
        let More { others, are_unknown, facts } = self.more.map(|more| *more).unwrap_or_default();
        let fields = text_of_list([&self.path].into_iter().chain(&others).map(String::as_str));
        let mut error = Error::invalid(self.path, self.text.clone());
        for other in others {
            error = error.also_invalid(other, self.text.clone());
        }
        if are_unknown {
            error = error.detail("fields", fields);
        }
        facts.into_iter().fold(error, |error, (name, value)| error.detail(name, value))
    }

    /// Converts the fault into the error for an invalid response of another agent.
    pub(crate) fn into_answer_error(self) -> Error {
        let path = if self.path.is_empty() { "the answer" } else { &self.path };
        Error::new(ErrorKind::InvalidAgentResponse, format!("{path}: {}", self.text))
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

    #[test]
    fn every_unknown_name_is_listed() {
        let names = vec!["a".to_owned(), "b".to_owned()];
        let error =
            Fault::unknown(names, "is not known").under("request").fact("max", "1").into_params_error();
        let fields: Vec<_> = error.violations().iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, ["request.a", "request.b"]);
        let facts = [("fields", r#"["request.a","request.b"]"#), ("max", "1")];
        assert_eq!(error.details(), facts.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
