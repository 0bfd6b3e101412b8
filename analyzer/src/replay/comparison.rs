//! What the calls account for, beside what was read at the same moment.

use gpuoom_trace::metadata::trigger;
use gpuoom_trace::record::Layer;

use super::held::Held;
use super::readings::{DeviceReadings, InUse};

/// A reading and what the calls had given by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Ticks of the reading.
    pub at: u64,
    /// What was in use by the reading.
    pub in_use: InUse,
    /// Bytes that the calls account for, each once, at the lowest layer seen.
    pub accounted_bytes: u128,
    /// That layer; `None` where the calls hold nothing.
    pub lowest: Option<Layer>,
    /// Managed memory that the program holds: its pages may lie in RAM, so they are not counted as accounted for.
    pub managed_bytes: u128,
    /// What stream-ordered pools may keep of what was given back to them: it is in use, and nobody's block.
    pub kept_by_pools_bytes: u64,
}

impl Comparison {
    /// What the reading has beyond the calls, and beyond what pools may keep.
    pub fn gap_bytes(&self) -> u64 {
        let known = self.accounted_bytes.saturating_add(u128::from(self.kept_by_pools_bytes));
        u64::try_from(u128::from(self.in_use.bytes).saturating_sub(known)).unwrap_or(u64::MAX)
    }
}

/// What may be in use on a card although no block that lives belongs there: at most so much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Movable {
    /// Managed memory, whose pages may lie in RAM.
    pub managed_bytes: u128,
    /// What pools may keep.
    pub kept_by_pools_bytes: u64,
}

/// The first readings of a moment when as much was held as at the peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtPeak {
    /// Ordinal of the peak's record.
    pub position: u64,
    /// Ticks when it was read.
    pub at: u64,
    /// What was read.
    pub read: DeviceReadings,
}

/// What was compared about one device.
#[derive(Clone, Debug, Default)]
pub struct Comparisons {
    /// The reading with most in use; of equal ones that with most accounted for.
    pub fullest: Option<Comparison>,
    /// The greatest difference that two readings in a row agree on, or that a reading at a failure shows: a reading that
    /// falls between a call and its record shows one too, but only once.
    pub lasting_gap: Option<Comparison>,
    /// Readings of a moment when as much was held as at the peak.
    pub at_peak: Option<AtPeak>,
    /// What may lie on the card at that reading beside the blocks that belong there.
    pub movable_at_peak: Movable,
    /// The last readings, and what the program held then.
    pub last: Option<(Held, DeviceReadings)>,
    /// The same at the last readings.
    pub movable_at_last: Movable,
    /// Readings that say nothing of the calls, because memory came or went while they were taken.
    pub disturbed: u64,
    before: Option<Comparison>,
    /// What other processes held at the reading before.
    others_bytes: Option<u64>,
    /// The latest reading, as long as a call that began before it was done may still follow in the file.
    open: Option<Open>,
}

/// A reading that nothing has disturbed so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// The reading beside the calls.
    pub(super) comparison: Comparison,
    /// What made the recorder read.
    pub(super) trigger: i32,
    /// What the program's blocks held.
    pub(super) held: Held,
    /// All that was read.
    pub(super) read: DeviceReadings,
    /// Ordinal of the record by which as much was held as ever, where that is still so.
    pub(super) peak: Option<u64>,
}

impl Comparisons {
    /// Takes a reading, when the one before is settled. It counts when the next one comes, or the trace ends, and nothing has disturbed
    /// it.
    pub(super) fn take(&mut self, open: Open) {
        self.open = Some(open);
    }

    /// Takes what other processes hold by a reading. Returns whether that has changed since the reading before: then what all hold and
    /// what others hold of it need not be of one moment.
    pub(super) fn others_moved(&mut self, others_bytes: Option<u64>) -> bool {
        let before = std::mem::replace(&mut self.others_bytes, others_bytes);
        before.zip(others_bytes).is_some_and(|(before, now)| before != now)
    }

    /// A call that began at a moment moved memory: a reading that was under way is no comparison.
    #[cold]
    pub(super) fn disturb(&mut self, at: u64) {
        if self.open.take_if(|open| open.comparison.at > at).is_some() {
            self.disturbed += 1;
        }
    }

    /// No call that was under way at the latest reading follows any more.
    pub(super) fn settle(&mut self) {
        let Some(Open { comparison, trigger, held, read, peak }) = self.open.take() else { return };
        let movable =
            Movable { managed_bytes: comparison.managed_bytes, kept_by_pools_bytes: comparison.kept_by_pools_bytes };
        (self.last, self.movable_at_last) = (Some((held, read)), movable);
        if let Some(position) = peak.filter(|peak| self.at_peak.is_none_or(|at_peak| at_peak.position != *peak)) {
            (self.at_peak, self.movable_at_peak) = (Some(AtPeak { position, at: comparison.at, read }), movable);
        }
        self.compare(comparison, trigger);
    }

    fn compare(&mut self, comparison: Comparison, trigger: i32) {
        let better = |old: Comparison| {
            (comparison.in_use.bytes, comparison.accounted_bytes) > (old.in_use.bytes, old.accounted_bytes)
        };
        if self.fullest.is_none_or(better) {
            self.fullest = Some(comparison);
        }
        let lasting = match self.before.replace(comparison) {
            _ if trigger == trigger::FAILURE => Some(comparison),
            Some(before) if before.gap_bytes() < comparison.gap_bytes() => Some(before),
            Some(_) => Some(comparison),
            None => None,
        };
        let gap = |comparison: Option<Comparison>| comparison.map(|comparison| comparison.gap_bytes());
        if lasting.is_some() && gap(lasting) > gap(self.lasting_gap) {
            self.lasting_gap = lasting;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_hold_counts_as_moved_only_where_it_was_read_twice() {
        let mut comparisons = Comparisons::default();
        let moved: Vec<bool> =
            [None, Some(1), Some(1), Some(2), None, Some(3)].map(|bytes| comparisons.others_moved(bytes)).into();
        assert_eq!(moved, [false, false, false, true, false, false]);
    }
}
