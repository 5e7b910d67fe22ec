//! Request headers for the collector, in the format of `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,name=value`.

use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// The headers. Their values may be secret, so `Debug` shows none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Headers(HeaderMap);

impl Headers {
    /// Reads the headers. Values may be percent-encoded. `None`: the text is not such a list.
    pub fn parse(text: &str) -> Option<Self> {
        let mut headers = HeaderMap::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value);
        }
        Some(Self(headers))
    }

    pub(crate) fn map(&self) -> &HeaderMap {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_parsed_as_the_standard_defines_it() {
        let read = |text| {
            let Headers(map) = Headers::parse(text)?;
            let mut all: Vec<_> =
                map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            all.sort();
            Some(all.join("; "))
        };
        let cases = [
            ("", Some("")),
            ("api-key=s3cret", Some("api-key: s3cret")),
            (" API-Key = s3cret , x=a%20b%2Cc,", Some("api-key: s3cret; x: a b,c")),
            ("Authorization=Basic dTpw==", Some("authorization: Basic dTpw==")),
            ("api-key", None),
            ("a b=c", None),
            ("=c", None),
            ("a=b%0D%0Ax: y", None),
            ("a=%ff", None),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn no_value_is_printed() {
        let headers = Headers::parse("api-key=s3cret").unwrap();
        assert!(!format!("{headers:?}").contains("s3cret"));
    }
}
