//! Which protocol line a request is of. The only place that decides it.
//!
//! `A2A-Version` says it: the header, else the query parameter of the same name, by major and minor number; more than once if
//! it is always the same. Else the path does, where it is under the base of one line. Else the method or path that only one
//! line has: slash methods and paths under `/v1` are of 0.3, Pascal-case methods and REST paths at the root are of 1.0. The
//! methods of the extensions have the same names on both; without a version they are of 0.3, whose callers never activated
//! anything, unless the caller does. Whoever wants to be strict takes every request without a version for 0.3.

use std::borrow::Cow;

use http::HeaderMap;
use http::request::Parts;
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::contract::MissingVersion;
use longshore_wire::extension::HEADER;
pub(crate) use longshore_wire::surface::ProtocolVersion;

use crate::query;

pub(crate) const VERSION_HEADER: &str = "a2a-version";

/// What the head of a request says about its line.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    named: Named,
    /// The line under whose base the path is.
    base: Option<ProtocolVersion>,
    missing: MissingVersion,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Named {
    Nothing,
    ProtocolVersion(ProtocolVersion),
    /// Not served, by the caller's own word.
    Other(String),
    /// Both of the lines, by the caller's own words: nobody could say which is meant.
    Several(String),
}

impl Head {
    pub(crate) fn of(parts: &Parts, base: Option<ProtocolVersion>, missing: MissingVersion) -> Self {
        Self { named: named(&parts.headers, &query::pairs(parts.uri.query())), base, missing }
    }

    /// The line of the request. `own`: the only line that has its method or path. An error names what is served.
    pub(crate) fn line(&self, own: Option<ProtocolVersion>) -> Result<ProtocolVersion> {
        match &self.named {
            Named::Nothing => Ok(self.unless_named(own)),
            Named::ProtocolVersion(line) if self.base.is_none_or(|base| base == *line) => Ok(*line),
            Named::ProtocolVersion(line) => Err(self.not_supported(line.version(), own)),
            Named::Other(word) => Err(self.not_supported(word, own)),
            Named::Several(words) => Err(self.contradictory(words, own)),
        }
    }

    /// The line in whose shape the request is answered, also one that is of no line that is served.
    pub(crate) fn shape(&self, own: Option<ProtocolVersion>) -> ProtocolVersion {
        self.line(own).unwrap_or_else(|_| self.shape_of_unknown(own))
    }

    /// The shape of an answer to what nobody serves. What a request without a version is taken for does not count: there is
    /// nothing to be taken for something.
    pub(crate) fn shape_of_unknown(&self, own: Option<ProtocolVersion>) -> ProtocolVersion {
        self.wanted().or(own).unwrap_or(ProtocolVersion::V1)
    }

    /// What a document is to be about: the line that is named, whatever else there is. `None`: all of them.
    pub(crate) fn wanted(&self) -> Option<ProtocolVersion> {
        match self.named {
            Named::ProtocolVersion(line) => self.base.or(Some(line)),
            Named::Nothing | Named::Other(_) | Named::Several(_) => self.base,
        }
    }

    fn unless_named(&self, own: Option<ProtocolVersion>) -> ProtocolVersion {
        match (self.base, self.missing) {
            (Some(base), _) => base,
            (None, MissingVersion::ByRequest) => own.unwrap_or(ProtocolVersion::V1),
            (None, MissingVersion::V03) => ProtocolVersion::V03,
        }
    }

    fn not_supported(&self, word: &str, own: Option<ProtocolVersion>) -> Error {
        let place = self.base.map(|base| format!(" under {}", base.base())).unwrap_or_default();
        let served = self.served().join(", ");
        let text = format!("A2A version {word} is not supported{place}; supported: {served}.");
        self.refusal(text, word, own)
    }

    fn contradictory(&self, words: &str, own: Option<ProtocolVersion>) -> Error {
        let served = self.served().join(", ");
        let text = format!("The request names more than one A2A version: {words}; name one of {served}.");
        self.refusal(text, words, own)
    }

