//! What a policy can limit.

use serde::Serialize;

use crate::options::parse::meant;
use crate::passes::profile::{Figure, TensorFigure};

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Bytes for each mark or each second.
    Rate,
    /// Calls, blocks, events.
    Count,
}

/// What a metric is about where a rule does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Each device by itself.
    Device,
    /// The process with all its devices and the host.
    Process,
    /// The host's pinned and registered memory.
    Host,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Most bytes asked for at once.
    Peak,
    /// The same, padded.
    PaddedPeak,
    /// What padding adds to the peak.
    Padding,
    /// Most bytes in blocks of an allocator above the runtime.
    Tensors,
    /// Most that it held.
    Reserved,
    /// What of that was in no block.
    Unused,
    /// Most pinned and registered host memory at once.
    Pinned,
    /// Bytes that are not given back.
    LiveAtEnd,
    /// Blocks that are not given back.
    BlocksAtEnd,
    /// Calls that gave memory.
    Allocations,
    /// Bytes that all calls asked for.
    Allocated,
    /// Calls that were refused.
    Refused,
    /// Calls that ran out of memory.
    Ooms,
    /// Of these, made up for.
    Recovered,
    /// Of these, let out.
    Propagated,
    /// Of these, ignored.
    Dropped,
    /// Of these, not decided.
    Unresolved,
    /// Rise from mark to mark.
    GrowthPerMark,
    /// Rise of what stays between cycles.
    GrowthPerSecond,
    /// Events that are not in the trace.
    EventsLost,
}

/// Metric, name, unit, what it is about by itself, words.
const TABLE: [(Metric, &str, Unit, Per, &str); 20] = [
    (Metric::Peak, "peak", Unit::Bytes, Per::Device, "peak"),
    (Metric::PaddedPeak, "peak_padded", Unit::Bytes, Per::Device, "padded peak"),
    (Metric::Padding, "padding", Unit::Bytes, Per::Device, "padding at the peak"),
    (Metric::Tensors, "tensors", Unit::Bytes, Per::Device, "most in tensors"),
    (Metric::Reserved, "reserved", Unit::Bytes, Per::Device, "most reserved for tensors"),
    (Metric::Unused, "unused", Unit::Bytes, Per::Device, "memory reserved for tensors and unused"),
    (Metric::Pinned, "pinned", Unit::Bytes, Per::Host, "peak of pinned memory"),
    (Metric::LiveAtEnd, "live_at_end", Unit::Bytes, Per::Device, "memory live at the end"),
    (Metric::BlocksAtEnd, "blocks_at_end", Unit::Count, Per::Device, "number of blocks at the end"),
    (Metric::Allocations, "allocations", Unit::Count, Per::Process, "number of allocations"),
    (Metric::Allocated, "allocated", Unit::Bytes, Per::Process, "sum of all allocations"),
    (Metric::Refused, "refused", Unit::Count, Per::Process, "number of refused requests"),
    (Metric::Ooms, "ooms", Unit::Count, Per::Process, "number of out-of-memory failures"),
    (Metric::Recovered, "recovered", Unit::Count, Per::Process, "number of recovered failures"),
    (Metric::Propagated, "propagated", Unit::Count, Per::Process, "number of propagated failures"),
    (Metric::Dropped, "dropped", Unit::Count, Per::Process, "number of failures dropped by the order of calls"),
    (Metric::Unresolved, "unresolved", Unit::Count, Per::Process, "number of unresolved failures"),
    (Metric::GrowthPerMark, "growth_per_mark", Unit::Rate, Per::Device, "growth per mark"),
    (Metric::GrowthPerSecond, "growth_per_second", Unit::Rate, Per::Device, "growth per second"),
    (Metric::EventsLost, "events_lost", Unit::Count, Per::Process, "number of lost events"),
];

impl Metric {
    /// By its name.
    ///
    /// # Errors
    /// A sentence with the nearest name.
    pub fn named(name: &str) -> Result<Self, String> {
        let known = TABLE.iter().find(|row| row.1 == name);
        known.map(|row| row.0).ok_or_else(|| unknown("metric", name, Metric::names()))
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        TABLE.iter().map(|row| row.1)
    }

    fn row(self) -> &'static (Metric, &'static str, Unit, Per, &'static str) {
        &TABLE[self as usize]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// What it counts.
    pub fn unit(self) -> Unit {
        self.row().2
    }

    /// What it is about where a rule does not say.
    pub fn per(self) -> Per {
        self.row().3
    }

    /// Its name for people.
    pub fn words(self) -> &'static str {
        self.row().4
    }

    /// The figures that it is the difference of: the second is taken from the first.
    pub fn figures(self) -> Option<(Figure, Option<Figure>)> {
        Some(match self {
            // Of call sites only: a device's may be unknown.
            Metric::Tensors => (Figure::Peak, None),
            Metric::Peak | Metric::Pinned => (Figure::Peak, None),
            Metric::PaddedPeak => (Figure::PaddedPeak, None),
            Metric::Padding => (Figure::PaddedPeak, Some(Figure::Peak)),
            Metric::LiveAtEnd => (Figure::End, None),
            Metric::BlocksAtEnd => (Figure::EndBlocks, None),
            Metric::Allocations => (Figure::Allocations, None),
            Metric::Allocated => (Figure::Allocated, None),
            Metric::Refused => (Figure::Failures, None),
            Metric::Ooms => (Figure::Ooms, None),
            Metric::Recovered => (Figure::Recovered, None),
            Metric::Propagated => (Figure::Propagated, None),
            Metric::Dropped => (Figure::Dropped, None),
            Metric::Unresolved => (Figure::Unresolved, None),
            Metric::Reserved | Metric::Unused => return None,
            Metric::GrowthPerMark | Metric::GrowthPerSecond | Metric::EventsLost => return None,
        })
    }

    /// Of an allocator above the runtime: which of its numbers.
    pub fn of_tensors(self) -> Option<TensorFigure> {
        match self {
            Metric::Tensors => Some(TensorFigure::Tensors),
            Metric::Reserved => Some(TensorFigure::Reserved),
            Metric::Unused => Some(TensorFigure::Unused),
            _ => None,
        }
    }
}

/// The sentence for a word that is not known.
pub(super) fn unknown<'a>(what: &str, word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let shown = crate::words::shorten(&crate::words::clean(word), 60);
    match meant(word, known.clone()).filter(|_| word.len() < 200) {
        Some(meant) => format!("unknown {what} '{shown}': do you mean '{meant}'?"),
        None => format!("unknown {what} '{shown}': there are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_metrics() {
        for (place, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, place, "{:?}", row.0);
            assert_eq!(Metric::named(row.1), Ok(row.0));
        }
    }

    #[test]
    fn a_wrong_name_finds_the_right_one() {
        assert_eq!(Metric::named("peek").unwrap_err(), "unknown metric 'peek': do you mean 'peak'?");
        assert!(Metric::named("nonsense").unwrap_err().contains("there are peak, peak_padded"));
    }
}
