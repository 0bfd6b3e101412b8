//! What a program orders beside memory: waits, captures, settings of pools, code, graphs, exports.

use gpuoom_trace::payload;
use gpuoom_trace::record::{NO_DEVICE, Record, flag};

use super::Tracks;
use crate::replay::apis::Does;
use crate::replay::block::{Block, Side};

/// Whether an error of the end of a capture means that nothing is captured any more: `cudaErrorStreamCaptureInvalidated` and
/// `cudaErrorStreamCaptureUnjoined`, which HIP numbers alike.
fn ends_void(status: i32) -> bool {
    matches!(status, 901 | 904)
}

impl Tracks {
    /// The program waited, or ordered what a stream does.
    pub(in crate::replay) fn sync(&mut self, record: &Record, payload: &[u8], does: Does) {
        match does {
            // A capture that had become void ends with an error, and gives no graph.
            Does::EndsCapture if ends_void(record.status) => self.captures.end_void(record.thread),
            _ if record.status != 0 => {}
            Does::BeginsCapture => self.captures.begin(record.thread),
            Does::EndsCapture => self.captures.end(record.thread),
            Does::SetsPool => self.set_pool(record, payload),
            Does::ReadsGraphMemory => self.graph_memory_read(payload),
            Does::AsksStream => {}
            _ => self.waited(record, does),
        }
    }

    /// A memory node of a graph was made.
    pub(in crate::replay) fn node_made(&mut self, record: &Record) {
        self.captures.node(record.thread, record.requested);
    }

    /// A pool's attribute was set, or a pool was trimmed.
    #[cold]
    fn set_pool(&mut self, record: &Record, payload: &[u8]) {
        if self.pools.set(record, payload) {
            self.released();
        }
    }

    /// Something was given back, or may have been, and nobody tells how much of it, and on which device.
    pub(in crate::replay) fn released(&mut self) {
        self.done.releases += 1;
    }

    /// The program waited for a device, or for all.
    fn waited(&mut self, record: &Record, does: Does) {
        if does.waits() {
            self.waits.push(record, does);
        }
        self.async_frees.synchronised(record.device);
        if does == Does::WaitsForDevice {
            self.pools.waited(record.device, record.thread);
        }
        if self.retries.is_watching(record.at) {
            self.retries.waited(record.device, record.at);
        }
        match record.device {
            NO_DEVICE => self.done.waits += 1,
            device => self.track(Side::Device, device).done.waits += 1,
        }
    }

    /// What memory nodes hold on a device, as the program read it: the most that was reserved for them at once
    /// (`cudaGraphMemAttrReservedMemCurrent` and `...High`, which HIP numbers alike).
    fn graph_memory_read(&mut self, payload: &[u8]) {
        let mut numbers = payload::unpack_numbers(payload);
        if let (Some(2 | 3), Some(bytes)) = (numbers.next(), numbers.next()) {
            self.graph_reserved = Some(self.graph_reserved.unwrap_or(0).max(bytes));
        }
    }

    /// Code was loaded or unloaded, or a graph made or ended.
    pub(in crate::replay) fn module(&mut self, record: &Record, does: Does) {
        self.done.loads += u64::from(record.status == 0 && matches!(does, Does::LoadsModule | Does::LoadsCode));
        let failed = record.has(flag::CORRECTION);
        if matches!(does, Does::UnloadsModule | Does::UnloadsCode | Does::EndsGraph | Does::DropsGraph) {
            self.released();
        }
        match does {
            Does::UnloadsModule if record.is_outermost() => self.modules.unload(record.at, false, failed),
            Does::UnloadsCode => self.modules.unload(record.at, true, failed),
            Does::EndsGraph if record.is_outermost() => self.captures.destroy(failed),
            _ if record.status != 0 => {}
            Does::LoadsModule if record.is_outermost() => self.modules.load(record.at, false),
            Does::LoadsCode => self.modules.load(record.at, true),
            Does::MakesGraph if record.is_outermost() => self.captures.instantiated += 1,
            _ => {}
        }
    }

    /// A device was reset, or a context ended.
    #[cold]
    pub(in crate::replay) fn ended(&mut self, record: &Record) {
        if record.status == 0 && !record.has(flag::CORRECTION) {
            self.modules.end(record.at);
            self.done.ends += 1;
            self.released();
        }
    }

    /// Memory was made ready for other processes to open; `block` is what it is a part of.
    pub(in crate::replay) fn export(&mut self, block: Option<&Block>) {
        self.exports.export(block);
    }

    /// The same of a pool that the program made, with all that comes from it; false where it made no such pool.
    pub(in crate::replay) fn export_pool(&mut self, handle: u64) -> bool {
        let number = self.pools.number(handle);
        if number != 0 {
            self.exports.export_pool(number);
        }
        number != 0
    }
}
