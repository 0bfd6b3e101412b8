//! E. What is installed.

use gpuoom_trace::metadata::Module;
use gpuoom_trace::metadata::Quantity::RuntimeFree;
use gpuoom_trace::record::{Event, Kind, Record, process};

use super::machines::{AmdMachine, CARD};
use super::{Labelled, Says, Scene, readings};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder};

const LIBRARY: &str = "/opt/rocm-6.4.1/lib/libamdhip64.so.6.4.60401";

/// A copy of the runtime that comes with a wheel.
const TORCH_COPY: &str = "/usr/lib/python3/dist-packages/torch/lib/libamdhip64.so";

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "known-bad-version",
        says: Says::Found(Probable),
        also: &["mallocasync-oom"],
        story: "stream-ordered memory is refused on ROCm 6.4, and plain memory of the same size is not",
        scene: || refused_pool(60_443_483),
    },
    Labelled {
        id: "known-bad-version",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same on ROCm 7.0, which has the fix",
        scene: || refused_pool(70_051_831),
    },
    Labelled {
        id: "known-bad-version",
        says: Says::Not,
        also: &[],
        story: "stream-ordered memory on ROCm 6.4, and all is well",
        scene: || {
            on_rocm(60_443_483, &[], |trace| {
                trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x1000_0000, GIB);
            })
        },
    },
    Labelled {
        id: "known-bad-version",
        says: Says::Not,
        also: &[],
        story: "virtual memory on ROCm 6.4.1, and nothing is missing",
        scene: || on_rocm(60_443_483, &[LIBRARY], virtual_memory),
    },
    Labelled {
        id: "known-bad-version",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "virtual memory on ROCm 7.1, whose defect no rule can see, and memory is refused",
        scene: || {
            on_rocm(70_151_831, &[], |trace| {
                virtual_memory(trace);
                let seq = trace.refuse(64 * MIB);
                trace.read_at_failure(seq, &readings([(RuntimeFree, 20 * GIB)]));
            })
        },
    },
    Labelled {
        id: "known-bad-version",
        says: Says::Not,
        also: &[],
        story: "PyTorch 2.12 for ROCm on RDNA4, which uses little of the card",
        scene: || {
            let mut scene = on_rocm(70_051_831, &[], |_| {});
            scene.trace.machine = AmdMachine { target: 120_001, ..CARD }.with(&[torch("2.12.0+rocm7.0", "7.0.51831")]);
            scene
        },
    },
    Labelled {
        id: "known-bad-version",
        says: Says::Not,
        also: &[],
        story: "ROCm 6.4.1 without virtual memory",
        scene: || on_rocm(60_443_483, &[LIBRARY], |_| {}),
    },
    Labelled {
        id: "version-mismatch",
        says: Says::Found(Proven),
        also: &[],
        story: "PyTorch for ROCm 6.2 with the runtime of 7.0",
        scene: || {
            let mut scene = on_rocm(70_051_831, &["/usr/lib/torch/lib/libtorch_hip.so"], |_| {});
            scene.trace.machine = CARD.with(&[torch("2.5.1+rocm6.2", "6.2.41133-dd7f95766")]);
            scene
        },
    },
    Labelled {
        id: "version-mismatch",
        says: Says::Found(Proven),
        also: &[],
        story: "two copies of the runtime",
        scene: || on_rocm(60_443_483, &[LIBRARY, TORCH_COPY, "/usr/lib/torch/lib/libtorch_hip.so"], |_| {}),
    },
    Labelled {
        id: "version-mismatch",
        says: Says::Not,
        also: &[],
        story: "two copies of the runtime in a program without PyTorch",
        scene: || on_rocm(60_443_483, &[LIBRARY, "/opt/plugins/lib/libamdhip64.so"], |_| {}),
    },
    Labelled {
        id: "version-mismatch",
        says: Says::Not,
        also: &[],
        story: "PyTorch for the runtime that is loaded",
        scene: || {
            let mut scene = on_rocm(70_051_831, &["/usr/lib/torch/lib/libtorch_hip.so"], |_| {});
            scene.trace.machine = CARD.with(&[torch("2.10.0+rocm7.0", "7.0.51831-a3e329ad8")]);
            scene
        },
    },
];

fn torch(version: &str, hip: &str) -> (&'static str, String) {
    let path = "/usr/lib/python3/dist-packages/torch/version.py";
    (path, format!("__version__ = '{version}'\ncuda: Optional[str] = None\nhip: Optional[str] = '{hip}'\n"))
}

/// A run without a failure, on a HIP runtime of this version.
fn on_rocm(version: i32, libraries: &[&str], act: impl FnOnce(&mut TraceBuilder)) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(version);
    for (library, start) in libraries.iter().zip((1..).map(|number| number << 20)) {
        let module =
            Module { path: (*library).into(), build_id: String::new(), start, end: start + 4096, vendor: true };
        trace.modules.push(module);
    }
    trace.alloc(0x20_0000_0000, 64 * MIB);
    act(&mut trace);
    trace.end(process::EXITS, 0);
    Scene { trace }
}

/// hipMallocAsync fails with 20 GiB free, and hipMalloc of the same size succeeds at once.
fn refused_pool(version: i32) -> Scene {
    on_rocm(version, &[], |trace| {
        trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x1000_0000, GIB);
        let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocAsync");
        let seq = trace.push(Record { status: 2, requested: 2 * GIB, ..record }, &[]);
        trace.read_at_failure(seq, &readings([(RuntimeFree, 20 * GIB)]));
        trace.alloc(0x90_0000_0000, 2 * GIB);
    })
}

fn virtual_memory(trace: &mut TraceBuilder) {
    trace.create_and_map(7, 0x30_0000_0000, 2 * MIB);
}
