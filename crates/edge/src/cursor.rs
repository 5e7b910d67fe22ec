//! The `Last-Event-ID` header: the last event that a client received.

use http::HeaderMap;
use longshore_model::{Error, EventId, Result};

const LAST_EVENT_ID: &str = "Last-Event-ID";

/// Parses the header. `None`: the request has no such header.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<EventId>> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let text = value.as_bytes().trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    let problem = || Error::invalid(LAST_EVENT_ID, "must be the id of an event, such as 17.3, or its number");
    str::from_utf8(text).ok().and_then(EventId::parse).map(Some).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_event_id_is_an_event_id_or_a_number() {
        type Cursor = std::result::Result<Option<&'static str>, ()>;

        let cases: [(Option<&str>, Cursor); 12] = [
            (None, Ok(None)),
            (Some(""), Ok(None)),
            (Some("0"), Ok(Some("0"))),
            (Some(" 17 "), Ok(Some("17"))),
            (Some("17.3"), Ok(Some("17.3"))),
            (Some("18446744073709551615"), Ok(Some("18446744073709551615"))),
            (Some("18446744073709551616"), Err(())),
            (Some("-1"), Err(())),
            (Some("+1"), Err(())),
            (Some("1."), Err(())),
            (Some("1.5.1"), Err(())),
            (Some("abc"), Err(())),
        ];
        for (value, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(LAST_EVENT_ID, value.parse().unwrap());
            }
            let found = last_event_id(&headers);
            if let Err(error) = &found {
                assert_eq!(error.violations()[0].field, "Last-Event-ID");
            }
            let expected = expected.map(|id| id.map(str::to_owned));
            assert_eq!(found.map(|id| id.map(|id| id.to_string())).map_err(drop), expected, "{value:?}");
        }
    }
}
