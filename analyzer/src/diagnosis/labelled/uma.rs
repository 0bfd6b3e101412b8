//! G. Limits of GPUs that use the host's memory.

use gpuoom_trace::metadata::Quantity::{
    HostAvailable, LargestAllocatable, RuntimeFree, RuntimeTotal, VramTotal, VramUsed,
};
use gpuoom_trace::metadata::{Reading, trigger};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, process};

use super::machines::{AmdMachine, CARD, HALF, RAM, STRIX_HALO};
use super::{Labelled, Says, Scene, readings};
use crate::judgement::check::Confidence::{Probable, Proven};
use crate::testing::{GIB, TraceBuilder};

/// A Strix Halo whose TTM limit was raised to 110 GiB.
const RAISED: AmdMachine = AmdMachine { ttm: 110 * GIB, gtt: 110 * GIB, bank: 110 * GIB, ..STRIX_HALO };
/// A kernel that offers the carve-out alone.
const OLD_KERNEL: AmdMachine = AmdMachine { vram: 4 * GIB, gtt: 30 * GIB, bank: 4 * GIB, ..STRIX_HALO };
/// 96 GiB set aside in the BIOS (ROCm/TheRock#1054).
const STARVED: AmdMachine =
    AmdMachine { target: 110_501, ram: 31 * GIB, ttm: gib(15.5), vram: 96 * GIB, gtt: gib(15.5), bank: gib(15.5) };

const fn gib(amount: f64) -> u64 {
    (amount * GIB as f64) as u64
}

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "uma-ttm-limit",
        says: Says::First(Proven),
        also: &["true-capacity"],
        story: "60 GiB live of half of 128, four more are asked for",
        scene: || apu(STRIX_HALO.files(), HALF, 60, 4, gib(0.65)),
    },
    Labelled {
        id: "uma-ttm-limit",
        says: Says::Not,
        also: &["true-capacity"],
        story: "70 GiB live already where the limit is half of 128",
        scene: || apu(STRIX_HALO.files(), HALF, 70, 4, gib(0.65)),
    },
    Labelled {
        id: "uma-carveout-only",
        says: Says::Not,
        also: &["true-capacity"],
        story: "5 GiB live already where the runtime is said to see the 4 of the BIOS",
        scene: || apu(OLD_KERNEL.files(), 4 * GIB, 5, 1, 0),
    },
    Labelled {
        id: "uma-ttm-limit",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the limit was raised to 110 GiB, and 108 of them live",
        scene: || apu(RAISED.files(), 110 * GIB, 108, 4, gib(0.65)),
    },
    Labelled {
        id: "uma-param-mismatch",
        says: Says::Found(Proven),
        also: &[],
        story: "gttsize beside another TTM limit, a name that does not exist, vm_size in MiB",
        scene: || {
            let more = [
                ("/sys/module/amdgpu/parameters/gttsize", "122880\n".to_owned()),
                ("/sys/module/amdgpu/parameters/vm_size", "131072\n".to_owned()),
                ("/proc/cmdline", "amdgpu.gtt_size=122880 amdttm.pages_limit=5\n".to_owned()),
            ];
            healthy(STRIX_HALO.with(&more), 20)
        },
    },
    Labelled {
        id: "uma-param-mismatch",
        says: Says::Not,
        also: &[],
        story: "all layers agree",
        scene: || {
            let gttsize = ("/sys/module/amdgpu/parameters/gttsize", "-1\n".to_owned());
            healthy(RAISED.with(&[gttsize, ("/proc/cmdline", "ttm.pages_limit=28835840\n".to_owned())]), 20)
        },
    },
    Labelled {
        id: "uma-carveout-only",
        says: Says::First(Proven),
        also: &[],
        story: "the runtime sees the 4 GiB of the BIOS, GTT would be 30",
        scene: || apu(OLD_KERNEL.files(), 4 * GIB, 2, 3, gib(1.8)),
    },
    Labelled {
        id: "uma-carveout-only",
        says: Says::Not,
        also: &["uma-ttm-limit", "true-capacity"],
        story: "the total is the TTM limit",
        scene: || apu(STRIX_HALO.files(), HALF, 60, 4, gib(0.65)),
    },
    Labelled {
        id: "uma-large-carveout-starves-gtt",
        says: Says::First(Proven),
        also: &["uma-ttm-limit", "request-exceeds-device"],
        story: "16 GiB are asked for on a GPU of 15.5, while 96 GiB of carve-out lie idle (ROCm/TheRock#1054)",
        scene: || apu(STARVED.files(), gib(15.5), 0, 16, gib(15.09)),
    },
    Labelled {
        id: "uma-large-carveout-starves-gtt",
        says: Says::Not,
        also: &["uma-ttm-limit", "true-capacity"],
        story: "a small carve-out",
        scene: || apu(STRIX_HALO.files(), HALF, 60, 4, gib(0.65)),
    },
    Labelled {
        id: "apu-reporting-inconsistent",
        says: Says::First(Proven),
        also: &["phantom-free", "uma-large-carveout-starves-gtt"],
        story: "85 GiB free of 15.5 (ROCm/TheRock#4598)",
        scene: || apu(STARVED.files(), gib(15.5), 9, 5, gib(84.98)),
    },
    Labelled {
        id: "apu-reporting-inconsistent",
        says: Says::Not,
        also: &["uma-ttm-limit", "true-capacity"],
        story: "free is below the total",
        scene: || apu(STRIX_HALO.files(), HALF, 60, 4, gib(0.65)),
    },
    Labelled {
        id: "uma-runtime-clamp",
        says: Says::First(Proven),
        also: &["true-capacity"],
        story: "KFD offers 110 GiB, the runtime half of the RAM (ROCm/TheRock#4645)",
        scene: || apu(RAISED.files(), HALF, 60, 4, gib(0.65)),
    },
    Labelled {
        id: "uma-runtime-clamp",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the same, and the user lowers the total",
        scene: || {
            let mut scene = apu(RAISED.files(), HALF, 60, 4, gib(0.65));
            scene.trace.process.environment = vec![("GPU_MAX_HEAP_SIZE".into(), "57".into())];
            scene
        },
    },
    Labelled {
        id: "uma-runtime-clamp",
        says: Says::Not,
        also: &["true-capacity", "uma-carveout-only"],
        story: "the carve-out happens to be half of the RAM",
        scene: || apu(AmdMachine { vram: HALF, ..RAISED }.files(), HALF, 60, 4, gib(0.65)),
    },
    Labelled {
        id: "apu-reporting-inconsistent",
        says: Says::Not,
        also: &["phantom-free"],
        story: "more is free than there is, over CUDA",
        scene: || {
            let mut scene = apu(Vec::new(), gib(15.5), 9, 5, gib(84.98));
            scene.trace = scene.trace.cuda();
            scene
        },
    },
    Labelled {
        id: "uma-runtime-clamp",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the runtime follows the kernel",
        scene: || apu(RAISED.files(), 110 * GIB, 108, 4, gib(0.65)),
    },
    Labelled {
        id: "uma-host-pressure",
        says: Says::First(Probable),
        also: &[],
        story: "104 of 125 GiB are the GPU's, 1 GiB is left, and the process was killed",
        scene: || killed(104, GIB),
    },
    Labelled {
        id: "uma-host-pressure",
        says: Says::Not,
        also: &[],
        story: "the same, and the kernel killed a browser",
        scene: || {
            let mut scene = killed(104, GIB);
            let log =
                "[20599.491542] Out of memory: Killed process 9 (chrome) total-vm:53312244kB, anon-rss:31451456kB";
            let content = crate::evidence::kernel_log::read(log);
            scene.trace.evidence.kernel_logs = vec![crate::evidence::Given { path: "dmesg.txt".into(), content }];
            scene
        },
    },
    Labelled {
        id: "uma-host-pressure",
        says: Says::Not,
        also: &[],
        story: "killed with 60 GiB available",
        scene: || killed(40, 60 * GIB),
    },
    Labelled {
        id: "sysmem-fallback",
        says: Says::Found(Probable),
        also: &[],
        story: "66 GiB live on an APU of 62.5, and nothing failed",
        scene: || healthy(STRIX_HALO.files(), 66),
    },
    Labelled {
        id: "sysmem-fallback",
        says: Says::Found(Probable),
        also: &[],
        story: "steps of 70 GiB on an APU of 62.5 take four times as long as those of 40",
        scene: || spilling(40_000_000),
    },
    Labelled {
        id: "sysmem-fallback",
        says: Says::Not,
        also: &[],
        story: "steps of 70 GiB are as fast as those of 40",
        scene: || spilling(0),
    },
    Labelled {
        id: "sysmem-fallback",
        says: Says::Not,
        also: &[],
        story: "30 GiB live on a card of 24, which is no APU",
        scene: || healthy(CARD.files(), 66),
    },
];

