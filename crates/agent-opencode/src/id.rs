//! Ids in OpenCode's form: their encoding in a path, the making of new ids, and the time inside an id.
//!
//! An id is a prefix, twelve hexadecimal digits of time and fourteen random characters. The digits are the
//! low 48 bits of `milliseconds * 4096 + counter`, so ids of one server sort by the moment they were made.
//!
//! The message of a prompt has the engine's id in place of the random characters: `msg_<digits>_<engine's id>`. OpenCode answers a
//! message only if its id sorts after all others of the session. So the digits must be a time of OpenCode's clock, which the
//! gateway learns anew after each start, and only the engine's id identifies the message reliably.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use longshore_engine::port::Clock;
use longshore_model::id::check_id;
use longshore_model::{Error, ErrorKind, Result, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that need no escape in a path segment or a query value.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The time in an id has 36 bits of milliseconds, so it wraps every 795 days.
const TIME_BITS: u32 = 36;

const RANDOM_LENGTH: usize = 14;

/// The kind of object that an id names. For an id with the wrong prefix, OpenCode answers 500 or HTML instead of 404.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Session,
    Message,
    Part,
    Workspace,
    Permission,
    Question,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Session => "ses",
            Self::Message => "msg",
            Self::Part => "prt",
            Self::Workspace => "wrk",
            Self::Permission => "per",
            Self::Question => "que",
        }
    }
}

/// Checks an id and encodes it for a path.
pub(crate) fn segment(kind: Kind, id: &str) -> Result<String> {
    if check_id(id).is_err() || !id.starts_with(kind.prefix()) {
        return Err(Error::new(
            ErrorKind::InvalidParams,
            format!("An OpenCode {kind:?} id starts with '{}' and has no special characters.", kind.prefix()),
        ));
    }
    Ok(utf8_percent_encode(id, UNRESERVED).to_string())
}

/// Encodes a value for a query.
pub(crate) fn query_value(value: &str) -> String {
    utf8_percent_encode(value, UNRESERVED).to_string()
}

/// Encodes a directory for a query. OpenCode decodes this value twice, so a `%` is escaped twice.
pub(crate) fn directory_value(directory: &str) -> String {
    query_value(&directory.replace('%', "%25"))
}

/// Whether OpenCode would work in another directory than this one. OpenCode decodes the path of a session once more whenever it
/// uses the session, so `%41` becomes `A`.
pub(crate) fn is_misread(directory: &str) -> bool {
    let escape =
        |bytes: &[u8]| matches!(bytes, [b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    directory.as_bytes().windows(3).any(escape)
}

/// The offset between OpenCode's clock and the local clock, learned from the ids of OpenCode's events.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    offset_ms: AtomicI64,
}

impl ServerClock {
    /// Learns the offset from the id of an event that has just arrived.
    pub(crate) fn learn(&self, event_id: &str, now: Timestamp) {
        if let Some(theirs) = time_of(event_id) {
            self.offset_ms.store(wrapped_difference(theirs, now.0), Ordering::Relaxed);
        }
    }

    /// OpenCode's time, in milliseconds, at a given local time.
    pub(crate) fn at(&self, local: Timestamp) -> i64 {
        local.0.saturating_add(self.offset_ms.load(Ordering::Relaxed))
    }
}

/// Makes message ids. Each is larger than the previous one, even within one millisecond.
#[derive(Debug)]
pub(crate) struct MessageIds {
    clock: Arc<dyn Clock>,
    server_clock: Arc<ServerClock>,
    last: AtomicU64,
}

impl MessageIds {
    pub(crate) fn new(clock: Arc<dyn Clock>, server_clock: Arc<ServerClock>) -> Self {
        Self { clock, server_clock, last: AtomicU64::new(0) }
    }

    /// The id of the message for a prompt that is about to be sent. If `prompt` already has OpenCode's form, it is returned
    /// unchanged.
    pub(crate) fn of_prompt(&self, prompt: &str) -> String {
        if prompt.starts_with("msg_") {
            return prompt.to_owned();
        }
        format!("msg_{}_{prompt}", self.next_time())
    }

    /// The id of a message that is not a prompt of the engine.
    pub(crate) fn of_note(&self) -> String {
        format!("msg_{}{}", self.next_time(), random_base62())
    }

    fn next_time(&self) -> String {
        let milliseconds = u64::try_from(self.server_clock.at(self.clock.now())).unwrap_or(0);
        let wanted = (milliseconds << 12) + 1;
        let advance = |last: u64| wanted.max(last + 1);
        let last = self.last.update(Ordering::Relaxed, Ordering::Relaxed, advance);
        let digits = advance(last) & ((1 << 48) - 1);
        format!("{digits:012x}")
    }
}

/// The engine's id within the id of a message. `None`: no gateway sent the message, or an earlier version of the gateway did.
pub(crate) fn engine_prompt(message: &str) -> Option<&str> {
    let (digits, rest) = message.strip_prefix("msg_")?.split_at_checked(12)?;
    rest.strip_prefix('_').filter(|_| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Whether this message is the prompt. A prompt of an external turn or of an earlier version is identified by its message id.
pub(crate) fn is_prompt(message: &str, prompt: &str) -> bool {
    message == prompt || engine_prompt(message) == Some(prompt)
}

fn random_base62() -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    (0..RANDOM_LENGTH).map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())])).collect()
}

/// The milliseconds in an id, modulo 2^36.
fn time_of(id: &str) -> Option<i64> {
    let (_, rest) = id.split_once('_')?;
    let digits = rest.get(..12)?;
    let value = u64::from_str_radix(digits, 16).ok()?;
    i64::try_from(value >> 12).ok()
}

