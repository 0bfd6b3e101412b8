//! Cycles of live bytes: from a floor to a peak and back.

use crate::replay::tracks::series::{Series, Turn, greatest_fall};
use crate::thresholds::Thresholds;

/// A rise from a floor to a peak, and the fall behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The floor before.
    pub from: Turn,
    /// The peak.
    pub peak: Turn,
    /// The floor behind.
    pub to: Turn,
}

impl Cycle {
    /// By how much the bytes fell.
    pub fn fall_bytes(&self) -> u64 {
        self.peak.bytes.saturating_sub(self.to.bytes)
    }

    /// By how much they rose.
    pub fn rise_bytes(&self) -> u64 {
        self.peak.bytes.saturating_sub(self.from.bytes)
    }

    /// Ticks from floor to floor.
    pub fn duration(&self) -> u64 {
        self.to.at.saturating_sub(self.from.at)
    }

    /// Largest request that was granted within it, in bytes.
    pub fn largest_request_bytes(&self) -> u64 {
        self.peak.largest_request_bytes.max(self.to.largest_request_bytes)
    }
}

/// The cycles of a device, in one or two phases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// Cycles with the great swings.
    pub main: Vec<Cycle>,
    /// Smaller ones behind the last of these, where they are enough for a phase; or where `main` has at most two, these may be the steps.
    pub tail: Vec<Cycle>,
    /// The last floor, and what came behind it: the cycle that is under way.
    pub open_from: Turn,
    /// Bytes that the device holds at the end.
    pub held_bytes: u64,
    /// Largest request that was granted since the last floor.
    pub open_request_bytes: u64,
    /// Most bytes that lived.
    pub peak_bytes: u64,
    /// Ticks before which cycles like the last ones may be missing; 0 where none is.
    pub whole_since: u64,
}

impl Cycles {
    /// The cycles in turning points, of which the last is the end.
    pub fn of(turns: &[Turn], thresholds: &Thresholds) -> Self {
        let peak_bytes = turns.iter().map(|turn| turn.bytes).max().unwrap_or(0);
        let least = ((peak_bytes as f64 * thresholds.swing_share) as u64).max(1);
        let (main, open, behind) = level(turns, least);
        // The phase behind, where the great swings are over. A floor of it may be no floor of theirs.
        let (tail, tail_open, _) = level(&turns[behind..], least);
        let tail = if tail.len() as u64 >= thresholds.phase_cycles { tail } else { Vec::new() };
        let open = if tail.is_empty() { open } else { behind + tail_open };
        let since = turns.get(open + 1..).unwrap_or(&[]);
        Cycles {
            main,
            tail,
            open_from: turns.get(open).copied().unwrap_or_default(),
            held_bytes: turns.last().map_or(0, |turn| turn.bytes),
            open_request_bytes: since.iter().map(|turn| turn.largest_request_bytes).max().unwrap_or(0),
            peak_bytes,
            whole_since: 0,
        }
    }

    /// The same with what is known of a series that was too long to keep.
    pub fn kept_of(mut self, live: &Series) -> Self {
        let greatest = self.last_phase().iter().map(Cycle::fall_bytes).max().unwrap_or(0);
        self.whole_since = live.whole_since(greatest / 2);
        self
    }

    /// The cycles with which the run ends, as far back as none of them is missing in between.
    pub fn unbroken(&self) -> &[Cycle] {
        let phase = self.last_phase();
        &phase[phase.partition_point(|cycle| cycle.from.at < self.whole_since)..]
    }

    /// What came behind the last floor beyond the most that any of these cycles took: of it they say nothing.
    pub fn beyond_bytes(&self) -> u64 {
        let most = self.main.iter().chain(&self.tail).map(Cycle::rise_bytes).max().unwrap_or(0);
        self.held_bytes.saturating_sub(self.open_from.bytes).saturating_sub(most)
    }

    /// The steps: the great swings, or where there are at most two of them (a load that was thrown away) those behind.
    pub fn steps(&self) -> &[Cycle] {
        if self.main.len() <= 2 && !self.tail.is_empty() { &self.tail } else { &self.main }
    }

    /// The cycles with which the run ends: those of a later phase, where there is one.
    pub fn last_phase(&self) -> &[Cycle] {
        if self.later().is_empty() { self.steps() } else { &self.tail }
    }

    /// The cycles of a phase behind the steps, such as an evaluation behind a training.
    pub fn later(&self) -> &[Cycle] {
        if self.main.len() <= 2 { &[] } else { &self.tail }
    }
}

