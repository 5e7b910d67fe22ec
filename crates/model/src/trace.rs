//! The trace context of a request, as W3C Trace Context defines it.
//!
//! An invalid `traceparent` starts a new trace, and then the `tracestate` is dropped.

use std::fmt;
use std::sync::Arc;

/// The longest `tracestate` that is passed on. A longer one is dropped, as the specification allows.
const MAX_STATE: usize = 512;

/// The flag that says that the caller records the trace.
const SAMPLED: u8 = 1;

/// A trace context: see the module. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
    state: Option<Arc<str>>,
    is_new_trace: bool,
}

impl TraceContext {
    /// Starts a new trace.
    pub fn generate() -> Self {
        Self { trace: random(), span: random(), flags: SAMPLED, state: None, is_new_trace: true }
    }

    /// Reads the two headers. Starts a new trace if they are missing or invalid.
    pub fn from_headers(traceparent: Option<&str>, tracestate: Option<&str>) -> Self {
        let Some(context) = traceparent.and_then(Self::parse) else { return Self::generate() };
        match tracestate {
            Some(state) => context.with_state(state),
            None => context,
        }
    }

    /// Parses a `traceparent`. `None`: it is invalid.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let mut fields = traceparent.split('-');
        let [version] = bytes::<1>(fields.next()?)?;
        let trace = bytes::<16>(fields.next()?)?;
        let span = bytes::<8>(fields.next()?)?;
        let [flags] = bytes::<1>(fields.next()?)?;
        // A later version may have more fields. Version 0 has exactly four.
        let is_whole = fields.next().is_none() || version > 0;
        let is_valid = is_whole && version != 0xff && trace != [0; 16] && span != [0; 8];
        is_valid.then_some(Self { trace, span, flags, state: None, is_new_trace: false })
    }

    /// Adds a `tracestate`, unless it is too long or contains characters that are not allowed in a header.
    #[must_use]
    pub fn with_state(mut self, tracestate: &str) -> Self {
        let is_plain = tracestate.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let is_kept = !tracestate.is_empty() && tracestate.len() <= MAX_STATE && is_plain;
        self.state = is_kept.then(|| tracestate.into());
        self
    }

    /// The context of a child span.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span: random(), is_new_trace: false, ..self.clone() }
    }

    /// The value of the `traceparent` header.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", Hex(&self.trace), Hex(&self.span), self.flags)
    }

    /// The value of the `tracestate` header.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    pub fn trace_id(&self) -> impl fmt::Display + '_ {
        Hex(&self.trace)
    }

    pub fn span_id(&self) -> impl fmt::Display + '_ {
        Hex(&self.span)
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same trace with the sampled flag cleared.
    #[must_use]
    pub fn unsampled(mut self) -> Self {
        self.flags &= !SAMPLED;
        self
    }

    /// Whether the caller sent no trace. Then this is the first span, and the gateway decides whether the trace is sampled.
    pub fn is_new_trace(&self) -> bool {
        self.is_new_trace
    }

    /// The input of the sampling decision: the half of the trace id that is always random. All programs that sample by it keep the
    /// same traces.
    pub fn sampling_key(&self) -> u64 {
        self.trace[8..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Parses lower-case hexadecimal digits only, as the specification requires.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

/// Random bytes, never all zeros, because zeros mean "no id".
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    while bytes == [0; N] {
        bytes = rand::random();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn an_invalid_traceparent_is_refused_whole() {
        let accepted = [
            (PARENT.to_owned(), PARENT),
            (PARENT.replace("-01", "-00"), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"),
            // The header that is passed on always has version 0.
            (PARENT.replace("00-4b", "cc-4b"), PARENT),
            (format!("{}-what-comes-next", PARENT.replace("00-4b", "cc-4b")), PARENT),
        ];
        for (text, expected) in accepted {
            assert_eq!(TraceContext::parse(&text).unwrap().traceparent(), expected, "{text}");
        }
        let refused = [
            "",
            "-",
            "00",
            &PARENT[..54],
            &PARENT.replace("00-4b", "ff-4b"),
            &PARENT.replace("4bf", "4BF"),
            &PARENT.replace("4bf", "4bg"),
            &PARENT.replace("4bf", "4b+"),
            &PARENT.replace("4bf9", "4bé"),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &PARENT.replace("00f067aa0ba902b7", "00f067aa0ba902"),
            &PARENT.replace("-01", "-1"),
            &PARENT.replace("-01", "-001"),
            &format!("{PARENT}-"),
            &format!("{PARENT}-00"),
            &format!(" {PARENT}"),
            &PARENT.replace('-', "_"),
        ];
        for text in refused {
            assert_eq!(TraceContext::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_tracestate_is_kept_only_with_a_valid_traceparent() {
        let long = "a=".to_owned() + &"x".repeat(510);
        let cases = [
            (Some(PARENT), Some("a=1,b=2"), Some("a=1,b=2")),
            (Some(PARENT), Some(long.as_str()), Some(long.as_str())),
            (Some(PARENT), Some(&*format!("{long}x")), None),
            (Some(PARENT), Some("a=1\r\nx: y"), None),
            (Some(PARENT), Some("a=é"), None),
            (Some(PARENT), Some(""), None),
            (Some(PARENT), None, None),
            (Some("nonsense"), Some("a=1"), None),
            (None, Some("a=1"), None),
        ];
        for (parent, state, expected) in cases {
            let context = TraceContext::from_headers(parent, state);
            assert_eq!(context.tracestate(), expected, "{parent:?} {state:?}");
            assert_eq!(context.traceparent() == PARENT, parent == Some(PARENT));
        }
    }

    #[test]
    fn a_new_trace_can_be_passed_on() {
        let (one, other) = (TraceContext::generate(), TraceContext::generate());
        assert_ne!(one, other);
        let passed_on = TraceContext::parse(&one.traceparent()).unwrap();
        assert_eq!(passed_on.traceparent(), one.traceparent());
        assert!(one.is_sampled());
        assert_eq!((one.is_new_trace(), passed_on.is_new_trace()), (true, false));
        assert!(TraceContext::from_headers(Some("nonsense"), None).is_new_trace());
        assert!(!one.child().is_new_trace());
    }

    #[test]
    fn a_child_is_a_new_span_of_the_same_trace() {
        let parent = TraceContext::from_headers(Some(PARENT), Some("a=1"));
        let child = parent.child();
        assert_eq!(child.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_ne!(child.span_id().to_string(), parent.span_id().to_string());
        assert_eq!((child.flags, child.tracestate()), (1, Some("a=1")));
        assert_eq!(
            (parent.sampling_key(), child.sampling_key()),
            (0xa3ce_929d_0e0e_4736, parent.sampling_key())
        );
    }
}
