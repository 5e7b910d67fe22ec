//! Checks the certificate of the listener: whether it can be used, and when it expires.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_engine::port::{Clock as _, SystemClock};

use super::Finding;
use crate::config::Plan;
use crate::config::listen::TlsPlan;
use crate::tls::TlsFiles;

const WHAT: &str = "TLS";

/// The remaining time below which an expiring certificate is a warning, in milliseconds.
const SOON: i64 = 14 * 24 * 3600 * 1000;

/// Checks the certificate. `None`: the gateway serves without TLS.
pub(super) fn check(plan: &Plan) -> Option<Finding> {
    let tls = plan.listen.tls.as_ref()?;
    Some(match TlsFiles::load(tls) {
        Ok(_) => lifetime(tls),
        Err(error) => Finding::problem(
            WHAT,
            format!("{error:#}"),
            "Correct serve.tls_certificate (--tls-certificate) and serve.tls_key (--tls-key), or the files that they name.",
        ),
    })
}

fn lifetime(tls: &TlsPlan) -> Finding {
    let renew = "Renew it. The gateway reads the files again when they change.";
    let now = SystemClock.now().0;
    match end_of(&tls.certificate) {
        Some((end, shown)) if end < now => {
            Finding::problem(WHAT, format!("the certificate ended on {shown}: clients refuse it"), renew)
        }
        Some((end, shown)) if end < now + SOON => {
            Finding::warning(WHAT, format!("the certificate ends on {shown}"), renew)
        }
        Some((_, shown)) => Finding::fine(WHAT, format!("the certificate can be used until {shown}")),
        None => Finding::fine(WHAT, "the certificate can be used"),
    }
}

/// The expiry of the first certificate in a file: in milliseconds since 1970, and as a date. `None`: it cannot be read.
fn end_of(file: &Path) -> Option<(i64, String)> {
    let pem = std::fs::read_to_string(file).ok()?;
    let (_, inner) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (inner, _) = inner.split_once("-----END CERTIFICATE-----")?;
    let der = STANDARD.decode(inner.split_whitespace().collect::<String>()).ok()?;
    not_after(&der)
}

/// The expiry of an X.509 certificate.
fn not_after(der: &[u8]) -> Option<(i64, String)> {
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = element(der)?;
    let (_, signed, _) = element(certificate)?;
    let mut rest = signed;
    if element(rest)?.0 == VERSION {
        rest = element(rest)?.2;
    }
    // Skip the serial number, the algorithm and the issuer, which come before the validity.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, end) = element(validity)?;
    let (tag, time, _) = element(end)?;
    time_of(tag, std::str::from_utf8(time).ok()?)
}

/// Splits off one DER element: its tag, its content, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let length =
            bytes.iter().try_fold(0_usize, |sum, byte| sum.checked_mul(256)?.checked_add((*byte).into()))?;
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Parses a time of X.509: `YYMMDDhhmmssZ`, or the same with a four-digit year.
fn time_of(tag: u8, text: &str) -> Option<(i64, String)> {
    const SHORT_YEAR: u8 = 0x17;
    let (year, rest) = if tag == SHORT_YEAR {
        let (year, rest) = text.split_at_checked(2)?;
        let year: i64 = year.parse().ok()?;
        (if year < 50 { 2000 + year } else { 1900 + year }, rest)
    } else {
        let (year, rest) = text.split_at_checked(4)?;
        (year.parse().ok()?, rest)
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day, hour, minute, second) = (two(0)?, two(2)?, two(4)?, two(6)?, two(8)?);
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some((seconds * 1000, format!("{year}-{month:02}-{day:02}")))
}

/// The number of days in the Gregorian calendar. Years begin in March here, so that a leap day is the last day of a year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_time_are_read() {
        for (tag, text, expected) in [
            (0x17, "700101000000Z", Some((0, "1970-01-01"))),
            (0x17, "000229120000Z", Some((951_825_600_000, "2000-02-29"))),
            (0x18, "20500101000001Z", Some((2_524_608_001_000, "2050-01-01"))),
            (0x18, "2050", None),
        ] {
            let expected = expected.map(|(time, date)| (time, date.to_owned()));
            assert_eq!(time_of(tag, text), expected, "{text}");
        }
    }

    #[test]
    fn a_broken_certificate_has_no_end() {
        for der in [&[][..], &[0x30], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 2, 0x30, 0]] {
            assert_eq!(not_after(der), None, "{der:?}");
        }
    }
}
