//! Decides which version of the A2A protocol a request uses. No other module makes this decision.
//!
//! In order of precedence:
//! 1. `A2A-Version`: the header, or else the query parameter of the same name, with major and minor number. It may occur several
//!    times if all values are the same.
//! 2. The base path, if the path is under the base of one version.
//! 3. A method or path that only one version has. Slash methods and paths under `/v1` are 0.3; Pascal-case methods and REST
//!    paths at the root are 1.0. Extension methods have the same names in both versions. Without a version they count as 0.3,
//!    because 0.3 clients do not activate extensions; if the caller activates one, they count as 1.0.
//!
//! A strict deployment treats every request without a version as 0.3, except gRPC calls: each version has its own gRPC service.

use std::borrow::Cow;

use http::HeaderMap;
use http::request::Parts;
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::contract::MissingVersion;
use longshore_wire::extension::HEADER;
pub(crate) use longshore_wire::surface::ProtocolVersion;

use crate::query;

pub(crate) const VERSION_HEADER: &str = "a2a-version";

/// The facts in the head of a request that decide its protocol version.
#[derive(Clone, Debug)]
pub(crate) struct RequestedVersion {
    named: NamedVersion,
    /// The version whose base path contains the path.
    base: Option<ProtocolVersion>,
    missing: MissingVersion,
}

/// The value of `A2A-Version`.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NamedVersion {
    Missing,
    Known(ProtocolVersion),
    /// A version that is not served, as the caller wrote it.
    Unknown(String),
    /// Different versions, as the caller wrote them: it is unclear which one is meant.
    Conflicting(String),
}

impl RequestedVersion {
    pub(crate) fn read(parts: &Parts, base: Option<ProtocolVersion>, missing: MissingVersion) -> Self {
        Self { named: named(&parts.headers, &query::pairs(parts.uri.query())), base, missing }
    }

    /// The version of the request. `implied`: the only version that has its method or path, if there is only one. An error lists
    /// the served versions.
    pub(crate) fn resolve(&self, implied: Option<ProtocolVersion>) -> Result<ProtocolVersion> {
        match &self.named {
            NamedVersion::Missing => Ok(self.default_version(implied)),
            NamedVersion::Known(version) if self.base.is_none_or(|base| base == *version) => Ok(*version),
            NamedVersion::Known(version) => Err(self.not_supported(version.as_str(), implied)),
            NamedVersion::Unknown(value) => Err(self.not_supported(value, implied)),
            NamedVersion::Conflicting(values) => Err(self.conflicting(values, implied)),
        }
    }

    /// The version in whose format the response is written, even if the requested version is not served.
    pub(crate) fn response_version(&self, implied: Option<ProtocolVersion>) -> ProtocolVersion {
        self.resolve(implied).unwrap_or_else(|_| self.response_version_of_unknown(implied))
    }

    /// The version in whose format an unknown path or version is answered. The setting for requests without a version does not
    /// apply, because it is only for requests that are served.
    pub(crate) fn response_version_of_unknown(&self, implied: Option<ProtocolVersion>) -> ProtocolVersion {
        self.document_version().or(implied).unwrap_or(ProtocolVersion::V1)
    }

    /// The version that a requested document should describe. `None`: all versions.
    pub(crate) fn document_version(&self) -> Option<ProtocolVersion> {
        match self.named {
            NamedVersion::Known(version) => self.base.or(Some(version)),
            NamedVersion::Missing | NamedVersion::Unknown(_) | NamedVersion::Conflicting(_) => self.base,
        }
    }

    fn default_version(&self, implied: Option<ProtocolVersion>) -> ProtocolVersion {
        match (self.base, self.missing) {
            (Some(base), _) => base,
            (None, MissingVersion::ByRequest) => implied.unwrap_or(ProtocolVersion::V1),
            (None, MissingVersion::V03) => ProtocolVersion::V03,
        }
    }

    fn not_supported(&self, value: &str, implied: Option<ProtocolVersion>) -> Error {
        let base = self.base.map(|base| format!(" under {}", base.base())).unwrap_or_default();
        let served = self.served().join(", ");
        let text = format!("A2A version {value} is not supported{base}; supported: {served}.");
        self.refusal(text, value, implied)
    }

    fn conflicting(&self, values: &str, implied: Option<ProtocolVersion>) -> Error {
        let served = self.served().join(", ");
        let text = format!("The request names more than one A2A version: {values}; name one of {served}.");
        self.refusal(text, values, implied)
    }

    fn refusal(&self, text: String, value: &str, implied: Option<ProtocolVersion>) -> Error {
        let served = self.served();
        Error::new(ErrorKind::VersionNotSupported, text)
            .detail("requestedVersion", value)
            .detail("supportedProtocolVersions", format!("[\"{}\"]", served.join("\",\"")))
            .detail("defaultProtocolVersion", self.default_version(implied).as_str())
    }

