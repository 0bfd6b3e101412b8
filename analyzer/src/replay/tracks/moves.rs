//! The last calls that gave device memory or gave it back. What overlaps a refusal or a reading is in no order with it: the calls
//! alone do not tell which of the two came first.

use gpuoom_trace::record::{Kind, NO_DEVICE, Record};

use super::Tracks;
use crate::replay::block::{Block, Side};

/// Calls that are remembered. A power of two.
const LAST: usize = 256;

/// Memory that may have come or gone before a moment, or after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Bytes that were given.
    pub given_bytes: u64,
    /// Bytes that were given back.
    pub returned_bytes: u64,
    /// Whether it may be more: nobody tells how much a call gave back, or more calls came than are remembered.
    pub is_unsized: bool,
}

impl Overlap {
    /// Whether nothing overlapped.
    pub fn is_none(&self) -> bool {
        *self == Overlap::default()
    }

    /// Both together.
    pub(super) fn add(&mut self, other: &Overlap) {
        self.given_bytes = self.given_bytes.saturating_add(other.given_bytes);
        self.returned_bytes = self.returned_bytes.saturating_add(other.returned_bytes);
        self.is_unsized |= other.is_unsized;
    }
}

/// What a call did to the memory of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum What {
    /// It shows no more than that its thread goes on.
    #[default]
    Nothing,
    /// It gave memory.
    Gave,
    /// It gave memory back.
    Returned,
    /// It gave memory back to a pool, in the order of a stream.
    ReturnedToPool,
    /// It gave memory back, and nobody tells how much.
    ReturnedUnsized,
}

/// One call. Small, because each call for memory writes one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Move {
    /// Ticks when it was recorded: an allocation when it had returned, a free before it was made.
    pub(super) recorded_at: u64,
    pub(super) bytes: u64,
    pub(super) thread: u32,
    pub(super) device: u8,
    pub(super) what: What,
}

impl Move {
    fn concerns(&self, device: u8) -> bool {
        self.device == device || self.device == NO_DEVICE || device == NO_DEVICE
    }

    fn as_overlap(&self) -> Overlap {
        match self.what {
            What::Nothing => Overlap::default(),
            What::Gave => Overlap { given_bytes: self.bytes, ..Overlap::default() },
            What::Returned | What::ReturnedToPool => Overlap { returned_bytes: self.bytes, ..Overlap::default() },
            What::ReturnedUnsized => Overlap { is_unsized: true, ..Overlap::default() },
        }
    }
}

/// The last calls, in the order of their records.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    ring: Box<[Move; LAST]>,
    /// The latest moment of which a call was forgotten, in ticks.
    forgotten_at: u64,
    count: u64,
}

impl Default for Moves {
    fn default() -> Self {
        Moves { ring: Box::new([Move::default(); LAST]), forgotten_at: 0, count: 0 }
    }
}

impl Moves {
    #[inline]
    pub(super) fn push(&mut self, one: Move) {
        // The places that nothing was written to yet have the moment 0.
        let place = &mut self.ring[self.count as usize % LAST];
        self.forgotten_at = self.forgotten_at.max(place.recorded_at);
        *place = one;
        self.count += 1;
    }

    /// All calls, remembered or not.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The calls that are remembered, the last one first.
    fn last(&self) -> impl Iterator<Item = &Move> {
        (self.count.saturating_sub(LAST as u64)..self.count).rev().map(|number| &self.ring[number as usize % LAST])
    }

    /// What was recorded on a device since so many calls.
    pub(super) fn since(&self, count: u64, device: u8) -> Overlap {
        let new = usize::try_from(self.count.saturating_sub(count)).unwrap_or(usize::MAX);
        let mut all = Overlap { is_unsized: new > LAST, ..Overlap::default() };
        self.last().take(new).filter(|one| one.concerns(device)).for_each(|one| all.add(&one.as_overlap()));
        all
    }

