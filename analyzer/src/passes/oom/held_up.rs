//! How long the recorder's readings at failures held a thread up: the program's own times are told without them.

use std::collections::HashMap;
use std::sync::Arc;

use super::OomReport;

/// The readings at the failures of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Readings {
    /// In the order of the failures: when each was, and how long its readings and all before took, in nanoseconds.
    sums: Vec<(u64, u64)>,
}

impl Readings {
    fn until(&self, at_ns: u64) -> u64 {
        let count = self.sums.partition_point(|(failed_at_ns, _)| *failed_at_ns <= at_ns);
        count.checked_sub(1).map_or(0, |last| self.sums[last].1)
    }

    /// How long the readings took at failures after one moment and until another one.
    fn between(&self, from_ns: u64, to_ns: u64) -> u64 {
        self.until(to_ns).saturating_sub(self.until(from_ns))
    }
}

/// Gives each failure the readings of its thread.
pub(super) fn share(all: &mut [OomReport]) {
    let mut of_threads: HashMap<u32, Readings> = HashMap::new();
    for oom in all.iter().filter(|oom| oom.held_up_ns > 0) {
        of_threads.entry(oom.thread).or_default().sums.push((oom.at_ns, oom.held_up_ns));
    }
    let shared = of_threads.into_iter().map(|(thread, mut readings)| {
        readings.sums.sort_unstable();
        let mut sum = 0u64;
        for (_, held_up_ns) in &mut readings.sums {
            sum = sum.saturating_add(*held_up_ns);
            *held_up_ns = sum;
        }
        (thread, Arc::new(readings))
    });
    let shared: HashMap<u32, Arc<Readings>> = shared.collect();
    for oom in all {
        oom.readings_of_thread = shared.get(&oom.thread).cloned().unwrap_or_default();
    }
}

impl OomReport {
    /// How long the recorder's readings held the thread up between the failure and a moment: at this failure and at later ones.
    pub fn held_up_until(&self, at_ns: u64) -> u64 {
        // An allocator tells of its error when its attempts have been looked at.
        let own_ns = if self.attempts.is_empty() { self.held_up_ns } else { 0 };
        own_ns.saturating_add(self.readings_of_thread.between(self.at_ns, at_ns))
    }

    /// How much later something was, without the time that the recorder took.
    pub fn later_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.at_ns).saturating_sub(self.held_up_until(at_ns))
    }
}
