//! A. Ceilings below what the device has.

use gpuoom_trace::metadata::Quantity::{
    HostTotal, KfdOthersVram, KfdProcessVram, LargestAllocatable, NvmlTotal, NvmlUsed, RuntimeFree, VramTotal, VramUsed,
};
use gpuoom_trace::record::{Event, Kind, Record, process};

use super::scenes::{at_failure, set, with_log};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder, at};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "single-alloc-cap",
        says: Says::First(Proven),
        also: &[],
        story: "12 GiB at once with a cap of 40 % of 24, a smaller block works, and the runtime asked nobody",
        scene: || one_large(12 * GIB, 9830 * MIB, true),
    },
    Labelled {
        id: "single-alloc-cap",
        says: Says::First(Probable),
        also: &[],
        story: "the same in a trace that has nothing below the runtime",
        scene: || one_large(12 * GIB, 9830 * MIB, false),
    },
    Labelled {
        id: "single-alloc-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "12 GiB at once with a cap of 9.6, and no block above 9.4 was given",
        scene: || one_large(12 * GIB, 9600 * MIB, false),
    },
    Labelled {
        id: "single-alloc-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "smaller requests fail too",
        scene: || one_large(12 * GIB, 0, true),
    },
    Labelled {
        id: "single-alloc-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "8 GiB are below the cap",
        scene: || one_large(8 * GIB, 4 * GIB, true),
    },
    Labelled {
        id: "single-alloc-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "12 GiB at once with a cap of 40 % of 24, and a block of 11 could be allocated right after it",
        scene: || one_large(12 * GIB, 11 * GIB, true),
    },
    Labelled {
        id: "single-alloc-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same, and a block of 12 GiB had been given before",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x80_0000_0000, 12 * GIB);
            trace.free(0x80_0000_0000);
            one_large_in(trace, 12 * GIB, 9830 * MIB, true)
        },
    },
    Labelled {
        id: "single-alloc-cap",
        says: Says::First(Proven),
        also: &[],
        story: "GPU_MAX_HEAP_SIZE=50 leaves HIP 12 of 24 GiB: 14 in one block are refused with 20 free, and a block of 12 is given",
        scene: || above_heap(12 * GIB),
    },
    Labelled {
        id: "single-alloc-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same, and no block above 5 GiB was given",
        scene: || above_heap(5 * GIB),
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::Not,
        also: &["true-capacity"],
        story: "GPU_MAX_HEAP_SIZE=50 leaves HIP 12 of 24 GiB, and 14 are asked for with 11 free: no more than the card has",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 12 * GIB);
            set(&mut trace, "GPU_MAX_HEAP_SIZE", "50");
            (0..13).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(14 * GIB);
            let read = [
                (RuntimeFree, 11 * GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 13 * GIB),
                (KfdProcessVram, 13 * GIB),
                (KfdOthersVram, 0),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "GPU_MAX_HEAP_SIZE=50: 12 of 24 GiB are allowed, and the program had held 13 before",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            set(&mut trace, "GPU_MAX_HEAP_SIZE", "50");
            trace.alloc(0x80_0000_0000, 13 * GIB);
            trace.free(0x80_0000_0000);
            refused_and_tried(trace, 4 * GIB, 12 * GIB, Some(900 * MIB))
        },
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "GPU_MAX_HEAP_SIZE=50: 12 of 24 GiB are allowed, 11 are held, 4 more are asked for, and 900 MiB could be had",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            set(&mut trace, "GPU_MAX_HEAP_SIZE", "50");
            refused_and_tried(trace, 4 * GIB, 12 * GIB, Some(900 * MIB))
        },
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the same, and nobody tried what could be had",
        scene: || heap("50", 4 * GIB),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["other-process-on-gpu", "phantom-free", "sysfs-free-overreported"],
        story: "GPU_MAX_HEAP_SIZE=50, and the runtime calls free what others hold: the driver's counters say that the card is full",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            set(&mut trace, "GPU_MAX_HEAP_SIZE", "50");
            refused_with(trace, 4 * GIB, 23 * GIB)
        },
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "GPU_MAX_HEAP_SIZE=60 allows 3 GiB more, and no block above 100 MiB was given",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            set(&mut trace, "GPU_MAX_HEAP_SIZE", "60");
            refused_and_tried(trace, 4 * GIB, 12 * GIB, Some(100 * MIB))
        },
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "GPU_MAX_HEAP_SIZE=90 leaves enough room",
        scene: || heap("90", 4 * GIB),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "a limit of CUDA's, and the program runs over HIP",
        scene: || limited("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=12G", false),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "a limit of HIP's, and the program runs over CUDA",
        scene: || limited("GPU_MAX_HEAP_SIZE", "50", true),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the limit is for another device",
        scene: || limited("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "1=12G", true),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::First(Probable),
        also: &[],
        story: "a limit of 12 GiB for this device, and nobody knows whether an MPS server keeps to it",
        scene: || limited("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=12G", true),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the requests come to 100 MiB below the limit: rounding and the runtime's own memory decide, and count toward it",
        scene: || limited("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=15460M", true),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the requests come to 3 GiB below the limit for this device",
        scene: || limited("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=18G", true),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Found(Possible),
        also: &[],
        story: "JAX has a share, and ends with an error although no call failed",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace = trace.library("/usr/lib/python3/jaxlib/xla_extension.so", 0x5000_0000, 1);
            set(&mut trace, "XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5");
            trace.alloc(0x10_0000_0000, 12 * GIB);
            trace.end(process::EXITS, 1);
            Scene { trace }
        },
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::First(Proven),
        also: &[],
        story: "PyTorch's message: 2 MiB with 244 GiB free and 1.05 GiB allowed, and no call failed (TheRock#2118)",
        scene: || by_message(false),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same message, and a device call of that size failed: the driver refused it",
        scene: || by_message(true),
    },
];

