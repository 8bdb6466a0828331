//! Exact parser for Kubernetes quantities, such as `250m`, `1.5Gi` and `12e6`.
//!
//! The grammar is the same as in `ParseQuantity` (`apimachinery/pkg/api/resource/quantity.go`, v1.36.3): a number with at most
//! one decimal point, and a suffix. The suffix is a power of ten (`n` to `E`), a power of two (`Ki` to `Ei`), or a decimal
//! exponent. Fractions of a billionth are rounded away from zero. Amounts above 2^63-1 count as 2^63-1.

use std::iter::Sum;

/// Largest accepted number of significant digits. An API server stores no more digits, because 2^63 has 19 digits.
const DIGITS: usize = 20;
/// Largest amount, in billionths.
const MOST: i128 = 9_223_372_036_854_775_807 * BILLION;
const BILLION: i128 = 1_000_000_000;

/// An amount, in billionths (the unit of the suffix `n`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    /// Parses an amount; `None` if it is invalid or has more than 20 significant digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at_checked(end)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.len() > DIGITS {
            return None;
        }
        let mantissa: u128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let (factor, exponent) = scale(suffix)?;
        let places = i64::try_from(fraction.len()).ok()?;
        let scaled = shifted(mantissa.checked_mul(factor)?, exponent.checked_add(9)?.checked_sub(places)?);
        let amount = scaled.map_or(MOST, |amount| amount.min(MOST));
        Some(Self(if is_negative { amount.checked_neg()? } else { amount }))
    }

    /// Returns the amount in thousandths, the unit of CPU, rounded up.
    pub fn thousandths(self) -> i128 {
        let (whole, rest) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        whole.saturating_add(i128::from(rest > 0))
    }

    /// Returns the sum of the two amounts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Subtracts the other amount. The result is not below zero.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(0))
    }

    /// Multiplies the amount by `count`.
    #[must_use]
    pub fn times(self, count: usize) -> Self {
        Self(self.0.saturating_mul(i128::try_from(count).unwrap_or(i128::MAX)))
    }

    /// Returns the amount as a percentage of another amount, rounded up; `None` if the other amount is zero.
    pub fn percent_of(self, other: Self) -> Option<i128> {
        let hundredfold = self.0.saturating_mul(100);
        let (whole, rest) = (hundredfold.checked_div(other.0)?, hundredfold.checked_rem(other.0)?);
        Some(whole.saturating_add(i128::from(rest > 0)))
    }

    /// Returns the amount in cores, rounded up to a thousandth, for example `1.25`.
    pub fn cores(self) -> String {
        decimal(self.thousandths())
    }

    /// Returns the amount in bytes with a unit, rounded to a tenth, for example `1.5 GiB`.
    pub fn bytes(self) -> String {
        const UNITS: [(&str, i128); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let bytes = self.0.div_euclid(BILLION);
        match UNITS.iter().find(|(_, size)| bytes >= *size) {
            None => format!("{bytes} B"),
            Some((unit, size)) => {
                let tenths = bytes.saturating_mul(10).saturating_add(size / 2).div_euclid(*size);
                format!("{} {unit}", decimal(tenths.saturating_mul(100)))
            }
        }
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::plus)
    }
}

