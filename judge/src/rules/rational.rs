//! Exact fractions, so that `1.2345 km` equals `1234.5 m` and nothing else does.

/// A fraction in lowest terms with a positive denominator. Arithmetic that would overflow gives `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rational {
    numerator: i128,
    denominator: i128,
}

impl Rational {
    pub(super) fn new(numerator: i128, denominator: i128) -> Option<Self> {
        let divisor = greatest_common_divisor(numerator.checked_abs()?, denominator.checked_abs()?);
        if denominator == 0 {
            return None;
        }
        let sign = denominator.signum();
        Some(Self { numerator: sign * numerator / divisor, denominator: sign * denominator / divisor })
    }

    pub(super) fn integer(value: i128) -> Option<Self> {
        Self::new(value, 1)
    }

    /// Ten to a power, negative powers included.
    pub(super) fn power_of_ten(exponent: i32) -> Option<Self> {
        let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
        if exponent < 0 { Self::new(1, power) } else { Self::new(power, 1) }
    }

    /// Reads digits with at most one point and no sign, for instance `1234.50`.
    pub(super) fn parse_decimal(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{part}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Self::integer(digits.parse().ok()?)?.times(Self::power_of_ten(-i32::try_from(part.len()).ok()?)?)
    }

    pub(super) fn times(self, other: Self) -> Option<Self> {
        // Cross-reduced first, so that only results that do not fit overflow.
        let left = Self::new(self.numerator, other.denominator)?;
        let right = Self::new(other.numerator, self.denominator)?;
        Self::new(
            left.numerator.checked_mul(right.numerator)?,
            left.denominator.checked_mul(right.denominator)?,
        )
    }

    pub(super) fn plus(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn negated(self) -> Self {
        Self { numerator: -self.numerator, denominator: self.denominator }
    }
}

fn greatest_common_divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let value = Rational::parse_decimal("1.2345").unwrap();
        assert_eq!(value.times(Rational::integer(1000).unwrap()), Rational::parse_decimal("1234.5"));
        assert_eq!(Rational::parse_decimal("0.50"), Rational::new(1, 2));
        assert_eq!(Rational::parse_decimal(".5"), Rational::new(-1, -2));
        assert_eq!(Rational::new(1, 3).unwrap().plus(Rational::new(1, 6).unwrap()), Rational::new(1, 2));
        assert_eq!(Rational::integer(2).unwrap().negated(), Rational::new(2, -1).unwrap());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(Rational::parse_decimal(&"9".repeat(60)), None);
        assert_eq!(Rational::parse_decimal("1.2.3"), None);
        assert_eq!(Rational::new(1, 0), None);
        assert_eq!(Rational::power_of_ten(40), None);
    }
}
