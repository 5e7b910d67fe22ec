//! The token usage of a turn: the sum of the steps in OpenCode, and the usage that the task reports.

use longshore_testkit::fake_opencode::FakeOpenCode;
use serde_json::Value;

use crate::replay::fixture::{CheckedStream, extension_notes};

/// Tokens by kind, in the order of [`KINDS`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Usage([u64; KINDS.len()]);

/// The position of each kind, in OpenCode and in the task.
const KINDS: [(&str, &str); 6] = [
    ("/input", "/input_tokens"),
    ("/output", "/output_tokens"),
    ("/total", "/total_tokens"),
    ("/reasoning", "/reasoning_tokens"),
    ("/cache/read", "/cache_tokens/read_tokens"),
    ("/cache/write", "/cache_tokens/write_tokens"),
];

impl Usage {
    /// The sum of all steps of all sessions so far.
    pub(crate) fn of_opencode(fake: &FakeOpenCode) -> Self {
        let mut sum = Self::default();
        for session in fake.sessions() {
            for (sum, more) in sum.0.iter_mut().zip(Self::of_session(fake, &session).0) {
                *sum += more;
            }
        }
        sum
    }

    /// The sum of all steps of one session so far.
    pub(crate) fn of_session(fake: &FakeOpenCode, session: &str) -> Self {
        let mut sum = Self::default();
        let messages = fake.messages(session);
        let parts = messages.iter().filter_map(|message| message["parts"].as_array()).flatten();
        for step in parts.filter(|part| part["type"] == "step-finish") {
            for (sum, (theirs, _)) in sum.0.iter_mut().zip(KINDS) {
                *sum += step["tokens"].pointer(theirs).and_then(Value::as_u64).unwrap_or_default();
            }
        }
        sum
    }

    /// The usage in the last status of a task; zero if there is none.
    pub(crate) fn of_task(seen: &CheckedStream) -> Self {
        let usage = seen.frames.last().and_then(extension_notes).and_then(|shared| shared.get("usage"));
        Self(KINDS.map(|(_, ours)| {
            usage.and_then(|usage| usage.pointer(ours)).and_then(Value::as_u64).unwrap_or_default()
        }))
    }

    pub(crate) fn minus(&self, earlier: &Self) -> Self {
        let mut rest = self.clone();
        for (rest, earlier) in rest.0.iter_mut().zip(earlier.0) {
            *rest -= earlier;
        }
        rest
    }
}