/// Whether an id was made before this time (milliseconds of OpenCode's clock). False for an id without a time.
pub(crate) fn is_older(id: &str, than: f64) -> bool {
    #[expect(clippy::cast_possible_truncation, reason = "fractions of a millisecond do not matter here")]
    let moment = than as i64;
    time_of(id).is_some_and(|time| wrapped_difference(time, moment) < 0)
}

/// `theirs - ours`, where `theirs` is known only modulo 2^36. Returns the difference that is closest to 0.
fn wrapped_difference(theirs: i64, ours: i64) -> i64 {
    let modulus = 1_i64 << TIME_BITS;
    let difference = (theirs - ours).rem_euclid(modulus);
    if difference >= modulus / 2 { difference - modulus } else { difference }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_the_right_kind_become_path_segments() {
        let cases: [(Kind, &str, Option<&str>); 9] = [
            (Kind::Session, "ses_e22b77bdcffeF3GEP0UDugtIeL", Some("ses_e22b77bdcffeF3GEP0UDugtIeL")),
            (Kind::Message, "msg_1dd4884320018BbK6iNarqlvpA", Some("msg_1dd4884320018BbK6iNarqlvpA")),
            (Kind::Session, "ses:1", Some("ses%3A1")),
            (Kind::Session, "msg_1", None),
            (Kind::Session, "", None),
            (Kind::Session, "ses_/../x", None),
            (Kind::Session, "ses_%2f", None),
            (Kind::Session, "ses_?a", None),
            (Kind::Session, "ses_ü", None),
        ];
        for (kind, id, expected) in cases {
            assert_eq!(segment(kind, id).ok().as_deref(), expected, "{id:?}");
        }
    }

    #[test]
    fn directories_are_escaped_for_a_double_decode() {
        let cases = [
            ("/workspace", "%2Fworkspace"),
            ("/a b&c=d", "%2Fa%20b%26c%3Dd"),
            // OpenCode decodes twice: %2525 -> %25 -> %.
            ("/100%", "%2F100%2525"),
        ];
        for (directory, expected) in cases {
            assert_eq!(directory_value(directory), expected);
            assert!(!is_misread(directory));
        }
        for misread in ["/%41", "/a%2fb/c", "/%%20"] {
            assert!(is_misread(misread), "{misread}");
        }
    }

    #[derive(Debug)]
    struct FixedClock(AtomicI64);

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }
    }

    /// Makes ids at the time of a recorded message, `msg_1dd4884320018BbK6iNarqlvpA`.
    fn ids() -> (Arc<FixedClock>, MessageIds) {
        let clock = Arc::new(FixedClock(AtomicI64::new(1_794_713_879_602)));
        let ids = MessageIds::new(Arc::clone(&clock) as _, Arc::default());
        (clock, ids)
    }

    #[test]
    fn a_message_id_holds_the_servers_time_and_the_engines_id() {
        let (_, ids) = ids();
        assert_eq!(ids.of_prompt("0199-ab"), "msg_1dd488432001_0199-ab");
        let note = ids.of_note();
        assert_eq!(ids.of_prompt(&note), note);
        assert!(note.starts_with("msg_1dd488432002"), "{note}");
        assert_eq!(note.len(), "msg_1dd4884320018BbK6iNarqlvpA".len());
        assert!(note[16..].chars().all(|c| c.is_ascii_alphanumeric()));
    }

    #[test]
    fn a_prompt_is_recognized_whatever_the_time_in_its_message_id() {
        let cases = [
            ("msg_1dd488432001_0199-ab", "0199-ab", true),
            ("msg_ffffffffffff_0199-ab", "0199-ab", true),
            ("msg_1dd488432001_0199-ab", "0199-a", false),
            ("msg_1dd488432001_0199-ab", "199-ab", false),
            // A prompt of another gateway is an external turn, and is identified by its whole id.
            ("msg_1dd488432001_0199-ab", "msg_1dd488432001_0199-ab", true),
            // The id has OpenCode's own form, which earlier versions of the gateway used.
            ("msg_1dd4884320018BbK6iNarqlvpA", "msg_1dd4884320018BbK6iNarqlvpA", true),
            ("msg_1dd4884320018BbK6iNarqlvpA", "8BbK6iNarqlvpA", false),
            ("msg_of_a_caller__0199-ab", "0199-ab", false),
            ("msg_1dd48843200é_0199-ab", "0199-ab", false),
            ("msg_", "", false),
        ];
        for (message, prompt, expected) in cases {
            assert_eq!(is_prompt(message, prompt), expected, "{message} {prompt}");
        }
    }

    #[test]
    fn message_ids_grow_within_a_millisecond_and_when_the_clock_steps_back() {
        let (clock, ids) = ids();
        let first = [ids.of_prompt("a"), ids.of_prompt("b")];
        clock.0.fetch_sub(602, Ordering::Relaxed);
        let made = [&first[0], &first[1], &ids.of_prompt("c")].map(|id| id[4..16].to_owned());
        assert_eq!(made, ["1dd488432001", "1dd488432002", "1dd488432003"]);
    }

    #[test]
    fn the_servers_clock_is_learned_from_its_events() {
        let server_now = 1_794_713_879_602_i64;
        for local in [server_now, server_now - 3_600_000, server_now + 90_000, server_now - 1] {
            let clock = ServerClock::default();
            clock.learn("evt_1dd4884320018BbK6iNarqlvpA", Timestamp(local));
            assert_eq!(clock.at(Timestamp(local)), server_now, "local {local}");
        }
        let clock = ServerClock::default();
        for garbage in ["", "evt_", "evt_xyz", "evt_1dd48843200é", "nothing"] {
            clock.learn(garbage, Timestamp(5));
        }
        assert_eq!(clock.at(Timestamp(5)), 5);
    }
}
