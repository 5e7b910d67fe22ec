//! JSON that the gateway passes on without interpreting it: metadata and data parts.
//!
//! The original text is kept, so that numbers keep all digits, with two exceptions. White space between tokens is removed, because
//! an event of a stream must be on one line. And a value that a client could not parse is refused here, where its path is known.

use std::borrow::Cow;

use longshore_model::{Json, Metadata};
use serde_json::value::RawValue;

use super::fault::{Fault, Read};

/// The deepest nesting that is accepted. Common parsers stop at 100 to 128 levels, and a response wraps a value in about ten more.
const MAX_DEPTH: usize = 90;

pub(crate) fn carried_json(raw: &RawValue) -> Read<Json> {
    let has_space = survey(raw.get()).map_err(Fault::new)?;
    if !has_space {
        return Ok(Json::from_raw(raw));
    }
    Json::parse(&without_space(raw.get())).ok_or_else(|| Fault::new("must be JSON"))
}

pub(crate) fn carried_metadata(raw: &RawValue) -> Read<Metadata> {
    Metadata::try_from(carried_json(raw)?).map_err(|_| Fault::new("must be an object"))
}

/// The text of a value without line breaks, because an event stream needs it on one line.
pub(crate) fn on_one_line(json: &str) -> Cow<'_, str> {
    // Inside a JSON string a line break is always escaped, so a raw line break is between tokens.
    if json.bytes().any(|byte| matches!(byte, b'\n' | b'\r')) {
        Cow::Owned(without_space(json))
    } else {
        Cow::Borrowed(json)
    }
}

/// Scans well-formed JSON. Returns whether there is white space between tokens. Fails for a value that a client could not parse.
fn survey(json: &str) -> Result<bool, &'static str> {
    let bytes = json.as_bytes();
    let (mut depth, mut has_space, mut at) = (0_usize, false, 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err("is nested too deeply: at most 90 levels are carried");
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b' ' | b'\t' | b'\n' | b'\r' => has_space = true,
            b'"' => at = survey_string(bytes, at)?,
            b'-' | b'0'..=b'9' => at = survey_number(json, at - 1)?,
            _ => {}
        }
    }
    Ok(has_space)
}

/// Checks the number whose first character is at `at`. Returns the position after its last character.
fn survey_number(json: &str, at: usize) -> Result<usize, &'static str> {
    let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
    let length = json.as_bytes()[at..].iter().take_while(|byte| is_part(byte)).count();
    match json[at..at + length].parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(at + length),
        _ => Err("holds a number that is too large for a double"),
    }
}

/// Checks the string whose opening quote is before `at`. Returns the position after the closing quote.
fn survey_string(bytes: &[u8], mut at: usize) -> Result<usize, &'static str> {
    const HALF_PAIR: &str = "must be Unicode text: it holds half of a surrogate pair";
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return Ok(at + 1),
            b'\\' => match escape(bytes, at) {
                Some(0xD800..=0xDBFF) => match escape(bytes, at + 6) {
                    Some(0xDC00..=0xDFFF) => at += 12,
                    _ => return Err(HALF_PAIR),
                },
                Some(0xDC00..=0xDFFF) => return Err(HALF_PAIR),
                // For `\uXXXX` only the first two characters are skipped. The four digits that follow are then read as plain
                // characters, which is harmless.
                _ => at += 2,
            },
            _ => at += 1,
        }
    }
    Ok(at)
}

/// The code unit of the `\uXXXX` at this position, if there is one.
fn escape(bytes: &[u8], at: usize) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = bytes.get(at..at + 6)? else { return None };
    digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
}

fn without_space(json: &str) -> String {
    let mut compact = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for character in json.chars() {
        if !in_string && matches!(character, ' ' | '\t' | '\n' | '\r') {
            continue;
        }
        compact.push(character);
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    compact
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_white_space_is_removed_from_carried_json() {
        for (json, expected) in [
            ("1700000000000000000000001", Some("1700000000000000000000001")),
            ("{ \"a b\" : [ 1.50,\n2 ] }", Some("{\"a b\":[1.50,2]}")),
            (r#"{"q":"\" \\" , "b":1}"#, Some(r#"{"q":"\" \\","b":1}"#)),
            ("[-1.7e308,0e9999,1e-9999]", Some("[-1.7e308,0e9999,1e-9999]")),
            (r#"{"n":1e309}"#, None),
            (r#"{"n":-142687E41302}"#, None),
            (r#""1e309""#, Some(r#""1e309""#)),
            (r#""\ud83d\ude00 é""#, Some(r#""\ud83d\ude00 é""#)),
            (r#""\\ud83d""#, Some(r#""\\ud83d""#)),
            (r#""\ud83d""#, None),
            (r#""\ude00\ud83d""#, None),
            (r#""\ud83d\u0041""#, None),
            (r#"["\ud83d","\ude00"]"#, None),
        ] {
            let raw = RawValue::from_string(json.to_owned()).unwrap();
            assert_eq!(carried_json(&raw).ok().as_ref().map(Json::get), expected, "{json}");
        }
    }

    #[test]
    fn depth_has_a_limit() {
        for (depth, ok) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false), (500_000, false)] {
            let json = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let raw = RawValue::from_string(json).unwrap();
            assert_eq!(carried_json(&raw).is_ok(), ok, "{depth}");
        }
    }
}
