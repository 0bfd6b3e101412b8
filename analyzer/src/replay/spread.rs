//! How values are spread, in constant memory.

use hdrhistogram::Histogram;

/// A histogram with its true ends: the histogram alone knows them only to two digits.
pub struct Spread {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
}

impl Default for Spread {
    fn default() -> Self {
        // Two significant digits are what a report prints, and a table of this size stays in the cache.
        let histogram = Histogram::new_with_bounds(1, 1 << 50, 2).expect("hdrhistogram accepts these constants");
        Spread { histogram, min: u64::MAX, max: 0 }
    }
}

impl Spread {
    /// Adds a value; one beyond the table counts in its last row.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.histogram.saturating_record(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Smallest value, 0 when there is none.
    pub fn min(&self) -> u64 {
        self.min.min(self.max)
    }

    /// Greatest value, 0 when there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value that this share of the values does not exceed, to two digits and never beyond the true ends.
    pub fn at_quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).clamp(self.min(), self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_exact() {
        let mut spread = Spread::default();
        assert_eq!((spread.count(), spread.min(), spread.max(), spread.at_quantile(0.5)), (0, 0, 0, 0));
        for value in [7, 536_870_912, 536_870_912] {
            spread.record(value);
        }
        assert_eq!((spread.count(), spread.min(), spread.max()), (3, 7, 536_870_912));
        assert_eq!(spread.at_quantile(0.5), 536_870_912);
        spread.record(u64::MAX);
        assert_eq!(spread.max(), u64::MAX);
    }
}
