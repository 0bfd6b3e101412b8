//! D. Options of PyTorch's allocator.

use gpuoom_trace::header::ClockPoint;
use gpuoom_trace::record::{Event, Kind, Record};

use super::scenes::{full, set, torch, with_log};
use super::{Labelled, Says, Scene};
use crate::evidence::{Given, runtime_message};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "expandable-ignored",
        says: Says::Found(Probable),
        also: &[],
        story: "expandable segments are asked for, and every segment comes from hipMalloc: the program may have turned them off",
        scene: || expandable("expandable_segments:True", false),
    },
    Labelled {
        id: "expandable-ignored",
        says: Says::Found(Proven),
        also: &[],
        story: "the same with torch 2.9 for ROCm, which has none",
        scene: || {
            let mut scene = expandable("expandable_segments:True", false);
            let file = "/usr/lib/python3/torch/version.py".to_owned();
            scene.trace.machine.push((file, "__version__ = '2.9.1+rocm6.4'\n".to_owned()));
            scene
        },
    },
    Labelled {
        id: "expandable-ignored",
        says: Says::Not,
        also: &[],
        story: "physical memory is mapped: the option has its effect",
        scene: || expandable("expandable_segments:True", true),
    },
    Labelled {
        id: "expandable-with-max-split",
        says: Says::Found(Proven),
        also: &["expandable-ignored"],
        story: "both options in one string on ROCm",
        scene: || expandable("expandable_segments:True,max_split_size_mb:256", false),
    },
    Labelled {
        id: "expandable-with-max-split",
        says: Says::Not,
        also: &["caching-disabled"],
        story: "both options, and PYTORCH_NO_CUDA_MEMORY_CACHING=1: without a cache neither has an effect",
        scene: || {
            let mut scene = expandable("expandable_segments:True,max_split_size_mb:256", false);
            set(&mut scene.trace, "PYTORCH_NO_CUDA_MEMORY_CACHING", "1");
            scene
        },
    },
    Labelled {
        id: "expandable-with-max-split",
        says: Says::Not,
        also: &[],
        story: "max_split_size_mb alone",
        scene: || expandable("max_split_size_mb:256", false),
    },
    Labelled {
        id: "expandable-hazard",
        says: Says::Found(Proven),
        also: &["hang-not-oom"],
        story: "hipMemMap had not returned after 90 s, and nothing came after it",
        scene: || hung("hipMemMap", 90),
    },
    Labelled {
        id: "expandable-hazard",
        says: Says::Not,
        also: &[],
        story: "the process was ended a second after hipMemMap had begun",
        scene: || hung("hipMemMap", 1),
    },
    Labelled {
        id: "expandable-hazard",
        says: Says::Not,
        also: &["hang-not-oom"],
        story: "hipMemMap of a program without PyTorch had not returned after 90 s",
        scene: || hung_in(TraceBuilder::default().device(0, "card", 24 * GIB), "hipMemMap", 90),
    },
    Labelled {
        id: "expandable-hazard",
        says: Says::Not,
        also: &["hang-not-oom"],
        story: "the call that never returned asks for memory and maps none",
        scene: || hung("hipMalloc", 90),
    },
    Labelled {
        id: "expandable-hazard",
        says: Says::Found(Possible),
        also: &[],
        story: "expandable segments are at work, and the runtime reports an illegal address",
        scene: || faulted("expandable_segments:True"),
    },
    Labelled {
        id: "expandable-hazard",
        says: Says::Not,
        also: &[],
        story: "an illegal address without expandable segments",
        scene: || faulted("max_split_size_mb:256"),
    },
    Labelled {
        id: "caching-disabled",
        says: Says::Found(Proven),
        also: &[],
        story: "PYTORCH_NO_HIP_MEMORY_CACHING=1 with PyTorch",
        scene: || no_caching(true),
    },
    Labelled {
        id: "caching-disabled",
        says: Says::Found(Possible),
        also: &[],
        story: "the variable is 0, and nobody knows the version of PyTorch: before 2.7 that turned the cache off, too",
        scene: || {
            let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
            set(&mut trace, "PYTORCH_NO_HIP_MEMORY_CACHING", "0");
            Scene { trace }
        },
    },
    Labelled {
        id: "expandable-with-max-split",
        says: Says::Not,
        also: &[],
        story: "both options in the environment of a program that has no PyTorch",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 20 * MIB);
            set(&mut trace, "PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:256");
            Scene { trace }
        },
    },
    Labelled {
        id: "expandable-ignored",
        says: Says::Not,
        also: &[],
        story: "the runtime's own pools were chosen, which have no segments",
        scene: || expandable("backend:hipMallocAsync,expandable_segments:True", false),
    },
    Labelled {
        id: "caching-disabled",
        says: Says::Not,
        also: &[],
        story: "the variable is set for a program that has no PyTorch",
        scene: || no_caching(false),
    },
    Labelled {
        id: "expandable-with-max-split",
        says: Says::Found(Possible),
        also: &[],
        story: "handles of virtual memory fill the card, and nobody says what tensors hold",
        scene: || Scene { trace: filled() },
    },
    Labelled {
        id: "expandable-with-max-split",
        says: Says::Found(Proven),
        also: &["expandable-with-max-split"],
        story: "handles fill the card, and by PyTorch's message tensors hold 800 MiB",
        scene: || with_log(filled(), RUNAWAY),
    },
];

