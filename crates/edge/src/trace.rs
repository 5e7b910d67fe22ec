//! The trace that a request belongs to: taken over from its caller or begun here, and told in every answer.

use http::{HeaderMap, HeaderName, HeaderValue};
use longshore_model::TraceContext;

use crate::reply::Response;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// What the headers of a request say, or a new trace.
pub(crate) fn taken(headers: &HeaderMap) -> TraceContext {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = match (parents.next(), parents.next()) {
        (Some(parent), None) => parent.to_str().ok(),
        // Of two nobody could say which is meant.
        _ => None,
    };
    // Those that come apart are one list.
    let states: Option<Vec<&str>> =
        headers.get_all(TRACESTATE).iter().map(|state| state.to_str().ok()).collect();
    let state = states.filter(|states| !states.is_empty()).map(|states| states.join(","));
    TraceContext::from_headers(parent, state.as_deref())
}

pub(crate) fn tell(response: &mut Response, trace: &TraceContext) {
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
    fn one_parent_and_all_states_are_taken() {
        type Words = &'static [&'static str];

        // Whether the parent is taken, and which state.
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
        for (parents, states, is_taken, state) in cases {
            let mut headers = HeaderMap::new();
            for (name, values) in [(TRACEPARENT, parents), (TRACESTATE, states)] {
                for value in values {
                    headers.append(name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
                }
            }
            let trace = taken(&headers);
            assert_eq!(trace.traceparent() == PARENT, is_taken, "{parents:?}");
            assert_eq!(trace.tracestate(), state, "{parents:?} {states:?}");
            let mut response = crate::reply::empty(http::StatusCode::OK);
            tell(&mut response, &trace);
            let told = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(told(TRACEPARENT), Some(trace.traceparent()));
            assert_eq!(told(TRACESTATE).as_deref(), trace.tracestate());
        }
    }
}
