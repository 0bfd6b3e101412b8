//! A failure's figures at the refusal itself. They are read a little later: what may have come or gone until then makes them bounds.

use gpuoom_trace::record::Kind;

use super::case::{Case, Failure};
use crate::judgement::check::{Holds, Known};
use crate::passes::fragmentation::saturate;
use crate::words::size;

/// What would tell how much was free at the refusal itself.
pub(super) const AT_REFUSAL: &str = "free memory at the refusal itself: memory came or went before it was read (GPUOOM_SAMPLE, the other threads' calls)";

impl<'a> Case<'a> {
    /// By how much less than at a failure the program held on that device at some later moment, in bytes.
    pub(super) fn fell_since(&self, failure: &Failure<'_>) -> Option<u64> {
        let live = &self.replay.tracks.device(failure.oom.device?)?.live;
        let lowest = live.lowest_since(failure.oom.at).unwrap_or(u64::MAX);
        Some(saturate(failure.oom.held.requested_bytes).saturating_sub(lowest))
    }

    /// The first failure of that device since which the program held nearly as much as at this one, at every moment until then: what is
    /// refused can't rise. `None` where that is this one.
    pub(super) fn full_since(&self, failure: &Failure<'_>) -> Option<Failure<'a>> {
        let live = &self.replay.tracks.device(failure.oom.device?)?.live;
        let held = |failure: &Failure<'_>| saturate(failure.oom.held.requested_bytes);
        let least = held(failure) - (held(failure) as f64 * self.thresholds.given_back_share) as u64;
        let fell_at = live.last_below(least, failure.oom.at);
        self.failures().find(|other| {
            other.report.number < failure.report.number
                && other.report.device == failure.report.device
                && held(other) >= least
                && fell_at.is_none_or(|fell_at| other.oom.at > fell_at)
                && self.shapes.up_to((other.report.number - 1) as usize).is_some()
        })
    }
}

impl Failure<'_> {
    /// Whether something holds of what was free at the refusal, where so much was read a little later. It must hold of all that is
    /// more, or of all that is less, once it holds. What other processes took or gave back is left out: where nobody read it, nobody would
    /// know either.
    pub fn was_free(&self, read: Known<u64>, holds: impl Fn(u64) -> bool) -> Holds {
        let of_read = |bytes: u64| {
            let own = self.moved.by_own_threads();
            (holds(own.free_at_least(bytes)), holds(own.free_at_most(bytes)))
        };
        match read.map(of_read).get() {
            Some((least, most)) if least == most => least.into(),
            Some(_) => Holds::Unknown(AT_REFUSAL),
            None => Holds::Unknown(read.reading()),
        }
    }

    /// The block that an allocator wanted, where a piece of it was refused.
    pub fn piece_of(&self) -> Option<u64> {
        let error = self.oom.error.as_ref().filter(|_| self.oom.kind == Kind::Physical)?;
        Some(error.requested_bytes).filter(|block| *block > self.oom.requested_bytes)
    }

    /// Whether enough was free at the refusal, by such a reading.
    pub fn was_enough(&self, read: Known<u64>) -> Holds {
        match self.request_bytes().get() {
            Some(request) => self.was_free(read, |free| self.thresholds.is_enough(free, request)),
            None => Holds::Unknown(self.request_bytes().reading()),
        }
    }

    /// (`R − F`) What was missing, at most: less where memory went since the refusal.
    pub fn shortfall_bytes(&self) -> Option<u64> {
        let (request, free) = self.request_bytes().zip(self.free_bytes()).get()?;
        Some(request.saturating_sub(self.moved.free_at_least(free))).filter(|missing| *missing > 0)
    }

    /// What was missing at least; 0 where nobody read it.
    pub fn least_shortfall_bytes(&self) -> u64 {
        let both = self.request_bytes().zip(self.free_bytes()).get();
        both.map_or(0, |(request, free)| request.saturating_sub(self.moved.free_at_most(free)))
    }

    /// The largest block that could be allocated after the refusal, where it is larger than all that was read as free: it shows that memory
    /// came, or that too little was read, and not what was free.
    pub fn allocated_beyond_free(&self) -> Option<u64> {
        let most = self.runtime_free_bytes().get().max(self.driver_free_bytes().get());
        self.oom
            .read
            .largest_allocatable_bytes
            .zip(most)
            .filter(|(largest, most)| largest > most)
            .map(|(largest, _)| largest)
    }

    /// So much short, in words: what was missing is known at most where memory came or went since the refusal.
    pub fn short_by(&self, missing: u64) -> String {
        let at_most = if self.moved.is_none() { "" } else { "at most " };
        format!("{at_most}{} short", size(missing))
    }
}

impl Case<'_> {
    /// How far two numbers of a failure's readings may lie apart only because they are not of one moment: what came or went while the
    /// readings were taken, and by how much what other processes hold changed since the reading before. `None` where nobody knows.
    pub fn read_apart_bytes(&self, failure: &Failure<'_>) -> Option<u64> {
        let others = failure.moved.others_took_bytes.max(failure.moved.others_gave_bytes);
        Some(self.read_apart_by_own_bytes(failure)?.saturating_add(others))
    }

    /// The same by the program's own threads alone.
    pub fn read_apart_by_own_bytes(&self, failure: &Failure<'_>) -> Option<u64> {
        let Some(read) = self.around(failure).and_then(|around| around.read_at) else { return Some(0) };
        (!read.within.is_unsized).then(|| read.within.given_bytes.saturating_add(read.within.returned_bytes))
    }
}
