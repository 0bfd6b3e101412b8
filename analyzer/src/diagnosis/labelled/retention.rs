//! D. What stream-ordered pools keep.

use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};
use gpuoom_trace::record::{Event, Kind, Record};

use super::scenes::{at_failure, full, set, torch};
use super::{Labelled, Says, Scene, readings};
use crate::judgement::check::Confidence::{Possible, Probable};
use crate::testing::{At, GIB, TraceBuilder, at, summary};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "a pool gave 12 GiB and got them back; the driver still counts them, and hipMalloc fails",
        scene: || retained(Kind::Device, 12 * GIB),
    },
    Labelled {
        id: "pool-retention",
        says: Says::First(Probable),
        also: &["true-capacity", "known-bad-version"],
        story: "no threshold is set, and below HIP its pools hold 6 GiB more than lives in them",
        scene: || kept_below(6),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Not,
        also: &["true-capacity", "known-bad-version"],
        story: "the same, and HSA has all but 1 of these back",
        scene: || kept_below(1),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "the driver counts no more than what lives: the pool gave it back",
        scene: || retained(Kind::Device, 0),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "the same request succeeds after a wait, and nothing was trimmed: the pool kept nothing",
        scene: || {
            let mut scene = retained(Kind::Device, 12 * GIB);
            let wait = scene.trace.record(Event::Sync, Kind::None, "hipDeviceSynchronize");
            scene.trace.push(wait, &[]);
            scene.trace.alloc(0x80_0000_0000, 8 * GIB);
            scene
        },
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Possible),
        also: &["async-free-pending", "known-bad-version"],
        story: "the frees came just before, and nobody waited for the stream: they may be pending",
        scene: || freed_just_before(&[]),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Possible),
        also: &["async-free-pending", "known-bad-version"],
        story: "the same, and the program waited for the device in between: a pool without a threshold gives back then",
        scene: || freed_just_before(&[(WAIT, &[])]),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Possible),
        also: &["known-bad-version"],
        story: "the failing call is from the pool itself: it keeps pieces of 1 GiB, and need not be able to use them",
        scene: || retained(Kind::Pool, 12 * GIB),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "the failing call is from the device's own pool, and another one keeps 12 GiB by its threshold",
        scene: || two_pools(Kind::Pool, &[]),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "hipMalloc fails, that pool is destroyed, and the same request succeeds",
        scene: || two_pools(Kind::Device, &[(Event::Free, Kind::Pool, "hipMemPoolDestroy")]),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "the same, and it was the memory of graphs that was trimmed",
        scene: || two_pools(Kind::Device, &[(Event::Sync, Kind::Pool, "hipDeviceGraphMemTrim")]),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "the same, and it was the device that was reset",
        scene: || two_pools(Kind::Device, &[(Event::Device, Kind::None, "hipDeviceReset")]),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "nothing was given back in between, and yet the same request succeeds: the pool did not keep it",
        scene: || two_pools(Kind::Device, &[(Event::Sync, Kind::None, "hipDeviceSynchronize")]),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version", "other-process-on-gpu"],
        story: "the same, and another process that held 7 GiB may have made the room",
        scene: || {
            let mut scene = retained_beside(&[], Kind::Device, 7 * GIB, 7 * GIB);
            scene.trace.alloc(0x80_0000_0000, 8 * GIB);
            scene
        },
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "the same request succeeds from the pool: it gave what it had kept",
        scene: || {
            let mut scene = retained(Kind::Device, 12 * GIB);
            scene.trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x80_0000_0000, 8 * GIB);
            scene
        },
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "the program asked for the device's own pool to raise its threshold: it made no other one",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            let record = trace.record(Event::Reserve, Kind::Pool, "hipDeviceGetDefaultMemPool");
            trace.push(Record { address: 0xD0, ..record }, &[]);
            retained_of(trace, &[(SET, &[4, u64::MAX])], Kind::Device, 12 * GIB, 2 * GIB)
        },
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "the program raised the pool's release threshold, and the driver counts what the pool keeps",
        scene: || retained_with(&[(SET, &[4, u64::MAX])], Kind::Device, 12 * GIB),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &["pool-retention", "known-bad-version"],
        story: "a pool keeps what was missing because it was told to: blocks and request alone would barely have fitted",
        scene: || two_pools_of(10, 11, Kind::Device, 25 * GIB / 2, 3 * GIB, &[]),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "the threshold lets the pool keep less than was missing; more may be there until the program waits",
        scene: || retained_with(&[(SET, &[4, GIB])], Kind::Device, 12 * GIB),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "the program trimmed the pool after it had given everything back to it, and had waited",
        scene: || retained_with(&[(SET, &[4, u64::MAX]), (WAIT, &[]), (TRIM, &[0])], Kind::Device, 12 * GIB),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "it had not waited: the frees may have been under way, and the driver counts as much as before",
        scene: || retained_with(&[(SET, &[4, u64::MAX]), (TRIM, &[0])], Kind::Device, 12 * GIB),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Possible),
        also: &["known-bad-version", "hidden-runtime-memory"],
        story: "the program raised the threshold when all had gone back and it had waited: something else may be what the driver counts",
        scene: || retained_with(&[(WAIT, &[]), (SET_LATE, &[4, u64::MAX])], Kind::Device, 12 * GIB),
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Possible),
        also: &["known-bad-version", "hidden-runtime-memory"],
        story: "the program raised the threshold first, and a library's calls go past the recorder: they may have taken it",
        scene: || {
            let mut scene = retained_with(&[(SET, &[4, u64::MAX])], Kind::Device, 12 * GIB);
            scene.trace.free(0x77_0000_0000);
            scene
        },
    },
    Labelled {
        id: "pool-retention",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "a trim to 8 GiB leaves that much, and 4 were missing",
        scene: || retained_with(&[(SET, &[4, u64::MAX]), (WAIT, &[]), (TRIM, &[8 * GIB])], Kind::Device, 12 * GIB),
    },
];

