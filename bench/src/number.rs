//! Conversions between counts and fractions, and numbers as text.

/// A count as a fraction. Exact up to 2^53, which is 104 days of nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "all measured values are far below 2^53")]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// A fraction that is not negative, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a fraction saturates, and none here is negative"
)]
pub fn whole(fraction: f64) -> u64 {
    fraction as u64
}

/// A number with three significant digits.
pub fn short(number: f64) -> String {
    let size = number.abs();
    if size >= 100.0 || size == 0.0 {
        grouped(number)
    } else if size >= 10.0 {
        format!("{number:.1}")
    } else if size >= 1.0 {
        format!("{number:.2}")
    } else {
        format!("{number:.3}")
    }
}

/// A whole number with a space between groups of three digits.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::from(if number < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The median; of an even count the lower of the two middle numbers; 0 for none.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.0421, "0.042"),
            (3.4567, "3.46"),
            (42.42, "42.4"),
            (1234.6, "1 235"),
            (1e6, "1 000 000"),
        ];
        for (number, text) in cases {
            assert_eq!(short(number), text);
        }
        assert_eq!(short(-1234.0), "-1 234");
    }

    #[test]
    fn the_median_is_one_of_the_numbers() {
        for (numbers, middle) in
            [(vec![], 0.0), (vec![5.0], 5.0), (vec![3.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0], 1.0)]
        {
            assert!((median(&numbers) - middle).abs() < f64::EPSILON, "{numbers:?}");
        }
    }
}
