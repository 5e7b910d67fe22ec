//! Reads the header `Retry-After`.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// The time of the next attempt, in the form in which the receiver wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryAfter {
    Wait(Duration),
    At(SystemTime),
}

impl RetryAfter {
    /// Reads the header. `None`: it is missing or invalid.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            // A number that is too large becomes the largest `u32`: a very long wait that still can be added to any time.
            return Some(Self::Wait(Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into())));
        }
        httpdate::parse_http_date(text).ok().map(Self::At)
    }

    /// How long to wait from `now` on. Zero for a date in the past.
    pub fn wait(self, now: SystemTime) -> Duration {
        match self {
            Self::Wait(wait) => wait,
            Self::At(time) => time.duration_since(now).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let cases = [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("18446744073709551615", Some(u64::from(u32::MAX))),
            ("99999999999999999999999", Some(u64::from(u32::MAX))),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            let wait = RetryAfter::read(&headers).map(|after| after.wait(now).as_secs());
            assert_eq!(wait, expected, "{text}");
        }
    }
}
