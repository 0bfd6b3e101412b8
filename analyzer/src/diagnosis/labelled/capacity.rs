//! A. Capacity and request shape.

use gpuoom_trace::metadata::Quantity::{
    KfdOthersVram, KfdProcessVram, LargestAllocatable, RuntimeFree, VramTotal, VramUsed,
};

use gpuoom_trace::record::{Event, Kind, Record};

use super::machines::{AmdMachine, CARD, STRIX_HALO};
use super::scenes::{at_failure, card_file, full, set, torch};
use super::uses::mark;
use super::{Labelled, Says, Scene, readings};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder, gib, summary};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "true-capacity",
        says: Says::First(Possible),
        also: &[],
        story: "1.9 of 2 GiB that are free are refused, which were given five times before beside as much: another try would tell",
        scene: || barely(5),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and it is the first request of that size",
        scene: || barely(0),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "22 of 24 GiB are held, 4 more are asked for; what a pool of the program's own may hold unused nobody tells",
        scene: || held_and_refused(22, 4, gib(1.9), gib(1.8)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and 20 GiB came to stay in one jump between steps that keep nothing: that is no trend, and rules no leak out",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            let steps = |trace: &mut TraceBuilder, count: u64| {
                (0..count).for_each(|_| {
                    trace.alloc(0x90_0000_0000, GIB);
                    trace.free(0x90_0000_0000);
                });
            };
            steps(&mut trace, 30);
            (0..20).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB + MIB));
            steps(&mut trace, 4);
            let seq = trace.refuse(4 * GIB);
            full(&mut trace, seq, 24 * GIB, 20 * GIB + 20 * MIB, gib(3.9));
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Possible),
        also: &[],
        story: "22 of 24 GiB are a pool of the program's own, which says that it uses 2 of them: whether it could give the rest back nobody knows",
        scene: || in_a_pool(2),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and all of it is one block, in which another pool has 21 blocks of 1 GiB: nothing is unused twice",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            let pool = 0x10_0000_0000;
            trace.alloc(pool, 22 * GIB);
            trace.pool_alloc("outer", "", pool, 22 * GIB);
            (0..21).for_each(|block| _ = trace.pool_alloc("inner", "", pool + block * GIB, GIB));
            let seq = trace.refuse(4 * GIB);
            let read =
                [(RuntimeFree, 2 * GIB), (VramTotal, 24 * GIB), (VramUsed, 22 * GIB), (KfdProcessVram, 22 * GIB)];
            trace.read_at_failure(seq, &readings(read));
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and the pool says that it uses 21 of them: without what it does not use the request would not fit either",
        scene: || in_a_pool(21),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "22 of 24 GiB are held, 2 GiB and 1 MiB are asked for, and the probe got 2 GiB: the sum is more than the card, whatever it looks like",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            for block in 0..22 {
                trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB);
            }
            let seq = trace.refuse(2 * GIB + MIB);
            let read = [(RuntimeFree, 2 * GIB), (LargestAllocatable, 2 * GIB), (VramTotal, 24 * GIB)];
            trace.read_at_failure(seq, &readings(read));
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "31 MiB are asked for, 30 MiB were free, and the probe got those: no more than one of its steps less",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            (0..23).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            trace.alloc(0x90_0000_0000, GIB - 30 * MIB);
            let seq = trace.refuse(31 * MIB);
            full(&mut trace, seq, 24 * GIB, 24 * GIB - 30 * MIB, 30 * MIB);
            at_failure(&mut trace, seq, [(LargestAllocatable, 30 * MIB)]);
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "19 of 24 GiB are held, which leaves more room for other reasons",
        scene: || held_and_refused(19, 6, gib(4.9), gib(4.8)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &["other-process-on-gpu"],
        story: "the program holds half of the card, another process the rest",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x1000_0000, 12 * GIB);
            let seq = trace.refuse(4 * GIB);
            let read = [
                (RuntimeFree, GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 23 * GIB),
                (KfdProcessVram, 12 * GIB),
                (KfdOthersVram, 11 * GIB),
            ];
            trace.read_at_failure(seq, &readings(read));
            Scene { trace }
        },
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "KFD lists others with twice the card, and the program's own blocks are all that is in use: the list is of before",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            (0..23).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(4 * GIB);
            let read = [
                (RuntimeFree, GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 23 * GIB),
                (KfdProcessVram, 23 * GIB),
                (KfdOthersVram, 47 * GIB),
            ];
            trace.read_at_failure(seq, &readings(read));
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Possible),
        also: &[],
        story: "22 of 24 GiB are held, 1 more is asked for, and just as much is free: nobody knows who holds the last one",
        scene: || held_and_refused(22, 1, GIB, GIB),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &["hidden-runtime-memory"],
        story: "the program asked for 19 of 24 GiB, and the runtime's own memory and rounding take the rest",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            (0..19).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(2 * GIB);
            full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &[],
        story: "14 of 24 GiB are held, and 12 more are asked for: too much for the card, whatever else is there",
        scene: || held_and_refused(14, 12, gib(9.9), gib(9.8)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &["other-process-on-gpu"],
        story: "22 of 24 GiB are held, 1 more would have fit, and nobody knows who holds the rest",
        scene: || unseen(22 * GIB, 0, GIB),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Probable),
        also: &[],
        story: "22 of 24 GiB are held, 1.75 more would have fit but for the half GiB that a runtime takes",
        scene: || unseen(22 * GIB, 0, gib(1.75)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and the driver tells that others hold nothing",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            (0..22).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(gib(1.75));
            full(&mut trace, seq, 24 * GIB, gib(22.5), gib(1.5));
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &["other-process-on-gpu"],
        story: "20 GiB of managed memory may lie in RAM, and 3 GiB of device memory are no full card",
        scene: || unseen(3 * GIB, 20 * GIB, 4 * GIB),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &[],
        story: "managed memory is refused: it need not lie on the card",
        scene: || managed_refused(4 * GIB),
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::Not,
        also: &[],
        story: "40 GiB of managed memory are refused: it may exceed the card",
        scene: || managed_refused(40 * GIB),
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::First(Proven),
        also: &[],
        story: "30 GiB in rows on a card of 24: with what pads them it is more still",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.machine = CARD.files();
            let rows = trace.record(Event::Alloc, Kind::Device, "hipMallocPitch");
            let seq = trace.push(Record { status: 2, requested: 30 * GIB, ..rows }, &[]);
            full(&mut trace, seq, 24 * GIB, 0, 24 * GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::Not,
        also: &["process-fraction-cap"],
        story: "12 GiB, where the runtime says 8 and the board has 24: the total is a limit",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
            trace.machine = CARD.files();
            let seq = trace.refuse(12 * GIB);
            trace.read_at_failure(seq, &readings([(RuntimeFree, 8 * GIB), (VramTotal, 24 * GIB), (VramUsed, GIB)]));
            Scene { trace }
        },
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::First(Proven),
        also: &[],
        story: "77.5 GiB on a card of 24 (ROCm/ROCm#5519)",
        scene: || on_machine(CARD, 24 * GIB, 77 * GIB),
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::First(Proven),
        also: &["true-capacity"],
        story: "5 GiB on a card of 4 that is full",
        scene: || said_to_have_4(0, Some(0)),
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::First(Proven),
        also: &["true-capacity"],
        story: "the same, and nobody tried whether more is given",
        scene: || said_to_have_4(0, None),
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::Not,
        also: &[],
        story: "the same, and a block of 6 GiB had been given before: the device has more than 4",
        scene: || said_to_have_4(6 * GIB, Some(0)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &[],
        story: "the card is said to be full, and a block of the size that was refused, less 2 MiB, could be allocated right after it",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            (0..23).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(4 * GIB);
            full(&mut trace, seq, 24 * GIB, 23 * GIB, 200 * MIB);
            at_failure(&mut trace, seq, [(LargestAllocatable, 4 * GIB - 2 * MIB)]);
            Scene { trace }
        },
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::First(Probable),
        also: &[],
        story: "the same from a pool that the program made: one of managed memory may be larger than the card",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.machine = CARD.files();
            let pool = trace.record(Event::Reserve, Kind::Pool, "hipMemPoolCreate");
            trace.push(Record { address: 0x55, ..pool }, &[]);
            let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocFromPoolAsync");
            let seq = trace.push(Record { status: 2, requested: 77 * GIB, ..record }, &[]);
            full(&mut trace, seq, 24 * GIB, 0, 24 * GIB - 200 * MIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::First(Probable),
        also: &[],
        story: "the same in a trace that tells nothing of the machine: it may be an APU with larger pools",
        scene: || held_and_refused(1, 77, 22 * GIB, 22 * GIB),
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::Not,
        also: &["uma-large-carveout-starves-gtt", "uma-carveout-only"],
        story: "16 GiB on an APU that shows 15.24 of a carve-out of 64: the total is a limit (ROCm/TheRock#1054)",
        scene: || {
            let apu = AmdMachine { vram: 64 * GIB, gtt: gib(15.24), ttm: gib(15.24), ram: 32 * GIB, ..STRIX_HALO };
            on_machine(apu, gib(15.24), 16 * GIB)
        },
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::Not,
        also: &["true-capacity"],
        story: "a request below the card's size",
        scene: || held_and_refused(22, 23, gib(1.9), gib(1.8)),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Probable),
        also: &["true-capacity"],
        story: "a rise by labels fills the card, and the program goes on for as many more: what is refused can't rise",
        scene: || goes_on_full(40),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &[],
        story: "the card is full, and nobody knows what PyTorch's cache holds unused",
        scene: || full_of_segments(1),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Probable),
        also: &[],
        story: "the same, and PyTorch asked again in vain: it had no whole segment to give back",
        scene: || full_of_segments(2),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &["cache-greed"],
        story: "the card is full of a cache: it is released, and the same request succeeds",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            (0..23).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(4 * GIB);
            full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
            (0..6).for_each(|block| _ = trace.free(0x10_0000_0000 + block * 2 * GIB));
            trace.alloc(0x100_0000_0000, 4 * GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &["live-leak"],
        story: "the card is full at the end of a leak: what stays rises by 1 GiB in each step that the program marks",
        scene: || full_after_a_rise(true),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &["live-leak"],
        story: "the same without marks: a leak, or a cache that grows with the context, and the full card is the end of either",
        scene: || full_after_a_rise(false),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &["live-leak"],
        story: "the same by two call paths in turns, as the keys and the values of a cache come",
        scene: || full_after_a_rise_by(2, false),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &["request-exceeds-device"],
        story: "22 of 24 GiB are held, and 40 more are asked for: no empty card could hold them",
        scene: || {
            let mut scene = held_and_refused(22, 40, gib(1.9), gib(1.8));
            scene.trace.machine = CARD.files();
            scene
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &["async-free-pending"],
        story: "the same request succeeds later by itself: what was missing was on its way",
        scene: || {
            let mut scene = held_and_refused(22, 4, gib(1.9), gib(1.8));
            scene.trace.alloc(0x100_0000_0000, 4 * GIB);
            scene
        },
    },
    Labelled {
        id: "partition-slice",
        says: Says::Found(Proven),
        also: &[],
        story: "an MI300X in CPX mode: a device of 24 GiB is one of eight partitions",
        scene: || partitioned("CPX\n"),
    },
    Labelled {
        id: "partition-slice",
        says: Says::Not,
        also: &[],
        story: "a MIG slice is named in the environment of a program that runs over HIP",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 12 * GIB);
            set(&mut trace, "CUDA_VISIBLE_DEVICES", "MIG-8d6d5a3b");
            trace.alloc(0x10_0000_0000, GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "partition-slice",
        says: Says::Not,
        also: &[],
        story: "in SPX mode the device is the board",
        scene: || partitioned("SPX\n"),
    },
];

