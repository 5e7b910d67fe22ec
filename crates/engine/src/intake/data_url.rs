//! `data:` URLs, which contain a file (RFC 2397). Does no IO.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};

use super::percent;

#[derive(PartialEq, Eq, Debug)]
pub(super) struct DataUrl {
    /// The media type with its parameters, as written. `None`: the URL names no type.
    pub(super) media_type: Option<String>,
    pub(super) bytes: Vec<u8>,
}

/// Parses the part after `data:`. The error is a text for the caller.
pub(super) fn parse(rest: &str) -> Result<DataUrl, &'static str> {
    if rest.contains(|c: char| c.is_control()) {
        return Err(
            "the data: URL holds control characters or line breaks; leave them out or write them as %XX",
        );
    }
    if rest.contains('#') {
        return Err("a data: URL has no fragment; write # as %23");
    }
    let (head, payload) =
        rest.split_once(',').ok_or("the data: URL has no comma between its media type and its content")?;
    let (head, is_base64) = match head.rsplit_once(';') {
        Some((before, last)) if last.trim().eq_ignore_ascii_case("base64") => (before, true),
        _ => (head, false),
    };
    let payload = percent::decode(payload)
        .ok_or("the data: URL has a % that is not followed by two hexadecimal digits; write % as %25")?;
    let bytes = if is_base64 { decode_base64(&payload)? } else { payload };
    Ok(DataUrl { media_type: media_type(head.trim()), bytes })
}

/// A URL may leave the type out and give parameters only. These then belong to `text/plain`.
fn media_type(head: &str) -> Option<String> {
    match head {
        "" => None,
        parameters if parameters.starts_with(';') => Some(format!("text/plain{parameters}")),
        whole => Some(whole.to_owned()),
    }
}

/// Decodes standard or URL-safe base64, with padding or without, but not a mix of both alphabets. Any other character is an
/// error: if this decoder skipped it, another decoder could read different content.
fn decode_base64(payload: &[u8]) -> Result<Vec<u8>, &'static str> {
    const LENIENT_PADDING: GeneralPurposeConfig =
        general_purpose::PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT_PADDING);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT_PADDING);
    STANDARD
        .decode(payload)
        .or_else(|_| URL_SAFE.decode(payload))
        .map_err(|_| "the content of the data: URL is not base64, which ;base64 says it is")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn valid_urls_are_parsed() {
        let table: &[(&str, Option<&str>, &[u8])] = &[
            (",", None, b""),
            (",hello%20world", None, b"hello world"),
            (",a,b;base64,c", None, b"a,b;base64,c"),
            (",gr\u{fc}n", None, "grün".as_bytes()),
            ("text/plain,a+b", Some("text/plain"), b"a+b"),
            ("text/plain;charset=utf-8,x", Some("text/plain;charset=utf-8"), b"x"),
            (";charset=latin1,x", Some("text/plain;charset=latin1"), b"x"),
            (";base64,aGk=", None, b"hi"),
            ("image/png;base64,/+8=", Some("image/png"), b"\xff\xef"),
            ("image/png;base64,_-8", Some("image/png"), b"\xff\xef"),
            ("image/png;BASE64,%2F%2B8%3D", Some("image/png"), b"\xff\xef"),
            ("image/png;name=a;base64,aGk", Some("image/png;name=a"), b"hi"),
            // `base64` is not the last parameter, so it is a parameter like any other.
            ("text/plain;base64;x=y,aGk=", Some("text/plain;base64;x=y"), b"aGk="),
            ("base64,aGk=", Some("base64"), b"aGk="),
        ];
        for (url, media_type, bytes) in table {
            let expected = DataUrl { media_type: media_type.map(str::to_owned), bytes: bytes.to_vec() };
            assert_eq!(parse(url), Ok(expected), "{url}");
        }
    }

    #[test]
    fn invalid_urls_are_refused_and_not_repaired() {
        let table = [
            ("", "no comma"),
            ("text/plain;base64", "no comma"),
            (",100%", "two hexadecimal digits"),
            (",%2", "two hexadecimal digits"),
            (",a#b", "no fragment"),
            ("text/plain,a\nb", "control characters"),
            (";base64,aG k=", "not base64"),
            (";base64,aGk==", "not base64"),
            (";base64,a", "not base64"),
            // Non-zero bits after the last byte.
            (";base64,aGl=", "not base64"),
            // Both alphabets in one text.
            (";base64,_+8=", "not base64"),
            (";base64,=aGk", "not base64"),
            (";base64,aGk=aGk=", "not base64"),
            (";base64,a%00Gk", "not base64"),
            (";base64,aGk\u{e9}", "not base64"),
        ];
        for (url, expected) in table {
            let text = parse(url).expect_err(url);
            assert!(text.contains(expected), "{url}: {text}");
        }
    }

    proptest! {
        #[test]
        fn no_url_makes_the_parser_panic(url in ".*", tail in "[a-z/;=,%#0-9]*(;base64)?,[A-Za-z0-9+/=_%-]*") {
            let _ = parse(&url);
            let _ = parse(&tail);
        }

        #[test]
        fn any_bytes_survive_encoding(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            use std::fmt::Write as _;
            let escaped = bytes.iter().fold(String::from(","), |mut text, byte| {
                write!(text, "%{byte:02x}").unwrap();
                text
            });
            let standard = format!(";base64,{}", general_purpose::STANDARD.encode(&bytes));
            let url_safe = format!(";base64,{}", general_purpose::URL_SAFE_NO_PAD.encode(&bytes));
            for url in [escaped, standard, url_safe] {
                prop_assert_eq!(&parse(&url).unwrap().bytes, &bytes);
            }
        }
    }
}
