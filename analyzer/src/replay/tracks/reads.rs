//! Readings of a device, each with what the program held then, and what happened between two of them.

use super::between::Done;
use super::ends::Ends;
use super::moves::Overlap;
use crate::replay::readings::DeviceReadings;

/// Stretches between readings that are listed of the beginning, and as many of the end.
const LISTED: usize = 64;
/// Physical or exported memory that must have been given back between two readings for the stretch to be listed, in bytes,
/// unless set.
pub const MUCH_RELEASED_BYTES: u64 = 64 << 20;

/// Readings of the memory in use that are kept: beyond that every second one goes.
const HISTORY: usize = 512;

/// Whose memory in use a number tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This process's.
    Process,
    /// That of all processes that are not known to be others.
    All,
}

/// Memory in use at a reading.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Ticks.
    at: u64,
    /// In use by this process, in bytes.
    by_process: Option<u64>,
    /// In use by all, in bytes.
    by_all: Option<u64>,
    /// What the program's blocks held, in bytes.
    held_bytes: u64,
}

impl Point {
    fn of(&self, whose: Whose) -> Option<u64> {
        match whose {
            Whose::Process => self.by_process,
            Whose::All => self.by_all,
        }
    }
}

/// Memory in use over time, as far as it was read.
#[derive(Clone, Debug, Default)]
pub struct History {
    points: Vec<Point>,
    /// One of so many readings is kept.
    every: u64,
    seen: u64,
}

impl History {
    fn take(&mut self, read: &Read) {
        let by_process = read.read.in_use_by_process().map(|in_use| in_use.bytes);
        let by_all = read.read.in_use_by_all().map(|in_use| in_use.bytes);
        if by_process.or(by_all).is_none() {
            return;
        }
        self.seen += 1;
        self.every = self.every.max(1);
        if !self.seen.is_multiple_of(self.every) {
            return;
        }
        self.points.push(Point { at: read.at, by_process, by_all, held_bytes: read.held_bytes });
        if self.points.len() > HISTORY {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.every *= 2;
        }
    }

    /// The least that was in use from one moment to another while the program's blocks held no more than so much, in bytes.
    pub fn least_used(&self, whose: Whose, from: u64, to: u64, most_held: u64) -> Option<u64> {
        let inside =
            self.points.iter().filter(|point| (from..=to).contains(&point.at) && point.held_bytes <= most_held);
        inside.filter_map(|point| point.of(whose)).min()
    }
}

/// One reading of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Ticks.
    pub at: u64,
    /// What was read.
    pub read: DeviceReadings,
    /// Bytes that the program's blocks held on the device when the reading was recorded.
    pub held_bytes: u64,
    /// The fewest that they held since the reading before: the numbers were read at some moment of that time.
    pub least_held_bytes: u64,
    /// The most that they may have held while it was read: memory that came or went meanwhile may be in one number and not in the other.
    pub most_held_bytes: u64,
    /// Whether memory of the device came or went while it was read.
    pub is_disturbed: bool,
    /// What may have come or gone between its first number and its last, as far as the program's calls tell.
    pub within: Overlap,
    /// Reserved address ranges then, of all devices, in bytes.
    pub reserved_bytes: u64,
    /// What had been done on the device when the reading was recorded.
    pub done: Done,
}

impl Read {
    /// The least free memory that anybody told.
    pub fn least_free_bytes(&self) -> Option<u64> {
        let read = &self.read;
        let sysfs = read.vram_total_bytes.zip(read.vram_used_bytes);
        let nvml = read.nvml_total_bytes.zip(read.nvml_used_bytes);
        let by_difference = |pair: Option<(u64, u64)>| pair.map(|(total, used)| total.saturating_sub(used));
        let told = [read.runtime_free_bytes, by_difference(sysfs), read.kfd_available_bytes, by_difference(nvml)];
        told.into_iter().flatten().min()
    }
}

/// What happened between two readings of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The reading before.
    pub before: Read,
    /// The reading after.
    pub after: Read,
    /// Physical memory (VMM) that was created, in bytes.
    pub vmm_created_bytes: u64,
    /// Physical memory that was released and unmapped, in bytes.
    pub vmm_released_bytes: u64,
    /// Memory that had been exported to other processes and was freed, in bytes.
    pub exported_freed_bytes: u64,
}

impl Stretch {
    /// Whether no call overlapped its readings, those that were recorded later with them.
    fn is_clear(&self) -> bool {
        !self.before.is_disturbed && !self.after.is_disturbed
    }

    /// By how much the runtime's free memory should have risen if everything that was given back were free, and by how much
    /// it did; both in bytes. What went back to pools need not be free: they keep it for a while, or for good.
    pub fn expected_and_seen(&self) -> Option<(i128, i128)> {
        let to_pools = self.after.done.since(&self.before.done).returned_to_pools_bytes;
        let expected = i128::from(self.before.held_bytes) - i128::from(self.after.held_bytes) - i128::from(to_pools);
        let free = |read: &Read| read.least_free_bytes().map(i128::from);
        Some((expected, free(&self.after)? - free(&self.before)?))
    }

    /// Of the physical memory that was released, what did not become free, in bytes.
    pub fn stuck_bytes(&self) -> u64 {
        let missing = self.expected_and_seen().map_or(0, |(expected, seen)| expected - seen.max(0));
        u64::try_from(missing.max(0)).unwrap_or(u64::MAX).min(self.vmm_released_bytes)
    }
}

