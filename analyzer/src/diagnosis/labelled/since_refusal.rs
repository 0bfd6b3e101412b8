//! What came or went between a refusal and the readings of its moment, on other threads and by other processes.

use gpuoom_trace::metadata::Quantity::{
    self, GttUsed, KfdOthersVram, KfdProcessVram, LargestAllocatable, RuntimeFree, VramTotal, VramUsed,
};
use gpuoom_trace::record::{Event, Kind, Record};

use super::scenes::{NAVI_31, amd_gpu, at_failure, at_failure_since, sampled};
use super::{Labelled, Says, Scene};
use crate::conclusion::Summary;
use crate::judgement::check::Confidence::{Possible, Probable};
use crate::testing::{GIB, MIB, TraceBuilder, gib, summary};

/// A thread beside the one that fails.
const OTHER: u32 = 99;

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "phantom-free",
        says: Says::First(Possible),
        also: &[],
        story: "another thread frees 20 GiB while the call is under way that is refused: its record comes first, and nobody knows which \
                came first on the card",
        scene: || {
            let mut trace = two_blocks();
            let refused = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
            free_on_another(&mut trace);
            let seq = trace.push(Record { duration: 2_000_000, status: 2, requested: 8 * GIB, ..refused }, &[]);
            at_failure(&mut trace, seq, nearly_empty());
            Scene { trace }
        },
    },
    Labelled {
        id: "phantom-free",
        says: Says::First(Possible),
        also: &[],
        story: "another thread's free was recorded before the call that is refused, and may have waited for the device",
        scene: || {
            let mut trace = two_blocks();
            free_on_another(&mut trace);
            let seq = trace.refuse(8 * GIB);
            at_failure(&mut trace, seq, nearly_empty());
            Scene { trace }
        },
    },
    Labelled {
        id: "phantom-free",
        says: Says::Not,
        also: &["true-capacity", "kv-cache-prealloc"],
        story: "another thread frees 20 GiB after the refusal, and a reading of the sampling period comes in before that of the failure",
        scene: || {
            let mut trace = two_blocks();
            let seq = trace.refuse(8 * GIB);
            sampled(&mut trace, [(RuntimeFree, 2 * GIB), (KfdOthersVram, 0)]);
            free_on_another(&mut trace);
            at_failure(&mut trace, seq, nearly_empty());
            Scene { trace }
        },
    },
    Labelled {
        id: "phantom-free",
        says: Says::First(Probable),
        also: &[],
        story: "other processes gave 100 MiB back until the failure was read, and without it there was enough, too",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, GIB);
            sampled(&mut trace, [(KfdOthersVram, GIB)]);
            let seq = trace.refuse(6 * GIB);
            let others = GIB - 100 * MIB;
            let read = [
                (RuntimeFree, 22 * GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 2 * GIB),
                (KfdProcessVram, GIB),
                (KfdOthersVram, others),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Probable),
        also: &[],
        story: "another thread frees 2 GiB between the refusal and the reading: what was free then was less, whatever was read",
        scene: || full_then_freed(22, 4, Some(2)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &["phantom-free"],
        story: "20 GiB are free and nothing came or went: the card is not full",
        scene: || full_then_freed(4, 4, None),
    },
    Labelled {
        id: "sysfs-free-overreported",
        says: Says::Not,
        also: &["true-capacity"],
        story: "another thread frees 7 GiB after the runtime was asked and before sysfs is read",
        scene: || sysfs_shows_more_after(true, [GIB, GIB]),
    },
    Labelled {
        id: "sysfs-free-overreported",
        says: Says::Not,
        also: &["true-capacity"],
        story: "another process gave 7 GiB back until sysfs was read",
        scene: || sysfs_shows_more_after(false, [8 * GIB, GIB]),
    },
    Labelled {
        id: "sysfs-free-overreported",
        says: Says::First(Probable),
        also: &["true-capacity"],
        story: "nothing came or went meanwhile, and other processes held still",
        scene: || sysfs_shows_more_after(false, [GIB, GIB]),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Found(Probable),
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "8 GiB vanished over a refusal of 4: more than the call could have taken",
        scene: || vanished(2 * GIB, Some([0, 0])),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Found(Possible),
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "4 GiB vanished, and nobody read what other processes took",
        scene: || vanished(6 * GIB, None),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Found(Probable),
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "4 GiB vanished beyond what another process took meanwhile",
        scene: || vanished(5 * GIB, Some([0, GIB])),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Not,
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "another process took as much as vanished",
        scene: || vanished(6 * GIB, Some([0, 4 * GIB])),
    },
];

/// A program with 2 GiB and 20 more on a card of 24.
fn two_blocks() -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, 2 * GIB);
    trace.alloc(0x80_0000_0000, 20 * GIB);
    sampled(&mut trace, [(KfdOthersVram, 0)]);
    trace
}

fn free_on_another(trace: &mut TraceBuilder) {
    let record = trace.record_on(OTHER, Event::Free, Kind::Device, "hipFree");
    trace.push(Record { address: 0x80_0000_0000, duration: 0, ..record }, &[]);
}

