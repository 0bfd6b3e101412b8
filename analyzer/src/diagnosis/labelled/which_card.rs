//! Which card: machines with several, in odd orders, and what logs, lists and counters then say of the program's.

use gpuoom_trace::metadata::Quantity::{
    GttTotal, GttUsed, KfdOthersVram, RuntimeFree, RuntimeTotal, VramTotal, VramUsed,
};
use gpuoom_trace::metadata::{Reading, trigger};
use gpuoom_trace::record::{Event, Kind, Record};

use super::machines::{AmdMachine, CARD};
use super::{Labelled, Says, Scene, readings};
use crate::evidence::{Given, kernel_log, smi};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder, summary};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "retired-pages",
        says: Says::Not,
        also: &[],
        story: "the second card of nvidia-smi has bad pages, the program has the first, which is nvidia-smi's second",
        scene: || told("0000:01:00.0", TWO_CARDS),
    },
    Labelled {
        id: "retired-pages",
        says: Says::Found(Proven),
        also: &[],
        story: "the program has the card with bad pages, whatever number it has there",
        scene: || told("0000:41:00.0", TWO_CARDS),
    },
    Labelled {
        id: "retired-pages",
        says: Says::Not,
        also: &[],
        story: "the runtime does not tell where its device is: it may be either",
        scene: || told("", TWO_CARDS),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Found(Probable),
        also: &["retired-pages"],
        story: "a list of processes names cards by their UUIDs, another list has their addresses",
        scene: || listed("0000:41:00.0"),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Not,
        also: &[],
        story: "the same list, and the program has the other card",
        scene: || listed("0000:01:00.0"),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Found(Possible),
        also: &["request-exceeds-device"],
        story: "counters from before the runtime told which of two cards it has, at another's position: KFD's list is of another card, and by the runtime alone 21 GiB of this one are in use beside the program's",
        scene: || counted(true, "0000:83:00.0"),
    },
    Labelled {
        id: "gtt-exhaustion",
        says: Says::Not,
        also: &[],
        story: "the processor's graphics have a full GTT, and the program has an NVIDIA card",
        scene: beside_nvidia,
    },
    Labelled {
        id: "suspect-hardware",
        says: Says::Not,
        also: &["phantom-free"],
        story: "an ECC error of another card",
        scene: || logged("0000:41:00"),
    },
    Labelled {
        id: "suspect-hardware",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "an ECC error of this one",
        scene: || logged("0000:03:00"),
    },
];

/// As `nvidia-smi --query-gpu=...` lists two cards: the second one has bad pages.
const TWO_CARDS: &str = "index, pci.bus_id, uuid, memory.total [MiB], retired_pages.double_bit.count [count]\n\
    0, 00000000:01:00.0, GPU-aaaa, 24576 MiB, 0\n1, 00000000:41:00.0, GPU-bbbb, 24576 MiB, 12\n";

fn given(text: &str) -> Given<smi::SmiReport> {
    Given { path: "smi.csv".into(), content: smi::read(text).unwrap() }
}

/// One device of CUDA in this slot, on a machine of which nothing else is known.
fn cuda(place: &str) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB - 96 * MIB).bus_id(place).cuda();
    trace.alloc(0x10_0000_0000, GIB);
    trace
}

fn told(place: &str, list: &str) -> Scene {
    let mut trace = cuda(place);
    trace.evidence.smi = vec![given(list)];
    Scene { trace }
}

/// 4 GiB are refused, and another process holds 20 GiB of the card at 0000:41:00.0.
fn listed(place: &str) -> Scene {
    let mut trace = cuda(place);
    let seq = trace.refuse(4 * GIB);
    trace.read_at_failure(seq, &readings([(RuntimeFree, 2 * GIB)]));
    let processes = "pid, process_name, gpu_uuid, used_gpu_memory [MiB]\n77, python3, GPU-bbbb, 20480 MiB\n";
    trace.evidence.smi = vec![given(processes), given(TWO_CARDS)];
    Scene { trace }
}