/// An APU with a total by the runtime; so many GiB live, and some more are refused.
fn apu(machine: Vec<(String, String)>, total: u64, held_gib: u64, asked_gib: u64, free: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "AMD Radeon Graphics", total);
    let vram =
        machine.iter().find(|(path, _)| path.ends_with("vram_total")).and_then(|(_, text)| text.trim().parse().ok());
    trace.machine = machine;
    for block in 0..held_gib {
        trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB);
    }
    let seq = trace.refuse(asked_gib * GIB);
    // An APU's counters of video memory are those of the carve-out.
    let largest = total.saturating_sub(held_gib * GIB).min(free) / 2;
    let read = [
        (LargestAllocatable, largest),
        (RuntimeFree, free),
        (RuntimeTotal, total),
        (VramTotal, vram.unwrap_or(0)),
        (VramUsed, 100 << 20),
    ];
    trace.read_at_failure(seq, &readings(read));
    Scene { trace }
}

/// A run without a failure.
fn healthy(machine: Vec<(String, String)>, held_gib: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "AMD Radeon Graphics", HALF);
    trace.machine = machine;
    for block in 0..held_gib {
        trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB);
    }
    trace.end(process::EXITS, 0);
    Scene { trace }
}

/// Five steps that fit into half of the RAM, and five that do not and take longer.
fn spilling(longer_ns: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "AMD Radeon Graphics", HALF);
    trace.machine = STRIX_HALO.files();
    for (step, held) in (0..10).zip([4u64; 5].into_iter().chain([7; 5])) {
        let blocks: Vec<u64> = (0..held).map(|block| (0x10 + step * 0x10 + block) << 36).collect();
        blocks.iter().for_each(|address| _ = trace.alloc(*address, 10 * GIB));
        trace.now_ns += if held == 7 { longer_ns } else { 0 };
        blocks.iter().for_each(|address| _ = trace.free(*address));
    }
    trace.end(process::EXITS, 0);
    Scene { trace }
}

/// A run on an APU that ends by SIGKILL.
fn killed(held_gib: u64, available: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "AMD Radeon Graphics", 110 * GIB);
    trace.machine = RAISED.files();
    for block in 0..held_gib {
        trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB);
    }
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let record = Record { status: trigger::PERIOD, device: NO_DEVICE, ..record };
    trace.reading(record, &[Reading { quantity: HostAvailable as u16, device: NO_DEVICE, value: available }]);
    trace.header.end_kind = gpuoom_trace::header::end::SIGNALED;
    trace.header.end_code = libc::SIGKILL;
    assert!(held_gib * GIB < RAM);
    Scene { trace }
}
