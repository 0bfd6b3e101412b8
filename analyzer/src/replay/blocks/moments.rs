//! What allocators held at failures and at labels, within bounds.

use std::collections::BTreeMap;

use super::came::Came;
use super::moment::Moment;

/// Labels whose moments are kept: more become half as many, evenly chosen.
pub const MOST_MARKS: usize = 64;
/// Failures whose moments are kept.
const MOST_FAILURES: usize = 1 << 12;
/// Call sites that are kept of all failures and labels together.
const MOST_ROWS: usize = 1 << 20;
/// Blocks that are looked at for all failures and labels.
const MOST_LOOKS: u64 = 1 << 24;

/// A label and the devices at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtMark {
    /// The label.
    pub label: String,
    /// The devices by number.
    pub devices: Vec<(u8, Moment)>,
}

/// The moments that are kept.
#[derive(Clone, Debug)]
pub struct Moments {
    failures: Vec<(u64, Moment)>,
    /// What of PyTorch's blocks had come before failures, by the failures' sequence numbers.
    came: BTreeMap<u64, Vec<Came>>,
    marks: Vec<AtMark>,
    /// Labels so far.
    seen: u64,
    /// Every label with such a number is kept.
    every: u64,
    rows: usize,
    looks: u64,
}

impl Default for Moments {
    fn default() -> Self {
        Moments { failures: Vec::new(), came: BTreeMap::new(), marks: Vec::new(), seen: 0, every: 1, rows: 0, looks: 0 }
    }
}

impl Moments {
    /// What was the case at the failure whose record has this sequence number.
    pub fn at_failure(&self, seq: u64) -> Option<&Moment> {
        self.failures.binary_search_by_key(&seq, |(known, _)| *known).ok().map(|place| &self.failures[place].1)
    }

    /// What had come of PyTorch's blocks, on all devices, before that failure; `None` where not all of it is known.
    pub fn before_failure(&self, seq: u64) -> Option<&[Came]> {
        self.came.get(&seq).map(Vec::as_slice)
    }

    /// Keeps what had come before a failure, where there is room.
    pub(super) fn came_before(&mut self, seq: u64, came: Option<Vec<Came>>) {
        let rows = came.as_ref().map_or(0, Vec::len);
        if let Some(came) = came.filter(|_| self.rows.saturating_add(rows) <= MOST_ROWS) {
            self.rows += rows;
            self.came.insert(seq, came);
        }
    }

    /// The labels that are kept, in order.
    pub fn marks(&self) -> &[AtMark] {
        &self.marks
    }

    /// Whether another moment may be looked at that costs so much.
    pub(super) fn affords(&mut self, cost: u64) -> bool {
        let affords = self.looks.saturating_add(cost) <= MOST_LOOKS && self.rows < MOST_ROWS;
        self.looks += if affords { cost } else { 0 };
        affords
    }

    /// What was the case at a failure; what is known of it is replaced.
    pub(super) fn failed(&mut self, seq: u64, moment: Moment) {
        if let Ok(place) = self.failures.binary_search_by_key(&seq, |(known, _)| *known) {
            self.rows = self.rows.saturating_sub(rows_of(&self.failures[place].1)) + rows_of(&moment);
            self.failures[place].1 = moment;
            return;
        }
        // They are searched by their numbers; a record that came late has none of its own here.
        let in_order = self.failures.last().is_none_or(|(last, _)| *last < seq);
        if in_order && self.failures.len() < MOST_FAILURES {
            self.rows += rows_of(&moment);
            self.failures.push((seq, moment));
        }
    }

    /// What was the case at the last failure of a device, however many there were before.
    pub(super) fn failed_last(&mut self, seq: u64, moment: Moment) {
        if let Err(place) = self.failures.binary_search_by_key(&seq, |(known, _)| *known) {
            self.failures.insert(place, (seq, moment));
        }
    }

    /// A label comes; whether its moment is one to keep.
    pub(super) fn keeps_next_mark(&mut self) -> bool {
        self.seen += 1;
        (self.seen - 1).is_multiple_of(self.every)
    }

    pub(super) fn marked(&mut self, label: String, devices: Vec<(u8, Moment)>) {
        self.rows += devices.iter().map(|(_, moment)| rows_of(moment)).sum::<usize>();
        self.marks.push(AtMark { label, devices });
        if self.marks.len() > MOST_MARKS {
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every *= 2;
        }
    }
}

fn rows_of(moment: &Moment) -> usize {
    moment.of.iter().map(|one| one.rows.len() + 1).sum::<usize>() + moment.ages.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_kept_evenly() {
        let mut moments = Moments::default();
        for number in 0..1000 {
            if moments.keeps_next_mark() {
                moments.marked(number.to_string(), Vec::new());
            }
        }
        let kept: Vec<usize> = moments.marks().iter().map(|mark| mark.label.parse().unwrap()).collect();
        assert!(kept.len() > MOST_MARKS / 2 && kept.len() <= MOST_MARKS);
        assert!(kept.windows(2).all(|two| two[1] - two[0] == 16) && kept[0] == 0, "{kept:?}");
    }

    #[test]
    fn what_costs_too_much_is_left_out() {
        let mut moments = Moments::default();
        assert!(moments.affords(MOST_LOOKS) && !moments.affords(1));
        moments.failed(7, Moment { at: 1, of: Vec::new(), ages: Vec::new() });
        assert_eq!(moments.at_failure(7).map(|moment| moment.at), Some(1));
        assert_eq!(moments.at_failure(8), None);
    }
}
