//! Applies a caller's output modes: decides which parts the caller gets, and converts data to text where necessary.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use longshore_model::card::OUTPUT_MODES;
use longshore_model::{Error, ErrorKind, OutputModes, Part, PartContent, Result};
use serde_json::value::RawValue;

use crate::json::{text_of, text_of_list};

#[cfg(test)]
mod tests;

/// The media type that every caller must accept, because the agent's answers are text and all other output has a text form.
const REQUIRED: &str = "text/plain";

/// Fails if a caller does not accept text. Called before the request has any effect.
pub fn check_output_modes(modes: &OutputModes) -> Result<()> {
    if modes.accepts(REQUIRED) {
        return Ok(());
    }
    let text = format!(
        "This agent answers in {}; name {REQUIRED} among the acceptedOutputModes, or leave them out.",
        OUTPUT_MODES.join(" and ")
    );
    Err(Error::new(ErrorKind::ContentTypeNotSupported, text)
        .detail("acceptedOutputModes", text_of_list(modes.iter()))
        .detail("supportedOutputModes", text_of_list(OUTPUT_MODES))
        .detail("requiredOutputModes", text_of_list([REQUIRED])))
}

/// How a part is delivered to a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Kept,
    /// The data of the part is written as text.
    AsText,
    Dropped,
}

pub(crate) fn fate(part: &Part, modes: &OutputModes) -> Fate {
    if modes.is_unrestricted() {
        return Fate::Kept;
    }
    let usual = match part.content {
        PartContent::Text(_) => "text/plain",
        PartContent::Data(_) => "application/json",
        PartContent::Raw(_) | PartContent::Url(_) => "application/octet-stream",
    };
    if modes.accepts(part.media_type.as_deref().unwrap_or(usual)) {
        Fate::Kept
    } else if matches!(part.content, PartContent::Data(_)) && modes.accepts("text/plain") {
        Fate::AsText
    } else {
        Fate::Dropped
    }
}

/// Whether the caller accepts any of these parts.
pub(crate) fn leaves_any(parts: &[Part], modes: &OutputModes) -> bool {
    modes.is_unrestricted() || parts.iter().any(|part| fate(part, modes) != Fate::Dropped)
}

/// A JSON value as text: compact, with sorted keys, in ASCII. Numbers keep their digits.
pub(crate) fn data_as_text(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    write_value(&mut out, json, MAX_DEPTH);
    out
}

/// The deepest nesting at which the keys of objects are sorted. Deeper objects keep the order of their keys.
const MAX_DEPTH: usize = 128;

fn write_value(out: &mut String, json: &str, depth: usize) {
    match json.as_bytes().first() {
        Some(b'{') if depth > 0 => match serde_json::from_str::<BTreeMap<String, &RawValue>>(json) {
            Ok(fields) => write_all(out, ['{', '}'], fields, |out, (key, value)| {
                write_string(out, &key);
                out.push(':');
                write_value(out, value.get(), depth - 1);
            }),
            Err(_) => write_ascii(out, json),
        },
        Some(b'[') if depth > 0 => match serde_json::from_str::<Vec<&RawValue>>(json) {
            Ok(items) => {
                write_all(out, ['[', ']'], items, |out, item| write_value(out, item.get(), depth - 1));
            }
            Err(_) => write_ascii(out, json),
        },
        Some(b'"') => match text_of(json) {
            Some(text) => write_string(out, &text),
            None => write_ascii(out, json),
        },
        _ => write_ascii(out, json),
    }
}

fn write_all<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(close);
}

fn write_string(out: &mut String, text: &str) {
    write_ascii(out, &serde_json::to_string(text).expect("a string has a JSON form"));
}

/// Writes JSON text in ASCII. Other characters occur only in strings, where they are escaped.
fn write_ascii(out: &mut String, json: &str) {
    let mut units = [0; 2];
    for character in json.chars() {
        if character.is_ascii() {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut units) {
            write!(out, "\\u{unit:04x}").expect("writing to memory does not fail");
        }
    }
}