/// A second card of AMD at 0000:83:00.0, as KFD and sysfs have it.
fn two_of_amd() -> Vec<(String, String)> {
    let (node, card) = ("/sys/class/kfd/kfd/topology/nodes/2", "/sys/class/drm/card1/device");
    let more = [
        (format!("{card}/vendor"), "0x1002\n".to_owned()),
        (format!("{card}/uevent"), "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:83:00.0\n".to_owned()),
        (format!("{card}/mem_info_vram_total"), format!("{}\n", 24 * GIB)),
        (format!("{node}/gpu_id"), "9999\n".to_owned()),
        (
            format!("{node}/properties"),
            "simd_count 80\nlocation_id 33536\ndomain 0\ngfx_target_version 110000\n".to_owned(),
        ),
    ];
    let more: Vec<(&str, String)> = more.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    CARD.with(&more)
}

/// A program on the card in this slot, chosen by a UUID that no recorder follows: KFD's first GPU, which it was taken for, is
/// full of another process's memory, and so is what its first counters are of.
fn counted(by_uuid: bool, place: &str) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).bus_id(place);
    trace.machine = two_of_amd();
    if by_uuid {
        trace.process.environment = vec![("ROCR_VISIBLE_DEVICES".into(), "GPU-83".into())];
    }
    trace.alloc(0x10_0000_0000, GIB);
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let of = |device: u8, used: u64| {
        [(VramTotal, 24 * GIB), (VramUsed, used)].map(|(q, value)| Reading { quantity: q as u16, device, value })
    };
    let before = [of(0, 23 * GIB), of(1, GIB)].concat();
    trace.reading(Record { status: trigger::START, ..record }, &before);
    let seq = trace.refuse(4 * GIB);
    let read = [(RuntimeFree, 2 * GIB), (RuntimeTotal, 24 * GIB), (KfdOthersVram, 20 * GIB)];
    trace.read_at_failure(seq, &readings(read));
    Scene { trace }
}

/// A Ryzen's graphics have the only counters of the machine, and the program's device is NVIDIA's.
fn beside_nvidia() -> Scene {
    let mut trace = cuda("0000:01:00.0");
    trace.machine = AmdMachine { target: 100_306, vram: 512 * MIB, ..CARD }.files();
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let read = [(GttTotal, 32 * GIB), (GttUsed, 32 * GIB), (VramTotal, 512 * MIB), (VramUsed, 512 * MIB)];
    let read = read.map(|(quantity, value)| Reading { quantity: quantity as u16, device: 0, value });
    trace.reading(record, &read);
    trace.end(gpuoom_trace::record::process::EXITS, 1);
    Scene { trace }
}

/// Refused at 1 of 24 GiB with most of it free, and the kernel's log tells of an ECC error in this slot.
fn logged(place: &str) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    let seq = trace.refuse(64 * MIB);
    trace.read_at_failure(seq, &readings([(RuntimeFree, 22 * GIB)]));
    let log = format!("[  102.123456] NVRM: Xid (PCI:{place}): 48, pid=4711, name=llama-cli, Ch 00000008");
    trace.evidence.kernel_logs = vec![Given { path: "dmesg.txt".into(), content: kernel_log::read(&log) }];
    Scene { trace }
}

#[test]
fn counters_of_another_card_are_of_no_device() {
    let at_start = |scene: &Scene| summary(&scene.trace).facts.devices[0].used_at_start_bytes;
    assert_eq!(at_start(&counted(true, "0000:83:00.0")), None, "nobody knew yet which card it was");
    let nvidia = summary(&beside_nvidia().trace);
    assert_eq!(
        (nvidia.facts.devices[0].used_at_start_bytes, nvidia.facts.devices[0].architecture.clone()),
        (None, None)
    );
    // One card, and a runtime that does not tell its place: it is that one.
    let mut only = TraceBuilder::default().device(0, "card", 24 * GIB).bus_id("");
    only.machine = CARD.files();
    only.alloc(0x10_0000_0000, GIB);
    let record = only.record(Event::Reading, Kind::None, "gpuoom_reading");
    only.reading(record, &[Reading { quantity: VramUsed as u16, device: 0, value: GIB }]);
    let device = &summary(&only).facts.devices[0];
    assert_eq!((device.used_at_start_bytes, device.architecture.as_deref()), (Some(GIB), Some("gfx1100")));
    // Two, and nothing is said of either.
    only.machine = two_of_amd();
    let device = &summary(&only).facts.devices[0];
    assert_eq!((device.used_at_start_bytes, device.architecture.as_deref()), (None, Some("gfx1100")), "KFD's first");
    only.process.environment = vec![("HIP_VISIBLE_DEVICES".into(), "1".into())];
    assert_eq!(summary(&only).facts.devices[0].used_at_start_bytes, None);
}