/// 6 of 8 GiB are held, and 1.9 are given and given back so many times before they are refused with 2 free.
fn barely(times: u64) -> Scene {
    let request = GIB * 19 / 10;
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x10_0000_0000, 6 * GIB);
    for _ in 0..times {
        trace.alloc(0x20_0000_0000, request);
        trace.free(0x20_0000_0000);
    }
    let seq = trace.refuse(request);
    full(&mut trace, seq, 8 * GIB, 6 * GIB, 2 * GIB);
    Scene { trace }
}

/// What stays rises by 1 GiB in each of twenty steps, and then 3 GiB do not fit.
pub(super) fn full_after_a_rise(is_marked: bool) -> Scene {
    full_after_a_rise_by(1, is_marked)
}

/// The same by so many call paths in turns.
fn full_after_a_rise_by(paths: u64, is_marked: bool) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    for step in 0..20 {
        if is_marked {
            mark(&mut trace, &format!("step {step}"));
        }
        trace.site = 7 + (step % paths) as u32;
        trace.alloc(0x100_0000_0000 + step * 2 * GIB, GIB);
        trace.site = 0;
        trace.alloc(0x20_0000_0000, 3 * GIB);
        trace.free(0x20_0000_0000);
        trace.now_ns += 1_000_000_000;
    }
    (0..2).for_each(|block| _ = trace.alloc(0x20_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(3 * GIB);
    full(&mut trace, seq, 24 * GIB, 22 * GIB, 2 * GIB);
    Scene { trace }
}

/// A card of 24 GiB that is full, of which the program holds so much device memory and managed memory; nobody reads what others
/// hold.
fn unseen(own: u64, managed: u64, asked: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).cuda();
    trace.alloc_kind(Kind::Device, "cudaMalloc", 0x10_0000_0000, own);
    if managed > 0 {
        trace.alloc_kind(Kind::Managed, "cudaMallocManaged", 0x100_0000_0000, managed);
    }
    let record = trace.record(Event::Alloc, Kind::Device, "cudaMalloc");
    let seq = trace.push(Record { status: 2, requested: asked, ..record }, &[]);
    trace.read_at_failure(seq, &readings([(RuntimeFree, asked - GIB / 4)]));
    Scene { trace }
}