/// The readings of one device.
#[derive(Clone, Debug)]
pub struct Reads {
    /// The first one.
    pub first: Option<Read>,
    /// The last one.
    pub last: Option<Read>,
    /// The last one that nothing overlapped: stretches begin and end with such.
    clear: Option<Read>,
    since: Stretch,
    least_held_bytes: u64,
    releases: Ends<Stretch>,
    export_frees: Ends<Stretch>,
    history: History,
}

impl Default for Reads {
    fn default() -> Self {
        Reads {
            first: None,
            last: None,
            clear: None,
            since: Stretch::default(),
            least_held_bytes: 0,
            releases: Ends::new(LISTED),
            export_frees: Ends::new(LISTED),
            history: History::default(),
        }
    }
}

impl Reads {
    /// Takes a reading; `much_released_bytes`: what must have been given back since the one before for both to be listed.
    pub(super) fn take(&mut self, read: Read, much_released_bytes: u64) {
        let read = Read { least_held_bytes: self.least_held_bytes.min(read.held_bytes), ..read };
        self.least_held_bytes = read.held_bytes;
        self.first = self.first.or(Some(read));
        self.history.take(&read);
        self.last = Some(read);
        // What came or went while it was read is in it or not: the stretch ends with a later one.
        if read.is_disturbed {
            return;
        }
        let stretch = std::mem::take(&mut self.since);
        let Some(before) = self.clear.replace(read) else { return };
        let stretch = Stretch { before, after: read, ..stretch };
        if stretch.vmm_released_bytes >= much_released_bytes {
            self.releases.push(stretch);
        }
        if stretch.exported_freed_bytes >= much_released_bytes {
            self.export_frees.push(stretch);
        }
    }

    /// A call that began at a moment moved memory, and the program's blocks hold so many bytes now: what was read later than that
    /// may be of before or of after.
    pub(super) fn disturb(&mut self, at: u64, held_bytes: u64) {
        // Only the last of a list can end so late.
        let ends = [&mut self.releases, &mut self.export_frees].map(|list| list.last_mut().map(|last| &mut last.after));
        let alone = [&mut self.first, &mut self.last, &mut self.clear].map(Option::as_mut);
        for read in alone.into_iter().chain(ends).flatten().filter(|read| read.at > at) {
            read.is_disturbed = true;
            read.most_held_bytes = read.most_held_bytes.max(held_bytes);
            read.least_held_bytes = read.least_held_bytes.min(held_bytes);
        }
    }

    /// The program's blocks hold fewer bytes now.
    #[inline]
    pub(super) fn fell_to(&mut self, held_bytes: u64) {
        self.least_held_bytes = self.least_held_bytes.min(held_bytes);
    }

    pub(super) fn created(&mut self, bytes: u64) {
        self.since.vmm_created_bytes = self.since.vmm_created_bytes.saturating_add(bytes);
    }

    pub(super) fn released(&mut self, bytes: u64) {
        self.since.vmm_released_bytes = self.since.vmm_released_bytes.saturating_add(bytes);
    }

    pub(super) fn freed_exported(&mut self, bytes: u64) {
        self.since.exported_freed_bytes = self.since.exported_freed_bytes.saturating_add(bytes);
    }

    /// Memory in use over time.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Stretches between readings in which much memory was freed that had been exported. Those whose readings a call overlapped
    /// tell nothing, and are left out.
    pub fn export_frees(&self) -> impl Iterator<Item = &Stretch> {
        self.export_frees.iter().filter(|stretch| stretch.is_clear())
    }

    /// The same of stretches in which much physical memory was released.
    pub fn releases(&self) -> impl Iterator<Item = &Stretch> {
        self.releases.iter().filter(|stretch| stretch.is_clear())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn read(at: u64, is_disturbed: bool) -> Read {
        Read { at, is_disturbed, ..Read::default() }
    }

    fn released(reads: &Reads) -> Vec<(u64, u64, u64)> {
        reads.releases().map(|stretch| (stretch.before.at, stretch.after.at, stretch.vmm_released_bytes)).collect()
    }

    /// Its numbers may be from before the release or from after it.
    #[test]
    fn a_reading_that_a_call_overlapped_ends_no_stretch() {
        let mut reads = Reads::default();
        reads.take(read(10, false), GIB);
        reads.released(2 * GIB);
        reads.take(read(20, true), GIB);
        assert_eq!(released(&reads), []);
        reads.released(GIB);
        reads.take(read(30, false), GIB);
        assert_eq!(released(&reads), [(10, 30, 3 * GIB)]);
    }

    #[test]
    fn nor_does_one_whose_overlap_is_recorded_later() {
        let mut reads = Reads::default();
        reads.take(read(10, false), GIB);
        reads.released(2 * GIB);
        reads.take(read(20, false), GIB);
        assert_eq!(released(&reads), [(10, 20, 2 * GIB)]);
        reads.disturb(15, 0);
        assert_eq!(released(&reads), []);
        reads.released(2 * GIB);
        reads.take(read(30, false), GIB);
        assert_eq!(released(&reads), [], "nor does one begin with it");
    }
}
