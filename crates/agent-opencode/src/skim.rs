//! Events of OpenCode as a turn gets them, with as much of them read as the way to the turn needs.
//!
//! Nearly all events are pieces of text, and OpenCode writes them in one form, without blanks and with the fields in one
//! order. Such a one is taken apart here by looking for the quotes between its fields, and needs no parser at all. Of the
//! others only the beginning is looked at: what they are and whose. Anything in another form is left to the parser, so the
//! form decides only how long it takes.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use memchr::{memchr, memchr2};
use serde::de::IgnoredAny;

use crate::api::{Envelope, EventKind, PartDelta};

const ID: &[u8] = br#"{"id":""#;
const TYPE: &[u8] = br#"","type":""#;
const SESSION: &[u8] = br#"","properties":{"sessionID":""#;
const MESSAGE: &[u8] = br#"","messageID":""#;
const PART: &[u8] = br#"","partID":""#;
const TEXT: &[u8] = br#"","field":"text","delta":""#;
const END: &[u8] = br#""}}"#;

/// An event on its way to a turn.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    body: Bytes,
    read: Read,
}

/// How much of an event is known to be as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    /// A parser went over it.
    Whole,
    /// Its beginning.
    Beginning,
    /// A piece of text of which all offsets are known.
    Delta(DeltaOffsets),
}

/// Where the fields of a piece of text are. What lies between them is always the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DeltaOffsets {
    /// Where its message's id begins, and where that and its part's id end.
    message: u16,
    message_end: u16,
    part_end: u16,
    is_escaped: bool,
}

/// What the beginning of an event says.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Skimmed {
    pub(crate) kind: EventKind,
    session: Range<usize>,
    delta: Option<DeltaOffsets>,
}

impl Skimmed {
    /// Whose event it is.
    pub(crate) fn session<'a>(&self, body: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(body.get(self.session.clone())?).ok()
    }

    /// Every byte of it was looked at.
    pub(crate) fn is_whole(&self) -> bool {
        self.delta.is_some_and(|offsets| !offsets.is_escaped)
    }

    pub(crate) fn event(self, body: Bytes) -> Event {
        Event { kind: self.kind, body, read: self.delta.map_or(Read::Beginning, Read::Delta) }
    }
}

impl Event {
    /// One that is known to be JSON.
    pub(crate) fn parsed(kind: EventKind, body: Bytes) -> Self {
        Self { kind, body, read: Read::Whole }
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// Whether it is JSON at all. One that is not may be what is left of two.
    pub(crate) fn is_json(&self) -> bool {
        match self.read {
            Read::Whole => true,
            Read::Delta(offsets) if !offsets.is_escaped => true,
            _ => serde_json::from_slice::<IgnoredAny>(&self.body).is_ok(),
        }
    }

    /// The piece of text that it brings, if it is one.
    pub(crate) fn delta(&self) -> Option<serde_json::Result<PartDelta<'_>>> {
        match self.read {
            Read::Delta(offsets) => Some(offsets.delta(&self.body)),
            _ if self.kind == EventKind::PartDelta => {
                let parsed = serde_json::from_slice::<Envelope<PartDelta<'_>>>(&self.body);
                Some(parsed.map(|envelope| envelope.properties))
            }
            _ => None,
        }
    }
}

impl DeltaOffsets {
    fn delta(self, body: &[u8]) -> serde_json::Result<PartDelta<'_>> {
        let [message, message_end, part_end] =
            [self.message, self.message_end, self.part_end].map(usize::from);
        let text = part_end + TEXT.len()..body.len() - END.len();
        let delta = if self.is_escaped {
            // With its quotes.
            serde_json::from_slice(&body[text.start - 1..=text.end])?
        } else {
            Cow::Borrowed(utf8(&body[text])?)
        };
        Ok(PartDelta {
            message: Cow::Borrowed(utf8(&body[message..message_end])?),
            part: Cow::Borrowed(utf8(&body[message_end + PART.len()..part_end])?),
            field: Cow::Borrowed("text"),
            delta,
        })
    }
}

/// Looks at the beginning of an event. `None`: it has another form, or is none that a turn looks at.
pub(crate) fn skim(body: &[u8]) -> Option<Skimmed> {
    let (_, at) = plain(body, after(body, 0, ID)?)?;
    let (kind, at) = plain(body, after(body, at, TYPE)?)?;
    let kind = EventKind::parse(std::str::from_utf8(&body[kind]).ok()?)?;
    let (session, at) = plain(body, after(body, at, SESSION)?)?;
    if kind != EventKind::PartDelta {
        return Some(Skimmed { kind, session, delta: None });
    }
    // What is nearly one may still be one.
    let delta = Some(offsets(body, at)?);
    Some(Skimmed { kind, session, delta })
}

fn offsets(body: &[u8], at: usize) -> Option<DeltaOffsets> {
    let (message, at) = plain(body, after(body, at, MESSAGE)?)?;
    let (part, at) = plain(body, after(body, at, PART)?)?;
    let text = after(body, at, TEXT)?;
    let end = body.len().checked_sub(END.len()).filter(|end| *end >= text)?;
    if &body[end..] != END {
        return None;
    }
    let delta = &body[text..end];
    let is_escaped = match memchr2(b'"', b'\\', delta) {
        None => false,
        Some(first) => {
            let mut at = first;
            loop {
                // Each backslash takes the byte behind it with it.
                if delta[at] == b'"' || at + 1 >= delta.len() {
                    return None;
                }
                at += 2;
                match memchr2(b'"', b'\\', delta.get(at..)?) {
                    Some(next) => at += next,
                    None => break true,
                }
            }
        }
    };
    if has_control(delta) || std::str::from_utf8(delta).is_err() {
        return None;
    }
    Some(DeltaOffsets {
        message: u16::try_from(message.start).ok()?,
        message_end: u16::try_from(message.end).ok()?,
        part_end: u16::try_from(part.end).ok()?,
        is_escaped,
    })
}

/// The place behind `expected`, if that is what is there.
fn after(body: &[u8], at: usize, expected: &[u8]) -> Option<usize> {
    let end = at + expected.len();
    (body.get(at..end)? == expected).then_some(end)
}

/// A string without escapes that begins here, and where its closing quote is.
fn plain(body: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let text = body.get(at..)?;
    let end = memchr(b'"', text)?;
    let text = &text[..end];
    let is_plain =
        text.iter().fold(true, |is_plain, byte| is_plain & matches!(byte, b' '..=b'[' | b']'..=b'~'));
    is_plain.then_some((at..at + end, at + end))
}

/// Whether there is a byte that no string of JSON has.
fn has_control(text: &[u8]) -> bool {
    text.iter().min().is_some_and(|least| *least < b' ')
}

/// It was looked at before: this cannot fail.
fn utf8(text: &[u8]) -> serde_json::Result<&str> {
    std::str::from_utf8(text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests;
