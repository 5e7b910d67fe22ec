//! Repairs JSON of the agent that protocol buffers cannot hold. The other bindings pass such JSON on unchanged.
//!
//! - Half a surrogate pair, such as `"\ud83d"`, becomes the replacement character, because protocol buffers allow
//!   only valid Unicode.
//! - A number beyond the range of a double becomes a string.
//! - A value that is nested too deeply becomes a string, because readers of protocol buffers refuse messages of more than
//!   100 levels.

use std::borrow::Cow;

/// The most levels of JSON in a message, its envelope included. An object in a `Struct` takes three levels of messages.
const MAX_DEPTH: usize = 32;

const REPLACEMENT: &str = "\\ufffd";

/// Returns the JSON, with values that are nested too deeply replaced by strings.
pub(super) fn flattened(json: &[u8]) -> Cow<'_, [u8]> {
    // Quick check: JSON with at most `MAX_DEPTH` brackets cannot be too deep. Counting brackets is much faster than parsing.
    if memchr::memchr2_iter(b'{', b'[', json).nth(MAX_DEPTH).is_none() {
        return Cow::Borrowed(json);
    }
    let mut reader = Reader { json, at: 0 };
    let mut depth = 0_usize;
    while let Some(byte) = reader.peek() {
        match byte {
            b'"' => {
                reader.string();
            }
            b'{' | b'[' => {
                depth += 1;
                reader.at += 1;
                if depth > MAX_DEPTH {
                    return Cow::Owned(repaired(json));
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                reader.at += 1;
            }
            _ => reader.at += 1,
        }
    }
    Cow::Borrowed(json)
}

/// Returns the JSON with all three repairs.
pub(super) fn repaired(json: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(json.len());
    let mut reader = Reader { json, at: 0 };
    let mut depth = 0_usize;
    while let Some(byte) = reader.peek() {
        match byte {
            b'"' => write_string(reader.string(), &mut written),
            b'{' | b'[' if depth == MAX_DEPTH => write_text(reader.container(), &mut written),
            b'-' | b'0'..=b'9' => {
                let number = reader.number();
                let value: Option<f64> = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
                if value.is_some_and(f64::is_finite) {
                    written.extend_from_slice(number);
                } else {
                    write_text(number, &mut written);
                }
            }
            _ => {
                match byte {
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                written.push(byte);
                reader.at += 1;
            }
        }
    }
    written
}

struct Reader<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    /// Reads a string, quotes included.
    fn string(&mut self) -> &'a [u8] {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        self.at = self.at.min(self.json.len());
        &self.json[start..self.at]
    }

    fn number(&mut self) -> &'a [u8] {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        &self.json[start..self.at]
    }

    /// Reads a whole object or array.
    fn container(&mut self) -> &'a [u8] {
        let (start, mut depth) = (self.at, 0_usize);
        while let Some(byte) = self.peek() {
            if byte == b'"' {
                self.string();
                continue;
            }
            self.at += 1;
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        &self.json[start..self.at]
    }
}

/// Writes a string, and replaces halves of surrogate pairs.
fn write_string(string: &[u8], written: &mut Vec<u8>) {
    let mut rest = string;
    while let Some(&byte) = rest.first() {
        let length = match (byte, escaped(rest)) {
            (b'\\', Some(0xD800..=0xDBFF)) if matches!(escaped(&rest[6..]), Some(0xDC00..=0xDFFF)) => 12,
            (b'\\', Some(0xD800..=0xDFFF)) => {
                written.extend_from_slice(REPLACEMENT.as_bytes());
                rest = &rest[6..];
                continue;
            }
            (b'\\', _) => 2.min(rest.len()),
            _ => 1,
        };
        let (kept, after) = rest.split_at(length);
        written.extend_from_slice(kept);
        rest = after;
    }
}

/// The code unit of an escape such as `\ud83d` at the start of the text. `None`: the text starts with no such escape.
fn escaped(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Writes a JSON value as a string that contains its text.
fn write_text(json: &[u8], written: &mut Vec<u8>) {
    let text = serde_json::Value::from(String::from_utf8_lossy(json).into_owned());
    written.extend_from_slice(text.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> String {
        String::from_utf8(repaired(json.as_bytes())).unwrap()
    }

    #[test]
    fn only_what_cannot_be_held_changes() {
        for (json, expected) in [
            (
                r#"{"a":[1,-2.5e3,true,null,"x\"]{\\"],"b":{}}"#,
                r#"{"a":[1,-2.5e3,true,null,"x\"]{\\"],"b":{}}"#,
            ),
            (r#"["\ud83d\ude00","\\ud83d","\u00e9"]"#, r#"["\ud83d\ude00","\\ud83d","\u00e9"]"#),
            (r#"["\ud83d","\ude00\ud83d","\ud83dx\ude00"]"#, r#"["\ufffd","\ufffd\ufffd","\ufffdx\ufffd"]"#),
            (r#"{"\ud83d":"\ud83d\ud83d\ude00"}"#, r#"{"\ufffd":"\ufffd\ud83d\ude00"}"#),
            ("[1e400,-1e400,1e308]", r#"["1e400","-1e400",1e308]"#),
        ] {
            assert_eq!(text(json), expected);
        }
    }

    #[test]
    fn what_is_too_deep_becomes_text() {
        let nested = |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
        let most = nested(MAX_DEPTH, r#""[""#);
        assert!(matches!(flattened(most.as_bytes()), Cow::Borrowed(_)));
        let deep = nested(MAX_DEPTH, r#"1,{"a":["]"]},2"#);
        let expected = nested(MAX_DEPTH, r#"1,"{\"a\":[\"]\"]}",2"#);
        assert_eq!(flattened(deep.as_bytes()).as_ref(), expected.as_bytes());
    }
}
