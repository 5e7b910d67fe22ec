//! Reads only the part of an OpenCode event that is needed to route the event to a turn.
//!
//! Nearly all events are text deltas, and OpenCode writes them in one form: without spaces and with the fields in one order. Such
//! an event is split here by searching for the quotes between its fields, without a JSON parser. Of other events only the kind and
//! the session are read, which are at the beginning. An event in any other form goes to the JSON parser, so the form affects only
//! the speed.

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

/// How much of an event was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    /// The parser has read the whole event.
    Whole,
    /// Only the beginning was read.
    Beginning,
    /// A text delta whose field positions are known.
    Delta(DeltaOffsets),
}

/// The positions of the fields of a text delta. The bytes between the fields are always the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DeltaOffsets {
    /// The start of the message id, and the ends of the message id and of the part id.
    message: u16,
    message_end: u16,
    part_end: u16,
    is_escaped: bool,
}

/// The beginning of an event.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Skimmed {
    pub(crate) kind: EventKind,
    session: Range<usize>,
    delta: Option<DeltaOffsets>,
}

impl Skimmed {
    /// The session to which the event belongs.
    pub(crate) fn session<'a>(&self, body: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(body.get(self.session.clone())?).ok()
    }

    /// Whether every byte of the event was checked.
    pub(crate) fn is_whole(&self) -> bool {
        self.delta.is_some_and(|offsets| !offsets.is_escaped)
    }

    pub(crate) fn event(self, body: Bytes) -> Event {
        Event { kind: self.kind, body, read: self.delta.map_or(Read::Beginning, Read::Delta) }
    }
}

impl Event {
    /// An event that is known to be valid JSON.
    pub(crate) fn parsed(kind: EventKind, body: Bytes) -> Self {
        Self { kind, body, read: Read::Whole }
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// Whether the event is valid JSON. If not, the event may consist of the remains of two events.
    pub(crate) fn is_json(&self) -> bool {
        match self.read {
            Read::Whole => true,
            Read::Delta(offsets) if !offsets.is_escaped => true,
            _ => serde_json::from_slice::<IgnoredAny>(&self.body).is_ok(),
        }
    }

    /// The text delta, if the event is one.
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
            // The range includes the quotes.
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

/// Reads the beginning of an event. `None`: the event has an unusual form, or a kind that no turn uses.
pub(crate) fn skim(body: &[u8]) -> Option<Skimmed> {
    let (_, at) = plain_string(body, skip_literal(body, 0, ID)?)?;
    let (kind, at) = plain_string(body, skip_literal(body, at, TYPE)?)?;
    let kind = EventKind::parse(std::str::from_utf8(&body[kind]).ok()?)?;
    let (session, at) = plain_string(body, skip_literal(body, at, SESSION)?)?;
    if kind != EventKind::PartDelta {
        return Some(Skimmed { kind, session, delta: None });
    }
    // A delta in an unusual form goes to the parser.
    let delta = Some(delta_offsets(body, at)?);
    Some(Skimmed { kind, session, delta })
}

fn delta_offsets(body: &[u8], at: usize) -> Option<DeltaOffsets> {
    let (message, at) = plain_string(body, skip_literal(body, at, MESSAGE)?)?;
    let (part, at) = plain_string(body, skip_literal(body, at, PART)?)?;
    let text = skip_literal(body, at, TEXT)?;
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
                // A backslash escapes the byte after it.
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

/// The position after `expected`, if `expected` is found at `at`.
fn skip_literal(body: &[u8], at: usize, expected: &[u8]) -> Option<usize> {
    let end = at + expected.len();
    (body.get(at..end)? == expected).then_some(end)
}

/// The string without escapes that begins here, and the position of its closing quote.
fn plain_string(body: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let text = body.get(at..)?;
    let end = memchr(b'"', text)?;
    let text = &text[..end];
    let is_plain =
        text.iter().fold(true, |is_plain, byte| is_plain & matches!(byte, b' '..=b'[' | b']'..=b'~'));
    is_plain.then_some((at..at + end, at + end))
}

/// Whether the text has a control character, which JSON does not allow in a string.
fn has_control(text: &[u8]) -> bool {
    text.iter().min().is_some_and(|least| *least < b' ')
}

/// Converts text that was checked before, so this cannot fail.
fn utf8(text: &[u8]) -> serde_json::Result<&str> {
    std::str::from_utf8(text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests;
