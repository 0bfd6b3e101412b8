//! Distributions of durations and sizes.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The shape of a distribution: each number is exact to two significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Half of the values are at most this.
    pub p50: u64,
    /// Nine in ten are at most this.
    pub p90: u64,
    /// 99 in 100 are at most this.
    pub p99: u64,
    /// 999 in 1000 are at most this.
    pub p999: u64,
    /// Greatest.
    pub max: u64,
}

/// The shape of a histogram, its values converted by `convert`.
pub fn describe(histogram: &Histogram<u64>, convert: impl Fn(u64) -> u64) -> Distribution {
    let at = |quantile| convert(histogram.value_at_quantile(quantile));
    Distribution {
        count: histogram.len(),
        min: convert(histogram.min()),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: convert(histogram.max()),
    }
}
