//! The units of the numbers on the page.
//!
//! Times are held as whole nanoseconds, because integers can be added atomically, and written as exact decimals.

use std::fmt;
use std::time::Duration;

/// How a value is held in an atomic and written on the page.
pub trait Quantity {
    /// The type in which a value is measured.
    type Value: Copy;
    /// How many digits of the held number are after the decimal point.
    const DECIMALS: u32;

    /// The number that is held.
    fn raw(value: Self::Value) -> u64;
}

/// A time, written in seconds.
#[derive(Debug)]
pub enum Seconds {}

/// A time, written in milliseconds, because the names of some older metrics say so.
#[derive(Debug)]
pub enum Milliseconds {}

/// A number of things.
#[derive(Debug)]
pub enum Whole {}

impl Quantity for Seconds {
    type Value = Duration;
    const DECIMALS: u32 = 9;

    fn raw(value: Duration) -> u64 {
        nanoseconds(value)
    }
}

impl Quantity for Milliseconds {
    type Value = Duration;
    const DECIMALS: u32 = 6;

    fn raw(value: Duration) -> u64 {
        nanoseconds(value)
    }
}

impl Quantity for Whole {
    type Value = u64;
    const DECIMALS: u32 = 0;

    fn raw(value: u64) -> u64 {
        value
    }
}

fn nanoseconds(time: Duration) -> u64 {
    // A `u64` holds 584 years in nanoseconds, which no measured time exceeds.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A held number as it is written: with a decimal point, without trailing zeros.
pub(crate) struct Decimal {
    raw: u64,
    decimals: u32,
}

impl Decimal {
    pub(crate) fn of<Q: Quantity>(raw: u64) -> Self {
        Self { raw, decimals: Q::DECIMALS }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10_u64.pow(self.decimals);
        write!(f, "{}", self.raw / one)?;
        let mut rest = self.raw % one;
        if rest == 0 {
            return Ok(());
        }
        let mut digits = self.decimals as usize;
        while rest.is_multiple_of(10) {
            rest /= 10;
            digits -= 1;
        }
        write!(f, ".{rest:0digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<Q: Quantity>(value: Q::Value, written: &str) {
        assert_eq!(Decimal::of::<Q>(Q::raw(value)).to_string(), written);
    }

    #[test]
    fn a_time_is_written_exactly_and_without_trailing_zeros() {
        check::<Seconds>(Duration::ZERO, "0");
        check::<Seconds>(Duration::from_nanos(1), "0.000000001");
        check::<Seconds>(Duration::from_micros(50), "0.00005");
        check::<Seconds>(Duration::from_millis(2_500), "2.5");
        check::<Seconds>(Duration::from_secs(10), "10");
        check::<Seconds>(Duration::new(3_600, 20), "3600.00000002");
        check::<Milliseconds>(Duration::from_micros(1_250), "1.25");
        check::<Milliseconds>(Duration::from_secs(2), "2000");
        check::<Whole>(1_200, "1200");
    }

    #[test]
    fn a_time_that_is_too_long_is_written_as_the_longest() {
        check::<Seconds>(Duration::MAX, "18446744073.709551615");
    }
}
