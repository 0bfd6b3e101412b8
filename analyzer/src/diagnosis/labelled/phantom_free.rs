//! C. Free memory reported, allocation refused.

use gpuoom_trace::metadata::Quantity::{
    KfdOthersVram, KfdProcessVram, NvmlProcess, NvmlTotal, NvmlUsed, RuntimeFree, VramTotal, VramUsed,
};
use gpuoom_trace::record::{Event, Kind, Record};

use super::scenes::{NAVI_31, amd_gpu, at_failure, card_file, full, sampled, torch, with_log};
use super::uses::mark;
use super::{Labelled, Says, Scene};
use crate::evidence::Given;
use crate::evidence::smi::{Card, CardProcess, SmiReport};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder, at};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "phantom-free",
        says: Says::First(Probable),
        also: &[],
        story: "64 MiB are refused with 20 GiB free, and nothing explains it",
        scene: || one_block(64 * MIB, 20 * GIB, 0),
    },
    Labelled {
        id: "phantom-free",
        says: Says::Not,
        also: &[],
        story: "64 MiB of rows of 100 bytes are refused with 20 GiB free: what they take with their padding nobody knows",
        scene: || refused_by("hipMallocPitch", Kind::Device),
    },
    Labelled {
        id: "phantom-free",
        says: Says::Not,
        also: &[],
        story: "64 MiB of managed memory are refused with 20 GiB free on the card: the host's limits refuse it, too",
        scene: || refused_by("hipMallocManaged", Kind::Managed),
    },
    Labelled {
        id: "phantom-free",
        says: Says::Not,
        also: &["other-process-on-gpu"],
        story: "what was free was not enough",
        scene: || one_block(8 * GIB, 2 * GIB, 20 * GIB),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::First(Proven),
        also: &[],
        story: "another process holds 20 of 24 GiB",
        scene: || one_block(8 * GIB, 2 * GIB, 20 * GIB),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Found(Possible),
        also: &["live-leak"],
        story: "another process holds 4 GiB all along, and a leak meets what is left",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            for step in 0..19 {
                mark(&mut trace, &format!("step {step}"));
                trace.site = 7;
                trace.alloc(0x100_0000_0000 + step * 2 * GIB, GIB);
                trace.site = 0;
                trace.alloc(0x20_0000_0000, 512 * MIB);
                trace.free(0x20_0000_0000);
                trace.now_ns += 1_000_000_000;
            }
            let seq = trace.refuse(2 * GIB);
            let read = [
                (RuntimeFree, GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 23 * GIB),
                (KfdProcessVram, 19 * GIB),
                (KfdOthersVram, 4 * GIB),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Found(Probable),
        also: &[],
        story: "another process holds 20 of 24 GiB by KFD's list, and the driver counts less in use",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 10 * GIB);
            let seq = trace.refuse(4 * GIB);
            let read = [
                (RuntimeFree, 2 * GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 22 * GIB),
                (KfdProcessVram, 21 * GIB),
                (KfdOthersVram, 20 * GIB),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Not,
        also: &["phantom-free"],
        story: "another process holds 3 GiB, and there was enough left",
        scene: || one_block(64 * MIB, 18 * GIB, 3 * GIB),
    },
    Labelled {
        id: "phantom-free",
        says: Says::Not,
        also: &["free-overreported-graphics"],
        story: "HIP reported 5 GiB free, and the driver's counters less than the 3 that were asked for",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 18 * GIB);
            let seq = trace.refuse(3 * GIB);
            at_failure(&mut trace, seq, [(RuntimeFree, 5 * GIB), (VramTotal, 24 * GIB), (VramUsed, 22 * GIB)]);
            Scene { trace }
        },
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Found(Possible),
        also: &[],
        story: "another process holds 3 GiB, and without it 8 more would not fit either",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 20 * GIB);
            let seq = trace.refuse(8 * GIB);
            let (own, others) = (20 * GIB, 3 * GIB);
            let read = [
                (RuntimeFree, GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 23 * GIB),
                (KfdProcessVram, own),
                (KfdOthersVram, others),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Not,
        also: &["true-capacity"],
        story: "KFD lists this process under its number outside of the container",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 22 * GIB);
            let seq = trace.refuse(4 * GIB);
            let read = [(RuntimeFree, 2 * GIB), (VramTotal, 24 * GIB), (VramUsed, 22 * GIB), (KfdOthersVram, 22 * GIB)];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "hidden-runtime-memory",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the driver counts 12 GiB more, which HSA gave where the program added a memory node to a graph",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            let node = trace.record(Event::Reserve, Kind::Pool, "hipGraphAddMemAllocNode");
            let node = Record { address: 0x80_0000_0000, requested: 12 * GIB, ..node };
            trace.set_up_through(node, &[at("hsa_amd_memory_pool_allocate", 0x80_0000_0000, 12 * GIB)]);
            let seq = trace.refuse(14 * GIB);
            full(&mut trace, seq, 24 * GIB, 12 * GIB, 12 * GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "hidden-runtime-memory",
        says: Says::Not,
        also: &[],
        story: "the driver counts 3 GiB more for 2,000 blocks of 64 KiB, which take 2 MiB each",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            (0..2000).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * MIB, 64 << 10));
            let seq = trace.refuse(21 * GIB);
            let read = [
                (RuntimeFree, 20 * GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 4 * GIB),
                (KfdProcessVram, 2000 * 2 * MIB),
                (KfdOthersVram, 0),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Not,
        also: &[],
        story: "much is held, and no compute process holds it",
        scene: || unowned(12 * GIB, 0, Some(false)),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::First(Proven),
        also: &[],
        story: "no reading tells of others, and PyTorch's message about this failure does: 18 of 24 GiB",
        scene: || told("Process 99 has 18.00 GiB memory in use. Process 100 has 0 bytes memory in use. ", None),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Found(Probable),
        also: &[],
        story: "no reading tells of others, and a tool's list does, of whatever moment",
        scene: || told("", Some((99, 18 * GIB))),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Found(Possible),
        also: &["hidden-runtime-memory"],
        story: "a tool's list has another process, and NVML counts all that is in use as this one's: they contradict each other",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).cuda();
            trace.alloc(0x10_0000_0000, GIB);
            let seq = trace.refuse(4 * GIB);
            let read = [(RuntimeFree, 2 * GIB), (NvmlTotal, 24 * GIB), (NvmlUsed, 22 * GIB), (NvmlProcess, 22 * GIB)];
            at_failure(&mut trace, seq, read);
            listed(&mut trace, 99, 18 * GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Not,
        also: &[],
        story: "the list has only this process",
        scene: || told("", Some((4711, 18 * GIB))),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Not,
        also: &[],
        story: "the other process of the list holds next to nothing",
        scene: || told("", Some((99, 100 * MIB))),
    },
    Labelled {
        id: "zombie-vram",
        says: Says::First(Probable),
        also: &[],
        story: "12 GiB were in use before the start on a card without a display, and nobody holds them",
        scene: || unowned(12 * GIB, 0, Some(false)),
    },
    Labelled {
        id: "zombie-vram",
        says: Says::Not,
        also: &[],
        story: "the first call took 12 GiB while the card was first read, so that the driver counts them and KFD does not: nobody else \
                holds anything",
        scene: taken_while_it_was_read,
    },
    Labelled {
        id: "zombie-vram",
        says: Says::Found(Possible),
        also: &[],
        story: "the same on a card that drives a display: it may be somebody's desktop",
        scene: || unowned(12 * GIB, 0, Some(true)),
    },
    Labelled {
        id: "zombie-vram",
        says: Says::Not,
        also: &["other-process-on-gpu"],
        story: "the same, and a living process holds it",
        scene: || unowned(12 * GIB, 12 * GIB, Some(false)),
    },
    Labelled {
        id: "hidden-runtime-memory",
        says: Says::First(Probable),
        also: &[],
        story: "the driver counts 6 GiB more than the program's blocks, and 3 were missing",
        scene: || hidden(6 * GIB),
    },
    Labelled {
        id: "hidden-runtime-memory",
        says: Says::Found(Possible),
        also: &[],
        story: "it holds 1 GiB, which would not have been enough",
        scene: || hidden(GIB),
    },
    Labelled {
        id: "hidden-runtime-memory",
        says: Says::Not,
        also: &[],
        story: "it holds 300 MiB, the cost of a context",
        scene: || hidden(300 * MIB),
    },
    Labelled {
        id: "phantom-free",
        says: Says::Not,
        also: &[],
        story: "other processes held 18 GiB at the reading before, and gave 12 back until the failure was read",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, GIB);
            sampled(&mut trace, [(KfdOthersVram, 18 * GIB)]);
            let seq = trace.refuse(6 * GIB);
            let read = [
                (RuntimeFree, 17 * GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 7 * GIB),
                (KfdProcessVram, GIB),
                (KfdOthersVram, 6 * GIB),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "another process holds 1 GiB of 24, and half of that was missing: it does not hold the card",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            (0..22).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(GIB + 512 * MIB);
            let read = [
                (RuntimeFree, GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 23 * GIB),
                (KfdProcessVram, 22 * GIB),
                (KfdOthersVram, GIB),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "hidden-runtime-memory",
        says: Says::Found(Possible),
        also: &["true-capacity", "pool-retention", "known-bad-version"],
        story: "a pool that keeps all gave blocks of 2 to 6 GiB one after the other: it may hold all 20 GiB",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            let record = trace.record(Event::Sync, Kind::Pool, "hipMemPoolSetAttribute");
            trace.with_numbers(Record { address: 0xD0, ..record }, &[4, u64::MAX]);
            for gib in 2..7 {
                trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x90_0000_0000 + gib * GIB, gib * GIB);
                trace.free_kind(Kind::Pool, "hipFreeAsync", 0x90_0000_0000 + gib * GIB);
            }
            trace.now_ns += 10_000_000_000;
            let seq = trace.refuse(12 * GIB);
            full(&mut trace, seq, 24 * GIB, 20 * GIB, 4 * GIB);
            Scene { trace }
        },
    },
];

