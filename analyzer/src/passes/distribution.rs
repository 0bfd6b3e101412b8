//! Distributions of durations and sizes.

use serde::Serialize;

use crate::replay::spread::Spread;

/// The shape of a distribution: its ends are exact, what lies between to two significant digits.
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

/// The shape of a spread, its values converted by `convert`.
pub fn describe(spread: &Spread, convert: impl Fn(u64) -> u64) -> Distribution {
    let at = |quantile| convert(spread.at_quantile(quantile));
    Distribution {
        count: spread.count(),
        min: convert(spread.min()),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: convert(spread.max()),
    }
}
