//! Which library lies where another had lain: what `library` records say, as far as the trace was read.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuoom_trace::metadata::Module;
use gpuoom_trace::payload::LibraryName;
use gpuoom_trace::record::Record;
use rustc_hash::FxHashMap;

/// Ranges of addresses, and libraries, that are kept. A recorder says fewer; a file that has more is not one of ours.
const MAX_RANGES: usize = 1 << 16;

/// What the trace says about the library that an address lies in, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Nothing: it is the library that was there first.
    NotSaid,
    /// No library is there.
    NoLibrary,
    /// The library with this number.
    Library(u32),
}

/// What was said so far.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// First address, end, and what is there. They don't overlap.
    ranges: BTreeMap<u64, (u64, Place)>,
    libraries: Vec<Arc<Module>>,
    numbers: FxHashMap<Arc<Module>, u32>,
}

impl Places {
    /// Takes a `library` record.
    pub fn note(&mut self, record: &Record, payload: &[u8]) {
        let (start, end) = (record.address, record.address.saturating_add(record.requested));
        if start >= end {
            return;
        }
        let overlaps = |ranges: &BTreeMap<u64, (u64, Place)>| {
            let before = ranges.range(..end).next_back();
            before.filter(|(_, (other_end, _))| *other_end > start).map(|(other, _)| *other)
        };
        while let Some(other) = overlaps(&self.ranges) {
            self.ranges.remove(&other);
        }
        if self.ranges.len() < MAX_RANGES {
            let place = self.place(start, end, LibraryName::read(payload));
            self.ranges.insert(start, (end, place));
        }
    }

    fn place(&mut self, start: u64, end: u64, name: Option<LibraryName>) -> Place {
        let Some(LibraryName { build_id, path }) = name else { return Place::NoLibrary };
        let module = Module { path, build_id, start, end, vendor: false };
        if let Some(number) = self.numbers.get(&module) {
            return Place::Library(*number);
        }
        if self.libraries.len() >= MAX_RANGES {
            return Place::NoLibrary;
        }
        let (number, module) = (self.libraries.len() as u32, Arc::new(module));
        self.libraries.push(Arc::clone(&module));
        self.numbers.insert(module, number);
        Place::Library(number)
    }

    /// Whether nothing was said.
    pub fn are_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// What is said about the call that returns to an address.
    pub fn of_return(&self, address: u64) -> Place {
        let called_from = address.saturating_sub(1);
        let range = self.ranges.range(..=called_from).next_back();
        range.filter(|(_, (end, _))| called_from < *end).map_or(Place::NotSaid, |(_, (_, place))| *place)
    }

    /// A library by its number.
    pub fn get(&self, number: u32) -> Option<&Arc<Module>> {
        self.libraries.get(number as usize)
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::payload;
    use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES};

    use super::*;

    fn note(places: &mut Places, start: u64, bytes: u64, path: &str) {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let record = Record { address: start, requested: bytes, ..Record::new(Event::Library, Kind::None) };
        places.note(&record, payload::library(&[1], path.as_bytes(), &mut out));
    }

    #[test]
    fn a_later_library_replaces_those_that_it_overlaps() {
        let mut places = Places::default();
        for (start, path) in [(0x1000, "a"), (0x2000, "b"), (0x3000, "c"), (0x1800, "d"), (0x5000, "a")] {
            note(&mut places, start, 0x1000, path);
        }
        let path = |address: u64| match places.of_return(address) {
            Place::Library(number) => places.get(number).map(|module| module.path.clone()),
            _ => None,
        };
        let at = [0x1001, 0x1800, 0x1801, 0x2800, 0x2801, 0x3001, 0x4000, 0x4001, 0x5800];
        let expected = [None, None, Some("d"), Some("d"), None, Some("c"), Some("c"), None, Some("a")];
        assert_eq!(at.map(path), expected.map(|path| path.map(str::to_owned)));
        assert_eq!(places.of_return(0x1001), Place::NotSaid);
    }

    #[test]
    fn what_makes_no_sense_is_passed_over() {
        let mut places = Places::default();
        note(&mut places, 0x1000, 0, "a");
        assert!(places.are_empty());
        note(&mut places, u64::MAX - 1, u64::MAX, "a");
        note(&mut places, 0, u64::MAX, "b");
        assert_eq!((places.of_return(0), places.of_return(7)), (Place::Library(1), Place::Library(1)));
        for number in 0..(MAX_RANGES as u64 + 10) {
            note(&mut places, number * 0x1000, 0x1000, &number.to_string());
        }
        assert!(places.ranges.len() <= MAX_RANGES && places.libraries.len() <= MAX_RANGES);
    }
}