    fn refusal(&self, text: String, word: &str, own: Option<ProtocolVersion>) -> Error {
        let served = self.served();
        Error::new(ErrorKind::VersionNotSupported, text)
            .detail("requestedVersion", word)
            .detail("supportedProtocolVersions", format!("[\"{}\"]", served.join("\",\"")))
            .detail("defaultProtocolVersion", self.unless_named(own).version())
    }

    /// The versions that are served where the request went.
    fn served(&self) -> Vec<&'static str> {
        let lines = self.base.as_ref().map_or(&ProtocolVersion::ALL[..], std::slice::from_ref);
        lines.iter().map(|line| line.version()).collect()
    }
}

/// The line that a method is of when the request does not say: by how the name is written, also when nobody serves it.
pub(crate) fn of_method(name: &str, headers: &HeaderMap) -> Option<ProtocolVersion> {
    if name.contains('/') || (name.contains('.') && !headers.contains_key(HEADER)) {
        Some(ProtocolVersion::V03)
    } else {
        None
    }
}

fn named(headers: &HeaderMap, query: &[(String, String)]) -> Named {
    let in_header =
        headers.get_all(VERSION_HEADER).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let in_query = query.iter().filter(|(name, _)| name.eq_ignore_ascii_case(VERSION_HEADER));
    let in_query = in_query.map(|(_, value)| Cow::Borrowed(value.as_str()));
    chosen(in_header).or_else(|| chosen(in_query)).unwrap_or(Named::Nothing)
}

/// What all values name together. Proxies join headers of one name with commas, so that one value may be several.
fn chosen<'a>(values: impl Iterator<Item = Cow<'a, str>>) -> Option<Named> {
    let values: Vec<_> = values.collect();
    let words = values.iter().flat_map(|value| value.split(',')).map(str::trim);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let named: Vec<Named> = words.iter().map(|word| parse(word)).collect();
    // Of several, one that is not served is told.
    let other = named.iter().find(|named| matches!(named, Named::Other(_)));
    let chosen = other.or(named.first())?;
    let is_one = other.is_some() || named.iter().all(|named| named == chosen);
    Some(if is_one { chosen.clone() } else { Named::Several(shown(&words.join(", "))) })
}

