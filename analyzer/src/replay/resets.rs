//! What a reset of HIP's takes away.
//!
//! `hipDeviceReset` drops HIP's objects on the device (`Device::Reset` in clr `hip_device.cpp`, `MemObjMap::Purge` in rocclr
//! `device.cpp`). From 5.7 on that gives their memory back; before, HIP only forgot it: the pointers are invalid from then on,
//! and the memory is taken until the process ends. Where HSA below was recorded, nobody has to know: what it gives back inside
//! the call is gone, host memory included, and nothing else.

use gpuoom_trace::metadata::DeviceFacts;
use gpuoom_trace::record::{Event, Kind, Layer, Record, flag};
use rustc_hash::FxHashMap;

use super::Replay;
use super::apis::Family;
use super::block::{Side, Space};
use super::undo::Undo;

/// The first version whose reset gives memory back, as HIP encodes it.
const GIVES_BACK: i32 = 50_700_000;

/// What is known about resets.
#[derive(Clone, Debug, Default)]
pub(super) struct Resets {
    /// HIP only forgets.
    forgets: bool,
    /// Resets under way that HSA tells about, by thread.
    open: FxHashMap<u32, u32>,
}

impl Resets {
    pub(super) fn new(devices: &[DeviceFacts]) -> Self {
        let is_old =
            |device: &DeviceFacts| device.runtime == "hip" && (1..GIVES_BACK).contains(&device.runtime_version);
        Resets { forgets: devices.iter().any(is_old), open: FxHashMap::default() }
    }

    /// Whether a record may be inside a reset: a trace without resets pays no more than this question.
    #[inline]
    pub(super) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }
}

impl Replay {
    /// A device of HIP's is reset.
    pub(super) fn reset_device(&mut self, record: &Record) {
        let Some(device) = record.device() else { return };
        match (record.has(flag::CORRECTION), record.status) {
            (true, 0) => return,
            (true, _) => return self.reset_failed(record, device),
            (false, 0) => {}
            (false, _) => return,
        }
        let hsa_tells = self.lower.gave(device, Layer::Hsa);
        if hsa_tells {
            self.resets.open.insert(record.thread, record.call);
        }
        if self.resets.forgets {
            return;
        }
        self.tracks.pools.reset(device);
        // Of physical memory the two layers have different handles, so HSA can't tell.
        let physical = self.vmm.reset(device);
        let mut blocks = Vec::new();
        if !hsa_tells {
            self.lower.reset(record, self.apis.get(record.api), device, &mut self.accounts);
            blocks = self.live.remove_device(device);
        }
        if blocks.is_empty() && physical.is_empty() {
            return;
        }
        blocks.iter().for_each(|block| self.accounts.let_go(block));
        for mapping in physical.mappings() {
            self.accounts.unmapped(mapping);
        }
        physical.blocks().for_each(|block| self.let_go(block, record));
        self.accounts.device_mut(device).calls.reset += (blocks.len() + physical.count()) as u64;
        self.note_change(Side::Device, device, record.at);
        self.last_frees.remember(record, Undo::Reset(blocks, Box::new(physical)));
    }

    /// HSA gives memory back while a reset of HIP's is under way on that thread: what HIP had there is gone.
    #[cold]
    pub(super) fn inside_reset(&mut self, record: &Record) {
        let Some(call) = self.resets.open.get(&record.thread).copied() else { return };
        if record.is_outermost() {
            if record.call != call {
                self.resets.open.remove(&record.thread);
            }
            return;
        }
        let layer = self.apis.get(record.api).layer;
        if layer != Some(Layer::Hsa) || record.has(flag::CORRECTION) {
            return;
        }
        let space = if record.event() == Some(Event::Unpin) {
            Space::Registered
        } else {
            Space::of(Kind::Device, Family::Pointers)
        };
        let of_runtime = self.live.get(space, record.address).is_some_and(|block| block.layer == Layer::Runtime);
        let Some(block) = of_runtime.then(|| self.live.remove(space, record.address)).flatten() else { return };
        self.let_go(&block, record);
        if let Some(account) = self.accounts.of_mut(&block) {
            account.calls.reset += 1;
        }
        self.note_change(Side::of(block.kind), block.device, record.at);
    }

