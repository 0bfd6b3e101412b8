//! C. Memory that other processes may open.

use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};
use gpuoom_trace::record::{Event, Kind, Record};

use super::scenes::{at_failure, sampled, set};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable};
use crate::testing::{GIB, MIB, TraceBuilder};

const ROCM_7: i32 = 70_051_831;
const ROCM_6: i32 = 60_443_483;

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "ipc-export-pin",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "8 GiB were exported and freed, free memory rose by 100 MiB, and no other process is counted with memory",
        scene: || exported(ROCM_7, 100 * MIB),
    },
    Labelled {
        id: "ipc-export-pin",
        says: Says::Found(Possible),
        also: &["known-bad-version"],
        story: "the same, and nobody read free memory before and after",
        scene: || freed_unread(),
    },
    Labelled {
        id: "ipc-export-pin",
        says: Says::Found(Possible),
        also: &["known-bad-version"],
        story: "code was loaded between the readings, which takes memory, too",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(ROCM_7);
            give(&mut trace, true);
            sampled(&mut trace, [(RuntimeFree, 10 * GIB)]);
            take(&mut trace);
            let record = trace.record(Event::Module, Kind::Code, "hipModuleLoadData");
            trace.push(Record { address: 0x7000, ..record }, &[]);
            sampled(&mut trace, [(RuntimeFree, 10 * GIB)]);
            refuse(&mut trace, 10 * GIB, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "ipc-export-pin",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "4000 small blocks came between the readings: what rounding adds to them is what did not become free",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(ROCM_7);
            give(&mut trace, true);
            sampled(&mut trace, [(RuntimeFree, 10 * GIB)]);
            take(&mut trace);
            (0..4000).for_each(|block| _ = trace.alloc(0x900_0000_0000 + block * 2 * MIB, 4096));
            sampled(&mut trace, [(RuntimeFree, 10 * GIB)]);
            refuse(&mut trace, 10 * GIB, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "ipc-export-pin",
        says: Says::Found(Possible),
        also: &["known-bad-version"],
        story: "another process lives that may still have it open",
        scene: || {
            let trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(ROCM_7);
            freed_beside(trace, true, 100 * MIB, GIB)
        },
    },
    Labelled {
        id: "ipc-export-pin",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "as much was given by a pool between the readings and freed on a stream: it may not be back yet",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(ROCM_7);
            give(&mut trace, true);
            sampled(&mut trace, [(RuntimeFree, 10 * GIB)]);
            take(&mut trace);
            trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x90_0000_0000, 8 * GIB);
            trace.free_kind(Kind::Pool, "hipFreeAsync", 0x90_0000_0000);
            sampled(&mut trace, [(RuntimeFree, 10 * GIB)]);
            refuse(&mut trace, 10 * GIB, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "ipc-export-pin",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "free memory rose by what was freed",
        scene: || exported(ROCM_7, 8 * GIB),
    },
    Labelled {
        id: "ipc-export-pin",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "ROCm 6.4 exports in another way",
        scene: || exported(ROCM_6, 100 * MIB),
    },
    Labelled {
        id: "ipc-export-pin",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "the exports of earlier releases are asked for",
        scene: || {
            let mut scene = exported(ROCM_7, 100 * MIB);
            set(&mut scene.trace, "HSA_ENABLE_IPC_MODE_LEGACY", "1");
            scene
        },
    },
    Labelled {
        id: "ipc-export-pin",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "the memory that was freed had not been exported",
        scene: || freed(TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(ROCM_7), false, 100 * MIB),
    },
];

fn exported(version: i32, risen: u64) -> Scene {
    freed(TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(version), true, risen)
}

fn give(trace: &mut TraceBuilder, exports: bool) {
    for block in 0..8 {
        let address = 0x10_0000_0000 + block * 2 * GIB;
        trace.alloc(address, GIB);
        if exports {
            let record = trace.record(Event::Export, Kind::Device, "hipIpcGetMemHandle");
            trace.push(Record { address, ..record }, &[]);
        }
    }
}

fn take(trace: &mut TraceBuilder) {
    (0..8).for_each(|block| _ = trace.free(0x10_0000_0000 + block * 2 * GIB));
}

fn refuse(trace: &mut TraceBuilder, free: u64, others: u64) {
    let seq = trace.refuse(20 * GIB);
    let read = [
        (RuntimeFree, free),
        (VramTotal, 24 * GIB),
        (VramUsed, 24 * GIB - free),
        (KfdProcessVram, 24 * GIB - free - others),
        (KfdOthersVram, others),
    ];
    at_failure(trace, seq, read);
}

/// 8 GiB go between two readings, and then a request fails.
fn freed(trace: TraceBuilder, exports: bool, risen: u64) -> Scene {
    freed_beside(trace, exports, risen, 0)
}

/// The same while other processes hold some of the card.
fn freed_beside(mut trace: TraceBuilder, exports: bool, risen: u64, others: u64) -> Scene {
    give(&mut trace, exports);
    sampled(&mut trace, [(RuntimeFree, 10 * GIB)]);
    take(&mut trace);
    sampled(&mut trace, [(RuntimeFree, 10 * GIB + risen)]);
    refuse(&mut trace, 10 * GIB + risen, others);
    Scene { trace }
}

fn freed_unread() -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(ROCM_7);
    give(&mut trace, true);
    take(&mut trace);
    refuse(&mut trace, 11 * GIB, 0);
    Scene { trace }
}
