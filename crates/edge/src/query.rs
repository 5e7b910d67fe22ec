//! Parses the query of a URL, in the encoding of HTML forms.

use percent_encoding::percent_decode;

/// The name-value pairs of a query, in order. A name without `=` has an empty value. Bytes that are not UTF-8 become U+FFFD, which
/// no parameter accepts.
pub(crate) fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    let fields = query.unwrap_or_default().split('&').filter(|field| !field.is_empty());
    fields
        .map(|field| {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            (decode(name), decode(value))
        })
        .collect()
}

fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode(spaced.as_bytes()).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_a_form() {
        type Pairs<'a> = &'a [(&'a str, &'a str)];

        let cases: [(Option<&str>, Pairs<'_>); 6] = [
            (None, &[]),
            (Some(""), &[]),
            (Some("a=1&b=&c&&"), &[("a", "1"), ("b", ""), ("c", "")]),
            (Some("a=b%3Dc=d"), &[("a", "b=c=d")]),
            (Some("x+y=%2B+1"), &[("x y", "+ 1")]),
            (Some("a=%ff"), &[("a", "\u{fffd}")]),
        ];
        for (query, expected) in cases {
            let found = pairs(query);
            let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(found, expected, "{query:?}");
        }
    }
}
