//! Decides whether a failed attempt is retried, and when.

use std::time::Duration;

use http::StatusCode;
use longshore_model::Timestamp;
use longshore_outbound::{Answer, RetryAfter};

use crate::transport::Failure;

/// The pause after the first failure. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The longest pause that a receiver can request with `Retry-After`. Without a limit, it could keep its events in the queue for
/// ever.
const LONGEST_ASKED_PAUSE: Duration = Duration::from_hours(1);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryRules {
    /// The most attempts to send an event. Then the event becomes a dead letter.
    pub attempts: u32,
    /// How long a receiver may fail. After that, each event gets only one attempt, until one succeeds.
    pub max_age: Duration,
    /// The most concurrent calls. One owner gets at most half of them. The hosts whose last call failed also get at most half.
    pub calls: usize,
    /// The most concurrent calls to one host for one owner.
    pub calls_per_host: usize,
    /// The longest body, in bytes. A longer one is replaced by a short one.
    pub max_body_bytes: usize,
    /// The longest time of one call.
    pub call_timeout: Duration,
}

impl Default for DeliveryRules {
    fn default() -> Self {
        Self {
            attempts: 1_500,
            max_age: Duration::from_hours(24),
            calls: 256,
            calls_per_host: 8,
            max_body_bytes: 256 * 1024,
            call_timeout: Duration::from_secs(25),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Delivered,
    /// The same call can succeed later. The value is the time that the receiver named, if any.
    Retry(Option<RetryAfter>),
    GiveUp,
}

/// What an attempt shows about the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    /// The host answers.
    Well,
    Failing,
    /// No call was made.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    pub(crate) health: Health,
    /// The reason for operators, without secrets.
    pub(crate) reason: String,
}

pub(crate) fn judge(result: &Result<Answer, Failure>) -> Judged {
    match result {
        Ok(Answer { status, retry_after }) => Judged {
            verdict: if status.is_success() {
                Verdict::Delivered
            } else if is_temporary(*status) {
                Verdict::Retry(*retry_after)
            } else {
                Verdict::GiveUp
            },
            health: if status.is_server_error() { Health::Failing } else { Health::Well },
            reason: format!("the receiver answered {}", status.as_u16()),
        },
        Err(Failure { kind, text }) => Judged {
            verdict: if kind.is_retryable() { Verdict::Retry(None) } else { Verdict::GiveUp },
            health: if kind.is_retryable() { Health::Failing } else { Health::Unknown },
            reason: text.clone(),
        },
    }
}

fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT
                | StatusCode::CONFLICT
                | StatusCode::TOO_EARLY
                | StatusCode::TOO_MANY_REQUESTS
        )
}

/// The pause after `failures` failures in a row. It is a random part, at least half, of a time that doubles with each failure, so that
/// receivers that failed together are not called together.
pub(crate) fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(6)).min(LONGEST_PAUSE);
    doubled.mul_f64(rand::random_range(0.5..=1.0))
}

/// The time of the next attempt to send an event. `asked`: the receiver's `Retry-After`.
pub(crate) fn retry_at(now: Timestamp, failures: u32, asked: Option<RetryAfter>) -> Timestamp {
    let now_system = std::time::UNIX_EPOCH + Duration::from_millis(now.0.unsigned_abs());
    let asked = asked.map_or(Duration::ZERO, |asked| asked.wait(now_system)).min(LONGEST_ASKED_PAUSE);
    later(now, pause(failures).max(asked))
}

pub(crate) fn later(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
}

impl DeliveryRules {
    /// Whether an event becomes a dead letter after this many attempts. `first_failed_at`: since when the receiver fails.
    pub(crate) fn is_exhausted(&self, attempts: u32, first_failed_at: Timestamp, now: Timestamp) -> bool {
        let age = Duration::from_millis(u64::try_from(now.0.saturating_sub(first_failed_at.0)).unwrap_or(0));
        attempts >= self.attempts || age >= self.max_age
    }

    /// The duration of a lease. It is longer than the calls that one renewal covers. A restart makes leases invalid before that.
    pub(crate) fn lease(&self) -> Duration {
        self.call_timeout.saturating_mul(8)
    }
}

#[cfg(test)]
mod tests {
    use longshore_outbound::ErrorKind;

    use super::*;

    #[test]
    fn success_delivers_and_temporary_failures_are_tried_again() {
        let answered = |status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            judge(&Ok(Answer { status, retry_after: Some(RetryAfter::Wait(Duration::from_secs(9))) }))
        };
        let retry = Verdict::Retry(Some(RetryAfter::Wait(Duration::from_secs(9))));
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(answered(status).verdict, Verdict::Delivered, "{status}");
        }
        for status in [408, 409, 425, 429, 500, 502, 503, 504, 507, 599] {
            assert_eq!(answered(status).verdict, retry, "{status}");
        }
        for status in [100, 301, 302, 307, 308, 400, 401, 403, 404, 405, 410, 413, 415, 422] {
            assert_eq!(answered(status).verdict, Verdict::GiveUp, "{status}");
        }
        let failed = |kind| judge(&Err(Failure { kind, text: "why".to_owned() }));
        for kind in [
            ErrorKind::Dns,
            ErrorKind::Connect,
            ErrorKind::Tls,
            ErrorKind::Timeout,
            ErrorKind::Closed,
            ErrorKind::InvalidResponse,
        ] {
            assert_eq!((failed(kind).verdict, failed(kind).health), (Verdict::Retry(None), Health::Failing));
        }
        for kind in [ErrorKind::Refused, ErrorKind::InvalidRequest] {
            assert_eq!((failed(kind).verdict, failed(kind).health), (Verdict::GiveUp, Health::Unknown));
        }
    }

    #[test]
    fn pauses_double_up_to_a_minute_with_jitter() {
        for (failures, longest) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (u32::MAX, 60)] {
            let longest = Duration::from_secs(longest);
            for _ in 0..50 {
                let pause = pause(failures);
                assert!(pause >= longest / 2 && pause <= longest, "{failures}: {pause:?}");
            }
        }
    }

    #[test]
    fn a_receiver_can_ask_for_a_longer_pause_but_not_for_ever() {
        let now = Timestamp(784_111_777_000);
        let wait = |asked| (retry_at(now, 1, Some(asked)).0 - now.0) / 1000;
        assert_eq!(wait(RetryAfter::Wait(Duration::from_mins(2))), 120);
        assert_eq!(wait(RetryAfter::Wait(Duration::from_secs(u64::from(u32::MAX)))), 3600);
        let date = std::time::UNIX_EPOCH + Duration::from_secs(784_111_807);
        assert_eq!(wait(RetryAfter::At(date)), 30);
        assert!(wait(RetryAfter::Wait(Duration::ZERO)) <= 1);
    }

    #[test]
    fn attempts_and_age_end_the_retries() {
        let rules =
            DeliveryRules { attempts: 3, max_age: Duration::from_secs(10), ..DeliveryRules::default() };
        for (attempts, now, expected) in [(2, 9_999, false), (3, 0, true), (1, 10_000, true), (1, -5, false)]
        {
            assert_eq!(rules.is_exhausted(attempts, Timestamp(0), Timestamp(now)), expected);
        }
    }
}