    /// The reset failed: what it took away is still there.
    #[cold]
    fn reset_failed(&mut self, record: &Record, device: u8) {
        self.lower.correct(record, self.apis.get(record.api), self.events, &mut self.accounts);
        let Some(Undo::Reset(blocks, mut physical)) = self.last_frees.take(record.thread, record.call) else { return };
        let count = (blocks.len() + physical.count()) as u64;
        let calls = &mut self.accounts.device_mut(device).calls;
        calls.reset = calls.reset.saturating_sub(count);
        for block in blocks {
            self.bring_back(Side::of(block.kind), block, record.at);
        }
        physical.enter_mappings(self.events);
        for block in physical.blocks_mut() {
            *block = self.enter_again(*block, record.at);
        }
        self.vmm.unreset(*physical);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Options;
    use crate::testing::{GIB, MIB, TraceBuilder, at, replay};

    const HSA: &str = "hsa_amd_memory_pool_allocate";
    const HSA_FREE: &str = "hsa_amd_memory_pool_free";

    fn reset(trace: &mut TraceBuilder) {
        let record = trace.record(Event::Device, Kind::None, "hipDeviceReset");
        trace.push(Record { device: 0, ..record }, &[]);
    }

    /// Addresses that live.
    fn live(trace: &TraceBuilder) -> Vec<u64> {
        let replay = replay(trace, Options::default());
        let mut live: Vec<u64> = replay.live.blocks().map(|block| block.address).collect();
        live.sort_unstable();
        live
    }

    fn holding(version: i32) -> TraceBuilder {
        let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB).runtime_version(version);
        trace.alloc(0x1000, MIB);
        trace
    }

    #[test]
    fn hip_before_5_7_only_forgets() {
        for (version, left) in [(50_221_153, 1), (50_631_061, 1), (50_731_921, 0), (60_443_483, 0), (0, 0)] {
            let mut trace = holding(version);
            reset(&mut trace);
            assert_eq!(live(&trace).len(), left, "{version}");
        }
    }

    #[test]
    fn a_primary_context_s_reset_takes_nothing() {
        let mut trace = holding(60_443_483);
        let record = trace.record(Event::Device, Kind::None, "hipDevicePrimaryCtxReset");
        trace.push(Record { device: 0, ..record }, &[]);
        assert_eq!(live(&trace), [0x1000]);
    }

    /// Two blocks of the device and one of the host, with HSA's below.
    fn above_hsa() -> TraceBuilder {
        let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB).runtime_version(60_443_483);
        for address in [0x1000, 0x2000] {
            trace.alloc_through(0, &[at("hipMalloc", address, MIB), at(HSA, address, MIB)]);
        }
        trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x3000, MIB);
        trace
    }

    #[test]
    fn what_hsa_gives_back_inside_is_gone_and_nothing_else() {
        let mut trace = above_hsa();
        reset(&mut trace);
        assert_eq!(live(&trace), [0x1000, 0x2000, 0x3000], "as on ROCm 5.2");
        for address in [0x1000, 0x3000, 0x9000] {
            let free = trace.record(Event::Free, Kind::Device, HSA_FREE);
            trace.push(Record { parent_distance: 1, address, ..free }, &[]);
        }
        assert_eq!(live(&trace), [0x2000]);
        let replay = replay(&trace, Options::default());
        assert_eq!((replay.accounts.device(0).unwrap().calls.reset, replay.accounts.host.calls.reset), (1, 1));
        assert_eq!(replay.unmatched_frees, 0);
    }

    #[test]
    fn afterwards_frees_are_frees() {
        let mut trace = above_hsa();
        reset(&mut trace);
        trace.free_through(0, &[at("hipFree", 0x2000, 0), at(HSA_FREE, 0x2000, 0)]);
        assert_eq!(live(&trace), [0x1000, 0x3000]);
        assert_eq!(replay(&trace, Options::default()).accounts.device(0).unwrap().calls.reset, 0);
    }
}
