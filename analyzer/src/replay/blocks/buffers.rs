//! Buffers of ggml: known by their handles, each with the memory that a call of the runtime gave for it.

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, NO_DEVICE, Record};

use super::{Blocks, Given, NameNumber};
use crate::replay::Replay;
use crate::replay::block::Side;
use crate::replay::purpose::{Purpose, purpose_of};

impl Blocks {
    /// The memory at this address is no buffer's any more; answers the device that it lay on.
    fn buffer_goes(&mut self, allocator: u8, address: u64, at: u64) -> Option<u8> {
        let given = self.allocators[usize::from(allocator)].live.remove(&address)?;
        let place = self.place_of(given.device);
        self.devices[place].taken(&given, 0, at, &mut self.rows_left);
        Some(given.device)
    }
}

impl Replay {
    /// ggml made a buffer, freed one, or said what one is for. Of handles that are not known it may say anything: those are buffers of
    /// the processor.
    pub(super) fn buffer_told(&mut self, record: &Record, payload: &[u8], allocator: u8) {
        let device = match record.event() {
            Some(Event::Block) => self.buffer_made(record, payload, allocator),
            Some(Event::BlockFree) => {
                let memory = self.blocks.buffers.remove(&record.address);
                memory.and_then(|address| self.blocks.buffer_goes(allocator, address, record.at))
            }
            Some(Event::BlockUse) => self.buffer_used(record, allocator),
            _ => None,
        };
        let Some(device) = device else { return };
        let place = self.blocks.place_of(device);
        self.blocks.devices[place].told(allocator).events += 1;
        self.look_for_peak_on(device, record);
    }

    fn buffer_made(&mut self, record: &Record, payload: &[u8], allocator: u8) -> Option<u8> {
        let mut numbers = payload::unpack_numbers(payload);
        let (memory, calls) = (numbers.next()?, numbers.next()?);
        // A handle that comes again is another buffer, whatever became of the first.
        if let Some(old) = self.blocks.buffers.remove(&record.address) {
            self.blocks.buffer_goes(allocator, old, record.at);
        }
        // Of several pieces nobody told which bytes are whose; memory of the host is no device's.
        let segment = self.blocks.segments.at(memory).filter(|_| calls == 1);
        let (side, device) = segment.map(|segment| (Side::of(segment.kind), segment.device))?;
        if side != Side::Device || device == NO_DEVICE {
            return None;
        }
        let purpose = purpose_of(self.scopes.of(record.thread), &self.apis, side).0;
        let (size_bytes, entered, site) = (record.requested, self.events, record.site);
        self.blocks.buffers.insert(record.address, memory);
        let name = NameNumber::NONE;
        let given =
            Given { address: memory, size_bytes, entered, site, nth: 0, device, allocator, name, slot: 0, purpose };
        self.blocks.give(given, record, &self.sites);
        Some(device)
    }

    /// What ggml says of a buffer counts before what its functions let see.
    fn buffer_used(&mut self, record: &Record, allocator: u8) -> Option<u8> {
        let memory = self.blocks.buffers.get(&record.address)?;
        let given = self.blocks.allocators[usize::from(allocator)].live.get_mut(memory)?;
        if let Some(purpose) = Purpose::told(record.status) {
            given.purpose = purpose;
        }
        Some(given.device)
    }

