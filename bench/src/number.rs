//! Counts as fractions, and fractions as words.

/// A count for arithmetic with fractions. Exact up to 2^53, which is 104 days of nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "what is measured here is far below 2^53")]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// The count below a fraction that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a fraction saturates, and none here is negative"
)]
pub fn whole(fraction: f64) -> u64 {
    fraction as u64
}

/// A number with three digits that count.
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

/// A whole number with a space between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::from(if number < 0.0 { "-" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The middle of some numbers, the lower of two middles; 0 of none.
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
