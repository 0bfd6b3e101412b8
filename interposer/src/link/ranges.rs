//! A few address ranges that are only ever added to, looked through by any thread without a lock.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Up to `N` ranges. One that finds no room is left out.
pub(super) struct Ranges<const N: usize> {
    /// Start and end; zero: unused.
    ranges: [[AtomicUsize; 2]; N],
    count: AtomicUsize,
}

impl<const N: usize> Ranges<N> {
    pub(super) const fn new() -> Self {
        Self { ranges: [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; N], count: AtomicUsize::new(0) }
    }

    /// Adds a range, unless one with that start is there.
    pub(super) fn add(&self, start: usize, end: usize) {
        let known = self.ranges.iter().any(|range| range[0].load(Ordering::Acquire) == start);
        if known || start == 0 {
            return;
        }
        for range in &self.ranges {
            if range[0].compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // Release: a reader that sees the count sees the range; until the end is stored the range is empty.
                range[1].store(end, Ordering::Release);
                self.count.fetch_add(1, Ordering::Release);
                return;
            }
        }
    }

    /// Start of the range that an address lies in.
    #[inline(always)]
    pub(super) fn start_around(&self, address: usize) -> Option<usize> {
        let count = self.count.load(Ordering::Relaxed).min(N);
        let starts = self.ranges[..count].iter().map(|[start, end]| (start.load(Ordering::Relaxed), end));
        let mut around = starts.filter(|(start, end)| address >= *start && address < end.load(Ordering::Relaxed));
        around.next().map(|(start, _)| start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_its_range_and_a_full_table_leaves_out() {
        let ranges = Ranges::<2>::new();
        assert_eq!(ranges.start_around(0), None);
        ranges.add(100, 200);
        ranges.add(100, 300);
        ranges.add(400, 500);
        ranges.add(600, 700);
        let found = [99, 100, 199, 200, 450, 650].map(|address| ranges.start_around(address));
        assert_eq!(found, [None, Some(100), Some(100), None, Some(400), None]);
    }
}