    /// Memory that the runtime took back is no buffer's any more, whether ggml told of that or not.
    pub(super) fn end_buffers_below(&mut self, at: u64) {
        let Some(allocator) = self.blocks.ggml else { return };
        for (block, comes) in self.live.latest_changes() {
            if !comes {
                self.blocks.buffer_goes(allocator, block.address, at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::{Kind, usage};

    use super::*;
    use crate::replay::Options;
    use crate::testing::{GIB, MIB, TraceBuilder, replay};

    const MEMORY: u64 = 0x7f00_0000_0000;
    const LOAD: [&str; 3] =
        ["llama_model_load_from_file", "ggml_backend_alloc_ctx_tensors_from_buft", "ggml_backend_buft_alloc_buffer"];

    fn trace() -> TraceBuilder {
        let mut trace = TraceBuilder::new(MIB).device(0, "Card", GIB);
        trace.scope(&LOAD);
        trace.alloc(MEMORY, 8 * MIB);
        trace.buffer(0x10, MEMORY, 8 * MIB);
        trace
    }

    /// What lives at the end, by what it is for, in MiB; whatever a file holds, blocks and sums agree.
    fn held(trace: &TraceBuilder) -> Vec<(Purpose, u64)> {
        let replay = replay(trace, Options::default());
        let Some(now) = replay.blocks.now(0, 0) else { return Vec::new() };
        let rows = now.of.iter().flat_map(|one| &one.rows);
        let rows: Vec<_> = rows.map(|row| (row.purpose, (row.bytes / u128::from(MIB)) as u64)).collect();
        let all: u128 = now.of.iter().map(|one| one.state.bytes).sum();
        assert_eq!(all, u128::from(rows.iter().map(|(_, mib)| mib * MIB).sum::<u64>()));
        rows
    }

    #[test]
    fn a_buffer_is_what_ggml_says_it_is_for_or_else_what_its_functions_do() {
        let mut trace = trace();
        assert_eq!(held(&trace), [(Purpose::Weights, 8)]);
        let mut told = trace.clone();
        told.buffer_use(0x10, usage::ANY);
        assert_eq!(held(&told), [(Purpose::Weights, 8)], "that says nothing");
        told.buffer_use(0x10, usage::COMPUTE);
        assert_eq!(held(&told), [(Purpose::Compute, 8)]);
        told.buffer_use(0x10, 77);
        assert_eq!(held(&told), [(Purpose::Compute, 8)], "a number of a later version");
        trace.scope(&[]);
        trace.alloc(MEMORY + GIB, MIB);
        trace.buffer(0x20, MEMORY + GIB, MIB);
        assert_eq!(held(&trace), [(Purpose::Unknown, 1), (Purpose::Weights, 8)]);
    }

    #[test]
    fn a_buffer_ends_with_its_handle_or_with_its_memory() {
        let mut freed = trace();
        freed.buffer_free(0x10);
        assert_eq!(held(&freed), []);
        freed.free(MEMORY);
        assert_eq!(held(&freed), []);
        let mut untold = trace();
        untold.free(MEMORY);
        assert_eq!(held(&untold), [], "nobody told");
        untold.buffer_use(0x10, usage::COMPUTE);
        untold.buffer_free(0x10);
        assert_eq!(held(&untold), []);
        // The handle comes again, though no free was told.
        let mut again = trace();
        again.alloc(MEMORY + GIB, 2 * MIB);
        again.buffer(0x10, MEMORY + GIB, 2 * MIB);
        assert_eq!(held(&again), [(Purpose::Weights, 2)]);
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut trace = trace();
        trace.buffer_free(0x99);
        trace.buffer_use(0x99, usage::WEIGHTS);
        // In two pieces; in memory that nobody gave; in memory of the host; without a word of its memory.
        trace.alloc(MEMORY + GIB, MIB);
        trace.buffer_of(0x20, 2 * MIB, &[MEMORY + GIB, 2]);
        trace.buffer_of(0x30, MIB, &[MEMORY + 9 * GIB, 1]);
        trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", MEMORY + 2 * GIB, MIB);
        trace.buffer_of(0x40, MIB, &[MEMORY + 2 * GIB, 1]);
        trace.buffer_of(0x50, MIB, &[]);
        assert_eq!(held(&trace), [(Purpose::Weights, 8)]);
    }

    #[test]
    fn buffers_change_no_account_and_the_peak_keeps_theirs() {
        let mut with = trace();
        with.buffer_use(0x10, usage::WEIGHTS);
        with.scope(&["llama_init_from_model", LOAD[1], LOAD[2]]);
        with.alloc(MEMORY + GIB, 16 * MIB);
        with.buffer(0x20, MEMORY + GIB, 16 * MIB);
        with.buffer_free(0x20);
        with.free(MEMORY + GIB);
        with.buffer_free(0x10);
        with.free(MEMORY);
        let with = replay(&with, Options::default());
        let account = with.accounts.device(0).unwrap();
        assert_eq!((account.calls.allocations, account.calls.frees), (2, 2));
        assert_eq!(account.peak.held.requested_bytes, 24 * u128::from(MIB));
        let peak = with.blocks.at_peak(0).unwrap();
        let mut purposes: Vec<_> = peak.of[0].rows.iter().map(|row| (row.purpose, row.bytes)).collect();
        purposes.sort_unstable();
        let mib = |mib: u64| u128::from(mib * MIB);
        assert_eq!(purposes, [(Purpose::Weights, mib(8)), (Purpose::KvCache, mib(16))]);
        assert!(peak.of[0].room.as_ref().is_some_and(|room| room.unused_bytes == 0));
    }
}
