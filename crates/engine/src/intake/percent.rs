//! Strict percent-decoding: once, and only of valid escapes.

/// Decodes percent escapes. `None`: a `%` is not followed by two hexadecimal digits. Decoded text is not decoded again, so
/// `%252e` becomes `%2e` and not a dot.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
            decoded.push(high << 4 | low);
        } else {
            decoded.push(byte);
        }
    }
    Some(decoded)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_escape_is_decoded_once_or_the_text_is_refused() {
        let table: &[(&str, Option<&[u8]>)] = &[
            ("", Some(b"")),
            ("plain", Some(b"plain")),
            ("%41%6a%6A", Some(b"Ajj")),
            ("%252e", Some(b"%2e")),
            ("%ff%00", Some(b"\xff\x00")),
            ("a+b", Some(b"a+b")),
            ("é", Some("é".as_bytes())),
            ("%", None),
            ("%4", None),
            ("%zz", None),
            ("%+1", None),
            ("%4é", None),
        ];
        for (text, expected) in table {
            assert_eq!(decode(text).as_deref(), *expected, "{text}");
        }
    }
}