const SET: &str = "hipMemPoolSetAttribute";
/// The same call, when the pool has all back.
const SET_LATE: &str = "hipMemPoolSetAttribute (late)";
const TRIM: &str = "hipMemPoolTrimTo";
const WAIT: &str = "hipDeviceSynchronize";

/// A pool of 12 GiB is filled and emptied; 6 GiB live beside it on a card of 24, of which others hold the rest.
fn retained(asked_of: Kind, counted: u64) -> Scene {
    retained_with(&[], asked_of, counted)
}

/// With calls about the device's own pool: [`SET`] before it gives anything, all others when it has all back.
fn retained_with(calls: &[(&str, &[u64])], asked_of: Kind, counted: u64) -> Scene {
    retained_beside(calls, asked_of, counted, 2 * GIB)
}

/// Beside other processes that hold so much.
fn retained_beside(calls: &[(&str, &[u64])], asked_of: Kind, counted: u64, others: u64) -> Scene {
    retained_of(TraceBuilder::default().device(0, "card", 24 * GIB), calls, asked_of, counted, others)
}

fn retained_of(trace: TraceBuilder, calls: &[(&str, &[u64])], asked_of: Kind, counted: u64, others: u64) -> Scene {
    retained_for(10_000_000_000, trace, calls, asked_of, counted, others)
}

/// Memory that went back to a pool some milliseconds before a request is refused.
fn freed_just_before(calls: &[(&str, &[u64])]) -> Scene {
    retained_for(1_000_000, TraceBuilder::default().device(0, "card", 24 * GIB), calls, Kind::Device, 12 * GIB, 2 * GIB)
}

