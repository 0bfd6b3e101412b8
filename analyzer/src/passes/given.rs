//! What frees of HSA give back: they tell an address and nothing else, so their records know neither kind nor device.

use gpuoom_trace::record::{Event, Kind, Layer, NO_DEVICE, Record, flag};
use rustc_hash::FxHashMap;

/// Addresses that are remembered; what was given at others is not known when it is given back.
const MAX_ADDRESSES: usize = 1 << 20;

/// What lies, or lay last, at an address.
#[derive(Clone, Copy, Debug)]
struct Given {
    kind: Kind,
    device: Option<u8>,
    is_there: bool,
}

/// What HSA gave, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct GivenByHsa {
    at: FxHashMap<u64, Given>,
}

impl GivenByHsa {
    /// Whether a record is a free that doesn't know what it frees. Older recorders wrote the device of the thread into it.
    fn knows_not(record: &Record, layer: Option<Layer>) -> bool {
        let is_unnamed = matches!(record.kind(), Kind::Device | Kind::None);
        layer == Some(Layer::Hsa) && record.event() == Some(Event::Free) && is_unnamed
    }

    /// Takes a record and answers of which kind and device its memory is, each `None` where that is not known.
    pub(super) fn see(&mut self, record: &Record, layer: Option<Layer>) -> (Option<Kind>, Option<u8>) {
        let told = (Some(record.kind()).filter(|kind| *kind != Kind::None), record.device());
        if layer != Some(Layer::Hsa) {
            return told;
        }
        if Self::knows_not(record, layer) {
            return self.give_back(record);
        }
        let is_memory = matches!(record.kind(), Kind::Device | Kind::HostPinned);
        if record.event() == Some(Event::Alloc) && is_memory && record.status == 0 {
            let has_room = self.at.len() < MAX_ADDRESSES || self.at.contains_key(&record.address);
            if has_room && record.address != 0 {
                let given = Given { kind: record.kind(), device: record.device(), is_there: true };
                self.at.insert(record.address, given);
            }
        }
        told
    }

    /// A free, or the correction of one that failed: then the memory is there as before.
    fn give_back(&mut self, record: &Record) -> (Option<Kind>, Option<u8>) {
        let is_correction = record.has(flag::CORRECTION);
        let Some(given) = self.at.get_mut(&record.address) else { return (None, None) };
        if given.is_there == is_correction {
            return (None, None);
        }
        given.is_there = is_correction && record.status != 0;
        (Some(given.kind), given.device.filter(|device| *device != NO_DEVICE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: Event, kind: Kind, device: u8, address: u64) -> Record {
        Record { event: event as u8, kind_flags: kind as u8, device, address, ..Record::default() }
    }

    fn see(given: &mut GivenByHsa, record: &Record) -> (Option<Kind>, Option<u8>) {
        given.see(record, Some(Layer::Hsa))
    }

    #[test]
    fn a_free_is_of_what_was_given() {
        let mut given = GivenByHsa::default();
        see(&mut given, &record(Event::Alloc, Kind::HostPinned, NO_DEVICE, 0x1000));
        see(&mut given, &record(Event::Alloc, Kind::Device, 1, 0x2000));
        for kind in [Kind::None, Kind::Device] {
            let mut given = given.clone();
            let free = |address| record(Event::Free, kind, 0, address);
            assert_eq!(see(&mut given, &free(0x1000)), (Some(Kind::HostPinned), None));
            assert_eq!(see(&mut given, &free(0x2000)), (Some(Kind::Device), Some(1)));
            assert_eq!(see(&mut given, &free(0x2000)), (None, None), "nobody knows what lies there now");
            assert_eq!(see(&mut given, &free(0x3000)), (None, None));
        }
    }

    #[test]
    fn a_free_that_failed_gave_nothing_back() {
        let mut given = GivenByHsa::default();
        see(&mut given, &record(Event::Alloc, Kind::Device, 1, 0x2000));
        let free = record(Event::Free, Kind::None, NO_DEVICE, 0x2000);
        let correction = Record { kind_flags: Kind::None as u8 | flag::CORRECTION, status: 1, ..free };
        let device = (Some(Kind::Device), Some(1));
        assert_eq!([see(&mut given, &free), see(&mut given, &correction)], [device; 2]);
        assert_eq!(see(&mut given, &free), device);
    }

    #[test]
    fn other_frees_say_themselves_what_they_free() {
        let mut given = GivenByHsa::default();
        let unpin = record(Event::Free, Kind::Queue, 0, 0x2000);
        assert_eq!(see(&mut given, &unpin), (Some(Kind::Queue), Some(0)));
        let hip = record(Event::Free, Kind::Device, 0, 0x2000);
        assert_eq!(given.see(&hip, Some(Layer::Runtime)), (Some(Kind::Device), Some(0)));
    }
}