fn nearly_empty() -> [(Quantity, u64); 5] {
    [(RuntimeFree, 22 * GIB), (VramTotal, 24 * GIB), (VramUsed, 2 * GIB), (KfdProcessVram, 2 * GIB), (KfdOthersVram, 0)]
}

/// So many GiB are held on a card of 24, and so many asked for; another thread gives some back before the card is read.
fn full_then_freed(held: u64, asked: u64, freed: Option<u64>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let given = freed.unwrap_or(0);
    (0..held - given).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    if given > 0 {
        trace.alloc(0x80_0000_0000, given * GIB);
    }
    let seq = trace.refuse(asked * GIB);
    if given > 0 {
        free_on_another(&mut trace);
    }
    let own = (held - given) * GIB;
    let read = [
        (RuntimeFree, 24 * GIB - own),
        (VramTotal, 24 * GIB),
        (VramUsed, own),
        (KfdProcessVram, own),
        (KfdOthersVram, 0),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// HIP calls 1.4 GiB free and sysfs 8.4, which another thread's free may explain, or what others held before and hold.
fn sysfs_shows_more_after(is_freed: bool, others: [u64; 2]) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    amd_gpu(&mut trace, NAVI_31, 24 * GIB, 32 * GIB);
    (0..15).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    trace.alloc(0x80_0000_0000, 7 * GIB);
    sampled(&mut trace, [(KfdOthersVram, others[0])]);
    let seq = trace.refuse(4 * GIB);
    if is_freed {
        free_on_another(&mut trace);
    }
    let read = [
        (RuntimeFree, gib(1.4)),
        (VramTotal, 24 * GIB),
        (VramUsed, 24 * GIB - gib(8.4)),
        (KfdProcessVram, 15 * GIB),
        (KfdOthersVram, others[1]),
        (GttUsed, 6 * GIB),
    ];
    at_failure_since(&mut trace, seq, 1_500_000, read);
    Scene { trace }
}

/// 10 GiB are free before `hipMallocAsync` of 4 GiB fails, and so many after; other processes hold so much before and after.
fn vanished(free_after: u64, others: Option<[u64; 2]>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, 14 * GIB);
    // The first reading may be of before the block.
    for _ in 0..2 {
        match others {
            Some([before, _]) => {
                sampled(&mut trace, [(RuntimeFree, 10 * GIB), (KfdProcessVram, 14 * GIB), (KfdOthersVram, before)])
            }
            None => sampled(&mut trace, [(RuntimeFree, 10 * GIB)]),
        }
    }
    let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocAsync");
    let seq = trace.push(Record { status: 2, requested: 4 * GIB, ..record }, &[]);
    let read = [(RuntimeFree, free_after), (VramTotal, 24 * GIB), (VramUsed, 24 * GIB - free_after)];
    match others {
        Some([_, after]) => {
            let own = (KfdProcessVram, 24 * GIB - free_after - after);
            at_failure(&mut trace, seq, [read[0], read[1], read[2], own, (KfdOthersVram, after)])
        }
        None => at_failure(&mut trace, seq, read),
    }
    trace.alloc(0x200_0000_0000, 2 * GIB);
    Scene { trace }
}

fn told(summary: &Summary, id: &str) -> String {
    let finding = summary.conclusion.findings.iter().find(|finding| finding.id == id);
    let evidence = finding.iter().flat_map(|finding| &finding.evidence).map(|evidence| evidence.text.clone());
    evidence.collect::<Vec<_>>().join("; ")
}

#[test]
fn what_was_freed_since_the_refusal_is_said_beside_what_was_read() {
    let text = told(&summary(&full_then_freed(23, 3, Some(2)).trace), "true-capacity");
    assert!(
        text.contains("3.00 GiB was free when it was read; up to 2.00 GiB of it may have come back after the refusal"),
        "{text}"
    );
    assert!(!text.contains("too little once it is rounded"), "{text}");
    let summary = summary(&full_then_freed(23, 4, Some(2)).trace);
    let sentences = summary.conclusion.verdict.sentences.join(" ");
    assert!(!sentences.contains("less than requested"), "{sentences}");
}

/// The leak's figure is of the refusal: what another thread frees before the card is read was missing, too.
#[test]
fn a_leak_is_not_said_to_have_missed_nothing() {
    let text = |freed: bool| {
        let mut program = crate::passes::shape::programs::Program::new();
        (0..2).for_each(|_| program.keep(GIB));
        let spare = program.give(2 * GIB);
        for step in 0..40 {
            program.mark(&format!("step {step}"));
            program.keep(256 * MIB);
            let work = program.give(64 * MIB);
            program.take(&[work]);
        }
        let held = 4 * GIB + 40 * 256 * MIB;
        let seq = program.trace.refuse(16 * GIB - held + GIB);
        let free = if freed { 16 * GIB - held + 2 * GIB } else { 16 * GIB - held };
        if freed {
            let record = program.trace.record_on(OTHER, Event::Free, Kind::Device, "hipFree");
            program.trace.push(Record { address: spare, duration: 0, ..record }, &[]);
        }
        let read = [(RuntimeFree, free), (VramTotal, 16 * GIB), (VramUsed, 16 * GIB - free), (KfdOthersVram, 0)];
        at_failure(&mut program.trace, seq, read);
        told(&summary(&program.trace), "live-leak")
    };
    assert!(text(false).contains("1.00 GiB was missing when the card was read"), "{}", text(false));
    assert!(text(true).contains("1.00 GiB was missing at most"), "{}", text(true));
}