    /// What other threads than `thread` did on a device that may have come after the moment `from`, although it is recorded: calls that
    /// were recorded later, and a free that was recorded since `free_from` and after which its thread made no other call, because it may
    /// not have returned.
    pub(super) fn overlap(&self, device: u8, thread: Option<u32>, from: u64, free_from: u64) -> Overlap {
        let mut overlap = Overlap { is_unsized: self.forgotten_at > from, ..Overlap::default() };
        let mut seen: Vec<u32> = thread.into_iter().collect();
        for one in self.last().take_while(|one| one.recorded_at >= free_from.min(from)) {
            let is_last = !seen.contains(&one.thread);
            if is_last {
                seen.push(one.thread);
            }
            let is_late = one.recorded_at > from;
            let may_be_under_way = is_last && one.what == What::Returned && one.bytes > 0;
            if Some(one.thread) == thread || !one.concerns(device) || !(is_late || may_be_under_way) {
                continue;
            }
            overlap.add(&one.as_overlap());
        }
        overlap
    }
}

impl Tracks {
    /// Remembers a call that gave device memory, or gave it back, so that it can be set beside a moment.
    #[inline]
    pub(super) fn moved(&mut self, block: &Block, thread: u32, is_return: bool) {
        let what = match (Side::of(block.kind), is_return, block.kind) {
            (Side::Host, ..) => What::Nothing,
            (_, false, _) => What::Gave,
            (_, true, Kind::Pool) => What::ReturnedToPool,
            (_, true, _) => What::Returned,
        };
        let (device, bytes) = (block.device, block.requested_bytes);
        self.moves.push(Move { recorded_at: self.recorded_at, bytes, thread, device, what });
    }

    /// A vendor's library took memory for itself, or gave some back; nobody tells how much it gave back.
    #[cold]
    pub(in crate::replay) fn moved_by_library(&mut self, record: &Record, given_bytes: Option<u64>) {
        let what = if given_bytes.is_some() { What::Gave } else { What::ReturnedUnsized };
        let (thread, device) = (record.thread, record.device);
        let bytes = given_bytes.unwrap_or(0);
        self.moves.push(Move { recorded_at: self.recorded_at, bytes, thread, device, what });
    }

    /// What other threads may have done on a device after a moment, although it is recorded already.
    pub(in crate::replay) fn overlap(&self, device: u8, thread: Option<u32>, from: u64) -> Overlap {
        self.moves.overlap(device, thread, from, from.saturating_sub(self.retry_ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(thread: u32, recorded_at: u64, given_bytes: u64, returned_bytes: u64) -> Move {
        let what = if given_bytes > 0 { What::Gave } else { What::Returned };
        Move { thread, recorded_at, bytes: given_bytes.max(returned_bytes), what, ..Move::default() }
    }

    fn after(moves: &[Move], from: u64) -> Overlap {
        let mut all = Moves::default();
        moves.iter().for_each(|one| all.push(*one));
        all.overlap(0, Some(1), from, from.saturating_sub(50))
    }

    #[test]
    fn what_was_recorded_later_may_have_come_later() {
        let calls = [moved(2, 90, 4, 0), moved(2, 110, 8, 0), moved(1, 120, 16, 0)];
        assert_eq!(after(&calls, 100), Overlap { given_bytes: 8, ..Overlap::default() });
    }

    #[test]
    fn a_free_is_made_after_its_record() {
        let calls = [moved(2, 90, 0, 4)];
        assert_eq!(after(&calls, 100).returned_bytes, 4, "it may be under way");
        assert_eq!(after(&calls, 200).returned_bytes, 0, "too long ago");
        let calls = [moved(2, 90, 0, 4), moved(2, 95, 1, 0)];
        assert_eq!(after(&calls, 100).returned_bytes, 0, "its thread went on");
    }

    #[test]
    fn more_than_is_remembered_is_said() {
        let calls: Vec<Move> = (0..300).map(|call| moved(2, 1000 + call, 1, 0)).collect();
        assert!(after(&calls, 900).is_unsized);
        assert!(!after(&calls, 1200).is_unsized);
    }
}