/// Managed memory is refused on a card whose memory is used up.
fn managed_refused(asked: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, 22 * GIB);
    let record = trace.record(Event::Alloc, Kind::Managed, "hipMallocManaged");
    let seq = trace.push(Record { status: 2, requested: asked, ..record }, &[]);
    full(&mut trace, seq, 24 * GIB, 22 * GIB, 2 * GIB);
    Scene { trace }
}

/// A request on an empty device of some machine.
fn on_machine(machine: AmdMachine, total: u64, asked: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", total);
    trace.machine = machine.files();
    let seq = trace.refuse(asked);
    full(&mut trace, seq, total, 0, total - 200 * MIB);
    at_failure(&mut trace, seq, [(LargestAllocatable, total - 300 * MIB)]);
    Scene { trace }
}

/// A board that is said to have 4 GiB. A block of 6 was given once and is gone; 4 live, and 5 more are refused.
fn said_to_have_4(given_before: u64, largest: Option<u64>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 4 * GIB);
    trace.machine = AmdMachine { vram: 4 * GIB, ..CARD }.files();
    if given_before > 0 {
        trace.alloc(0x20_0000_0000, given_before);
        trace.free(0x20_0000_0000);
    }
    (0..4).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(5 * GIB);
    full(&mut trace, seq, 4 * GIB, 4 * GIB, 0);
    if let Some(largest) = largest {
        at_failure(&mut trace, seq, [(LargestAllocatable, largest)]);
    }
    Scene { trace }
}

