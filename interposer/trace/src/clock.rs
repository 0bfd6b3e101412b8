//! From ticks to nanoseconds.

use crate::header::{ClockPoint, Header, clock_source};

/// Converts the ticks of one trace into time, from the clock points of its header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    first: ClockPoint,
    ns_per_tick: f64,
    /// Whether the rate was measured over the run; otherwise it is the estimate made at the start.
    pub measured: bool,
}

impl Clock {
    /// The clock of a trace. Falls back to the estimate of the start, then to 1 ns a tick, where points are missing.
    pub fn new(header: &Header) -> Self {
        let first = header.clock_first;
        if header.clock_source == clock_source::MONOTONIC {
            return Clock { first, ns_per_tick: 1.0, measured: true };
        }
        let over_run = header.clock_latest().and_then(|last| {
            let ns = last.monotonic_ns.checked_sub(first.monotonic_ns)?;
            (ns >= 1_000_000).then(|| ns as f64 / (last.ticks - first.ticks) as f64)
        });
        let estimated = (header.ticks_per_second > 0).then(|| 1e9 / header.ticks_per_second as f64);
        let ns_per_tick = over_run.or(estimated).filter(|rate| rate.is_finite() && *rate > 0.0).unwrap_or(1.0);
        Clock { first, ns_per_tick, measured: over_run.is_some() }
    }

    /// Nanoseconds since the trace began; 0 for anything before.
    #[inline]
    pub fn at_ns(&self, ticks: u64) -> u64 {
        self.duration_ns(ticks.saturating_sub(self.first.ticks))
    }

    /// Nanoseconds of a number of ticks.
    #[inline]
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }

    /// Nanoseconds since 1970 (UTC) when the trace began.
    pub fn started_at_ns(&self) -> u64 {
        self.first.wall_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_the_run_beats_the_estimate() {
        let mut header = Header::new(1024, 1 << 28, 1);
        header.clock_source = clock_source::CYCLES;
        header.clock_first = ClockPoint { ticks: 1000, monotonic_ns: 0, wall_ns: 5 };
        header.ticks_per_second = 1_000_000_000;
        assert_eq!(Clock::new(&header).at_ns(3000), 2000);
        header.clock_last[0] = ClockPoint { ticks: 1000 + 20_000_000, monotonic_ns: 10_000_000, wall_ns: 0 };
        let clock = Clock::new(&header);
        assert!(clock.measured);
        assert_eq!(clock.at_ns(3000), 1000);
        assert_eq!(clock.at_ns(1), 0);
    }
}
