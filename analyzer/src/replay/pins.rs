//! Host memory that HSA pins more than once.
//!
//! The driver's library keeps one object for an address and a size and counts how often it was registered
//! (`registration_count` in libhsakmt `fmm.c`): two threads that copy from the same buffer pin it twice, and only the second
//! unlock unpins it.

use gpuoom_trace::record::{Event, Layer};
use rustc_hash::FxHashMap;

/// How often, beyond the first time, what lies at an address is pinned.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins {
    again: FxHashMap<u64, u64>,
}

impl Pins {
    /// Whether calls of this sort are counted.
    pub(super) fn counts(event: Option<Event>, layer: Option<Layer>) -> bool {
        matches!(event, Some(Event::Pin | Event::Unpin)) && layer == Some(Layer::Hsa)
    }

    /// Whether nothing is pinned more than once: so it is in nearly every trace, at every free.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.again.is_empty()
    }

    /// What is pinned at an address is pinned once more.
    pub(super) fn add(&mut self, address: u64) {
        *self.again.entry(address).or_default() += 1;
    }

    /// It is unpinned once; whether it stays pinned.
    pub(super) fn take(&mut self, address: u64) -> bool {
        let Some(count) = self.again.get_mut(&address) else { return false };
        *count -= 1;
        if *count == 0 {
            self.again.remove(&address);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::{Kind, Record, flag};

    use crate::replay::Options;
    use crate::replay::block::Side;
    use crate::testing::{GIB, MIB, TraceBuilder, at, replay};

    const LOCK: &str = "hsa_amd_memory_lock";
    const UNLOCK: &str = "hsa_amd_memory_unlock";

    fn builder() -> TraceBuilder {
        TraceBuilder::default().device(0, "card", 16 * GIB)
    }

    /// Bytes pinned, calls that pinned, calls that unpinned, unpins of what is not known.
    fn host(trace: &TraceBuilder) -> (u128, u64, u64, u64) {
        let replay = replay(trace, Options::default());
        let host = &replay.accounts.host;
        (host.held.requested_bytes, host.calls.allocations, host.calls.frees, replay.unmatched_frees)
    }

    fn pin(trace: &mut TraceBuilder, size: u64) {
        let record = trace.record(super::Event::Pin, Kind::Registered, LOCK);
        trace.push(Record { address: 0x5000, requested: size, device: 0xFF, ..record }, &[]);
    }

    fn unpin(trace: &mut TraceBuilder) {
        let record = trace.record(super::Event::Unpin, Kind::Registered, UNLOCK);
        trace.push(Record { address: 0x5000, device: 0xFF, ..record }, &[]);
    }

    #[test]
    fn what_is_pinned_twice_is_unpinned_by_the_second_unlock() {
        let mut trace = builder();
        pin(&mut trace, MIB);
        pin(&mut trace, MIB);
        assert_eq!(host(&trace), (MIB.into(), 2, 0, 0), "counted once");
        unpin(&mut trace);
        assert_eq!(host(&trace), (MIB.into(), 2, 1, 0));
        unpin(&mut trace);
        assert_eq!(host(&trace), (0, 2, 2, 0));
        unpin(&mut trace);
        assert_eq!(host(&trace), (0, 2, 2, 1));
    }

    #[test]
    fn an_unlock_that_fails_unpins_nothing() {
        let mut trace = builder();
        pin(&mut trace, MIB);
        pin(&mut trace, MIB);
        unpin(&mut trace);
        trace.last_call_failed(0x1000);
        assert_eq!(host(&trace), (MIB.into(), 2, 0, 0));
        unpin(&mut trace);
        unpin(&mut trace);
        assert_eq!(host(&trace), (0, 2, 2, 0));
    }

    #[test]
    fn hip_may_pin_one_buffer_for_two_copies() {
        let mut trace = builder();
        let inside = |trace: &mut TraceBuilder, event, api: &str, requested| {
            let record = trace.record(event, Kind::Registered, api);
            let kind_flags = record.kind_flags | flag::FROM_RUNTIME;
            trace.push(Record { address: 0x5000, requested, device: 0xFF, kind_flags, ..record }, &[]);
        };
        trace.alloc_through(0, &[at("hipMalloc", 0x1000, MIB), at("hsa_amd_memory_pool_allocate", 0x1000, MIB)]);
        let pinned = |trace: &TraceBuilder| -> u64 {
            replay(trace, Options::default()).lower.blocks(Side::Host, 0).map(|block| block.bytes).sum()
        };
        inside(&mut trace, super::Event::Pin, "hsa_amd_memory_lock_to_pool", MIB);
        inside(&mut trace, super::Event::Pin, "hsa_amd_memory_lock_to_pool", MIB);
        inside(&mut trace, super::Event::Unpin, UNLOCK, 0);
        assert_eq!(pinned(&trace), MIB);
        inside(&mut trace, super::Event::Unpin, UNLOCK, 0);
        assert_eq!(pinned(&trace), 0);
        assert_eq!(replay(&trace, Options::default()).lower.unmatched().count(), 0);
    }
}
