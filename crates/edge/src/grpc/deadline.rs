//! The deadline of a call, from the header `grpc-timeout`.

use std::future::Future;
use std::time::Duration;

use http::HeaderMap;
use longshore_model::{Error, Result};
use tokio::time::Instant;

const TIMEOUT: &str = "grpc-timeout";

/// The time at which the caller stops waiting. `None`: the caller waits without a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

/// The deadline has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late;

impl Deadline {
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self> {
        let Some(value) = headers.get(TIMEOUT) else { return Ok(Self(None)) };
        let timeout = value.to_str().ok().and_then(parse).ok_or_else(|| {
            Error::invalid(TIMEOUT, "must be at most eight digits and one of the units H, M, S, m, u and n")
        })?;
        Ok(Self(Instant::now().checked_add(timeout)))
    }

    /// Waits for `work`, but only until the deadline.
    pub(super) async fn limit<T>(self, work: impl Future<Output = T>) -> std::result::Result<T, Late> {
        match self.0 {
            None => Ok(work.await),
            Some(at) => tokio::time::timeout_at(at, work).await.map_err(|_| Late),
        }
    }
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 60 * 60),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_unit() {
        for (text, expected) in [
            ("1H", Some(Duration::from_hours(1))),
            ("2M", Some(Duration::from_mins(2))),
            ("0S", Some(Duration::ZERO)),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("7u", Some(Duration::from_micros(7))),
            ("8n", Some(Duration::from_nanos(8))),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("123456789S", None),
            ("1ü", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
