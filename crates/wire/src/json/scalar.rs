//! Reads strings, numbers and booleans in all spellings that ProtoJSON permits.

use serde_json::value::RawValue;

use super::fault::{Fault, Read};
use super::object::text_of;

pub(crate) fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

pub(crate) fn text(raw: &RawValue) -> Read<String> {
    if !raw.get().starts_with('"') {
        return Err(Fault::new("must be a string"));
    }
    text_of(raw.get())
        .map(std::borrow::Cow::into_owned)
        .ok_or_else(|| Fault::new("must be Unicode text: it holds half of a surrogate pair"))
}

/// Reads a text. An empty text counts as absent, as for every proto3 string without field presence.
pub(crate) fn some_text(raw: &RawValue) -> Read<Option<String>> {
    Ok(Some(text(raw)?).filter(|text| !text.is_empty()))
}

pub(crate) fn boolean(raw: &RawValue) -> Read<bool> {
    flag_from_text(raw.get())
}

/// Reads a boolean from a query string.
pub(crate) fn flag_from_text(text: &str) -> Read<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Fault::new("must be true or false")),
    }
}

/// Reads a number, or a string that contains one.
pub(crate) fn int32(raw: &RawValue) -> Read<i32> {
    match raw.get().as_bytes() {
        [b'"', ..] => int32_from_text(&text(raw)?),
        [b'-' | b'0'..=b'9', ..] => int32_from_text(raw.get()),
        _ => Err(not_an_int32()),
    }
}

pub(crate) fn int32_from_text(text: &str) -> Read<i32> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'));
    if !is_number || text.starts_with('+') {
        return Err(not_an_int32());
    }
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    // ProtoJSON also permits `5.0` and `5e1`, because some languages have no integers.
    let number: f64 = text.parse().map_err(|_| not_an_int32())?;
    if number.fract() != 0.0 || number < f64::from(i32::MIN) || number > f64::from(i32::MAX) {
        return Err(not_an_int32());
    }
    format!("{number:.0}").parse().map_err(|_| not_an_int32())
}

/// Converts a number of things, which must not be negative.
pub(crate) fn count(number: i32) -> Read<u32> {
    u32::try_from(number).map_err(|_| Fault::new("must not be negative"))
}

fn not_an_int32() -> Fault {
    Fault::new("must be a whole number of 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_int32_is_read_in_all_spellings_of_protojson() {
        for (json, expected) in [
            ("5", Some(5)),
            ("\"5\"", Some(5)),
            ("-3", Some(-3)),
            ("5.0", Some(5)),
            ("2e1", Some(20)),
            ("2147483647", Some(i32::MAX)),
            ("-2147483648", Some(i32::MIN)),
            ("2147483648", None),
            ("1e400", None),
            ("5.5", None),
            ("\"\"", None),
            ("\"+5\"", None),
            ("\" 5\"", None),
            ("\"inf\"", None),
            ("\"e\"", None),
            ("true", None),
            ("[]", None),
            ("{}", None),
        ] {
            let raw = RawValue::from_string(json.to_owned()).unwrap();
            assert_eq!(int32(&raw).ok(), expected, "{json}");
        }
    }
}