fn retained_for(
    ns: u64,
    mut trace: TraceBuilder,
    calls: &[(&str, &[u64])],
    asked_of: Kind,
    counted: u64,
    others: u64,
) -> Scene {
    (0..6).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let call = |trace: &mut TraceBuilder, api: &str, numbers: &[u64]| {
        let record = trace.record(Event::Sync, if api == WAIT { Kind::None } else { Kind::Pool }, api);
        trace.with_numbers(Record { address: 0xD0, ..record }, numbers);
    };
    let first = calls.iter().filter(|(api, _)| *api == SET);
    first.for_each(|(api, numbers)| call(&mut trace, api, numbers));
    (0..12).for_each(|block| _ = trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x100_0000_0000 + block * GIB, GIB));
    (0..12).for_each(|block| _ = trace.free_kind(Kind::Pool, "hipFreeAsync", 0x100_0000_0000 + block * GIB));
    for (api, numbers) in calls.iter().filter(|(api, _)| *api != SET) {
        call(&mut trace, if *api == SET_LATE { SET } else { api }, numbers);
    }
    trace.now_ns += ns;
    let name = if asked_of == Kind::Pool { "hipMallocAsync" } else { "hipMalloc" };
    let record = trace.record(Event::Alloc, asked_of, name);
    let seq = trace.push(Record { status: 2, requested: 8 * GIB, ..record }, &[]);
    let read = [
        (RuntimeFree, 4 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 20 * GIB),
        (KfdProcessVram, 6 * GIB + counted),
        (KfdOthersVram, others),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// A pool gave 8 GiB and got 6 of them back, of which HSA has all but `kept`; 12 GiB live beside it, and 2 more than are free
/// are refused.
fn kept_below(kept: u64) -> Scene {
    const HSA: &str = "hsa_amd_memory_pool_allocate";
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    for block in 0..12 {
        let address = 0x10_0000_0000 + block * 2 * GIB;
        trace.alloc_through(0, &[at("hipMalloc", address, GIB), at(HSA, address, GIB)]);
    }
    for block in 0..8 {
        let address = 0x100_0000_0000 + block * GIB;
        let of_pool = At { kind: Kind::Pool, ..at("hipMallocAsync", address, GIB) };
        trace.alloc_through(0, &[of_pool, at(HSA, address, GIB)]);
    }
    for block in 0..6 {
        let address = 0x100_0000_0000 + block * GIB;
        let of_pool = At { kind: Kind::Pool, ..at("hipFreeAsync", address, 0) };
        let both = [of_pool, at("hsa_amd_memory_pool_free", address, 0)];
        trace.free_through(0, if block < kept { &both[..1] } else { &both });
    }
    trace.now_ns += 10_000_000_000;
    let free = (10 - kept) * GIB;
    let seq = trace.refuse(free + 2 * GIB);
    full(&mut trace, seq, 24 * GIB, (14 + kept) * GIB, free);
    Scene { trace }
}

/// A pool that the program made keeps 12 GiB by its threshold, 6 GiB live beside it, and 8 more are refused. After these calls the
/// same comes from hipMalloc.
fn two_pools(asked_of: Kind, calls: &[(Event, Kind, &str)]) -> Scene {
    two_pools_of(12, 6, asked_of, 8 * GIB, 4 * GIB, calls)
}

/// The same with other sizes: `kept` and `live` in blocks of 1 GiB.
fn two_pools_of(kept: u64, live: u64, asked_of: Kind, request: u64, free: u64, calls: &[(Event, Kind, &str)]) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let record = trace.record(Event::Reserve, Kind::Pool, "hipMemPoolCreate");
    trace.push(Record { address: 0x55, ..record }, &[]);
    let record = trace.record(Event::Sync, Kind::Pool, SET);
    trace.with_numbers(Record { address: 0x55, ..record }, &[4, u64::MAX]);
    for block in 0..kept {
        let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocFromPoolAsync");
        let record = Record { address: 0x100_0000_0000 + block * GIB, requested: GIB, ..record };
        trace.with_numbers(record, &[0x55]);
    }
    (0..kept).for_each(|block| _ = trace.free_kind(Kind::Pool, "hipFreeAsync", 0x100_0000_0000 + block * GIB));
    (0..live).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    trace.now_ns += 10_000_000_000;
    let name = if asked_of == Kind::Pool { "hipMallocAsync" } else { "hipMalloc" };
    let record = trace.record(Event::Alloc, asked_of, name);
    let seq = trace.push(Record { status: 2, requested: request, ..record }, &[]);
    full(&mut trace, seq, 24 * GIB, (kept + live) * GIB, free);
    for (event, kind, api) in calls {
        let record = trace.record(*event, *kind, api);
        let address = if *event == Event::Free { 0x55 } else { 0 };
        trace.push(Record { address, ..record }, &[]);
    }
    if !calls.is_empty() {
        trace.alloc(0x80_0000_0000, request);
    }
    Scene { trace }
}

/// What is said to have refuted it, of a trace.
fn ruled_out(scene: &Scene) -> Option<String> {
    let excluded = summary(&scene.trace).conclusion.excluded;
    excluded.into_iter().find(|out| out.id == "pool-retention").map(|out| out.by)
}

/// What is advised against it, and where it can be reported.
fn advised(trace: TraceBuilder) -> (Vec<String>, Vec<String>) {
    let calls: &[(&str, &[u64])] = &[(SET, &[4, u64::MAX])];
    let findings = summary(&retained_of(trace, calls, Kind::Device, 12 * GIB, 2 * GIB).trace).conclusion.findings;
    let found = findings.into_iter().find(|finding| finding.id == "pool-retention").expect("a pool that keeps");
    let fixes = found.fix.into_iter().map(|fix| format!("{} {}", fix.command, fix.why)).collect();
    (fixes, found.file.into_iter().map(|filing| filing.place).collect())
}

/// PyTorch's pool is emptied by PyTorch, which raised its threshold on purpose.
#[test]
fn a_pool_is_emptied_by_whom_it_belongs_to() {
    let trace = || TraceBuilder::default().device(0, "card", 24 * GIB);
    let (of_program, _) = advised(trace());
    assert!(of_program.iter().any(|fix| fix.contains("hipMemPoolTrimTo")), "{of_program:?}");
    assert!(of_program.iter().all(|fix| !fix.contains("torch")), "{of_program:?}");
    let mut with_torch = torch(trace());
    set(&mut with_torch, "PYTORCH_HIP_ALLOC_CONF", "backend:cudaMallocAsync");
    let (of_torch, _) = advised(with_torch);
    assert!(of_torch.iter().any(|fix| fix.starts_with("torch.cuda.empty_cache()")), "{of_torch:?}");
    assert!(of_torch.iter().all(|fix| !fix.contains("TrimTo") && !fix.contains("threshold")), "{of_torch:?}");
}