fn parse(text: &str) -> Named {
    let text = text.trim();
    let is_of = |line: &&ProtocolVersion| match text.strip_prefix(line.version()) {
        Some("") => true,
        Some(patch) => patch.strip_prefix('.').is_some_and(is_number),
        None => false,
    };
    match ProtocolVersion::ALL.iter().find(is_of) {
        Some(line) => Named::ProtocolVersion(*line),
        None => Named::Other(shown(text)),
    }
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
    use http::Request;

    use longshore_wire::extension::OLD_HEADER;

    use super::*;

    fn head(
        header: Option<&str>,
        query: Option<&str>,
        base: Option<ProtocolVersion>,
        missing: MissingVersion,
    ) -> Head {
        let uri = query.map_or("/".to_owned(), |value| format!("/?A2A-Version={value}"));
        let mut request = Request::get(uri);
        if let Some(value) = header {
            request = request.header(VERSION_HEADER, value);
        }
        Head::of(&request.body(()).unwrap().into_parts().0, base, missing)
    }

    fn check(
        header: Option<&str>,
        query: Option<&str>,
        expected: std::result::Result<Option<ProtocolVersion>, &str>,
    ) {
        let head = head(header, query, None, MissingVersion::ByRequest);
        for own in [None, Some(ProtocolVersion::V1), Some(ProtocolVersion::V03)] {
            let found = head.line(own);
            let expected = expected.map(|line| line.or(own).unwrap_or(ProtocolVersion::V1));
            assert_eq!(
                found.as_ref().map(|line| *line).map_err(Error::message),
                expected,
                "{header:?} {query:?}"
            );
        }
    }

    #[test]
    fn header_then_query() {
        check(None, None, Ok(None));
        check(Some("1.0"), None, Ok(Some(ProtocolVersion::V1)));
        check(Some("0.3"), None, Ok(Some(ProtocolVersion::V03)));
        check(Some(" 1.0.1 "), None, Ok(Some(ProtocolVersion::V1)));
        check(Some("0.3.26"), None, Ok(Some(ProtocolVersion::V03)));
        check(Some(""), None, Ok(None));
        check(Some(""), Some("1.0"), Ok(Some(ProtocolVersion::V1)));
        check(None, Some("1.0.0"), Ok(Some(ProtocolVersion::V1)));
        check(None, Some("0.3"), Ok(Some(ProtocolVersion::V03)));
        // The header wins, right or wrong.
        check(Some("1.0"), Some("9.9"), Ok(Some(ProtocolVersion::V1)));
        check(Some("0.3"), Some("1.0"), Ok(Some(ProtocolVersion::V03)));
        check(Some("9.9"), Some("1.0"), Err("A2A version 9.9 is not supported; supported: 1.0, 0.3."));
        for bad in ["0", "0.2", "0.30", "1", "1.1", "1.00", "2.0", "v1.0", "1.0.", "1.0.x", "1.0.1.2", "abc"]
        {
            let text = format!("A2A version {bad} is not supported; supported: 1.0, 0.3.");
            check(Some(bad), None, Err(&text));
            check(None, Some(bad), Err(&text));
        }
    }

    #[test]
    fn of_two_headers_the_wrong_one_is_told() {
        for values in [["1.0", "9.9"], ["9.9", "1.0"]] {
            let request =
                Request::get("/").header(VERSION_HEADER, values[0]).header(VERSION_HEADER, values[1]);
            let parts = request.body(()).unwrap().into_parts().0;
            assert!(Head::of(&parts, None, MissingVersion::ByRequest).line(None).is_err());
        }
    }

    #[test]
    fn a_version_may_be_named_twice_and_two_versions_may_not() {
        // In headers of their own, in one, and in the query.
        let ways = |values: [&str; 2]| {
            let apart = Request::get("/").header(VERSION_HEADER, values[0]).header(VERSION_HEADER, values[1]);
            let joined = Request::get("/").header(VERSION_HEADER, values.join(", "));
            let query = Request::get(format!("/?A2A-Version={}&A2A-Version={}", values[0], values[1]));
            [apart, joined, query].map(|request| {
                let parts = request.body(()).unwrap().into_parts().0;
                Head::of(&parts, None, MissingVersion::ByRequest)
            })
        };
        for values in [["1.0", "1.0"], ["1.0", "1.0.1"], ["", "1.0"]] {
            for head in ways(values) {
                assert_eq!(
                    head.line(Some(ProtocolVersion::V03)).ok(),
                    Some(ProtocolVersion::V1),
                    "{values:?}"
                );
            }
        }
        for values in [["1.0", "0.3"], ["0.3", "1.0"]] {
            for head in ways(values) {
                let refused = head.line(None).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::VersionNotSupported);
                let [one, other] = values;
                assert_eq!(
                    refused.message(),
                    format!(
                        "The request names more than one A2A version: {one}, {other}; name one of 1.0, 0.3."
                    )
                );
                assert_eq!(head.shape(Some(ProtocolVersion::V03)), ProtocolVersion::V03);
                assert_eq!(head.shape(None), ProtocolVersion::V1);
            }
        }
    }

    #[test]
    fn what_is_refused_for_its_version_has_not_a_missing_one() {
        for (own, shape) in [
            (None, ProtocolVersion::V1),
            (Some(ProtocolVersion::V1), ProtocolVersion::V1),
            (Some(ProtocolVersion::V03), ProtocolVersion::V03),
        ] {
            let head = head(Some("9"), None, None, MissingVersion::V03);
            assert_eq!(head.shape(own), shape, "{own:?}");
        }
    }

    #[test]
    fn a_base_has_one_line_and_whoever_is_strict_has_one_default() {
        use MissingVersion::{ByRequest, V03};

        // Header, base, missing, the method's own line; the line, if it is served, and the shape of the answer.
        let cases = [
            (None, None, ByRequest, None, Some(ProtocolVersion::V1), ProtocolVersion::V1),
            (
                None,
                None,
                ByRequest,
                Some(ProtocolVersion::V03),
                Some(ProtocolVersion::V03),
                ProtocolVersion::V03,
            ),
            (None, None, V03, None, Some(ProtocolVersion::V03), ProtocolVersion::V03),
            (None, None, V03, Some(ProtocolVersion::V1), Some(ProtocolVersion::V03), ProtocolVersion::V03),
            (
                Some("1.0"),
                None,
                V03,
                Some(ProtocolVersion::V03),
                Some(ProtocolVersion::V1),
                ProtocolVersion::V1,
            ),
            (Some("9.9"), None, ByRequest, None, None, ProtocolVersion::V1),
            (Some("9.9"), None, ByRequest, Some(ProtocolVersion::V03), None, ProtocolVersion::V03),
            (
                None,
                Some(ProtocolVersion::V1),
                V03,
                Some(ProtocolVersion::V03),
                Some(ProtocolVersion::V1),
                ProtocolVersion::V1,
            ),
            (
                None,
                Some(ProtocolVersion::V03),
                ByRequest,
                Some(ProtocolVersion::V1),
                Some(ProtocolVersion::V03),
                ProtocolVersion::V03,
            ),
            (
                Some("1.0.3"),
                Some(ProtocolVersion::V1),
                ByRequest,
                None,
                Some(ProtocolVersion::V1),
                ProtocolVersion::V1,
            ),
            (
                Some("0.3"),
                Some(ProtocolVersion::V1),
                ByRequest,
                Some(ProtocolVersion::V03),
                None,
                ProtocolVersion::V1,
            ),
            (Some("1.0"), Some(ProtocolVersion::V03), ByRequest, None, None, ProtocolVersion::V03),
        ];
        for (header, base, missing, own, line, shape) in cases {
            let head = head(header, None, base, missing);
            assert_eq!(head.line(own).ok(), line, "{header:?} {base:?} {missing:?} {own:?}");
            assert_eq!(head.shape(own), shape, "{header:?} {base:?} {missing:?} {own:?}");
        }
        let refused = head(Some("0.3"), None, Some(ProtocolVersion::V1), ByRequest).line(None).unwrap_err();
        assert_eq!(refused.message(), "A2A version 0.3 is not supported under /a2a/1.0; supported: 1.0.");
    }

    #[test]
    fn a_method_is_of_the_line_that_writes_it_so() {
        let (mut new, mut old) = (HeaderMap::new(), HeaderMap::new());
        new.insert(HEADER, "urn:x".parse().unwrap());
        old.insert(OLD_HEADER, "urn:x".parse().unwrap());
        // Whoever activates under the header of 0.3 is of 0.3.
        for (name, bare, activating) in [
            ("SendMessage", None, None),
            ("message/send", Some(ProtocolVersion::V03), Some(ProtocolVersion::V03)),
            ("tasks/nonsense", Some(ProtocolVersion::V03), Some(ProtocolVersion::V03)),
            ("opencode.questions.list", Some(ProtocolVersion::V03), None),
            ("a2a.nonsense", Some(ProtocolVersion::V03), None),
            ("nonsense", None, None),
            ("", None, None),
        ] {
            for headers in [&HeaderMap::new(), &old] {
                assert_eq!(of_method(name, headers), bare, "{name}");
            }
            assert_eq!(of_method(name, &new), activating, "{name}");
        }
    }
}