/// Formats thousandths as a decimal number without trailing zeros.
fn decimal(thousandths: i128) -> String {
    let text = format!("{}.{:03}", thousandths.div_euclid(1000), thousandths.rem_euclid(1000));
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Returns the multiplier of a suffix: a factor, and a power of ten.
fn scale(suffix: &str) -> Option<(u128, i64)> {
    let power = |shift: u32| Some((1_u128.checked_shl(shift)?, 0));
    match suffix {
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "" => Some((1, 0)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => power(10),
        "Mi" => power(20),
        "Gi" => power(30),
        "Ti" => power(40),
        "Pi" => power(50),
        "Ei" => power(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Some((1, i64::from(exponent.parse::<i32>().ok()?)))
        }
    }
}

/// Returns a number times a power of ten, rounded up; `None` if the result is too large.
fn shifted(number: u128, power: i64) -> Option<i128> {
    if number == 0 {
        return Some(0);
    }
    // 10^39 is too large for the type. Any number divided by 10^39 is less than one.
    let size = u32::try_from(power.unsigned_abs()).ok().and_then(|power| 10_u128.checked_pow(power));
    let scaled = match (power < 0, size) {
        (false, size) => number.checked_mul(size?)?,
        (true, None) => 1,
        (true, Some(size)) => number.div_ceil(size),
    };
    i128::try_from(scaled).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nano(text: &str) -> Option<i128> {
        Quantity::parse(text).map(|found| found.0)
    }

    #[test]
    fn every_suffix_is_read() {
        let table: [(&str, i128); 30] = [
            ("0", 0),
            ("-0", 0),
            ("1", BILLION),
            ("+1", BILLION),
            ("-1", -BILLION),
            ("1n", 1),
            ("1u", 1000),
            ("250m", 250_000_000),
            ("1.5", 1_500_000_000),
            (".5", 500_000_000),
            ("5.", 5 * BILLION),
            ("0.0000000001", 1),
            ("-0.0000000001", -1),
            ("0.1n", 1),
            ("1k", 1000 * BILLION),
            ("1M", 1_000_000 * BILLION),
            ("2G", 2_000_000_000 * BILLION),
            ("1T", 1_000_000_000_000 * BILLION),
            ("1P", 1_000_000_000_000_000 * BILLION),
            ("1E", 1_000_000_000_000_000_000 * BILLION),
            ("1Ki", 1024 * BILLION),
            ("1.5Gi", (3 << 29) * BILLION),
            ("1Ti", (1 << 40) * BILLION),
            ("1Pi", (1 << 50) * BILLION),
            ("1Ei", (1 << 60) * BILLION),
            ("12e6", 12_000_000 * BILLION),
            ("12E-3", 12_000_000),
            ("1e-400", 1),
            ("0e400", 0),
            ("0001.5000000000000000000000000", 1_500_000_000),
        ];
        for (text, expected) in table {
            assert_eq!(nano(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn too_large_amounts_are_limited() {
        for text in
            ["9223372036854775807", "9223372036854775808", "10E", "8Ei", "1e400", "99999999999999999999Ei"]
        {
            assert_eq!(nano(text), Some(MOST), "{text}");
        }
        assert_eq!(nano("-1e400"), Some(-MOST));
    }

    #[test]
    fn invalid_amounts_are_rejected() {
        for text in [
            "", ".", "-", "1.2.3", "Mi", "1mi", "1K", "1e", "1 Gi", "1Gi ", "--1", "0x10", "1,5", "1e1.5",
            "ⅷ",
        ] {
            assert_eq!(nano(text), None, "{text}");
        }
        assert_eq!(nano("123456789012345678901"), None, "more digits than an API server stores");
    }

    #[test]
    fn sums_and_words() {
        let of = |text: &str| Quantity::parse(text).unwrap();
        let sum: Quantity = ["100m", "0.4", "1n"].into_iter().map(of).sum();
        assert_eq!((sum.thousandths(), sum.cores().as_str()), (501, "0.501"));
        assert_eq!(of("2").without(of("500m")), of("1500m"));
        assert_eq!(of("1").without(of("2")), of("0"));
        assert_eq!(of("250m").times(3).cores(), "0.75");
        assert_eq!(of("801m").percent_of(of("1")), Some(81));
        assert_eq!(of("1").percent_of(of("0")), None);
        let words = ["0", "1000", "1536", "100Mi", "1.25Gi", "40G"].map(|text| of(text).bytes());
        assert_eq!(words, ["0 B", "1000 B", "1.5 KiB", "100 MiB", "1.3 GiB", "37.3 GiB"]);
    }
}