const ALLOWED: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of \
    255.98 GiB of which 244.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.00 MiB is allocated by PyTorch, with \
    17.00 MiB allocated in private pools (e.g., CUDA Graphs), and 72.00 MiB is reserved by PyTorch but unallocated.";

fn by_message(refused: bool) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 256 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    if refused {
        let seq = trace.refuse(2 * MIB);
        at_failure(&mut trace, seq, [(RuntimeFree, 244 * GIB), (VramTotal, 256 * GIB), (VramUsed, 12 * GIB)]);
    }
    with_log(trace, ALLOWED)
}

/// A large request on an empty card; the probe then finds some bytes.
fn one_large(asked: u64, largest: u64, saw_below: bool) -> Scene {
    one_large_in(TraceBuilder::default().device(0, "card", 24 * GIB), asked, largest, saw_below)
}

fn one_large_in(mut trace: TraceBuilder, asked: u64, largest: u64, saw_below: bool) -> Scene {
    set(&mut trace, "GPU_SINGLE_ALLOC_PERCENT", "40");
    match saw_below {
        true => {
            _ = trace.alloc_through(
                0,
                &[at("hipMalloc", 0x10_0000_0000, GIB), at("hsa_amd_memory_pool_allocate", 0x10_0000_0000, GIB)],
            )
        }
        false => _ = trace.alloc(0x10_0000_0000, GIB),
    }
    let seq = trace.refuse(asked);
    let read = [
        (RuntimeFree, 22 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 2 * GIB),
        (KfdProcessVram, GIB + 200 * MIB),
        (KfdOthersVram, 0),
        (LargestAllocatable, largest),
        (HostTotal, 64 * GIB),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// 3 of 24 GiB are held, and 14 more are refused in one block; HIP calls 12 GiB the whole.
fn above_heap(largest: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 12 * GIB);
    set(&mut trace, "GPU_MAX_HEAP_SIZE", "50");
    trace.alloc(0x10_0000_0000, 2 * GIB);
    trace.alloc_through(
        0,
        &[at("hipMalloc", 0x80_0000_0000, GIB), at("hsa_amd_memory_pool_allocate", 0x80_0000_0000, GIB)],
    );
    let seq = trace.refuse(14 * GIB);
    let read = [
        (RuntimeFree, 20 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 3 * GIB + 200 * MIB),
        (KfdProcessVram, 3 * GIB + 200 * MIB),
        (KfdOthersVram, 0),
        (LargestAllocatable, largest),
        (HostTotal, 64 * GIB),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

fn heap(percent: &str, asked: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    set(&mut trace, "GPU_MAX_HEAP_SIZE", percent);
    refused(trace, asked)
}

/// 4 GiB are refused although 12 are free, with a variable set.
fn limited(name: &str, value: &str, is_cuda: bool) -> Scene {
    let trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let mut trace = if is_cuda { trace.cuda() } else { trace };
    set(&mut trace, name, value);
    refused(trace, 4 * GIB)
}

fn refused(trace: TraceBuilder, asked: u64) -> Scene {
    refused_with(trace, asked, 12 * GIB)
}

/// 11 GiB are held, and the driver counts so much in use; the runtime reports 12 GiB free.
fn refused_with(trace: TraceBuilder, asked: u64, used: u64) -> Scene {
    refused_and_tried(trace, asked, used, None)
}

/// The same, with the largest block that was given when it was tried.
fn refused_and_tried(mut trace: TraceBuilder, asked: u64, used: u64, largest: Option<u64>) -> Scene {
    (0..11).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let seq = trace.push(Record { status: 2, requested: asked, ..record }, &[]);
    let read = [
        (RuntimeFree, 12 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, used),
        (KfdProcessVram, 11 * GIB),
        (KfdOthersVram, used - 12 * GIB),
        (NvmlTotal, 24 * GIB),
        (NvmlUsed, used),
    ];
    at_failure(&mut trace, seq, read);
    if let Some(largest) = largest {
        at_failure(&mut trace, seq, [(LargestAllocatable, largest)]);
    }
    Scene { trace }
}