/// A board of 192 GiB with eight of KFD's nodes.
fn partitioned(mode: &str) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "MI300X", 24 * GIB);
    trace.machine = AmdMachine { target: 90_402, vram: 192 * GIB, bank: 24 * GIB, ..CARD }.files();
    card_file(&mut trace, "current_compute_partition", mode);
    for node in 2..9 {
        let directory = format!("/sys/class/kfd/kfd/topology/nodes/{node}");
        let properties = "simd_count 80\nlocation_id 768\ndomain 0\ngfx_target_version 90402\n";
        trace.machine.push((format!("{directory}/properties"), properties.into()));
        let bank = format!("heap_type 1\nsize_in_bytes {}\n", 24 * GIB);
        trace.machine.push((format!("{directory}/mem_banks/0/properties"), bank));
    }
    trace.alloc(0x10_0000_0000, GIB);
    Scene { trace }
}

/// A pool of 22 GiB on a card of 24, of which some are in blocks that it tells of. Four more are asked for.
fn in_a_pool(used_gib: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let pool = 0x10_0000_0000;
    trace.alloc(pool, 22 * GIB);
    for block in 0..used_gib {
        trace.pool_alloc("arena", "", pool + block * GIB, GIB);
    }
    let seq = trace.refuse(4 * GIB);
    let read = [(RuntimeFree, 2 * GIB), (VramTotal, 24 * GIB), (VramUsed, 22 * GIB), (KfdProcessVram, 22 * GIB)];
    trace.read_at_failure(seq, &readings(read));
    Scene { trace }
}