    /// The versions that are served under the request's base path.
    fn served(&self) -> Vec<&'static str> {
        let versions = self.base.as_ref().map_or(&ProtocolVersion::ALL[..], std::slice::from_ref);
        versions.iter().map(|version| version.as_str()).collect()
    }
}

/// The version that the spelling of a method name implies, even if no such method exists.
pub(crate) fn implied_by_method(name: &str, headers: &HeaderMap) -> Option<ProtocolVersion> {
    let is_v03 = name.contains('/') || (name.contains('.') && !headers.contains_key(HEADER));
    is_v03.then_some(ProtocolVersion::V03)
}

fn named(headers: &HeaderMap, query: &[(String, String)]) -> NamedVersion {
    let in_header =
        headers.get_all(VERSION_HEADER).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let in_query = query.iter().filter(|(name, _)| name.eq_ignore_ascii_case(VERSION_HEADER));
    let in_query = in_query.map(|(_, value)| Cow::Borrowed(value.as_str()));
    combined(in_header).or_else(|| combined(in_query)).unwrap_or(NamedVersion::Missing)
}

/// Combines all values of the header or parameter. Proxies join headers of the same name with commas, so one value may contain
/// several versions. Different versions are a conflict. `None`: no value names a version.
fn combined<'a>(values: impl Iterator<Item = Cow<'a, str>>) -> Option<NamedVersion> {
    let values: Vec<_> = values.collect();
    let words = values.iter().flat_map(|value| value.split(',')).map(str::trim);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let named: Vec<NamedVersion> = words.iter().map(|word| parse(word)).collect();
    // If one of several versions is not served, the error names that one.
    let unknown = named.iter().find(|named| matches!(named, NamedVersion::Unknown(_)));
    let chosen = unknown.or(named.first())?;
    let is_one = unknown.is_some() || named.iter().all(|named| named == chosen);
    Some(if is_one { chosen.clone() } else { NamedVersion::Conflicting(shortened(&words.join(", "))) })
}

