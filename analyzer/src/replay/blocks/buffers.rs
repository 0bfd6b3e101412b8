//! Buffers of ggml: known by their handles, each with the memory that a call of the runtime gave for it.

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, NO_DEVICE, Record};

use super::{Blocks, Given};
use crate::replay::Replay;
use crate::replay::block::Side;
use crate::replay::purpose::{Purpose, purpose_of};

impl Blocks {
    /// The memory at this address is no buffer's any more; answers the device that it lay on.
    fn buffer_goes(&mut self, allocator: u8, address: u64) -> Option<u8> {
        let given = self.allocators[usize::from(allocator)].live.remove(&address)?;
        let place = self.place_of(given.device);
        self.devices[place].taken(&given, 0);
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
                memory.and_then(|address| self.blocks.buffer_goes(allocator, address))
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
            self.blocks.buffer_goes(allocator, old);
        }
        // Of several pieces nobody told which bytes are whose; memory of the host is no device's.
        let segment = self.blocks.segments.at(memory).filter(|_| calls == 1);
        let (side, device) = segment.map(|segment| (Side::of(segment.kind), segment.device))?;
        if side != Side::Device || device == NO_DEVICE {
            return None;
        }
        let purpose = purpose_of(self.scopes.of(record.thread), &self.apis, side).0;
        let (size_bytes, entered, site) = (record.requested, self.events, record.site);
        let python = self.sites.looked_for_python(site);
        self.blocks.buffers.insert(record.address, memory);
        self.blocks.give(Given { address: memory, size_bytes, entered, site, device, allocator, purpose }, python);
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
    pub(super) fn end_buffers_below(&mut self) {
        let Some(allocator) = self.blocks.ggml else { return };
        for (block, comes) in self.live.latest_changes() {
            if !comes {
                self.blocks.buffer_goes(allocator, block.address);
            }
        }
    }
}
