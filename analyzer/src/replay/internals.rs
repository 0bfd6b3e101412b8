//! Memory that vendor libraries take for themselves, outside any call of the program.

use std::collections::BTreeMap;

use gpuoom_trace::record::{Kind, Layer, Record};
use rustc_hash::FxHashMap;

/// What such memory has in common: device, layer that was asked, kind.
type Class = (u8, Layer, Kind);

/// Memory of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of pieces.
    pub pieces: u64,
    /// Bytes asked for. Wide enough that no file can make it overflow.
    pub requested_bytes: u128,
}

/// All pieces that live.
#[derive(Clone, Debug, Default)]
pub struct Internals {
    live: FxHashMap<u64, (Class, u64)>,
    sums: BTreeMap<Class, Sum>,
    /// Calls of vendor libraries that ran out of memory.
    pub failures: u64,
}

impl Internals {
    /// A vendor library got memory.
    pub fn take_in(&mut self, record: &Record, layer: Layer) {
        self.let_go(record.address);
        let class = (record.device, layer, record.kind());
        self.live.insert(record.address, (class, record.requested));
        let sum = self.sums.entry(class).or_default();
        sum.pieces += 1;
        sum.requested_bytes += u128::from(record.requested);
    }

    /// Memory is given back; whether it was here.
    #[inline]
    pub fn let_go(&mut self, address: u64) -> bool {
        if self.live.is_empty() {
            return false;
        }
        let Some((class, requested_bytes)) = self.live.remove(&address) else { return false };
        if let Some(sum) = self.sums.get_mut(&class) {
            sum.pieces -= 1;
            sum.requested_bytes -= u128::from(requested_bytes);
        }
        true
    }

    /// What is held on a device, in a fixed order.
    pub fn of_device(&self, device: u8) -> Vec<(Layer, Kind, Sum)> {
        let classes = self.sums.range((device, Layer::Runtime, Kind::None)..=(device, Layer::Process, Kind::Scratch));
        let held = classes.filter(|(_, sum)| sum.pieces > 0);
        held.map(|((_, layer, kind), sum)| (*layer, *kind, *sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuoom_trace::record::Event;

    #[test]
    fn an_address_counts_once() {
        let mut internals = Internals::default();
        let record = Record { address: 7, requested: 100, device: 0, ..Record::new(Event::Alloc, Kind::Device) };
        internals.take_in(&record, Layer::Hsa);
        internals.take_in(&Record { requested: 50, ..record }, Layer::Hsa);
        let sum = Sum { pieces: 1, requested_bytes: 50 };
        assert_eq!(internals.of_device(0), [(Layer::Hsa, Kind::Device, sum)]);
        assert!(internals.of_device(1).is_empty());
        assert!(internals.let_go(7) && !internals.let_go(7));
        assert!(internals.of_device(0).is_empty());
    }
}