#[test]
fn other_processes_are_ruled_out_where_they_took_what_vanished() {
    let excluded = summary(&vanished(6 * GIB, Some([0, 4 * GIB])).trace).conclusion.excluded;
    let by = excluded.iter().find(|out| out.id == "pool-failure-leak").map(|out| out.by.as_str());
    assert_eq!(by, Some("other processes hold 4.00 GiB more than before the failure: they took it"));
}

#[test]
fn what_other_processes_held_is_asked_for_where_nobody_read_it() {
    let mut trace = two_blocks();
    trace.free(0x80_0000_0000);
    trace.alloc(0x90_0000_0000, GIB);
    let seq = trace.refuse(GIB);
    at_failure(&mut trace, seq, [(RuntimeFree, 20 * GIB), (VramTotal, 24 * GIB), (VramUsed, 4 * GIB)]);
    let findings = summary(&trace).conclusion.findings;
    let found = findings.iter().find(|finding| finding.id == "phantom-free").expect("enough was reported");
    assert_eq!(found.confidence, Probable);
    assert!(found.missing.iter().any(|reading| reading.contains("other processes")), "{:?}", found.missing);
}

/// A block larger than all that was reported free shows that memory came, and not that it had been there.
#[test]
fn a_larger_block_than_was_free_shows_nothing_of_the_refusal() {
    let after = |bytes: u64| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(60_443_483);
        let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocAsync");
        let seq = trace.push(Record { status: 2, requested: GIB, ..record }, &[]);
        at_failure(&mut trace, seq, [(RuntimeFree, 4 * GIB), (VramTotal, 24 * GIB), (VramUsed, 20 * GIB)]);
        trace.alloc(0x200_0000_0000, bytes);
        told(&summary(&trace), "mallocasync-oom")
    };
    assert!(after(GIB).contains("hipMalloc of the same size succeeded"), "{}", after(GIB));
    assert!(!after(6 * GIB).contains("succeeded"), "{}", after(6 * GIB));
}

#[test]
fn a_probe_beyond_what_was_free_is_told_as_such() {
    assert!(told_of_probe(3 * GIB).contains("the largest block below it"), "{}", told_of_probe(3 * GIB));
    assert!(told_of_probe(9 * GIB).contains("more than had been read as free"), "{}", told_of_probe(9 * GIB));
}

/// What is said of a card of 24 GiB with 8 free of which so much could be allocated after 4 were refused.
fn told_of_probe(largest: u64) -> String {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    let seq = trace.refuse(4 * GIB);
    let read = [(RuntimeFree, 8 * GIB), (VramTotal, 24 * GIB), (VramUsed, 16 * GIB), (LargestAllocatable, largest)];
    at_failure(&mut trace, seq, read);
    told(&summary(&trace), "phantom-free")
}

#[test]
fn exports_came_back_only_where_nothing_else_gave_memory_back() {
    let ruled_out = |others: [u64; 2], ends_pool: bool| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(70_051_831);
        let address = |block: u64| 0x10_0000_0000 + block * 2 * GIB;
        for block in 0..8 {
            trace.alloc(address(block), GIB);
            let record = trace.record(Event::Export, Kind::Device, "hipIpcGetMemHandle");
            trace.push(Record { address: address(block), ..record }, &[]);
        }
        sampled(&mut trace, [(RuntimeFree, 10 * GIB), (KfdOthersVram, others[0])]);
        (0..8).for_each(|block| _ = trace.free(address(block)));
        if ends_pool {
            trace.after(Event::Module, "hipModuleUnload", 0, 0);
        }
        sampled(&mut trace, [(RuntimeFree, 18 * GIB), (KfdOthersVram, others[1])]);
        let seq = trace.refuse(20 * GIB);
        let read = [(RuntimeFree, 18 * GIB), (VramTotal, 24 * GIB), (VramUsed, 6 * GIB), (KfdOthersVram, others[1])];
        at_failure(&mut trace, seq, read);
        summary(&trace).conclusion.excluded.iter().any(|out| out.id == "ipc-export-pin")
    };
    assert!(ruled_out([0, 0], false), "what was freed came back");
    assert!(!ruled_out([9 * GIB, 0], false), "another process gave 9 GiB back");
    assert!(!ruled_out([0, 0], true), "code that went, or these frees");
}
