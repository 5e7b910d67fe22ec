//! Writes compact JSON directly into a byte buffer.

use std::fmt::Display;
use std::io::Write;

use longshore_model::Json;

use super::carried::on_one_line;

/// An object that is being written. [`ObjectWriter::end`] closes it.
pub(crate) struct ObjectWriter<'w> {
    out: &'w mut Vec<u8>,
    first: bool,
}

impl<'w> ObjectWriter<'w> {
    pub(crate) fn begin(out: &'w mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Continues an object that is already open. If a comma is needed, the caller has written it.
    pub(crate) fn inside(out: &'w mut Vec<u8>) -> Self {
        Self { out, first: true }
    }

    /// Writes a key and returns the buffer, into which the caller writes the value.
    ///
    /// The keys of the protocol need no escaping. All other keys must be written with [`Self::foreign_key`].
    pub(crate) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.comma();
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    pub(crate) fn foreign_key(&mut self, key: &str) -> &mut Vec<u8> {
        self.comma();
        write_text(self.out, key);
        self.out.push(b':');
        self.out
    }

    pub(crate) fn text(&mut self, key: &str, text: &str) {
        write_text(self.key(key), text);
    }

    /// Writes nothing if the text is absent or empty, because readers treat both alike.
    pub(crate) fn some_text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.text(key, text);
        }
    }

    pub(crate) fn json(&mut self, key: &str, json: &Json) {
        write_json(self.key(key), json);
    }

    pub(crate) fn number(&mut self, key: &str, number: impl Into<i128>) {
        write_number(self.key(key), number.into());
    }

    pub(crate) fn boolean(&mut self, key: &str, value: bool) {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub(crate) fn null(&mut self, key: &str) {
        self.key(key).extend_from_slice(b"null");
    }

    pub(crate) fn array<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        write: impl FnMut(&mut Vec<u8>, T),
    ) {
        write_array(self.key(key), items, write);
    }

    pub(crate) fn texts(&mut self, key: &str, texts: impl IntoIterator<Item = impl AsRef<str>>) {
        self.array(key, texts, |out, text| write_text(out, text.as_ref()));
    }

    /// Writes nothing if there are no items.
    pub(crate) fn some_array<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        write: impl FnMut(&mut Vec<u8>, T),
    ) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_some() {
            self.array(key, items, write);
        }
    }

    pub(crate) fn object(&mut self, key: &str, write: impl FnOnce(&mut ObjectWriter<'_>)) {
        let mut object = ObjectWriter::begin(self.key(key));
        write(&mut object);
        object.end();
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }

    fn comma(&mut self) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
    }
}

pub(crate) fn write_array<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// Writes a number, or a text that needs no escaping.
pub(crate) fn write_number(out: &mut Vec<u8>, number: impl Display) {
    write!(out, "{number}").expect("writing to memory does not fail");
}

pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string has a JSON form, and writing to memory does not fail");
}

/// Encodes a list of texts as JSON inside one string, because the values of an `ErrorInfo` must be strings.
pub(crate) fn text_of_list(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut out = Vec::new();
    write_array(&mut out, texts, |out, text| write_text(out, text.as_ref()));
    String::from_utf8(out).expect("JSON is UTF-8")
}

fn write_json(out: &mut Vec<u8>, json: &Json) {
    out.extend_from_slice(on_one_line(json.get()).as_bytes());
}
