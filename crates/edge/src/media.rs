//! Media types of requests and responses.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use longshore_model::{Error, ErrorKind, Result};

const JSON: &str = "application/json";
const A2A_JSON: &str = "application/a2a+json";

/// The media type of a REST response. JSON-RPC responses are always [`Media::Json`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Media {
    Json,
    A2aJson,
}

impl Media {
    /// `application/a2a+json` for a caller that sent it or accepts it, plain JSON for all others.
    pub(crate) fn of_response(headers: &HeaderMap) -> Self {
        let is_requested = headers.get_all(ACCEPT).iter().chain(headers.get(CONTENT_TYPE)).any(|value| {
            value.to_str().is_ok_and(|text| text.split(',').any(|range| essence(range) == A2A_JSON))
        });
        if is_requested { Self::A2aJson } else { Self::Json }
    }

    pub(crate) fn header(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => JSON,
            Self::A2aJson => A2A_JSON,
        })
    }
}

/// Refuses a body whose media type is not JSON. `required`: a missing media type is refused too.
pub(crate) fn check_content_type(headers: &HeaderMap, required: bool) -> Result<()> {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        if required {
            return Err(not_supported("A Content-Type is missing"));
        }
        return Ok(());
    };
    let known = value.to_str().is_ok_and(|text| matches!(essence(text).as_str(), JSON | A2A_JSON));
    if known { Ok(()) } else { Err(not_supported("This Content-Type is not supported")) }
}

fn not_supported(what: &str) -> Error {
    Error::new(ErrorKind::ContentTypeNotSupported, format!("{what}; send {JSON} or {A2A_JSON}."))
        .detail("supportedTypes", format!("{JSON}, {A2A_JSON}"))
}

/// The media type without its parameters, in lower case.
fn essence(text: &str) -> String {
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(content_type: Option<&str>, accept: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [(CONTENT_TYPE, content_type), (ACCEPT, accept)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        headers
    }

    #[test]
    fn the_response_has_the_media_type_that_the_caller_asks_for() {
        let cases = [
            (None, None, Media::Json),
            (Some("application/json"), Some("*/*"), Media::Json),
            (Some("application/a2a+json"), None, Media::A2aJson),
            (Some("Application/A2A+JSON; charset=utf-8"), None, Media::A2aJson),
            (Some("application/json"), Some("text/html, application/a2a+json;q=0.9"), Media::A2aJson),
            (None, Some("text/event-stream"), Media::Json),
        ];
        for (content_type, accept, expected) in cases {
            assert_eq!(
                Media::of_response(&headers(content_type, accept)),
                expected,
                "{content_type:?} {accept:?}"
            );
        }
    }

    #[test]
    fn only_json_bodies_are_accepted() {
        let cases = [
            (Some("application/json"), true),
            (Some("application/JSON ; charset=utf-8"), true),
            (Some("application/a2a+json"), true),
            (Some("text/plain"), false),
            (Some("application/jsonx"), false),
            (Some(""), false),
        ];
        for (content_type, accepted) in cases {
            for required in [true, false] {
                let checked = check_content_type(&headers(content_type, None), required);
                assert_eq!(checked.is_ok(), accepted, "{content_type:?}");
            }
        }
        assert!(check_content_type(&headers(None, None), true).is_err());
        assert!(check_content_type(&headers(None, None), false).is_ok());
    }
}
