//! Memory that vendor libraries take for themselves, outside any call of the program.

use gpuoom_trace::record::{Kind, Layer, Record};
use rustc_hash::FxHashMap;

/// One piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Internal {
    /// Device number as recorded.
    pub device: u8,
    /// Layer that was asked.
    pub layer: Layer,
    /// Kind of memory.
    pub kind: Kind,
    /// Bytes asked for.
    pub requested_bytes: u64,
}

/// All pieces that live, by address.
#[derive(Clone, Debug, Default)]
pub struct Internals {
    live: FxHashMap<u64, Internal>,
}

impl Internals {
    /// A vendor library got memory.
    pub fn take_in(&mut self, record: &Record, layer: Layer) {
        let piece = Internal { device: record.device, layer, kind: record.kind(), requested_bytes: record.requested };
        self.live.insert(record.address, piece);
    }

    /// Memory is given back; whether it was here.
    #[inline]
    pub fn let_go(&mut self, address: u64) -> bool {
        !self.live.is_empty() && self.live.remove(&address).is_some()
    }

    /// Bytes of a device by layer and kind, in a fixed order.
    pub fn of_device(&self, device: u8) -> Vec<(Layer, Kind, u64, u64)> {
        let mut sums = std::collections::BTreeMap::<(Layer, Kind), (u64, u64)>::new();
        for piece in self.live.values().filter(|piece| piece.device == device) {
            let sum = sums.entry((piece.layer, piece.kind)).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(piece.requested_bytes));
        }
        sums.into_iter().map(|((layer, kind), (pieces, bytes))| (layer, kind, pieces, bytes)).collect()
    }
}
