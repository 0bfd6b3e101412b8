//! The latest failure of a device: what is the case there is said at the end, where there were too many before to look at each.
//!
//! The last failure decides more often than those before it. What lived then is what lives now and came before, and what is gone since.

use super::device::State;
use super::moment::{Moment, OfAllocator, ages};
use super::segments::Segment;
use super::{Blocks, Given};

/// What must be kept of it.
#[derive(Clone, Debug)]
pub(super) struct Latest {
    seq: u64,
    at: u64,
    /// Ordinal of its record in the replay.
    position: u64,
    states: Vec<(u8, State)>,
    gone: Vec<Given>,
    gone_segments: Vec<Segment>,
}

impl Latest {
    /// A block is gone.
    pub(super) fn goes(&mut self, given: &Given) {
        if given.entered <= self.position {
            self.gone.push(*given);
        }
    }

    /// A segment is gone.
    pub(super) fn segment_goes(&mut self, segment: &Segment) {
        if segment.entered <= self.position {
            self.gone_segments.push(*segment);
        }
    }
}

impl Blocks {
    /// A failure comes whose moment is not looked at now.
    pub(super) fn look_back_later(&mut self, seq: u64, at: u64, device: u8, position: u64) {
        if let Some(known) = self.devices.iter_mut().find(|known| known.index == device) {
            let states = known.all().map(|told| (told.allocator, told.now)).collect();
            let (gone, gone_segments) = Default::default();
            known.latest = Some(Box::new(Latest { seq, at, position, states, gone, gone_segments }));
        }
    }

    /// Says of the latest failures what was the case.
    pub(in crate::replay) fn look_back(&mut self) {
        for place in 0..self.devices.len() {
            if let Some(latest) = self.devices[place].latest.take() {
                let moment = self.at_latest(self.devices[place].index, &latest);
                self.moments.failed_last(latest.seq, moment);
            }
        }
    }

    fn at_latest(&self, device: u8, latest: &Latest) -> Moment {
        let mut all: Vec<Given> = Vec::new();
        let mut of = |(allocator, state): &(u8, State)| {
            let still = self.live(*allocator, device).filter(|given| given.entered <= latest.position);
            let gone = latest.gone.iter().filter(|given| given.allocator == *allocator);
            let blocks: Vec<Given> = still.chain(gone).copied().collect();
            all.extend(&blocks);
            let segments = self.segments.of(*allocator, device, latest.position, &latest.gone_segments);
            OfAllocator::describe(*allocator, *state, blocks, segments)
        };
        let of = latest.states.iter().map(&mut of).collect();
        Moment { at: latest.at, of, ages: ages(all.iter()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::replay::Options;
    use crate::testing::{GIB, MIB, TraceBuilder, replay};

    /// A retry loop with so many blocks that the moments of its failures can't all be looked at.
    #[test]
    fn the_last_of_many_failures_has_its_moment() {
        const BASE: u64 = 0x7f00_0000_0000;
        let (blocks, failures) = (20_000, 981);
        let mut trace = TraceBuilder::new(MIB).device(0, "Card", 64 * GIB);
        trace.segment(BASE, 40 * GIB);
        trace.segment(BASE + 64 * GIB, GIB);
        for number in 0..blocks {
            trace.tensor(0, BASE + number * MIB, MIB);
        }
        trace.tensor(0, BASE + 64 * GIB, MIB);
        let seqs: Vec<u64> = (0..failures).map(|_| trace.refuse(GIB)).collect();
        // What comes and goes behind the last is not of its moment.
        trace.free_tensor(BASE);
        trace.free_tensor(BASE + 64 * GIB);
        trace.free(BASE + 64 * GIB);
        trace.reserved(0, 40 * GIB).tensor(0, BASE + 30 * GIB, 7 * MIB);
        let replay = replay(&trace, Options::default());
        let (first, last) = (seqs[0], seqs[seqs.len() - 1]);
        assert!(replay.blocks.moments.at_failure(seqs[seqs.len() - 2]).is_none(), "there is no room for all");
        for seq in [first, last] {
            let of = &replay.blocks.moments.at_failure(seq).unwrap().of[0];
            let sum = u128::from((blocks + 1) * MIB);
            assert_eq!((of.state.bytes, of.rows.iter().map(|row| row.bytes).sum::<u128>()), (sum, sum));
            assert_eq!(of.room.as_ref().map(|room| room.bytes), Some(u128::from(41 * GIB)));
            assert_eq!(of.state.reserved_bytes(), Some(41 * GIB));
            let ages = &replay.blocks.moments.at_failure(seq).unwrap().ages;
            assert_eq!(ages.iter().map(|age| age.bytes).sum::<u64>(), (blocks + 1) * MIB);
        }
    }
}