/// The cycles whose fall is at least half of the greatest, the index of the lowest floor behind the last one, and that of the
/// first.
fn level(turns: &[Turn], least: u64) -> (Vec<Cycle>, usize, usize) {
    let greatest = greatest_fall(turns);
    if greatest < least {
        return (Vec::new(), 0, 0);
    }
    let mut cycles: Vec<Cycle> = Vec::new();
    let (mut floor, mut peak, mut open, mut behind) = (0, None, 0, 0);
    let mut largest = 0;
    for (index, turn) in turns.iter().enumerate() {
        largest = largest.max(turn.largest_request_bytes);
        let high = peak.unwrap_or(index);
        if peak.is_none() && turn.bytes <= turns[floor].bytes {
            // Still the floor, as long as nothing rose from it by enough; what was fetched on the way belongs to the cycle
            // before it.
            (floor, largest) = (index, 0);
            close(&mut cycles, *turn);
            open = index;
            continue;
        }
        if peak.is_none() && turn.bytes - turns[floor].bytes < greatest.div_ceil(2) {
            continue;
        }
        if turn.bytes >= turns[high].bytes {
            peak = Some(index);
        } else if turns[high].bytes - turn.bytes >= greatest.div_ceil(2) {
            let peak_turn = Turn { largest_request_bytes: largest, ..turns[high] };
            cycles.push(Cycle { from: turns[floor], peak: peak_turn, to: *turn });
            (floor, peak, largest, open, behind) = (index, None, 0, index, index);
        }
    }
    (cycles, open, behind)
}

/// A floor that lies still lower ends the cycle before it.
fn close(cycles: &mut [Cycle], floor: Turn) {
    if let Some(last) = cycles.last_mut() {
        last.to = Turn { largest_request_bytes: last.to.largest_request_bytes, ..floor };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(bytes: &[u64]) -> Vec<Turn> {
        (1..).zip(bytes).map(|(at, bytes)| Turn { at, bytes: *bytes, largest_request_bytes: 1 }).collect()
    }

    fn cycles(bytes: &[u64]) -> Cycles {
        Cycles::of(&turns(bytes), &Thresholds::default())
    }

    fn floors(cycles: &[Cycle]) -> Vec<u64> {
        cycles.iter().map(|cycle| cycle.to.bytes).collect()
    }

    #[test]
    fn humps_within_a_step_are_no_cycles() {
        let cycles = cycles(&[0, 100, 95, 200, 190, 210, 100, 102, 101, 200, 180, 208, 99, 150]);
        assert_eq!(floors(&cycles.main), [100, 99]);
        assert_eq!((cycles.open_from.bytes, cycles.held_bytes), (99, 150));
        assert_eq!(cycles.main[1].peak.bytes, 208);
    }

    #[test]
    fn a_rising_floor_has_cycles_although_it_never_returns() {
        let mut bytes = vec![0];
        (0..10).for_each(|step| bytes.extend([1000 + 50 * step, 900 + 50 * step]));
        assert_eq!(floors(&cycles(&bytes).main).len(), 10);
    }

    #[test]
    fn steps_behind_a_load_that_was_thrown_away() {
        let mut bytes = vec![0, 1000, 300];
        (0..8).for_each(|_| bytes.extend([420, 300]));
        let cycles = cycles(&bytes);
        assert_eq!((cycles.main.len(), cycles.steps().len()), (1, 8));
        assert!(cycles.later().is_empty());
    }

    #[test]
    fn smaller_cycles_behind_great_ones_are_a_later_phase() {
        let mut bytes = vec![0];
        (0..6).for_each(|_| bytes.extend([1000, 300]));
        (1..=7).for_each(|step| bytes.extend([400 + step * 10, 300 + step * 10]));
        let cycles = cycles(&bytes);
        assert_eq!((cycles.steps().len(), cycles.later().len()), (6, 7));
    }

    #[test]
    fn what_piles_up_behind_the_last_cycle_is_beyond_them() {
        let mut bytes = vec![0];
        (0..6).for_each(|_| bytes.extend([1000, 300]));
        assert_eq!(cycles(&[&bytes[..], &[900]].concat()).beyond_bytes(), 0, "a step that is under way");
        bytes.push(1500);
        assert_eq!(cycles(&bytes).beyond_bytes(), 1500 - 300 - 1000);
    }

    #[test]
    fn nothing_has_no_cycles() {
        assert_eq!(cycles(&[]), Cycles::default());
        assert!(cycles(&[0, 5, 9]).main.is_empty());
    }
}
