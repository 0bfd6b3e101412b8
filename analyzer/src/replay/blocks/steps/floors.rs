//! Floors of what lives, found as they come: a floor is the end of a step once the bytes have risen from it by half of the greatest
//! fall, as they fell to it. The same rule as that of `passes/shape/cycles`, which looks at a whole run from its end.

use super::kept::{Kept, SiteLevel, Step};

/// Swings of less than one part in so many of the peak are no cycles.
const SWING_PARTS: u64 = 1024;

/// What a change of the bytes means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moves {
    /// Nothing yet.
    On,
    /// It has fallen from a peak by enough: here may be a floor.
    Falls,
    /// It has risen from a floor by enough: that was the end of a step.
    Confirmed,
}

/// Floors of one size of swings.
#[derive(Clone, Debug, Default)]
pub(super) struct Floors {
    kept: Kept,
    /// The number of the last place that may be a floor.
    pub(super) number: u32,
    floor: Step,
    /// The highest since the floor, once it has risen by enough.
    peak: Option<u64>,
    /// The peak before the floor; 0 where there was none.
    fell_from: u64,
    greatest_fall: u64,
    most_bytes: u64,
    /// Floors that lie between swings of the present size.
    great: u64,
}

impl Floors {
    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// The floors that are kept, to be looked at when these begin anew.
    pub(super) fn take_kept(&mut self) -> Kept {
        std::mem::take(&mut self.kept)
    }

    /// Floors between swings of the present size, as far as they have been left.
    pub(super) fn great(&self) -> u64 {
        self.great
    }

    /// Begins anew, from here on.
    pub(super) fn begin(&mut self, bytes: u64, given_bytes: u64, at: u64, rows_left: &mut usize) {
        self.kept.clear(rows_left);
        *self = Floors { number: self.number, ..Floors::default() };
        self.here(bytes, given_bytes, at);
    }

    /// A place that may be a floor.
    #[inline]
    fn here(&mut self, bytes: u64, given_bytes: u64, at: u64) {
        self.number = self.number.wrapping_add(1);
        (self.floor.bytes, self.floor.given_bytes, self.floor.at) = (bytes, given_bytes, at);
        let fall = self.fell_from.saturating_sub(bytes);
        if fall > self.greatest_fall {
            self.grows(fall);
        }
    }

    /// Floors between much smaller swings may be none: that is certain once the bytes have risen again. What falls where a program ends
    /// falls deeper than any step, and is none.
    #[cold]
    fn grows(&mut self, fall: u64) {
        self.greatest_fall = fall;
        let least = self.swing();
        self.great = self.kept.count_of(|step| step.fell_bytes >= least);
    }

    fn swing(&self) -> u64 {
        self.greatest_fall.div_ceil(2).max(self.most_bytes / SWING_PARTS).max(1)
    }

    #[inline]
    pub(super) fn follow(&mut self, bytes: u64, given_bytes: u64, at: u64) -> Moves {
        match self.peak {
            None if bytes <= self.floor.bytes => {
                let great = self.great;
                self.here(bytes, given_bytes, at);
                if self.great < great { Moves::Falls } else { Moves::On }
            }
            None if bytes - self.floor.bytes < self.swing() => Moves::On,
            None => {
                self.rises_to(bytes);
                if self.fell_from > 0 { Moves::Confirmed } else { Moves::On }
            }
            Some(peak) if bytes >= peak => {
                self.rises_to(bytes);
                Moves::On
            }
            Some(peak) if peak - bytes < self.swing() => Moves::On,
            Some(peak) => {
                (self.peak, self.fell_from) = (None, peak);
                self.here(bytes, given_bytes, at);
                Moves::Falls
            }
        }
    }

    #[inline]
    fn rises_to(&mut self, bytes: u64) {
        self.peak = Some(bytes);
        self.most_bytes = self.most_bytes.max(bytes);
    }

    /// A floor turned out to be the end of a step. Those before it are none where they lay between much smaller swings. Whether this one
    /// is to be kept.
    pub(super) fn counts_next(&mut self, rows_left: &mut usize) -> bool {
        let least = self.swing();
        let fell = self.fell_from.saturating_sub(self.floor.bytes);
        self.kept.forget(rows_left, |step| step.fell_bytes < least);
        let keeps = fell >= least && self.kept.wants_next(self.floor.at);
        self.great = self.kept.count();
        keeps
    }

    pub(super) fn keep(&mut self, rows: Vec<SiteLevel>, entered: u64, rows_left: &mut usize) {
        let fell_bytes = self.fell_from.saturating_sub(self.floor.bytes);
        self.kept.push(Step { fell_bytes, rows, entered, number: 0, ..self.floor }, rows_left);
    }
}