/// The program holds some GiB of 24, asks for more, and both readings say what is free.
fn held_and_refused(held_gib: u64, asked_gib: u64, runtime_free: u64, sysfs_free: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    for block in 0..held_gib {
        trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB);
    }
    let seq = trace.refuse(asked_gib * GIB);
    let read = [
        (RuntimeFree, runtime_free),
        (VramTotal, 24 * GIB),
        (VramUsed, 24 * GIB - sysfs_free),
        (KfdProcessVram, held_gib * GIB),
        (KfdOthersVram, 0),
    ];
    trace.read_at_failure(seq, &readings(read));
    Scene { trace }
}

/// What a program does once it was refused, with smaller work, shows nothing of what came to stay before.
#[test]
fn level_steps_behind_a_refusal_rule_no_leak_out() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let (work, mut next) = (0x90_0000_0000, 0x10_0000_0000);
    let mut held = 0;
    for solve in 0.. {
        // Each tenth call forgets three of its four blocks.
        let kept = if solve % 10 == 3 { 3 } else { 0 };
        if held + 4 * GIB / 4 > 24 * GIB {
            break;
        }
        (0..4).for_each(|part| _ = trace.alloc(work + part * GIB, GIB / 4));
        (kept..4).for_each(|part| _ = trace.free(work + part * GIB));
        for part in 0..kept {
            trace.free(work + part * GIB);
            trace.alloc(next, GIB / 4);
            (next, held) = (next + GIB, held + GIB / 4);
        }
    }
    let refused = |trace: &mut TraceBuilder, asked| {
        let seq = trace.refuse(asked);
        full(trace, seq, 24 * GIB, held, 24 * GIB - held);
    };
    refused(&mut trace, GIB);
    for _ in 0..20 {
        (0..4).for_each(|part| _ = trace.alloc(work + part * GIB, GIB / 12));
        (0..4).for_each(|part| _ = trace.free(work + part * GIB));
    }
    refused(&mut trace, 2 * GIB);
    let summary = super::summed_up(&Scene { trace });
    let page = crate::report::text::write(&summary, &[], crate::report::page::Look::new(4000, false));
    let ruled_out = page.lines().filter(|line| line.contains(" ruled out: ") && !line.contains("not ruled out"));
    assert!(ruled_out.clone().all(|line| !line.contains("a leak:")), "{page}");
}

/// A call that waited for other threads' calls is refused behind them, whenever it began.
#[test]
fn what_other_threads_did_while_a_call_waited_came_before_its_refusal() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x10_0000_0000, 6 * GIB);
    let began = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    for _ in 0..40 {
        trace.alloc(0x90_0000_0000, GIB);
        trace.free(0x90_0000_0000);
    }
    let refused = Record { status: 2, requested: 4 * GIB, ..began };
    let seq = trace.push(refused, &[]);
    full(&mut trace, seq, 8 * GIB, 6 * GIB, 2 * GIB);
    let summary = super::summed_up(&Scene { trace });
    let page = crate::report::text::write(&summary, &[], crate::report::page::Look::new(4000, false));
    assert!(page.contains("#1  ") && !page.contains("what was held only rose"), "{page}");
}

