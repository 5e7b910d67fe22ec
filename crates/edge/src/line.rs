//! Which protocol line a request speaks. The only place that decides it.
//!
//! `A2A-Version` says it: the header, else the query parameter of the same name, by major and minor number. A request
//! without it is of the line that its method or path belongs to: only the 1.0 line has Pascal-case methods and REST
//! paths at the root. A slash method or a path under `/v1` is of the 0.3 line, which is not served: the method and
//! the path are then unknown, and the answer says what is served.

use http::HeaderMap;
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::v1::method::Method;

pub(crate) const VERSION_HEADER: &str = "a2a-version";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    V1,
}

impl Line {
    /// As the answer's `A2A-Version` and the card spell it.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
        }
    }
}

/// The methods that do something. The others of the line are known, and say that they are not supported.
const SERVED: [Method; 6] = [
    Method::SendMessage,
    Method::SendStreamingMessage,
    Method::GetTask,
    Method::ListTasks,
    Method::CancelTask,
    Method::SubscribeToTask,
];

/// The line that the request names. `None`: it names none. A line that is not served is an error.
pub(crate) fn named(headers: &HeaderMap, query: &[(String, String)]) -> Result<Option<Line>> {
    let mut named = None;
    let mut in_header = false;
    for value in headers.get_all(VERSION_HEADER) {
        let text = String::from_utf8_lossy(value.as_bytes());
        if !text.trim().is_empty() {
            in_header = true;
            named = Some(parse(&text)?);
        }
    }
    if !in_header {
        for (name, value) in query {
            if name.eq_ignore_ascii_case(VERSION_HEADER) && !value.trim().is_empty() {
                named = Some(parse(value)?);
            }
        }
    }
    Ok(named)
}

/// The method of a JSON-RPC call. Only methods of the one line that is served are known.
pub(crate) fn method(name: &str) -> Result<Method> {
    Method::parse(name).ok_or_else(|| {
        let served: Vec<&str> = SERVED.iter().map(|method| method.as_str()).collect();
        Error::new(
            ErrorKind::MethodNotFound,
            format!("There is no method {}; served are {}.", shown(name), served.join(", ")),
        )
    })
}

fn parse(text: &str) -> Result<Line> {
    let text = text.trim();
    let mut numbers = text.split('.');
    let major_minor = (numbers.next(), numbers.next());
    let patch_is_number = numbers.next().is_none_or(is_number);
    if major_minor == (Some("1"), Some("0")) && patch_is_number && numbers.next().is_none() {
        return Ok(Line::V1);
    }
    Err(Error::new(
        ErrorKind::VersionNotSupported,
        format!("A2A version {} is not supported; supported is {}.", shown(text), Line::V1.version()),
    )
    .detail("supportedVersions", Line::V1.version()))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The caller's own word, short enough for a message.
fn shown(text: &str) -> String {
    const LONGEST: usize = 64;
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: Option<&str>, query: Option<&str>, expected: std::result::Result<Option<Line>, &str>) {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(VERSION_HEADER, value.parse().unwrap());
        }
        let query: Vec<_> =
            query.map(|value| ("A2A-Version".to_owned(), value.to_owned())).into_iter().collect();
        let found = named(&headers, &query);
        let found = found.as_ref().map(|line| *line).map_err(Error::message);
        assert_eq!(found, expected, "{header:?} {query:?}");
    }

    #[test]
    fn header_then_query() {
        check(None, None, Ok(None));
        check(Some("1.0"), None, Ok(Some(Line::V1)));
        check(Some(" 1.0.1 "), None, Ok(Some(Line::V1)));
        check(Some(""), None, Ok(None));
        check(Some(""), Some("1.0"), Ok(Some(Line::V1)));
        check(None, Some("1.0.0"), Ok(Some(Line::V1)));
        // The header wins, right or wrong.
        check(Some("1.0"), Some("9.9"), Ok(Some(Line::V1)));
        check(Some("9.9"), Some("1.0"), Err("A2A version 9.9 is not supported; supported is 1.0."));
        for bad in ["0.3", "1", "1.1", "1.00", "2.0", "v1.0", "1.0.", "1.0.x", "1.0.1.2", "abc"] {
            let text = format!("A2A version {bad} is not supported; supported is 1.0.");
            check(Some(bad), None, Err(&text));
            check(None, Some(bad), Err(&text));
        }
    }

    #[test]
    fn only_pascal_methods_are_served() {
        for known in Method::ALL {
            assert_eq!(method(known.as_str()).unwrap(), known);
        }
        for name in ["message/send", "tasks/get", "sendmessage", "", "opencode.sessions.list"] {
            let error = method(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MethodNotFound);
            let text = error.message();
            assert!(
                text.starts_with(&format!("There is no method {name}; served are SendMessage, ")),
                "{text}"
            );
        }
    }
}
