//! Sizes and times as people write them: `256M`, `1.5 GiB`, `250ms`. Environment, command line, policies, thresholds and evidence
//! are all read here, so that a text means the same number everywhere.
//!
//! The crate has no standard library below it: nothing in it can allocate. The recorder reads its settings inside a
//! stranger's process, before the program runs.

#![no_std]
#![forbid(unsafe_code)]

use core::fmt::{self, Display, Formatter};

/// A unit: how it may be written, and what it counts. ASCII letters may be of either case.
type Unit = (&'static [&'static str], u64);

/// Units of sizes count by 1024, whatever they are called: so do PyTorch, the kernel and the vendors' tools.
const SIZES: [Unit; 5] = [
    (&["B", "byte", "bytes"], 1),
    (&["K", "KB", "KiB"], 1 << 10),
    (&["M", "MB", "MiB"], 1 << 20),
    (&["G", "GB", "GiB"], 1 << 30),
    (&["T", "TB", "TiB"], 1 << 40),
];

/// Units of times, in nanoseconds. The micro sign and the Greek letter look alike. `m` is missing: it could mean either.
const TIMES: [Unit; 6] = [
    (&["ns"], 1),
    (&["us", "\u{b5}s", "\u{3bc}s"], 1_000),
    (&["ms"], 1_000_000),
    (&["s"], 1_000_000_000),
    (&["min"], 60_000_000_000),
    (&["h"], 3_600_000_000_000),
];

/// Digits behind the point that count. Further ones are less than a byte or a nanosecond of the largest unit, and with so many
/// the product with that unit fits 128 bits.
const DECIMALS: usize = 24;

/// Characters of a wrong text that a message repeats.
const SHOWN: usize = 40;

/// Why a text is no number of that sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It has another form.
    Form,
    /// It does not fit 64 bits.
    TooLarge,
}

/// What a text was to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Size,
    Time,
}

/// A text that can't be read; displayed, it says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid<'a> {
    text: &'a str,
    what: What,
    reason: Reason,
}

/// The bytes that a text stands for: `4096`, `256M`, `1.5G`, `64 MiB`. Fractions of a unit round down to bytes; a fraction of a
/// byte is an error.
///
/// # Errors
///
/// Where the text has another form, or means 16 EiB or more.
pub fn size(text: &str) -> Result<u64, Invalid<'_>> {
    size_in(text, 1)
}

/// The same, where a number without a unit counts so many bytes each.
///
/// # Errors
///
/// As [`size`].
pub fn size_in(text: &str, bare_bytes: u64) -> Result<u64, Invalid<'_>> {
    read(text, &SIZES, Some(bare_bytes)).map_err(|reason| Invalid { text, what: What::Size, reason })
}

/// The nanoseconds that a text stands for: `1.5s`, `250ms`, `2 min`. A number without a unit is an error.
///
/// # Errors
///
/// Where the text has another form, or means 584 years or more.
pub fn time(text: &str) -> Result<u64, Invalid<'_>> {
    read(text, &TIMES, None).map_err(|reason| Invalid { text, what: What::Time, reason })
}

fn read(text: &str, units: &[Unit], bare: Option<u64>) -> Result<u64, Reason> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let known = units.iter().find(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(unit)));
    let scale = known.map(|(_, scale)| *scale).or(bare.filter(|_| unit.is_empty())).ok_or(Reason::Form)?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let decimals = decimals.trim_end_matches('0');
    let has_digits = number.bytes().any(|byte| byte.is_ascii_digit());
    // What is left of a second point is a decimal that is no digit.
    if !has_digits || decimals.contains('.') || (scale == 1 && !decimals.is_empty()) {
        return Err(Reason::Form);
    }
    let whole = digits(whole).ok_or(Reason::TooLarge)?.checked_mul(u128::from(scale)).ok_or(Reason::TooLarge)?;
    let decimals = &decimals[..decimals.len().min(DECIMALS)];
    let part = digits(decimals).ok_or(Reason::TooLarge)? * u128::from(scale) / 10u128.pow(decimals.len() as u32);
    whole.checked_add(part).and_then(|sum| u64::try_from(sum).ok()).ok_or(Reason::TooLarge)
}

/// The number of a text of digits; nothing is 0.
fn digits(text: &str) -> Option<u128> {
    let add = |number: u128, digit: u8| number.checked_mul(10)?.checked_add(u128::from(digit - b'0'));
    text.bytes().try_fold(0, add)
}

impl Display for Invalid<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let (what, expected, most) = match self.what {
            What::Size => ("size", "expected bytes, or K, M, G, T (such as 1.5G)", "expected less than 16 EiB"),
            What::Time => (
                "time",
                "expected a number with ns, us, ms, s, min or h (such as 1.5s)",
                "expected less than 584 years",
            ),
        };
        let expected = if self.reason == Reason::Form { expected } else { most };
        let end = self.text.char_indices().nth(SHOWN).map_or(self.text.len(), |(at, _)| at);
        let more = if end < self.text.len() { "…" } else { "" };
        write!(out, "invalid {what} '{}{more}': {expected}", &self.text[..end])
    }
}

/// Bytes as one would write them: exactly, with the largest unit that divides them (`12G`, `1536K`, `17`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact(pub u64);

impl Display for Exact {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let divides = |(_, bytes): &&Unit| *bytes > 1 && self.0 > 0 && self.0.is_multiple_of(*bytes);
        match SIZES.iter().rev().find(divides) {
            Some((names, bytes)) => write!(out, "{}{}", self.0 / bytes, names[0]),
            None => write!(out, "{}", self.0),
        }
    }
}

/// Texts and the bytes that they mean, by which the tests of every entrance show that it reads as the others do.
#[doc(hidden)]
pub fn examples() -> impl Iterator<Item = (&'static str, u64)> {
    let rows = include_str!("../sizes.tsv").lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| line.split_once('\t')).filter_map(|(text, bytes)| Some((text, bytes.parse().ok()?)))
}

#[cfg(test)]
mod tests;
