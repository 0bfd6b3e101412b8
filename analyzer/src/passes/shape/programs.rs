//! Programs for tests, written down call by call.

use gpuoom_trace::metadata::{Quantity, Reading, trigger};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

use crate::testing::{GIB, MIB, TraceBuilder};

/// Parameters of a small model, in bytes: all different, so that their order can be told.
pub(crate) const PARAMETERS: [u64; 12] = [96, 33, 40, 21, 57, 12, 71, 84, 18, 29, 45, 63];

/// A program that is written down call by call.
pub(crate) struct Program {
    /// What it does.
    pub(crate) trace: TraceBuilder,
    /// Number of the next block.
    pub(crate) next: u64,
}

impl Program {
    pub(crate) fn new() -> Self {
        Program { trace: TraceBuilder::default().device(0, "card", 16 * GIB), next: 1 }
    }

    pub(crate) fn give(&mut self, bytes: u64) -> u64 {
        let address = self.next << 36;
        self.next += 1;
        self.trace.alloc(address, bytes);
        address
    }

    /// A block that is never given back.
    pub(crate) fn keep(&mut self, bytes: u64) {
        self.give(bytes);
    }

    /// A block that another thread asks for.
    pub(crate) fn keep_on(&mut self, thread: u32, bytes: u64) -> u64 {
        let address = self.next << 36;
        self.next += 1;
        let record = self.trace.record_on(thread, Event::Alloc, Kind::Device, "hipMalloc");
        self.trace.push(Record { address, requested: bytes, site: self.trace.site, ..record }, &[]);
        address
    }

    pub(crate) fn take(&mut self, addresses: &[u64]) {
        addresses.iter().for_each(|address| {
            self.trace.free(*address);
        });
    }

    pub(crate) fn pause(&mut self) {
        self.trace.now_ns += 500_000_000;
    }

    pub(crate) fn mark(&mut self, label: &str) {
        let mark = self.trace.record(Event::Mark, Kind::None, "gpuoom_mark");
        self.trace.with_text(Record { device: NO_DEVICE, ..mark }, label);
    }

    pub(crate) fn load(&mut self) -> Vec<u64> {
        PARAMETERS.iter().map(|size| self.give(size * MIB)).collect()
    }

    /// A step: activations, gradients in reverse, and all back.
    pub(crate) fn step(&mut self, activation_bytes: u64) {
        let mut blocks: Vec<u64> = (0..8).map(|layer| self.give(activation_bytes + layer * MIB)).collect();
        blocks.extend(
            PARAMETERS.iter().rev().map(|size| size * MIB).collect::<Vec<_>>().iter().map(|size| self.give(*size)),
        );
        self.take(&blocks);
    }

    pub(crate) fn read(&mut self, used_bytes: u64) {
        self.read_as(used_bytes, false);
    }

    /// The memory in use; `by_process`: as that of this process.
    pub(crate) fn read_as(&mut self, used_bytes: u64, by_process: bool) {
        let record = self.trace.record(Event::Reading, Kind::None, "gpuoom_reading");
        let record = Record { status: trigger::PERIOD, device: NO_DEVICE, ..record };
        let reading = |quantity, value| Reading { quantity: quantity as u16, device: 0, value };
        let of_process = by_process.then(|| reading(Quantity::KfdProcessVram, used_bytes));
        let of_all = [reading(Quantity::VramTotal, 16 * GIB), reading(Quantity::VramUsed, used_bytes)];
        let readings: Vec<Reading> = of_all.into_iter().chain(of_process).collect();
        self.trace.reading(record, &readings);
    }
}
