//! An entry of the log with a cache of its encoded forms, so that many readers share one encoding.

use std::fmt;
use std::ops::{Deref, Index};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use longshore_model::{Entry, Epoch, Seq, TaskEvent};

/// Identifies one encoded form of an event. The form depends on the protocol version, on what the reader may see and on the
/// binding. All encodings of one event in the same form are equal, so readers share them. The encoders assign the numbers,
/// and no two encoders may use the same one. For the engine they are only keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodedForm(pub u16);

pub struct LogEntry {
    pub entry: Entry,
    /// The form that was requested first. Most entries have no other.
    first: OnceLock<Encoded>,
}

/// One encoded form, and the form that was requested after it.
struct Encoded {
    form: EncodedForm,
    bytes: Bytes,
    next: OnceLock<Box<Self>>,
}

impl Encoded {
    fn new(form: EncodedForm, bytes: Bytes) -> Self {
        Self { form, bytes, next: OnceLock::new() }
    }
}

impl LogEntry {
    pub(crate) fn new(entry: Entry) -> Self {
        Self { entry, first: OnceLock::new() }
    }

    /// The entry in this form. The first reader that requests a form encodes it, and all others share the bytes. The number of
    /// forms is bounded by the encoders.
    pub fn encoded(&self, form: EncodedForm, encode: impl FnOnce(&Entry) -> Bytes) -> Bytes {
        let mut encode = Some(encode);
        // Called at most once: the reader that creates a list element puts its own form into it.
        let mut make =
            || Encoded::new(form, encode.take().map(|encode| encode(&self.entry)).unwrap_or_default());
        let mut kept = self.first.get_or_init(&mut make);
        while kept.form != form {
            kept = kept.next.get_or_init(|| Box::new(make()));
        }
        kept.bytes.clone()
    }
}

impl fmt::Debug for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogEntry").field("entry", &self.entry).finish_non_exhaustive()
    }
}

/// Events that are appended to a log together, with their numbers. An append, the live log and all readers share the events:
/// a clone copies none of them.
#[derive(Clone, Debug)]
pub struct Events {
    entries: Arc<[LogEntry]>,
    since: Option<Instant>,
}

impl Events {
    /// Gives the events consecutive numbers, starting with `first`.
    pub fn number(first: Seq, epoch: Epoch, events: impl IntoIterator<Item = TaskEvent>) -> Self {
        let entry = |(offset, event)| LogEntry::new(Entry { seq: first.plus(offset), epoch, event });
        Self { entries: events.into_iter().enumerate().map(entry).collect(), since: None }
    }

    /// Sets since when the first event has been waiting for the store, so that readers can measure the latency of the events.
    pub(crate) fn waiting_since(self, since: Option<Instant>) -> Self {
        Self { since, ..self }
    }

    /// Wraps events that were read from a store, with their numbers.
    pub(crate) fn read(entries: Vec<Entry>) -> Self {
        Self { entries: entries.into_iter().map(LogEntry::new).collect(), since: None }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &TaskEvent> + ExactSizeIterator + Clone {
        self.entries.iter().map(|logged| &logged.entry.event)
    }

    pub fn entries(&self) -> &[LogEntry] {
        &self.entries
    }
}

/// One entry of the log. Also keeps the few entries in memory that were appended together with it.
#[derive(Clone, Debug)]
pub struct SharedEntry {
    together: Events,
    at: usize,
}

impl Deref for SharedEntry {
    type Target = LogEntry;

    fn deref(&self) -> &LogEntry {
        &self.together.entries[self.at]
    }
}

/// The entries that a reader gets in one call, in order.
#[derive(Clone, Debug)]
pub struct Entries {
    first: Events,
    /// How many entries of `first` are skipped, because they are not for this reader or were already returned.
    taken: usize,
    /// The entries of further appends, if several appends are delivered together.
    more: std::vec::IntoIter<Events>,
}

impl Entries {
    /// All entries of `first` after the first `taken`, and all entries of `more`.
    pub(crate) fn new(first: Events, taken: usize, more: Vec<Events>) -> Self {
        Self { first, taken, more: more.into_iter() }
    }

    /// Removes the time of arrival, for a reader that was not waiting for the entries. Their age would say nothing about the
    /// speed of the gateway.
    pub(crate) fn found_late(self) -> Self {
        Self { first: self.first.waiting_since(None), ..self }
    }

    /// When the first entry entered the gateway. `None`: the entry was in the store before the reader asked for it.
    pub fn since(&self) -> Option<Instant> {
        self.first.since
    }

    /// Whether there are no entries. Never true for the result of a reader.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        let first = self.first.entries.get(self.taken..).unwrap_or_default();
        first.iter().chain(self.more.as_slice().iter().flat_map(|events| events.entries.iter()))
    }
}

impl Iterator for Entries {
    type Item = SharedEntry;

    fn next(&mut self) -> Option<SharedEntry> {
        while self.taken >= self.first.len() {
            (self.first, self.taken) = (self.more.next()?, 0);
        }
        self.taken += 1;
        Some(SharedEntry { together: self.first.clone(), at: self.taken - 1 })
    }
}

impl Index<usize> for Entries {
    type Output = LogEntry;

    fn index(&self, index: usize) -> &LogEntry {
        self.iter().nth(index).expect("the index is within the entries")
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::{StatusUpdate, TaskState, TaskStatus, Timestamp};

    use super::*;

    fn events(first: u64, count: usize) -> Events {
        let status = TaskStatus { state: TaskState::Working, at: Timestamp(1), message: None };
        let event = TaskEvent::Status(Box::new(StatusUpdate::new(status)));
        Events::number(Seq(first), Epoch(1), vec![event; count])
    }

    #[test]
    fn each_form_is_encoded_once_whichever_is_requested_first() {
        let events = events(1, 1);
        let entry = &events.entries()[0];
        let mut made = Vec::new();
        for number in [4, 0, 20, 4, 1000, 20, 0, 1000] {
            let bytes = entry.encoded(EncodedForm(number), |_| {
                made.push(number);
                Bytes::from(number.to_string())
            });
            assert_eq!(bytes, number.to_string());
        }
        assert_eq!(made, [4, 0, 20, 1000]);
    }

    #[test]
    fn entries_of_several_appends_come_in_order() {
        let entries = Entries::new(events(1, 3), 2, vec![events(4, 1), events(5, 2)]);
        let seqs: Vec<u64> = entries.iter().map(|logged| logged.entry.seq.0).collect();
        assert_eq!(seqs, [3, 4, 5, 6]);
        assert_eq!(entries[3].entry.seq, Seq(6));
        assert_eq!(entries.iter().next_back().map(|logged| logged.entry.seq), Some(Seq(6)));
        assert_eq!(entries.map(|logged| logged.entry.seq.0).collect::<Vec<_>>(), seqs);
    }
}
