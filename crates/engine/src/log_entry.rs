//! An entry of the log with room for its encoded forms, so that many readers share one encoding.

use std::sync::OnceLock;

use bytes::Bytes;
use longshore_model::Entry;

/// Which encoding: whoever encodes numbers its forms. The engine only keeps them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form(pub u8);

#[derive(Debug)]
pub struct LogEntry {
    pub entry: Entry,
    forms: [OnceLock<Bytes>; Self::KEPT_FORMS],
}

impl LogEntry {
    /// How many forms of one entry are kept. A form beyond them is encoded anew for each reader.
    pub const KEPT_FORMS: usize = 13;

    pub(crate) fn new(entry: Entry) -> Self {
        Self { entry, forms: Default::default() }
    }

    /// The entry in this form: encoded by the first reader that asks, shared by all others.
    pub fn encoded(&self, form: Form, encode: impl FnOnce(&Entry) -> Bytes) -> Bytes {
        match self.forms.get(usize::from(form.0)) {
            Some(slot) => slot.get_or_init(|| encode(&self.entry)).clone(),
            None => encode(&self.entry),
        }
    }
}