const RUNAWAY: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of \
    16.00 GiB of which 16.00 MiB is free. Of the allocated memory 800.00 MiB is allocated by PyTorch, and 15.00 GiB is reserved \
    by PyTorch but unallocated.";

/// Both options, and 15.9 of 16 GiB in handles.
fn filled() -> TraceBuilder {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 16 * GIB));
    set(&mut trace, "PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:256");
    (0..810).for_each(|handle| trace.create_and_map(0x1000 + handle, 0x10_0000_0000 + handle * 20 * MIB, 20 * MIB));
    let record = trace.record(Event::Alloc, Kind::Physical, "hipMemCreate");
    let seq = trace.push(Record { status: 2, requested: 20 * MIB, ..record }, &[]);
    full(&mut trace, seq, 16 * GIB, 810 * 20 * MIB, 16 * MIB);
    trace
}

fn expandable(options: &str, maps: bool) -> Scene {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    set(&mut trace, "PYTORCH_HIP_ALLOC_CONF", options);
    trace.alloc(0x10_0000_0000, 20 * MIB);
    if maps {
        trace.create_and_map(0x1000, 0x20_0000_0000, 20 * MIB);
    }
    Scene { trace }
}

fn hung(api: &str, seconds: u64) -> Scene {
    hung_in(torch(TraceBuilder::default().device(0, "card", 24 * GIB)), api, seconds)
}

fn hung_in(mut trace: TraceBuilder, api: &str, seconds: u64) -> Scene {
    set(&mut trace, "PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True");
    trace.create_and_map(0x1000, 0x20_0000_0000, 20 * MIB);
    trace.under_way(api, 20 * MIB);
    // Another thread ends what it had begun.
    trace.now_ns += 10_000_000;
    let record = trace.record_on(88, Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { address: 0x30_0000_0000, requested: 2 * MIB, ..record }, &[]);
    trace.header.closed = 0;
    let (first, later) = (trace.header.clock_first, seconds * 1_000_000_000);
    trace.header.clock_last[0] = ClockPoint { ticks: later, monotonic_ns: later, wall_ns: first.wall_ns + later };
    Scene { trace }
}

fn no_caching(has_torch: bool) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    if has_torch {
        trace = torch(trace);
    }
    set(&mut trace, "PYTORCH_NO_HIP_MEMORY_CACHING", "1");
    Scene { trace }
}

fn faulted(options: &str) -> Scene {
    let mut scene = expandable(options, true);
    let log = "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x7f0000000000. Reason: Unknown.\n";
    let content = runtime_message::find_all(log);
    scene.trace.evidence.runtime_logs = vec![Given { path: "log.txt".into(), content }];
    scene
}