/// It is no defect of a runtime's to keep what it was told to keep.
#[test]
fn what_a_threshold_keeps_is_nobodys_defect() {
    let trace = || TraceBuilder::default().device(0, "card", 24 * GIB);
    assert_eq!(advised(trace()).1, [""; 0]);
    let findings = summary(&retained(Kind::Device, 12 * GIB).trace).conclusion.findings;
    let found = findings.into_iter().find(|finding| finding.id == "pool-retention").expect("a pool that keeps");
    assert_eq!(
        found.file.iter().map(|filing| filing.place_in_words()).collect::<Vec<_>>(),
        ["ROCm/rocm-systems (clr)"]
    );
}

/// What the full card says of pools: whether it was put to the test that they could give back what was missing.
fn could_give_back(scene: &Scene) -> Option<bool> {
    let findings = summary(&scene.trace).conclusion.findings;
    let full = findings.into_iter().find(|finding| finding.id == "true-capacity")?;
    let of_pools = |refuter: &&crate::judgement::check::Refuter| refuter.text.starts_with("stream-ordered pools");
    full.refuters_checked.iter().find(of_pools).map(|refuter| refuter.checked)
}

#[test]
fn a_full_card_and_its_pools_say_one_thing() {
    for (live, says, is_full) in [(20, true, Probable), (16, false, Possible)] {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        (0..8).for_each(|block| _ = trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x100_0000_0000 + block * GIB, GIB));
        (0..8).for_each(|block| _ = trace.free_kind(Kind::Pool, "hipFreeAsync", 0x100_0000_0000 + block * GIB));
        (0..live).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
        let seq = trace.refuse(8 * GIB);
        full(&mut trace, seq, 24 * GIB, 20 * GIB, 4 * GIB);
        let scene = Scene { trace };
        let out = ruled_out(&scene);
        assert_eq!((out.is_some(), could_give_back(&scene)), (says, Some(says)), "{out:?}");
        let findings = summary(&scene.trace).conclusion.findings;
        let full = findings.iter().find(|finding| finding.id == "true-capacity").map(|finding| finding.confidence);
        assert_eq!(full, Some(is_full));
    }
}

/// All that was ever given may be many times what the card has.
#[test]
fn pools_keep_no_more_than_the_card_has_beside_the_programs_blocks() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    (0..40).for_each(|block| {
        trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x100_0000_0000 + block * GIB, GIB);
        trace.free_kind(Kind::Pool, "hipFreeAsync", 0x100_0000_0000 + block * GIB);
    });
    (0..23).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(8 * GIB);
    trace.read_at_failure(seq, &readings([(RuntimeFree, GIB / 2), (VramTotal, 24 * GIB)]));
    assert_eq!(could_give_back(&Scene { trace }), Some(true));
}

#[test]
fn what_is_left_after_a_trim_is_told_as_a_bound() {
    let scene = retained_with(&[(SET, &[4, u64::MAX]), (WAIT, &[]), (TRIM, &[0])], Kind::Device, 12 * GIB);
    let by = ruled_out(&scene).unwrap_or_default();
    assert!(by.starts_with("the pools keep at most 0 bytes"), "{by}");
}

/// A card that holds 4 GiB of its own, has 14 free, and refuses `request` to a pool that got much back before.
fn beside_free(request: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    (0..20).for_each(|block| {
        trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x100_0000_0000 + block * GIB, GIB);
    });
    (0..20).for_each(|block| _ = trace.free_kind(Kind::Pool, "hipFreeAsync", 0x100_0000_0000 + block * GIB));
    trace.alloc(0x10_0000_0000, 4 * GIB);
    let seq = trace.refuse(request);
    at_failure(&mut trace, seq, [(RuntimeFree, 14 * GIB), (VramTotal, 24 * GIB), (VramUsed, 10 * GIB)]);
    Scene { trace }
}

/// What is free is in no pool: with 4 of 24 GiB held and 14 free, pools keep 6 at most.
#[test]
fn pools_keep_nothing_of_what_is_free() {
    let said = |request: u64| {
        let summary = summary(&beside_free(request).trace);
        let found = summary.conclusion.findings.into_iter().find(|finding| finding.id == "pool-retention");
        found.map(|found| found.evidence[0].text.clone())
    };
    let text = said(16 * GIB).expect("2 GiB were missing");
    assert!(text.contains("20.00 GiB more at once than they give now") && !text.contains("keep at most 20"), "{text}");
    assert_eq!(said(21 * GIB), None, "7 GiB were missing");
    assert!(ruled_out(&beside_free(21 * GIB)).unwrap_or_default().contains("1.00 GiB more than the whole card"));
}