fn parse(text: &str) -> NamedVersion {
    let text = text.trim();
    let matches = |version: &&ProtocolVersion| match text.strip_prefix(version.as_str()) {
        Some("") => true,
        Some(patch) => patch.strip_prefix('.').is_some_and(is_number),
        None => false,
    };
    match ProtocolVersion::ALL.iter().find(matches) {
        Some(version) => NamedVersion::Known(*version),
        None => NamedVersion::Unknown(shortened(text)),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The caller's text, shortened for an error message.
fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 64;
    text.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use longshore_wire::extension::HEADER_V03;

    use super::*;

    const V1: Option<ProtocolVersion> = Some(ProtocolVersion::V1);
    const V03: Option<ProtocolVersion> = Some(ProtocolVersion::V03);

    fn requested(
        header: Option<&str>,
        query: Option<&str>,
        base: Option<ProtocolVersion>,
        missing: MissingVersion,
    ) -> RequestedVersion {
        let uri = query.map_or("/".to_owned(), |value| format!("/?A2A-Version={value}"));
        let mut request = Request::get(uri);
        if let Some(value) = header {
            request = request.header(VERSION_HEADER, value);
        }
        read(request, base, missing)
    }

    fn read(
        request: http::request::Builder,
        base: Option<ProtocolVersion>,
        missing: MissingVersion,
    ) -> RequestedVersion {
        RequestedVersion::read(&request.body(()).unwrap().into_parts().0, base, missing)
    }

    fn check(
        header: Option<&str>,
        query: Option<&str>,
        expected: std::result::Result<Option<ProtocolVersion>, &str>,
    ) {
        let requested = requested(header, query, None, MissingVersion::ByRequest);
        for implied in [None, V1, V03] {
            let found = requested.resolve(implied);
            let expected = expected.map(|version| version.or(implied).unwrap_or(ProtocolVersion::V1));
            let found = found.as_ref().map(|version| *version).map_err(Error::message);
            assert_eq!(found, expected, "{header:?} {query:?}");
        }
    }

    #[test]
    fn the_header_counts_before_the_query() {
        check(None, None, Ok(None));
        check(Some("1.0"), None, Ok(V1));
        check(Some("0.3"), None, Ok(V03));
        check(Some(" 1.0.1 "), None, Ok(V1));
        check(Some("0.3.26"), None, Ok(V03));
        check(Some(""), None, Ok(None));
        check(Some(""), Some("1.0"), Ok(V1));
        check(None, Some("1.0.0"), Ok(V1));
        check(None, Some("0.3"), Ok(V03));
        // The header takes precedence, even if it is invalid.
        check(Some("1.0"), Some("9.9"), Ok(V1));
        check(Some("0.3"), Some("1.0"), Ok(V03));
        check(Some("9.9"), Some("1.0"), Err("A2A version 9.9 is not supported; supported: 1.0, 0.3."));
        for bad in ["0", "0.2", "0.30", "1", "1.1", "1.00", "2.0", "v1.0", "1.0.", "1.0.x", "1.0.1.2", "abc"]
        {
            let text = format!("A2A version {bad} is not supported; supported: 1.0, 0.3.");
            check(Some(bad), None, Err(&text));
            check(None, Some(bad), Err(&text));
        }
    }

    #[test]
    fn a_version_may_be_named_twice_and_two_versions_may_not() {
        // The same two values in two headers, in one header, and in the query.
        let spellings = |values: [&str; 2]| {
            let apart = Request::get("/").header(VERSION_HEADER, values[0]).header(VERSION_HEADER, values[1]);
            let joined = Request::get("/").header(VERSION_HEADER, values.join(", "));
            let query = Request::get(format!("/?A2A-Version={}&A2A-Version={}", values[0], values[1]));
            [apart, joined, query].map(|request| read(request, None, MissingVersion::ByRequest))
        };
        for values in [["1.0", "1.0"], ["1.0", "1.0.1"], ["", "1.0"]] {
            for requested in spellings(values) {
                assert_eq!(requested.resolve(V03).ok(), V1, "{values:?}");
            }
        }
        for values in [["1.0", "9.9"], ["9.9", "1.0"]] {
            for requested in spellings(values) {
                let refused = requested.resolve(None).unwrap_err();
                assert_eq!(refused.message(), "A2A version 9.9 is not supported; supported: 1.0, 0.3.");
            }
        }
        for values in [["1.0", "0.3"], ["0.3", "1.0"]] {
            for requested in spellings(values) {
                let refused = requested.resolve(None).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::VersionNotSupported);
                let named = values.join(", ");
                assert_eq!(
                    refused.message(),
                    format!("The request names more than one A2A version: {named}; name one of 1.0, 0.3.")
                );
                assert_eq!(requested.response_version(V03), ProtocolVersion::V03);
                assert_eq!(requested.response_version(None), ProtocolVersion::V1);
            }
        }
    }

    #[test]
    fn a_base_has_one_version_and_a_strict_deployment_one_default() {
        use MissingVersion::{ByRequest, V03 as Strict};

        // The columns: header, base, missing, implied version; the resolved version if it is served, and the version of the
        // response.
        let cases = [
            (None, None, ByRequest, None, V1, V1),
            (None, None, ByRequest, V03, V03, V03),
            (None, None, Strict, None, V03, V03),
            (None, None, Strict, V1, V03, V03),
            (Some("1.0"), None, Strict, V03, V1, V1),
            (Some("9.9"), None, ByRequest, None, None, V1),
            (Some("9.9"), None, ByRequest, V03, None, V03),
            // The setting for a missing version does not apply to an unknown one.
            (Some("9"), None, Strict, None, None, V1),
            (Some("9"), None, Strict, V1, None, V1),
            (Some("9"), None, Strict, V03, None, V03),
            (None, V1, Strict, V03, V1, V1),
            (None, V03, ByRequest, V1, V03, V03),
            (Some("1.0.3"), V1, ByRequest, None, V1, V1),
            (Some("0.3"), V1, ByRequest, V03, None, V1),
            (Some("1.0"), V03, ByRequest, None, None, V03),
        ];
        for (header, base, missing, implied, version, response) in cases {
            let requested = requested(header, None, base, missing);
            assert_eq!(
                requested.resolve(implied).ok(),
                version,
                "{header:?} {base:?} {missing:?} {implied:?}"
            );
            let found = Some(requested.response_version(implied));
            assert_eq!(found, response, "{header:?} {base:?} {missing:?} {implied:?}");
        }
        let refused = requested(Some("0.3"), None, V1, ByRequest).resolve(None).unwrap_err();
        assert_eq!(refused.message(), "A2A version 0.3 is not supported under /a2a/1.0; supported: 1.0.");
    }

    #[test]
    fn the_spelling_of_a_method_implies_its_version() {
        let (mut new, mut old) = (HeaderMap::new(), HeaderMap::new());
        new.insert(HEADER, "urn:x".parse().unwrap());
        old.insert(HEADER_V03, "urn:x".parse().unwrap());
        // A caller that activates extensions with the 0.3 header uses 0.3.
        for (name, bare, activating) in [
            ("SendMessage", None, None),
            ("message/send", V03, V03),
            ("tasks/nonsense", V03, V03),
            ("opencode.questions.list", V03, None),
            ("a2a.nonsense", V03, None),
            ("nonsense", None, None),
            ("", None, None),
        ] {
            for headers in [&HeaderMap::new(), &old] {
                assert_eq!(implied_by_method(name, headers), bare, "{name}");
            }
            assert_eq!(implied_by_method(name, &new), activating, "{name}");
        }
    }
}
