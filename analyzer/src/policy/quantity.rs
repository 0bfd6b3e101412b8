//! Numbers as people write them in a policy: `12G`, `0`, `5%`, `1.5M`.

use std::fmt;

use gpuoom_units::Exact;

use super::metric::Unit;
use crate::words;

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// Bytes, or bytes per mark or second.
    Bytes(f64),
    /// Calls, blocks, events.
    Count(f64),
    /// A share of something else: 0.05 for 5 %.
    Share(f64),
}

impl Quantity {
    /// A number for a metric: a size for bytes, a whole number for counts.
    ///
    /// # Errors
    /// A sentence that says what is expected.
    pub fn parse(text: &str, unit: Unit) -> Result<Self, String> {
        let shown = words::shorten(&words::clean(text), 40);
        let text = text.trim();
        if text.ends_with('%') {
            return Err(format!("'{shown}' is a share of nothing: write 'base + {shown}', or a number"));
        }
        match unit {
            Unit::Count => {
                let count = text
                    .parse::<u64>()
                    .map_err(|_| format!("'{shown}' is no count: write a whole number, 0 or more"))?;
                Ok(Quantity::Count(count as f64))
            }
            Unit::Bytes | Unit::Rate => gpuoom_units::size(text)
                .map(|bytes| Quantity::Bytes(bytes as f64))
                .map_err(|invalid| words::clean(&invalid.to_string())),
        }
    }

    /// What may be added to a base: a share, or a number of the same unit.
    ///
    /// # Errors
    /// A sentence that says what is expected.
    pub fn parse_growth(text: &str, unit: Unit) -> Result<Self, String> {
        let Some(number) = text.trim().strip_suffix('%') else { return Self::parse(text, unit) };
        let percent = decimal(number.trim()).filter(|percent| *percent <= 1e6);
        percent.map(|percent| Quantity::Share(percent / 100.0)).ok_or_else(|| {
            let shown = words::shorten(&words::clean(text), 40);
            format!("'{shown}' is no share: write 5% or 0.5%")
        })
    }

    /// Whether it is zero.
    pub fn is_nothing(self) -> bool {
        let (Quantity::Bytes(number) | Quantity::Count(number) | Quantity::Share(number)) = self;
        number == 0.0
    }

    /// So much more than a base.
    pub fn over(self, base: f64) -> f64 {
        match self {
            // A rate may fall: a share of it is a share of its size.
            Quantity::Share(share) => base + base.abs() * share,
            Quantity::Bytes(number) | Quantity::Count(number) => base + number,
        }
    }

    /// The number by itself.
    pub fn number(self) -> f64 {
        self.over(0.0)
    }
}

/// A decimal number without sign or exponent: `inf`, `nan` and `1e400` are none.
fn decimal(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.len() < 40 && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Bytes(bytes) => Exact(*bytes as u64).fmt(f),
            Quantity::Count(count) => write!(f, "{count}"),
            Quantity::Share(share) => write!(f, "{}%", (share * 1e8).round() / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts() {
        for (text, bytes) in [("12G", 12.0 * 1073741824.0), ("1.5M", 1572864.0), ("0", 0.0), ("64 MiB", 67108864.0)] {
            assert_eq!(Quantity::parse(text, Unit::Bytes), Ok(Quantity::Bytes(bytes)), "{text}");
        }
        for text in ["", "-1", "NaN", "inf", "1e9", "12X", "G", "1.2.3", "99999999999T", "12 apples", "1é", "+4", "."]
        {
            assert!(Quantity::parse(text, Unit::Bytes).is_err(), "{text}");
            assert!(Quantity::parse(text, Unit::Count).is_err() || text == "+4", "{text}");
        }
        assert!(Quantity::parse("5%", Unit::Bytes).unwrap_err().contains("base + 5%"));
        assert!(Quantity::parse("12M", Unit::Count).unwrap_err().contains("no count"));
    }

    #[test]
    fn growth_is_a_share_or_a_number() {
        assert_eq!(Quantity::parse_growth("5%", Unit::Bytes).unwrap().over(100.0), 105.0);
        assert_eq!(Quantity::parse_growth("64M", Unit::Bytes).unwrap().over(0.0), 67108864.0);
        assert_eq!(Quantity::parse_growth("3", Unit::Count).unwrap().over(4.0), 7.0);
        for text in ["%", "-5%", "nan%", "99999999%"] {
            assert!(Quantity::parse_growth(text, Unit::Bytes).is_err(), "{text}");
        }
    }

    #[test]
    fn they_are_shown_as_they_are_written() {
        for (text, unit) in [("12G", Unit::Bytes), ("1536K", Unit::Bytes), ("17", Unit::Bytes), ("17", Unit::Count)] {
            assert_eq!(Quantity::parse(text, unit).unwrap().to_string(), text);
        }
        assert_eq!(Quantity::parse_growth("2.5%", Unit::Bytes).unwrap().to_string(), "2.5%");
    }
}
