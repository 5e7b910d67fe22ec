//! The trace context of a request: it continues that of the caller or starts a new trace, and is returned in every response.

use http::{HeaderMap, HeaderName, HeaderValue};
use longshore_model::TraceContext;

use crate::reply::Response;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The trace context in the headers of a request, or a new one.
pub(crate) fn from_headers(headers: &HeaderMap) -> TraceContext {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = match (parents.next(), parents.next()) {
        (Some(parent), None) => parent.to_str().ok(),
        // With two parent headers it is unclear which one is meant, so neither is used.
        _ => None,
    };
    // Several state headers form one list.
    let states: Option<Vec<&str>> =
        headers.get_all(TRACESTATE).iter().map(|state| state.to_str().ok()).collect();
    let state = states.filter(|states| !states.is_empty()).map(|states| states.join(","));
    TraceContext::from_headers(parent, state.as_deref())
}

pub(crate) fn set_headers(response: &mut Response, trace: &TraceContext) {
    let headers = response.headers_mut();
    if let Ok(parent) = HeaderValue::try_from(trace.traceparent()) {
        headers.insert(TRACEPARENT, parent);
    }
    if let Some(Ok(state)) = trace.tracestate().map(HeaderValue::try_from) {
        headers.insert(TRACESTATE, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn one_parent_and_all_states_are_read() {
        type Words = &'static [&'static str];

        // The columns: the headers, whether the parent is accepted, and the resulting state.
        let cases: [(Words, Words, bool, Option<&str>); 8] = [
            (&[PARENT], &[], true, None),
            (&[PARENT], &["a=1"], true, Some("a=1")),
            (&[PARENT], &["a=1", "b=2"], true, Some("a=1,b=2")),
            (&[PARENT], &["a=\u{e4}"], true, None),
            (&[PARENT, PARENT], &["a=1"], false, None),
            (&["nonsense"], &["a=1"], false, None),
            (&["\u{e4}"], &[], false, None),
            (&[], &["a=1"], false, None),
        ];
        for (parents, states, is_accepted, state) in cases {
            let mut headers = HeaderMap::new();
            for (name, values) in [(TRACEPARENT, parents), (TRACESTATE, states)] {
                for value in values {
                    headers.append(name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
                }
            }
            let trace = from_headers(&headers);
            assert_eq!(trace.traceparent() == PARENT, is_accepted, "{parents:?}");
            assert_eq!(trace.tracestate(), state, "{parents:?} {states:?}");
            let mut response = crate::reply::empty(http::StatusCode::OK);
            set_headers(&mut response, &trace);
            let sent = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(sent(TRACEPARENT), Some(trace.traceparent()));
            assert_eq!(sent(TRACESTATE).as_deref(), trace.tracestate());
        }
    }
}