/// A program with 1 GiB asks for more on a card of 24.
fn one_block(asked: u64, free: u64, others: u64) -> Scene {
    beside_one_block(free, others, |trace| trace.refuse(asked))
}

/// 64 MiB are refused to another function, with 20 GiB free.
fn refused_by(api: &str, kind: Kind) -> Scene {
    beside_one_block(20 * GIB, 0, |trace| {
        let record = trace.record(Event::Alloc, kind, api);
        trace.push(Record { status: 2, requested: 64 * MIB, ..record }, &[])
    })
}

fn beside_one_block(free: u64, others: u64, refuse: impl FnOnce(&mut TraceBuilder) -> u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    let seq = refuse(&mut trace);
    let read = [
        (RuntimeFree, free),
        (VramTotal, 24 * GIB),
        (VramUsed, 24 * GIB - free),
        (KfdProcessVram, GIB),
        (KfdOthersVram, others),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// 4 GiB are refused with 2 free, and no reading tells who holds the rest; a message or a tool's list does.
fn told(message: &str, other: Option<(u64, u64)>) -> Scene {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    trace.alloc(0x10_0000_0000, GIB);
    let seq = trace.refuse(4 * GIB);
    at_failure(&mut trace, seq, [(RuntimeFree, 2 * GIB)]);
    if let Some((pid, bytes)) = other {
        listed(&mut trace, pid, bytes);
        return Scene { trace };
    }
    let log = format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which \
         2.00 GiB is free. {message}Including non-PyTorch memory, this process has 1.50 GiB memory in use. Of the allocated memory \
         1.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
    );
    with_log(trace, &log)
}

/// A tool's list has this process with so much of the card.
fn listed(trace: &mut TraceBuilder, pid: u64, bytes: u64) {
    let process = CardProcess { card: Some(0), pid, used_bytes: Some(bytes), ..CardProcess::default() };
    let pci_bus_id = Some("00000000:03:00.0".to_owned());
    let card = Card { index: Some(0), pci_bus_id, ..Card::default() };
    let content = SmiReport { format: "nvidia-smi", cards: vec![card], processes: vec![process] };
    trace.evidence.smi.push(Given { path: "smi.txt".into(), content });
}

/// Much of a card of 24 GiB was in use before the program took 8 and asked for 8 more.
fn unowned(in_use: u64, by_processes: u64, shows: Option<bool>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    amd_gpu(&mut trace, NAVI_31, 24 * GIB, 32 * GIB);
    if let Some(shows) = shows {
        card_file(&mut trace, "boot_vga", if shows { "1\n" } else { "0\n" });
    }
    let before = [(VramTotal, 24 * GIB), (VramUsed, in_use), (KfdProcessVram, 0), (KfdOthersVram, by_processes)];
    sampled(&mut trace, before);
    trace.alloc(0x10_0000_0000, 8 * GIB);
    let seq = trace.refuse(8 * GIB);
    let read = [
        (RuntimeFree, 16 * GIB - in_use),
        (VramTotal, 24 * GIB),
        (VramUsed, 8 * GIB + in_use),
        (KfdProcessVram, 8 * GIB),
        (KfdOthersVram, by_processes),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// A reading of the card that ends within the first call for memory.
fn taken_while_it_was_read() -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    amd_gpu(&mut trace, NAVI_31, 24 * GIB, 32 * GIB);
    card_file(&mut trace, "boot_vga", "0\n");
    sampled(&mut trace, [(VramTotal, 24 * GIB), (VramUsed, 12 * GIB), (KfdProcessVram, 0), (KfdOthersVram, 0)]);
    // It began before the reading and returned behind it.
    let call = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let (began_at, requested) = (call.at - 1_500_000, 12 * GIB);
    trace.push(Record { at: began_at, duration: 1_500_000, address: 0x10_0000_0000, requested, ..call }, &[]);
    let seq = trace.refuse(14 * GIB);
    let read = [
        (RuntimeFree, 12 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 12 * GIB),
        (KfdProcessVram, 12 * GIB),
        (KfdOthersVram, 0),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// Of 24 GiB the program holds 10, the runtime for it some more, another process what is left but for one.
fn hidden(bytes: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    (0..10).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(4 * GIB);
    let read = [
        (RuntimeFree, GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 23 * GIB),
        (KfdProcessVram, 10 * GIB + bytes),
        (KfdOthersVram, 2 * GIB),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// A process that comes and goes is in one reading and not in the other: neither the list nor the free memory then rules it out.
#[test]
fn readings_of_two_moments_rule_nobody_out() {
    let says_nothing_of_others = |scene: &Scene| {
        let summary = crate::testing::summary(&scene.trace);
        summary.conclusion.excluded.iter().all(|excluded| excluded.id != "other-process-on-gpu")
    };
    // 18 GiB are in use that no process is listed with.
    let mut unlisted = TraceBuilder::default().device(0, "card", 24 * GIB);
    unlisted.alloc(0x10_0000_0000, 2 * GIB);
    let seq = unlisted.refuse(5 * GIB);
    let read = [
        (RuntimeFree, 4 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 20 * GIB),
        (KfdProcessVram, 2 * GIB),
        (KfdOthersVram, 0),
    ];
    at_failure(&mut unlisted, seq, read);
    assert!(says_nothing_of_others(&Scene { trace: unlisted }));
    // Others hold 14 GiB of a card that is called nearly free.
    let mut gone = TraceBuilder::default().device(0, "card", 24 * GIB);
    gone.alloc(0x10_0000_0000, 4 * GIB);
    let seq = gone.refuse(8 * GIB);
    let read = [
        (RuntimeFree, 20 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 4 * GIB),
        (KfdProcessVram, 4 * GIB),
        (KfdOthersVram, 14 * GIB),
    ];
    at_failure(&mut gone, seq, read);
    let summary = crate::testing::summary(&gone);
    let umbrella = summary.conclusion.findings.iter().find(|finding| finding.id == "phantom-free");
    assert_eq!(umbrella.map(|finding| finding.confidence), Some(Possible));
    assert!(says_nothing_of_others(&Scene { trace: gone }));
}

#[test]
fn what_nothing_explains_is_to_be_reported_and_what_something_may_explain_is_not() {
    let summary = crate::testing::summary(&one_block(64 * MIB, 20 * GIB, 0).trace);
    let umbrella = &summary.conclusion.findings[0];
    assert_eq!(umbrella.id, "phantom-free");
    let last = umbrella.evidence.last().map(|evidence| evidence.text.as_str()).unwrap_or_default();
    assert!(last.starts_with("none of the known reasons was found"), "{last}");
    assert!(!umbrella.file.is_empty());
}
