//! G. Limits of the platform.

use gpuoom_trace::metadata::Quantity::{GttTotal, GttUsed, LargestAllocatable, RuntimeFree};
use gpuoom_trace::metadata::{Module, Reading};
use gpuoom_trace::record::{Event, Kind, Record, process};

use super::machines::{AmdMachine, CARD};
use super::{Labelled, Says, Scene, readings};
use crate::evidence::{Given, kernel_log, runtime_message};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{At, GIB, MIB, TraceBuilder};

/// gfx1201.
const RDNA4: AmdMachine = AmdMachine { target: 120_001, ..CARD };

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::First(Proven),
        also: &["pinned-host-exhaustion"],
        story: "30 GiB are pinned, 4 more are asked for, and TTM gives 32",
        scene: || pins(30, 4),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Not,
        also: &["pinned-host-exhaustion"],
        story: "70 GiB are pinned on a machine of 64: more than any limit of the kernel's",
        scene: || pins(70, 4),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Found(Possible),
        also: &["pinned-host-exhaustion"],
        story: "2 GiB are pinned: others may hold the rest",
        scene: || pins(2, 4),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Not,
        also: &["uma-param-mismatch", "phantom-free"],
        story: "24 GiB of an APU with a carve-out of 8, and 8 more: 24 of them are the host's, and KFD gives 30",
        scene: || on_apu(8 * GIB),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Found(Proven),
        also: &["uma-param-mismatch", "phantom-free"],
        story: "the same with a carve-out of half a GiB",
        scene: || on_apu(512 * MIB),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Found(Possible),
        also: &[],
        story: "managed memory is refused beside 20 GiB of the card's: those do not count, and TTM gives 32",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.machine = CARD.files();
            (0..20).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            managed(trace)
        },
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Found(Proven),
        also: &[],
        story: "the same beside 20 GiB that are pinned",
        scene: || managed_beside(20),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::First(Proven),
        also: &[],
        story: "30 GiB of managed memory lie in the host's by the kernel's requests, 4 more are refused there, and TTM gives 32",
        scene: || managed_by_kernel(30, 4),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Found(Possible),
        also: &[],
        story: "the same with 2 GiB: others may hold the rest",
        scene: || managed_by_kernel(2, 4),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Found(Proven),
        also: &[],
        story: "a queue for which the kernel refuses 25 MiB of the host's memory, beside 31.99 GiB that are pinned",
        scene: queue_without_host_memory,
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Found(Possible),
        also: &["pinned-host-exhaustion"],
        story: "40 GiB in one request, TTM gives 32, and HSA refuses without asking the kernel's driver, whose requests are recorded",
        scene: refused_above_kernel,
    },
    Labelled {
        id: "pinned-host-exhaustion",
        says: Says::Found(Possible),
        also: &["kfd-system-memory-limit"],
        story: "the same",
        scene: refused_above_kernel,
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Not,
        also: &["phantom-free"],
        story: "device memory of a card",
        scene: || device_memory(CARD.files(), 1, 64 * MIB),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Not,
        also: &[],
        story: "500 GiB in one request on a machine with 64: its size is wrong, and no limit",
        scene: || pins(2, 500),
    },
    Labelled {
        id: "kfd-system-memory-limit",
        says: Says::Not,
        also: &["true-capacity"],
        story: "an APU whose carve-out of 96 GiB is full: KFD does not count that",
        scene: || {
            let machine = AmdMachine { target: 110_501, ram: 32 * GIB, vram: 96 * GIB, bank: 96 * GIB, ..CARD };
            let mut trace = TraceBuilder::default().device(0, "APU", 96 * GIB);
            trace.machine = machine.files();
            (0..95).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(4 * GIB);
            trace.read_at_failure(seq, &readings([(RuntimeFree, GIB)]));
            Scene { trace }
        },
    },
    Labelled {
        id: "pinned-host-exhaustion",
        says: Says::First(Proven),
        also: &[],
        story: "hipHostMalloc is refused",
        scene: || pins(2, 4),
    },
    Labelled {
        id: "pinned-host-exhaustion",
        says: Says::Not,
        also: &[],
        story: "500 GiB in one request on a machine with 64: its size is wrong",
        scene: || pins(2, 500),
    },
    Labelled {
        id: "pinned-host-exhaustion",
        says: Says::Not,
        also: &["phantom-free"],
        story: "hipMalloc is refused",
        scene: || device_memory(CARD.files(), 1, 64 * MIB),
    },
    Labelled {
        id: "gtt-exhaustion",
        says: Says::First(Possible),
        also: &[],
        story: "31.5 of 32 GiB GTT are in use, and the program aborts for that or for another reason",
        scene: || gtt(32 * GIB - 512 * MIB),
    },
    Labelled {
        id: "gtt-exhaustion",
        says: Says::First(Proven),
        also: &[],
        story: "the same, and the kernel refused a command submission of this card",
        scene: || refused_commands("0000:03:00.0"),
    },
    Labelled {
        id: "gtt-exhaustion",
        says: Says::Not,
        also: &[],
        story: "the same, and it was another card's",
        scene: || refused_commands("0000:83:00.0"),
    },
    Labelled {
        id: "gtt-exhaustion",
        says: Says::Not,
        also: &[],
        story: "half of GTT is in use",
        scene: || gtt(16 * GIB),
    },
    Labelled {
        id: "device-cgroup-limit",
        says: Says::First(Proven),
        also: &[],
        story: "the group may have 8 GiB and holds 7, all of them the program's, and 2 more are asked for",
        scene: || probed(in_group_that_holds(8, 7 * GIB), 7, 2 * GIB, 900 * MIB),
    },
    Labelled {
        id: "device-cgroup-limit",
        says: Says::First(Probable),
        also: &["phantom-free"],
        story: "the same, and nobody tried whether more is given",
        scene: || device_memory(in_group_that_holds(8, 7 * GIB), 7, 2 * GIB),
    },
    Labelled {
        id: "device-cgroup-limit",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the group held next to nothing when the program started: whether its memory counts there nobody read",
        scene: || probed(in_group(8), 7, 2 * GIB, 900 * MIB),
    },
    Labelled {
        id: "device-cgroup-limit",
        says: Says::Not,
        also: &["phantom-free"],
        story: "6 live, 3 more are asked for, and 3 could be allocated right after it: 9 of 8 GiB",
        scene: || probed(in_group_that_holds(8, 6 * GIB), 6, 3 * GIB, 3 * GIB),
    },
    Labelled {
        id: "device-cgroup-limit",
        says: Says::Not,
        also: &["phantom-free"],
        story: "12 GiB live already in a group that may have 8",
        scene: || probed(in_group_that_holds(8, 12 * GIB), 12, 3 * GIB, 0),
    },
    Labelled {
        id: "device-cgroup-limit",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the group may have 20 GiB: others of it would have to hold the rest",
        scene: || device_memory(in_group(20), 7, 2 * GIB),
    },
    Labelled {
        id: "device-cgroup-limit",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the limit is another card's",
        scene: || {
            let other = ("/sys/fs/cgroup/a/dmem.max", format!("drm/0000:83:00.0/vram {}\n", 8 * GIB));
            device_memory(CARD.with(&[other]), 7, 2 * GIB)
        },
    },
    Labelled {
        id: "device-cgroup-limit",
        says: Says::Not,
        also: &["phantom-free"],
        story: "a limit of a region that is not the card's memory, and a runtime that does not tell where the card is",
        scene: || {
            let other = ("/sys/fs/cgroup/a/dmem.max", format!("drm/0000:03:00.0/stolen {}\nuser {}\n", GIB, GIB));
            let mut scene = device_memory(CARD.with(&[other]), 7, 2 * GIB);
            scene.trace = scene.trace.bus_id("");
            scene
        },
    },
    Labelled {
        id: "device-cgroup-limit",
        says: Says::Not,
        also: &["phantom-free"],
        story: "no limit (max)",
        scene: || {
            let max = ("/sys/fs/cgroup/a/dmem.max", "drm/0000:03:00.0/vram max\n".to_owned());
            device_memory(CARD.with(&[max]), 7, 2 * GIB)
        },
    },
    Labelled {
        id: "xnack-ineffective",
        says: Says::Found(Proven),
        also: &[],
        story: "HSA_XNACK=1 on gfx1100",
        scene: || with_xnack(CARD),
    },
    Labelled {
        id: "xnack-ineffective",
        says: Says::Not,
        also: &[],
        story: "HSA_XNACK=1 on gfx90a, which has it",
        scene: || with_xnack(AmdMachine { target: 90_010, ..CARD }),
    },
    Labelled {
        id: "vram-half-cap",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "RDNA4 with PyTorch: refused at 12 of 24 GiB",
        scene: || half(RDNA4),
    },
    Labelled {
        id: "vram-half-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same on RDNA3",
        scene: || half(CARD),
    },
    Labelled {
        id: "vram-half-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the runtime offers 24 GiB of a board of 48: the total itself is what is too small",
        scene: || half(AmdMachine { vram: 48 * GIB, ..RDNA4 }),
    },
    Labelled {
        id: "missing-libdrm-link",
        says: Says::Found(Proven),
        also: &[],
        story: "standard error says so",
        scene: || wrote("Fail to open libdrm_amdgpu.so: libdrm_amdgpu.so: cannot open shared object file"),
    },
    Labelled {
        id: "missing-libdrm-link",
        says: Says::Not,
        also: &[],
        story: "the library is there",
        scene: || wrote("libdrm_amdgpu.so.1 => /usr/lib/libdrm_amdgpu.so.1"),
    },
];

