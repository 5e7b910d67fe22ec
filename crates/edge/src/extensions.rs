//! Determines which extensions a request activates, and which of them its response names.

use http::{HeaderMap, HeaderValue};
use longshore_wire::extension::{Activated, HEADER, HEADER_V03};
use longshore_wire::methods::Method;

use crate::reply::Response;

/// The extensions in the headers of both protocol versions, with all their occurrences. A value that is not text is ignored.
pub(crate) fn activated(headers: &HeaderMap) -> Activated {
    Activated::from_header(values(headers))
}

fn values(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(HEADER).iter().chain(headers.get_all(HEADER_V03));
    values.filter_map(|value| value.to_str().ok())
}

/// The extensions that the response to a JSON-RPC call names. For an extension method this is its extension. For any other method
/// (`None`) these are the extensions of the public card.
pub(crate) fn echoed_for_method(
    method: Option<&Method>,
    activated: Activated,
    public: Activated,
) -> Activated {
    let named = method.map(|method| std::iter::once(method.extension).collect());
    activated.and(named.unwrap_or(public))
}

/// Adds the names of the extensions to the response, in the request's spelling. An HTTP error names none.
pub(crate) fn echo(response: &mut Response, requested: &HeaderMap, activated: Activated) {
    let is_success = response.status().is_success() || response.status().is_redirection();
    if let Some(uris) = activated.to_header(values(requested)).filter(|_| is_success) {
        let value = HeaderValue::try_from(uris).expect("a header may hold the URIs");
        response.headers_mut().insert(HEADER, value);
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use longshore_wire::contract::{self, Deployment};
    use longshore_wire::extension::{Exposure, Extension};
    use longshore_wire::opencode;

    use super::*;
    use crate::reply;

    const HINTS: &str = "urn:opencode-a2a:extension:stream-hints:v1";
    const INTERRUPT: &str = "urn:opencode-a2a:extension:interactive-interrupt:v1";
    const THINKING: &str = "urn:iac-code:a2a:thinking-exposure:v1";
    const RECOVERY: &str = "urn:opencode-a2a:extension:interrupt-recovery:v1";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn extensions_are_read_from_both_headers() {
        let both: Activated = [Extension::StreamHints, Extension::InteractiveInterrupt].into_iter().collect();
        for (pairs, expected) in [
            (vec![], Activated::NONE),
            (vec![("a2a-extensions", "urn:x")], Activated::NONE),
            (vec![("A2A-EXTENSIONS", HINTS), ("x-a2a-extensions", INTERRUPT)], both),
            (vec![("a2a-extensions", HINTS), ("a2a-extensions", INTERRUPT)], both),
            (vec![("x-a2a-extensions", "urn:a2a:stream-hints , urn:a2a:interactive-interrupt")], both),
        ] {
            assert_eq!(activated(&headers(&pairs)), expected, "{pairs:?}");
        }
        let mut binary = headers(&[("a2a-extensions", HINTS)]);
        binary.append(HEADER, HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(activated(&binary), [Extension::StreamHints].into_iter().collect());
    }

    #[test]
    fn a_response_names_the_extensions_that_applied_to_it() {
        let asked = headers(&[
            ("a2a-extensions", HINTS),
            ("x-a2a-extensions", INTERRUPT),
            ("a2a-extensions", RECOVERY),
            ("a2a-extensions", "urn:a2a:session-binding,urn:a2a:wire-contract"),
            ("a2a-extensions", THINKING),
        ]);
        let all = activated(&asked);
        let public = contract::public_extensions(&Deployment::of_opencode());
        // The response names each extension in the spelling of the caller.
        let core = format!("urn:a2a:session-binding,{HINTS},{INTERRUPT},{THINKING}");
        for (method, status, expected) in [
            ("SendMessage", 200, core.as_str()),
            ("SendMessage", 204, &core),
            ("SendMessage", 304, &core),
            ("SendMessage", 401, ""),
            ("SendMessage", 500, ""),
            ("nonsense", 200, &core),
            ("a2a.interrupt.permission.reply", 200, INTERRUPT),
            ("opencode.questions.list", 200, RECOVERY),
            ("opencode.questions.list", 413, ""),
        ] {
            let mut response = reply::empty(StatusCode::from_u16(status).unwrap());
            echo(&mut response, &asked, echoed_for_method(opencode::method(method), all, public));
            let named = response.headers().get(HEADER).map_or("", |value| value.to_str().unwrap());
            assert_eq!(named, expected, "{method} {status}");
        }
        // A deployment that hides the agent's thoughts and tools does not offer that extension.
        let exposure = Exposure { raw_thinking: false, tool_trace: false };
        let public = contract::public_extensions(&Deployment { exposure, ..Deployment::of_opencode() });
        assert!(!echoed_for_method(None, all, public).contains(Extension::ThinkingExposure));
        let mut response = reply::empty(StatusCode::OK);
        echo(&mut response, &asked, Activated::NONE);
        assert!(!response.headers().contains_key(HEADER));
    }
}
