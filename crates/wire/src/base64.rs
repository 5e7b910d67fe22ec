//! Encodes and decodes base64, which is how JSON represents bytes.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Decodes either alphabet, with padding or without, as ProtoJSON demands. `None`: the text is neither.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let url_safe = text.bytes().any(|byte| matches!(byte, b'-' | b'_'));
    let engine = if url_safe { &LENIENT_URL_SAFE } else { &LENIENT_STANDARD };
    engine.decode(text).ok()
}

/// Decodes only the standard alphabet with padding, as [`write`] writes it.
pub(crate) fn decode_strict(text: &str) -> Option<Vec<u8>> {
    STRICT_STANDARD.decode(text).ok()
}

/// Writes the bytes in the standard alphabet with padding.
pub(crate) fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = LENIENT_STANDARD
        .encode_slice(bytes, &mut out[start..])
        .expect("the buffer has four characters for every three bytes");
    out.truncate(start + written);
}

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STRICT_STANDARD: GeneralPurpose = GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new());
const LENIENT_STANDARD: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
const LENIENT_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_alphabet_is_read_with_and_without_padding() {
        for (text, expected) in [
            ("+/8=", Some(vec![0xfb, 0xff])),
            ("+/8", Some(vec![0xfb, 0xff])),
            ("-_8=", Some(vec![0xfb, 0xff])),
            ("-_8", Some(vec![0xfb, 0xff])),
            ("", Some(vec![])),
            ("-/8=", None),
            ("a", None),
            ("aGk= ", None),
            ("é", None),
        ] {
            assert_eq!(decode(text), expected, "{text}");
        }
    }

    #[test]
    fn strict_decoding_takes_only_what_write_produces() {
        assert_eq!(decode_strict("+/8="), Some(vec![0xfb, 0xff]));
        for text in ["+/8", "-_8=", "+/9=", "+/8==", " +/8="] {
            assert_eq!(decode_strict(text), None, "{text}");
        }
    }

    #[test]
    fn write_appends_the_standard_alphabet() {
        for (bytes, expected) in
            [(&b""[..], "x"), (b"\xfb\xff", "x+/8="), (b"hi", "xaGk="), (b"abc", "xYWJj")]
        {
            let mut out = b"x".to_vec();
            write(&mut out, bytes);
            assert_eq!(out, expected.as_bytes());
        }
    }
}
