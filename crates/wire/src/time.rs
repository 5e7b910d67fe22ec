//! Reads and writes RFC 3339 timestamps. They are written in UTC with milliseconds.
//!
//! The reader is stricter than a general date library: it accepts no blank in place of the `T`, and no `+0100`. The seconds may
//! have any number of decimals. The tests compare both directions with the `jiff` crate.

use longshore_model::Timestamp;

use crate::json::write_number;

const DAY: i64 = 86_400_000;

/// Writes a time in the form `2026-08-18T09:30:00.125Z`.
pub(crate) fn write(out: &mut Vec<u8>, at: Timestamp) {
    out.extend_from_slice(&at.rfc3339());
}

/// Writes Unix time in seconds, with a fraction if there is one.
pub(crate) fn write_seconds(out: &mut Vec<u8>, Timestamp(millis): Timestamp) {
    // A time before 1970 is written as 0.
    let millis = millis.max(0);
    match millis % 1000 {
        0 => write_number(out, millis / 1000),
        rest => write_number(out, format_args!("{}.{rest:03}", millis / 1000)),
    }
}

/// A time as a client wrote it, rounded down to a millisecond, and whether the rounding was exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    pub(crate) floor: Timestamp,
    pub(crate) is_exact: bool,
}

impl Moment {
    /// The first millisecond that is not before this time.
    pub(crate) fn ceil(self) -> Timestamp {
        Timestamp(self.floor.0 + i64::from(!self.is_exact))
    }
}

/// Parses RFC 3339 with any offset and any number of decimals. `None`: the text is not valid.
pub(crate) fn parse(text: &str) -> Option<Moment> {
    let (date_time, rest) = text.as_bytes().split_at_checked(19)?;
    let [y0, y1, y2, y3, b'-', mo0, mo1, b'-', d0, d1, b'T' | b't', h0, h1, b':', mi0, mi1, b':', s0, s1] =
        date_time
    else {
        return None;
    };
    let year = number(&[*y0, *y1, *y2, *y3])?;
    let month = number(&[*mo0, *mo1]).filter(|month| (1..=12).contains(month))?;
    let day = number(&[*d0, *d1]).filter(|day| (1..=days_in_month(year, month)).contains(day))?;
    let hour = number(&[*h0, *h1]).filter(|hour| *hour < 24)?;
    let minute = number(&[*mi0, *mi1]).filter(|minute| *minute < 60)?;
    // RFC 3339 permits a leap second, which counts as the second after it.
    let second = number(&[*s0, *s1]).filter(|second| *second <= 60)?;
    let (millis, is_exact, zone) = fraction(rest)?;
    let local = days(year, month, day) * DAY + hour * 3_600_000 + minute * 60_000 + second * 1000 + millis;
    Some(Moment { floor: Timestamp(local - offset(zone)?), is_exact })
}

/// Parses the fraction of a second: the milliseconds, whether they are exact, and the text after the fraction.
fn fraction(text: &[u8]) -> Option<(i64, bool, &[u8])> {
    let [b'.', rest @ ..] = text else { return Some((0, true, text)) };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, zone) = rest.split_at(length);
    if digits.is_empty() {
        return None;
    }
    let millis = (0..3)
        .fold(0, |millis, place| millis * 10 + digits.get(place).map_or(0, |digit| i64::from(digit - b'0')));
    let is_exact = digits.iter().skip(3).all(|digit| *digit == b'0');
    Some((millis, is_exact, zone))
}

/// The offset of a time zone: how far local time is ahead of UTC, in milliseconds.
fn offset(zone: &[u8]) -> Option<i64> {
    match zone {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
            let hours = number(&[*h0, *h1]).filter(|hours| *hours < 24)?;
            let minutes = number(&[*m0, *m1]).filter(|minutes| *minutes < 60)?;
            let ahead = hours * 3_600_000 + minutes * 60_000;
            Some(if *sign == b'+' { ahead } else { -ahead })
        }
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
}

