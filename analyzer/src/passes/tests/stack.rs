//! A simulated stack of layers that keeps its own log: what the lowest layer holds.

use std::collections::BTreeMap;

use gpuoom_trace::record::{Event, Kind, Record, flag};
use proptest::prelude::*;

use crate::testing::{At, MIB, TraceBuilder, at};

const HSA: &str = "hsa_amd_memory_pool_allocate";
const HSA_FREE: &str = "hsa_amd_memory_pool_free";
const KFD: &str = "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU";
const KFD_FREE: &str = "AMDKFD_IOC_FREE_MEMORY_OF_GPU";

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Alloc { slot: u8, bytes: u64, sort: Sort },
    Free { slot: u8, fails: bool },
    Refuse { bytes: u64 },
}

/// Who asks for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Device,
    Pool,
    Array,
    Managed,
    Library,
    Runtime,
    Handle,
}

/// How deep the recorder sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Runtime,
    Hsa,
    Kernel,
}

pub(super) fn action() -> impl Strategy<Value = Action> {
    use Sort::*;
    let sort = prop::sample::select(vec![Device, Device, Device, Pool, Array, Managed, Library, Runtime, Handle]);
    prop_oneof![
        6 => (any::<u8>(), 1..64 * MIB, sort).prop_map(|(slot, bytes, sort)| Action::Alloc { slot, bytes, sort }),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(slot, fails)| Action::Free { slot, fails: fails && slot % 4 == 0 }),
        1 => (1..64 * MIB).prop_map(|bytes| Action::Refuse { bytes }),
    ]
}

pub(super) fn depth() -> impl Strategy<Value = Depth> {
    prop::sample::select(vec![Depth::Runtime, Depth::Hsa, Depth::Kernel])
}

/// The stack and its log.
pub(super) struct Stack {
    pub(super) trace: TraceBuilder,
    depth: Depth,
    live: BTreeMap<u8, (Sort, Vec<At>)>,
    /// What the lowest recorded layer holds, by its own numbers.
    pub(super) held: BTreeMap<u64, u64>,
    /// What that was at each refusal.
    pub(super) held_at_refusals: Vec<u64>,
    /// Bytes that the runtime took for itself over the whole run, given back or not.
    pub(super) runtimes_own_bytes: u64,
    next: u64,
}

impl Stack {
    pub(super) fn new(depth: Depth) -> Self {
        let (trace, live, held) = (super::builder(), BTreeMap::new(), BTreeMap::new());
        Stack { trace, depth, live, held, held_at_refusals: Vec::new(), runtimes_own_bytes: 0, next: 1 }
    }

    pub(super) fn total(&self) -> u64 {
        self.held.values().sum()
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Alloc { slot, .. } if self.live.contains_key(&slot) => {}
            Action::Alloc { slot, bytes, sort } => self.alloc(slot, bytes, sort),
            Action::Free { slot, fails } => self.free(slot, fails),
            Action::Refuse { bytes } => {
                self.trace.refuse(bytes);
                self.held_at_refusals.push(self.total());
            }
        }
    }

    /// The calls of one allocation from top to bottom, as far as they are recorded.
    fn calls(&mut self, bytes: u64, sort: Sort) -> Vec<At> {
        self.next += 1;
        let pointer = 0x7f00_0000_0000 + self.next * 64 * MIB;
        let upper = |api, kind| At { api, kind, address: pointer, bytes };
        let mut calls = match sort {
            Sort::Device | Sort::Library | Sort::Handle => vec![upper("hipMalloc", Kind::Device)],
            Sort::Pool => vec![upper("hipMallocAsync", Kind::Pool)],
            Sort::Array => vec![upper("hipMallocArray", Kind::Array)],
            Sort::Managed => vec![upper("hipMallocManaged", Kind::Managed)],
            Sort::Runtime => vec![],
        };
        // Managed memory is an ordinary mapping of the host.
        let reaches = |wanted: Depth| sort != Sort::Managed && self.depth as u8 >= wanted as u8;
        if reaches(Depth::Hsa) {
            calls.push(at(HSA, pointer, bytes.next_multiple_of(4096)));
        }
        if reaches(Depth::Kernel) {
            calls.push(at(KFD, 0x99_0000_0000 + self.next, bytes.next_multiple_of(2 * MIB)));
        }
        calls
    }

    fn alloc(&mut self, slot: u8, bytes: u64, sort: Sort) {
        let calls = self.calls(bytes, sort);
        let Some(lowest) = calls.last().copied() else { return };
        match sort {
            Sort::Library | Sort::Runtime => drop(self.trace.alloc_through(flag::FROM_RUNTIME, &calls)),
            Sort::Handle => self.handle(&calls),
            _ => drop(self.trace.alloc_through(0, &calls)),
        }
        if sort == Sort::Runtime {
            self.runtimes_own_bytes += lowest.bytes;
        }
        if sort != Sort::Managed {
            self.held.insert(lowest.address, lowest.bytes);
        }
        self.live.insert(slot, (sort, calls));
    }

    /// A library's handle, in which it allocates: three calls inside each other at most.
    fn handle(&mut self, calls: &[At]) {
        let outer = self.trace.record(Event::Module, Kind::None, "rocblas_create_handle");
        let mut records: Vec<Record> = Vec::new();
        for call in calls {
            let record = self.trace.record(Event::Alloc, Kind::Device, call.api);
            records.push(Record { parent_distance: 1, address: call.address, requested: call.bytes, ..record });
        }
        while let Some(record) = records.pop() {
            self.trace.push(record, &[]);
        }
        self.trace.push(Record { address: 0x1234, ..outer }, &[]);
    }

    fn free(&mut self, slot: u8, fails: bool) {
        let Some((sort, calls)) = self.live.remove(&slot) else { return };
        let back = |call: &At| At {
            api: match call.api {
                HSA => HSA_FREE,
                KFD => KFD_FREE,
                "hipMallocAsync" => "hipFreeAsync",
                "hipMallocArray" => "hipFreeArray",
                _ => "hipFree",
            },
            ..*call
        };
        let flags = if matches!(sort, Sort::Library | Sort::Runtime | Sort::Handle) { flag::FROM_RUNTIME } else { 0 };
        if fails {
            // The call fails before it calls anything.
            self.trace.free_through(flags, &[back(&calls[0])]);
            self.trace.last_call_failed(1);
            self.live.insert(slot, (sort, calls));
            return;
        }
        // A pool keeps what it got from below.
        let reaches = if sort == Sort::Pool { 1 } else { calls.len() };
        let backs: Vec<At> = calls[..reaches].iter().map(back).collect();
        self.trace.free_through(flags, &backs);
        if reaches == calls.len()
            && let Some(lowest) = calls.last()
        {
            self.held.remove(&lowest.address);
        }
    }
}