/// A run without a failure, with what it wrote.
fn wrote(log: &str) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    trace.end(process::EXITS, 0);
    trace.evidence.runtime_logs = vec![Given { path: "log.txt".into(), content: runtime_message::find_all(log) }];
    Scene { trace }
}

/// What the recorder reads when a program starts.
fn in_group(limit_gib: u64) -> Vec<(String, String)> {
    in_group_that_holds(limit_gib, 4096)
}

fn in_group_that_holds(limit_gib: u64, current: u64) -> Vec<(String, String)> {
    CARD.with(&[
        ("/sys/fs/cgroup/a/dmem.max", format!("drm/0000:03:00.0/vram {}\n", limit_gib * GIB)),
        ("/sys/fs/cgroup/a/dmem.current", format!("drm/0000:03:00.0/vram {current}\n")),
    ])
}

/// 24 GiB live on an APU that offers 40, and 8 more are refused.
fn on_apu(carve_out: u64) -> Scene {
    let machine = AmdMachine { target: 110_501, ram: 32 * GIB, vram: carve_out, bank: 40 * GIB, ..CARD };
    let mut trace = TraceBuilder::default().device(0, "APU", 40 * GIB);
    trace.machine = machine.files();
    (0..24).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(8 * GIB);
    trace.read_at_failure(seq, &readings([(RuntimeFree, 16 * GIB)]));
    Scene { trace }
}

