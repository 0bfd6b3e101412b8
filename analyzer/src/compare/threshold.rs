//! What is noise: differences so small that nobody should look at them.

use serde::Serialize;

use super::Pair;
use crate::passes::profile::{Figure, Unit};

/// Differences up to this are noise. Bytes must pass both limits, counts only the share; of failures each one matters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Threshold {
    /// Bytes.
    pub bytes: u64,
    /// Share of the base run's number.
    pub share: f64,
}

impl Default for Threshold {
    /// Sizes that differ between two runs of one program without a reason: small blocks of libraries, a cache that grew
    /// once more. No vendor's allocator gives less than 2 MiB of a card at once.
    fn default() -> Self {
        Threshold { bytes: 1 << 20, share: 0.01 }
    }
}

impl Threshold {
    /// Every difference counts.
    pub const NONE: Threshold = Threshold { bytes: 0, share: 0.0 };

    /// Whether one of the numbers differs by more.
    pub fn is_passed_by(&self, pair: &Pair) -> bool {
        Figure::all().any(|figure| self.is_passed(figure, pair))
    }

    /// Whether this number differs by more.
    pub fn is_passed(&self, figure: Figure, pair: &Pair) -> bool {
        let change = pair.change(figure).unsigned_abs();
        let share_passed = change as f64 > pair.base[figure] as f64 * self.share;
        match figure.unit() {
            _ if change == 0 => false,
            _ if figure.is_failure() => true,
            Unit::Bytes => self.is_passed_by_bytes(pair.base[figure], pair.new[figure]),
            Unit::Count => share_passed,
        }
    }

    /// Whether a size differs by more.
    pub fn is_passed_by_bytes(&self, base: u64, new: u64) -> bool {
        let change = new.abs_diff(base);
        change > self.bytes && change as f64 > base as f64 * self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(figure: Figure, base: u64, new: u64) -> Pair {
        let mut pair = Pair::default();
        (pair.base[figure], pair.new[figure]) = (base, new);
        pair
    }

    #[test]
    fn what_is_noise() {
        const MIB: u64 = 1 << 20;
        for (figure, base, new, passes) in [
            (Figure::Peak, 100 * MIB, 101 * MIB, false),
            (Figure::Peak, 100 * MIB, 101 * MIB + 1, true),
            (Figure::Peak, 100 * MIB, 98 * MIB, true),
            (Figure::Peak, 4096, 8192, false),
            (Figure::Peak, 1000 * MIB, 1005 * MIB, false),
            (Figure::Allocations, 1000, 1010, false),
            (Figure::Allocations, 1000, 1011, true),
            (Figure::Allocations, 0, 1, true),
            (Figure::Dropped, 1000, 1001, true),
        ] {
            let pair = pair(figure, base, new);
            assert_eq!(Threshold::default().is_passed(figure, &pair), passes, "{figure:?} {base} {new}");
            assert!(Threshold::NONE.is_passed(figure, &pair));
            assert!(!Threshold::NONE.is_passed(figure, &self::pair(figure, base, base)));
        }
    }
}
