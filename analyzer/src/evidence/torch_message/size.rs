//! Sizes as PyTorch prints them: two digits behind the point, so that the number is known only to half of the last digit.

use gpuoom_units as units;
use serde::Serialize;

/// Sizes from here on are what a missing number looks like: `17179869184.00 GiB` is 2^64 bytes, which PyTorch prints where
/// no limit is set and where the driver did not say what a process holds.
const NO_NUMBER: u64 = 1 << 63;

/// The units of `format_size` in c10/cuda/CUDACachingAllocator.cpp.
const UNITS: [&str; 4] = ["bytes", "KiB", "MiB", "GiB"];

/// A size that was read from a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Printed {
    /// Bytes, as printed.
    pub bytes: u64,
    /// By how many bytes the true number can be larger or smaller.
    pub rounding_bytes: u64,
}

impl Printed {
    /// The smallest number that is printed like this.
    pub fn least(self) -> u64 {
        self.bytes.saturating_sub(self.rounding_bytes)
    }

    /// The largest number that is printed like this.
    pub fn most(self) -> u64 {
        self.bytes.saturating_add(self.rounding_bytes)
    }

    /// The sum; what the roundings add up to is its rounding.
    pub fn plus(self, other: Printed) -> Printed {
        Printed {
            bytes: self.bytes.saturating_add(other.bytes),
            rounding_bytes: self.rounding_bytes.saturating_add(other.rounding_bytes),
        }
    }

    /// The difference, 0 where `other` is larger.
    pub fn minus(self, other: Printed) -> Printed {
        Printed {
            bytes: self.bytes.saturating_sub(other.bytes),
            rounding_bytes: self.rounding_bytes.saturating_add(other.rounding_bytes),
        }
    }

    /// A number and its unit as a program printed them, known to half of the number's last digit. None: it stands for no number.
    pub fn of(number: &str, unit: &str) -> Option<Printed> {
        let number = number.trim();
        let bytes = units::size(&format!("{number}{unit}")).ok().filter(|bytes| *bytes < NO_NUMBER)?;
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let unit_bytes = units::size(&format!("1{unit}")).ok()?;
        // Whole bytes are exact.
        let half = if unit_bytes == 1 { 0.0 } else { unit_bytes as f64 / 10f64.powi(decimals.min(18) as i32) / 2.0 };
        Some(Printed { bytes, rounding_bytes: half.ceil() as u64 })
    }
}

fn is_number(character: char) -> bool {
    character.is_ascii_digit() || character == '.'
}

/// The size at the beginning of a text without blanks (`3.99GiB.GPU0has`).
pub(super) fn at_start(text: &str) -> Option<Printed> {
    let end = text.find(|character| !is_number(character))?;
    let unit = UNITS.iter().find(|unit| text[end..].starts_with(**unit))?;
    Printed::of(&text[..end], unit)
}

/// The size at the end of a text without blanks (`isfree.1.05GiB`): at most one point, with digits before it.
pub(super) fn at_end(text: &str) -> Option<Printed> {
    let (number, unit) = UNITS.iter().find_map(|unit| Some((text.strip_suffix(unit)?, unit)))?;
    let digits_from = |text: &str| text.len() - text.bytes().rev().take_while(u8::is_ascii_digit).count();
    let mut from = digits_from(number);
    if let Some(whole) = number[..from].strip_suffix('.')
        && digits_from(whole) < whole.len()
    {
        from = digits_from(whole);
    }
    Printed::of(&number[from..], unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_the_rounding_of_their_text() {
        let mib = |number: f64| (number * 1_048_576.0) as u64;
        for (text, bytes, rounding_bytes) in [
            ("668.07MiBisfree", mib(668.07), 5243),
            ("0bytesisfree", 0, 0),
            ("1024bytes", 1024, 0),
            ("2.08GiB,", (2.08f64 * 1_073_741_824.0) as u64, 5_368_710),
            ("982.50KiB", 1_006_080, 6),
            ("47MiB", mib(47.0), 524_288),
        ] {
            assert_eq!(at_start(text), Some(Printed { bytes, rounding_bytes }), "{text}");
        }
    }

    #[test]
    fn a_number_that_ends_a_text_begins_behind_the_sentence_before() {
        for text in ["isfree.1.05GiB", "1.05GiB", "capacity;1.05GiB", "x..1.05GiB"] {
            assert_eq!(at_end(text).map(|size| size.bytes), Some(1_127_428_915), "{text}");
        }
        assert_eq!(at_end("isfree.20GiB").map(|size| size.bytes), Some(20 << 30));
    }

    #[test]
    fn what_stands_for_no_number_is_none() {
        assert_eq!(at_start("17179869184.00GiB"), None);
        for text in ["", "GiB", ".GiB", "1.2.3GiB", "xxxGiB", "5", "5TiB"] {
            assert_eq!(at_start(text), None, "{text}");
        }
        for text in ["", "GiB", ".GiB", "xxxGiB"] {
            assert_eq!(at_end(text), None, "{text}");
        }
    }
}