/// 14 GiB of managed memory are refused.
/// 14 GiB of managed memory are refused beside so many that are pinned; TTM gives 32.
pub(super) fn managed_beside(pinned_gib: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = CARD.files();
    for block in 0..pinned_gib {
        trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x70_0000_0000 + block * 2 * GIB, GIB);
    }
    managed(trace)
}

fn managed(mut trace: TraceBuilder) -> Scene {
    let record = trace.record(Event::Alloc, Kind::Managed, "hipMallocManaged");
    trace.push(Record { status: 2, requested: 14 * GIB, ..record }, &[]);
    trace.after(Event::Exception, "__cxa_throw", 0, 0);
    Scene { trace }
}

const KFD_ALLOC: &str = "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU";

/// A request that the kernel's driver refuses for memory of the host, inside an outer call, which fails for it.
fn refused_by_kernel(trace: &mut TraceBuilder, outer: Record, bytes: u64) -> u64 {
    let inner = trace.record(Event::Pin, Kind::Registered, KFD_ALLOC);
    let inner =
        Record { status: libc::ENOMEM, requested: bytes, parent_distance: (inner.call - outer.call) as u16, ..inner };
    trace.push(inner, &[]);
    trace.push(outer, &[])
}

/// Managed memory that HIP takes from the host's, as without XNACK: each block is a request to the kernel's driver.
fn managed_by_kernel(held_gib: u64, asked_gib: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = CARD.files();
    for block in 0..held_gib {
        let address = 0x70_0000_0000 + block * 2 * GIB;
        let outer = At { api: "hipMallocManaged", kind: Kind::Managed, address, bytes: GIB };
        trace.alloc_through(0, &[outer, At { api: KFD_ALLOC, kind: Kind::Registered, ..outer }]);
    }
    let outer = trace.record(Event::Alloc, Kind::Managed, "hipMallocManaged");
    let outer = Record { status: 2, requested: asked_gib * GIB, ..outer };
    refused_by_kernel(&mut trace, outer, asked_gib * GIB);
    trace.after(Event::Exception, "__cxa_throw", 0, 0);
    Scene { trace }
}