/// What piles up in swings too small for cycles, behind the last great one, no cycle shows.
#[test]
fn great_cycles_rule_no_leak_out_that_came_behind_them() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    for _ in 0..40 {
        trace.alloc(0x90_0000_0000, GIB);
        trace.free(0x90_0000_0000);
    }
    let kept = (0..60).map(|block| trace.alloc(0x10_0000_0000 + block * GIB, GIB / 8)).count() as u64;
    let seq = trace.refuse(GIB);
    full(&mut trace, seq, 8 * GIB, kept * GIB / 8, 8 * GIB - kept * GIB / 8);
    let summary = super::summed_up(&Scene { trace });
    let page = crate::report::text::write(&summary, &[], crate::report::page::Look::new(4000, false));
    assert!(page.contains("not ruled out: what piles up within one step"), "{page}");
}

/// A thread that leaks may have its turn all at once, between steps of others.
#[test]
fn a_jump_rules_no_leak_out() {
    let jumped = TRACES.iter().find(|labelled| labelled.story.contains("in one jump between steps")).unwrap();
    let summary = super::summed_up(&(jumped.scene)());
    let page = crate::report::text::write(&summary, &[], crate::report::page::Look::new(4000, false));
    assert!(page.contains("not ruled out: what came to stay, without which the request would have fitted"), "{page}");
}

/// A failure that is made up for is not looked at so closely, and no leak is ruled out there either.
#[test]
fn no_failure_of_a_full_card_rules_the_leak_out_that_filled_it() {
    let findings = summary(&goes_on_full(40).trace).conclusion.findings;
    let full = findings.iter().filter(|finding| finding.id == "true-capacity");
    let of_leaks =
        full.flat_map(|finding| &finding.refuters_checked).filter(|refuter| refuter.text.starts_with("a leak"));
    assert!(of_leaks.clone().count() > 0 && of_leaks.clone().all(|refuter| !refuter.checked));
}

/// Whoever gives memory back before it is asked for again: the card may have been full of what nobody needed.
#[test]
fn a_card_that_another_thread_makes_room_on_may_have_been_full_of_no_use() {
    let confidence = |freed_by: Option<u32>| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        (0..23).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
        let seq = trace.refuse(4 * GIB);
        full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
        if let Some(thread) = freed_by {
            for block in 0..4 {
                let free = trace.record_on(thread, Event::Free, Kind::Device, "hipFree");
                trace.push(Record { address: 0x10_0000_0000 + block * 2 * GIB, ..free }, &[]);
            }
            trace.alloc(0x80_0000_0000, 4 * GIB);
        }
        let findings = summary(&trace).conclusion.findings;
        let full = findings.into_iter().find(|finding| finding.id == "true-capacity").expect("a finding");
        let told = full.evidence.iter().map(|evidence| evidence.text.clone()).collect::<Vec<_>>().join("; ");
        (full.confidence, told.contains("succeeded after another thread had given memory back"))
    };
    assert_eq!(confidence(None), (Probable, false));
    assert_eq!(confidence(Some(77)), (Possible, true));
}

/// A rise by labels has filled the card, and the program goes on with small blocks for so many more labels, and is refused at each.
fn goes_on_full(labels: u64) -> Scene {
    let mut scene = full_after_a_rise(true);
    for step in 20..20 + labels {
        mark(&mut scene.trace, &format!("step {step}"));
        scene.trace.site = 11;
        scene.trace.alloc(0x30_0000_0000, 64 * MIB);
        scene.trace.free(0x30_0000_0000);
        scene.trace.site = 7;
        let seq = scene.trace.refuse(3 * GIB);
        full(&mut scene.trace, seq, 24 * GIB, 22 * GIB, 2 * GIB);
        // Something else comes in its place, as far as calls show.
        if step + 1 < 20 + labels {
            scene.trace.site = 12;
            scene.trace.alloc(0x31_0000_0000, 96 * MIB);
            scene.trace.free(0x31_0000_0000);
        }
        scene.trace.now_ns += 1_000_000_000;
    }
    scene
}

/// PyTorch's library asks so often for more than is left, and nobody tells what it holds unused.
fn full_of_segments(tries: u32) -> Scene {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    (0..23).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    trace.site = 9;
    for _ in 0..tries {
        let seq = trace.refuse(4 * GIB);
        full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
    }
    Scene { trace }
}
