//! Formats responses for snapshots: generated ids are redacted, everything else is exact.

use std::fmt::Write;

use serde_json::Value;

use super::Answer;

/// The headers that are part of the contract.
const HEADERS: [&str; 5] = ["content-type", "www-authenticate", "allow", "etag", "a2a-extensions"];

/// The usual headers, which are shown only if they differ.
const USUAL: [(&str, &str); 2] = [("cache-control", "no-store"), ("a2a-version", "1.0")];

pub(crate) fn shown(answer: &Answer) -> String {
    let mut text = answer.status.as_u16().to_string();
    for name in HEADERS {
        if !answer.header(name).is_empty() {
            write!(text, " [{name}: {}]", answer.header(name)).unwrap();
        }
    }
    for (name, usual) in USUAL {
        if answer.header(name) != usual {
            write!(text, " [{name}: {}]", answer.header(name)).unwrap();
        }
    }
    if !answer.body.is_empty() {
        let mut body = answer.json();
        redact(&mut body);
        write!(text, "\n  {body}").unwrap();
    }
    text
}

pub(crate) fn redacted(mut value: Value) -> Value {
    redact(&mut value);
    value
}

fn redact(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_ids(text),
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(members) => {
            for (name, member) in members {
                if name == "expires_at" && member.is_number() || name == "timestamp" && member.is_string() {
                    *member = Value::from("[time]");
                } else {
                    redact(member);
                }
            }
        }
        _ => {}
    }
}

/// Replaces every UUID and every time in a text.
fn without_ids(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while !rest.is_empty() {
        if rest.get(..36).is_some_and(is_uuid) {
            out.push_str("[uuid]");
            rest = &rest[36..];
        } else if rest.get(..24).is_some_and(is_time) {
            out.push_str("[time]");
            rest = &rest[24..];
        } else {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    out
}

fn is_uuid(text: &str) -> bool {
    text.char_indices()
        .all(|(at, c)| if [8, 13, 18, 23].contains(&at) { c == '-' } else { c.is_ascii_hexdigit() })
}

fn is_time(text: &str) -> bool {
    let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
    text.chars().map(digits).eq("0000-00-00T00:00:00.000Z".chars())
}