fn refused_above_kernel() -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = CARD.files();
    let given = At { api: "hipHostMalloc", kind: Kind::HostPinned, address: 0x70_0000_0000, bytes: GIB };
    trace.alloc_through(0, &[given, At { api: KFD_ALLOC, kind: Kind::Registered, ..given }]);
    let outer = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
    let inner = trace.record(Event::Alloc, Kind::HostPinned, "hsa_amd_memory_pool_allocate");
    let parent_distance = (inner.call - outer.call) as u16;
    trace.push(Record { status: 4104, requested: 40 * GIB, parent_distance, ..inner }, &[]);
    trace.push(Record { status: 2, requested: 40 * GIB, ..outer }, &[]);
    trace.after(Event::Exception, "__cxa_throw", 0, 0);
    Scene { trace }
}

fn queue_without_host_memory() -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = CARD.files();
    trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x70_0000_0000, 32 * GIB - 10 * MIB);
    let outer = trace.record(Event::Reserve, Kind::Queue, "hsa_queue_create");
    refused_by_kernel(&mut trace, Record { status: 4104, ..outer }, 25 * MIB);
    trace.after(Event::Exception, "__cxa_throw", 0, 0);
    Scene { trace }
}

/// So many GiB live on a card of 24, and a request is refused with the rest free.
fn device_memory(machine: Vec<(String, String)>, held_gib: u64, asked: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = machine;
    for block in 0..held_gib {
        trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB);
    }
    let seq = trace.refuse(asked);
    trace.read_at_failure(seq, &readings([(RuntimeFree, (24 - held_gib) * GIB)]));
    Scene { trace }
}

/// The same, with the largest block that the recorder's probe was given.
fn probed(machine: Vec<(String, String)>, held_gib: u64, asked: u64, largest: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = machine;
    (0..held_gib).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(asked);
    let read = [(RuntimeFree, (24 - held_gib) * GIB), (LargestAllocatable, largest)];
    trace.read_at_failure(seq, &readings(read));
    Scene { trace }
}

fn half(machine: AmdMachine) -> Scene {
    let mut scene = device_memory(machine.files(), 12, GIB);
    let path = "/usr/lib/python3/dist-packages/torch/lib/libtorch_hip.so".to_owned();
    let module = Module { path, build_id: String::new(), start: 0x1000, end: 0x2000, vendor: false };
    scene.trace.modules.push(module);
    scene
}

/// So many GiB of pinned host memory, and more are refused.
pub(super) fn pins(held_gib: u64, asked_gib: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = CARD.files();
    for block in 0..held_gib {
        trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x70_0000_0000 + block * 2 * GIB, GIB);
    }
    let record = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
    trace.push(Record { status: 2, requested: asked_gib * GIB, ..record }, &[]);
    trace.after(Event::Exception, "__cxa_throw", 0, 0);
    Scene { trace }
}

fn gtt(used: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = CARD.files();
    trace.alloc(0x10_0000_0000, GIB);
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let read =
        |quantity: gpuoom_trace::metadata::Quantity, value| Reading { quantity: quantity as u16, device: 0, value };
    trace.reading(record, &[read(GttTotal, 32 * GIB), read(GttUsed, used)]);
    trace.end(process::EXITS, 1);
    Scene { trace }
}

/// GTT is full, and the kernel's log has a line of a card in this slot.
fn refused_commands(place: &str) -> Scene {
    let mut scene = gtt(32 * GIB - 512 * MIB);
    let log = format!("[9.1] amdgpu {place}: amdgpu: [drm] *ERROR* Not enough memory for command submission!");
    scene.trace.evidence.kernel_logs = vec![Given { path: "dmesg.txt".into(), content: kernel_log::read(&log) }];
    scene
}

fn with_xnack(machine: AmdMachine) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = machine.files();
    trace.process.environment = vec![("HSA_XNACK".into(), "1".into())];
    trace.alloc(0x10_0000_0000, GIB);
    trace.end(process::EXITS, 0);
    Scene { trace }
}
