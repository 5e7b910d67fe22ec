//! The type for points in time in the store and the log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

const DAY: i64 = 86_400_000;

impl Timestamp {
    /// 0001-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z, the range of a protobuf timestamp. RFC 3339 cannot express a time
    /// outside of this range, so the nearer end is written instead.
    pub const EARLIEST: Self = Self(-62_135_596_800_000);
    pub const LATEST: Self = Self(253_402_300_799_999);

    /// The time in RFC 3339, such as `2026-08-18T09:30:00.125Z`, in ASCII.
    pub fn rfc3339(self) -> [u8; 24] {
        let millis = self.clamp(Self::EARLIEST, Self::LATEST).0;
        let (year, month, day) = civil(millis.div_euclid(DAY));
        let of_day = millis.rem_euclid(DAY);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[0..4], year);
        put(&mut text[5..7], month);
        put(&mut text[8..10], day);
        put(&mut text[11..13], of_day / 3_600_000);
        put(&mut text[14..16], of_day / 60_000 % 60);
        put(&mut text[17..19], of_day / 1000 % 60);
        put(&mut text[20..23], of_day % 1000);
        text
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.rfc3339()))
    }
}

/// Fills `target` with the decimal digits of a number, which must fit.
fn put(target: &mut [u8], mut number: i64) {
    for digit in target.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit is below ten");
        number /= 10;
    }
}

/// The year, month and day of a date that is given in days since 1970.
///
/// The calendar repeats every 400 years, which are 146 097 days. Years are counted from March, so that the leap day is the
/// last day of its year and one formula gives the start of each month: month m of such a year begins at day
/// (153 m + 2) / 5.
fn civil(days: i64) -> (i64, i64, i64) {
    // The number of days from 0000-03-01 to 1970-01-01.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    // Remove the leap days before dividing by the length of a common year. The last day of the era is a special case.
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}