// The calendar repeats every 400 years, which are 146 097 days. Years are counted from March, so that the leap day is the
// last day of its year and one formula gives the start of each month: month m of such a year begins at day (153 m + 2) / 5.

const DAYS_PER_ERA: i64 = 146_097;
/// The number of days from 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_EPOCH: i64 = 719_468;

/// The number of days from 1970-01-01 to a valid date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let march_year = year - i64::from(month <= 2);
    let march_month = (month + 9) % 12;
    let (era, year_of_era) = (march_year.div_euclid(400), march_year.rem_euclid(400));
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - DAYS_BEFORE_EPOCH
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days(next_year, next_month, 1) - days(year, month, 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EARLIEST: i64 = Timestamp::EARLIEST.0;
    const LATEST: i64 = Timestamp::LATEST.0;

    fn written(at: i64) -> String {
        let mut out = Vec::new();
        write(&mut out, Timestamp(at));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn timestamps_are_written_in_utc_with_milliseconds() {
        for (at, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (1_709_210_096_007, "2024-02-29T12:34:56.007Z"),
            (LATEST, "9999-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (EARLIEST, "0001-01-01T00:00:00.000Z"),
            (i64::MIN, "0001-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(written(at), expected);
        }
    }

    #[test]
    fn only_rfc_3339_is_read() {
        for (text, expected) in [
            ("1970-01-01T00:00:01Z", Some((1000, true))),
            ("1970-01-01t00:00:00.5z", Some((500, true))),
            ("1970-01-01T01:00:00+01:00", Some((0, true))),
            ("1969-12-31T23:30:00-00:30", Some((0, true))),
            ("1970-01-01T00:00:00.0009Z", Some((0, false))),
            ("1970-01-01T00:00:00.001000000Z", Some((1, true))),
            ("1969-12-31T23:59:59.9999Z", Some((-1, false))),
            ("1970-01-01T00:00:60Z", Some((60_000, true))),
            ("2024-02-29T00:00:00Z", Some((1_709_164_800_000, true))),
            ("2023-02-29T00:00:00Z", None),
            ("1900-02-29T00:00:00Z", None),
            ("2024-13-01T00:00:00Z", None),
            ("2024-00-01T00:00:00Z", None),
            ("2024-01-32T00:00:00Z", None),
            ("2024-01-01T24:00:00Z", None),
            ("2024-01-01T00:00:00", None),
            ("2024-01-01 00:00:00Z", None),
            ("2024-01-01", None),
            ("2024-01-01T00:00:00.Z", None),
            ("2024-01-01T00:00:00+0100", None),
            ("2024-01-01T00:00:00Zé", None),
            ("é024-01-01T00:00:00Z", None),
            ("yesterday", None),
            ("", None),
        ] {
            let moment = parse(text).map(|moment| (moment.floor.0, moment.is_exact));
            assert_eq!(moment, expected, "{text}");
        }
        assert_eq!(parse("1970-01-01T00:00:00.0009Z").unwrap().ceil(), Timestamp(1));
        assert_eq!(parse("1970-01-01T00:00:00.001Z").unwrap().ceil(), Timestamp(1));
    }

    proptest! {
        #[test]
        fn jiff_reads_what_is_written(at in EARLIEST..=LATEST) {
            let text = written(at);
            let theirs: jiff::Timestamp = text.parse().unwrap();
            prop_assert_eq!(theirs.as_millisecond(), at);
            prop_assert_eq!(parse(&text), Some(Moment { floor: Timestamp(at), is_exact: true }));
        }

        #[test]
        fn jiff_agrees_about_offsets(at in 0..=LATEST / 2, hours in -23..=23_i64, minutes in 0..=59_i64) {
            let sign = if hours < 0 { '-' } else { '+' };
            let text = format!(
                "{}{sign}{:02}:{minutes:02}", written(at).trim_end_matches('Z'), hours.abs()
            );
            let theirs: jiff::Timestamp = text.parse().unwrap();
            prop_assert_eq!(parse(&text).unwrap().floor, Timestamp(theirs.as_millisecond()));
        }
    }
}
