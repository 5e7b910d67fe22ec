//! Checks the format of single values.

use longshore_model::id::check_id;
use serde_json::value::RawValue;

use super::param::{IdKind, MAX_BRANCH, MAX_CURSOR, MAX_INT, MAX_NAME};
use crate::json::{Fault, Read, text};

pub(super) fn id(kind: IdKind, raw: &RawValue) -> Read<String> {
    let text = text(raw)?;
    // Clients have always been allowed to add spaces to the id when they answer asks.
    let text = if kind == IdKind::REQUEST { text.trim() } else { &text };
    check_id(text).map_err(|error| Fault::new(error.to_string()))?;
    let IdKind { prefix, agent, .. } = kind;
    if !text.starts_with(prefix) {
        return Err(Fault::new(format!("must begin with {prefix}, as {agent}'s ids do")));
    }
    Ok(text.to_owned())
}

pub(super) fn bounded(text: &str, max: usize, may_be_blank: bool) -> Read<()> {
    if text.len() > max {
        return Err(Fault::new(format!("must have at most {max} bytes")));
    }
    if !may_be_blank && text.trim().is_empty() {
        return Err(Fault::new("must not be blank"));
    }
    Ok(())
}

fn without(text: &str, is_bad: impl Fn(char) -> bool) -> Read<()> {
    if text.contains(is_bad) { Err(Fault::new("must not hold control characters")) } else { Ok(()) }
}

pub(super) fn lines(text: &str, max: usize, may_be_blank: bool) -> Read<&str> {
    bounded(text, max, may_be_blank)?;
    without(text, |c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))?;
    Ok(text)
}

pub(crate) fn line(text: &str, max: usize, may_be_blank: bool) -> Read<&str> {
    bounded(text, max, may_be_blank)?;
    without(text, char::is_control)?;
    Ok(text)
}

pub(super) fn file_name(text: &str, max: usize) -> Read<&str> {
    let name = line(text, max, false)?;
    if name.starts_with(['-', '.']) || name.contains(['/', '\\']) {
        return Err(Fault::new("must not begin with a dash or a dot, nor hold a slash"));
    }
    Ok(name)
}

/// Checks a branch name by the rules of `git check-ref-format --branch`.
pub(super) fn branch(text: &str) -> Read<&str> {
    let name = line(text, MAX_BRANCH, false)?;
    let is_bad = name.starts_with('-')
        || name == "@"
        || name.ends_with('.')
        || name.contains([' ', '~', '^', ':', '?', '*', '[', '\\'])
        || ["..", "@{"].iter().any(|pair| name.contains(pair))
        || name
            .split('/')
            .any(|piece| piece.is_empty() || piece.starts_with('.') || piece.strip_suffix(".lock").is_some());
    if is_bad { Err(Fault::new("is not a valid name of a git branch")) } else { Ok(name) }
}

/// Reads a whole number, or a text that contains one.
pub(super) fn int(raw: &RawValue, min: i64, max: i64) -> Read<i64> {
    let written = match raw.get().as_bytes() {
        [b'"', ..] => text(raw)?,
        _ => raw.get().to_owned(),
    };
    let number = whole(&written).ok_or_else(|| Fault::new("must be a whole number"))?;
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    let fault = Fault::new(format!("must be from {min} to {max}"));
    Err(if max < MAX_INT { fault.fact("max", max.to_string()) } else { fault })
}

fn whole(written: &str) -> Option<i64> {
    let is_number = written.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && written.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'));
    if !is_number {
        return None;
    }
    // Some languages have no integers and write `5.0`.
    written.parse().ok().or_else(|| {
        let number: f64 = written.parse().ok().filter(|number: &f64| number.fract() == 0.0)?;
        format!("{number:.0}").parse().ok()
    })
}

pub(super) fn flag(raw: &RawValue) -> Read<bool> {
    let word = match raw.get().as_bytes() {
        [b'"', ..] => text(raw)?.trim().to_ascii_lowercase(),
        [b't' | b'f', ..] => raw.get().to_owned(),
        _ => String::new(),
    };
    match word.as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(Fault::new("must be true or false")),
    }
}

pub(super) fn cursor(raw: &RawValue) -> Read<String> {
    let text = text(raw)?;
    bounded(&text, MAX_CURSOR, false)?;
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'=' | b'-')) {
        return Err(Fault::new("is not a cursor of a page"));
    }
    Ok(text)
}

/// A name from the caller, shortened for a message.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}
