//! B. Fragmentation of caches, and what rounding would cost.

use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};

use super::scenes::{at_failure, full, set, torch, with_log};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder, gib};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "caching-fragmentation",
        says: Says::Found(Possible),
        also: &[],
        story: "PyTorch releases what it can, which is less than the request; segments of ten sizes stay",
        scene: || segments(10, false),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Not,
        also: &[],
        story: "the segments that stay have two sizes",
        scene: || segments(2, false),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Not,
        also: &["caching-disabled", "true-capacity"],
        story: "caching is disabled: there are no segments",
        scene: || segments(10, true),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Proven),
        also: &[],
        story: "PyTorch's message: 8.54 GiB asked for, nothing free, 9.27 held unused (TheRock#2844)",
        scene: || by_message(SPLIT),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Not,
        also: &["true-capacity"],
        story: "PyTorch's message: only 0.34 GiB are held unused",
        scene: || by_message(FULL),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Found(Probable),
        also: &[],
        story: "3 GiB are refused, the thread frees 4, and the next try succeeds: a cache, or data that the program gives up",
        scene: || retried(true),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the next try fails, too",
        scene: || retried(false),
    },
    Labelled {
        id: "reserved-plateau",
        says: Says::Found(Proven),
        also: &[],
        story: "what stays rises for five steps and is flat for fifteen",
        scene: || stays(5),
    },
    Labelled {
        id: "reserved-plateau",
        says: Says::Not,
        also: &[],
        story: "what stays rises in every step",
        scene: || stays(20),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Not,
        also: &[],
        story: "the same in a program without PyTorch, which gives up its own data",
        scene: || retried_in(TraceBuilder::default().device(0, "card", 24 * GIB), true),
    },
    Labelled {
        id: "reserved-plateau",
        says: Says::Not,
        also: &["live-leak"],
        story: "4 MiB of each step stay beside 14 GiB: flat beside all that is held, and a leak",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 14 * GIB);
            for step in 0..40 {
                trace.alloc(0x100_0000_0000 + step * GIB, 4 * MIB);
                trace.alloc(0x20_0000_0000, 4 * GIB);
                trace.free(0x20_0000_0000);
            }
            Scene { trace }
        },
    },
    Labelled {
        id: "granularity-waste",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "57 blocks of 192.5 MiB fill a card of 14,600 MiB in granules of 256; nobody read what the driver counts",
        scene: || rounded(&[(57, THREE_QUARTERS)], 256 * MIB, 14_600 * MIB, THREE_QUARTERS, Takes::Rounded),
    },
    Labelled {
        id: "granularity-waste",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "blocks of 384 MiB and of 128 fill a card in granules of 256, and the driver counts them so",
        scene: || mixed(Takes::CountedRounded),
    },
    Labelled {
        id: "granularity-waste",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same, and the driver counts what was asked for: blocks begin at such addresses, and are not rounded",
        scene: || mixed(Takes::CountedAsAsked),
    },
    Labelled {
        id: "granularity-waste",
        says: Says::Not,
        also: &["phantom-free"],
        story: "V3a: 75 blocks of 192.5 MiB live on a card that could not hold them if they were rounded to 256",
        scene: || rounded(&[(75, THREE_QUARTERS)], 256 * MIB, 14_600 * MIB, 160 * MIB, Takes::AsAsked),
    },
    Labelled {
        id: "granularity-waste",
        says: Says::Not,
        also: &["phantom-free"],
        story: "V3a with addresses 2 MiB apart: the model predicts a failure, the addresses do not",
        scene: || rounded(&[(75, THREE_QUARTERS)], 2 * MIB, 19_250 * MIB, GIB, Takes::AsAsked),
    },
    Labelled {
        id: "granularity-waste",
        says: Says::Not,
        also: &["phantom-free"],
        story: "V2: 13.5 GiB in two blocks waste 1.85 %",
        scene: || rounded(&[(1, 10_415_295_693), (1, 4_080_218_931)], 2 * MIB, 14 * GIB, 300 * MIB, Takes::AsAsked),
    },
    Labelled {
        id: "mixed-size-padding",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "blocks of 384 MiB and of 128 leave 128 MiB each that neither can use, and the driver counts them so",
        scene: || mixed(Takes::CountedRounded),
    },
    Labelled {
        id: "mixed-size-padding",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same, and the driver counts what was asked for",
        scene: || mixed(Takes::CountedAsAsked),
    },
    Labelled {
        id: "mixed-size-padding",
        says: Says::Not,
        also: &["true-capacity"],
        story: "V3b: one size alone wastes as much",
        scene: || rounded(&[(57, THREE_QUARTERS)], 256 * MIB, 14_600 * MIB, THREE_QUARTERS, Takes::Rounded),
    },
];

const SPLIT: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 8.54 GiB. GPU 0 has a total capacity of \
    15.92 GiB of which 0 bytes is free. Of the allocated memory 3.97 GiB is allocated by PyTorch, and 9.27 GiB is reserved by \
    PyTorch but unallocated.";
const FULL: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 8.54 GiB. GPU 0 has a total capacity of \
    15.92 GiB of which 0 bytes is free. Of the allocated memory 14.97 GiB is allocated by PyTorch, and 348.16 MiB is reserved by \
    PyTorch but unallocated.";

/// A card of 15.92 GiB that is full of PyTorch's segments.
fn by_message(log: &'static str) -> Scene {
    let (total, segment) = (gib(15.92), 980 * MIB);
    let mut trace = torch(TraceBuilder::default().device(0, "card", total));
    (0..16).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * GIB, segment));
    let seq = trace.refuse(gib(8.54) / (2 * MIB) * 2 * MIB);
    full(&mut trace, seq, total, 16 * segment, 0);
    with_log(trace, log)
}

/// Segments of several sizes fill a card of 24 GiB; a request fails, small ones are released, and it fails again.
fn segments(sizes: u64, no_cache: bool) -> Scene {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    if no_cache {
        set(&mut trace, "PYTORCH_NO_HIP_MEMORY_CACHING", "1");
    }
    let mut held = 0;
    for segment in 0..40 {
        let bytes = (500 + segment % sizes * 20) * MIB;
        trace.alloc(0x10_0000_0000 + segment * GIB, bytes);
        held += bytes;
    }
    let seq = trace.refuse(4 * GIB);
    full(&mut trace, seq, 24 * GIB, held, GIB);
    trace.free(0x10_0000_0000);
    let seq = trace.refuse(4 * GIB);
    full(&mut trace, seq, 24 * GIB, held - 500 * MIB, GIB + 500 * MIB);
    Scene { trace }
}

/// 192.5 MiB: three quarters of the modelled granule.
const THREE_QUARTERS: u64 = 201_863_463;

/// A failure, a release, and another try, with PyTorch.
fn retried(succeeds: bool) -> Scene {
    retried_in(torch(TraceBuilder::default().device(0, "card", 24 * GIB)), succeeds)
}

fn retried_in(mut trace: TraceBuilder, succeeds: bool) -> Scene {
    (0..23).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(3 * GIB);
    full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB / 2);
    (0..4).for_each(|block| _ = trace.free(0x10_0000_0000 + block * 2 * GIB));
    match succeeds {
        true => _ = trace.alloc(0x80_0000_0000, 3 * GIB),
        false => {
            // Another process took what was given back.
            let seq = trace.refuse(3 * GIB);
            full(&mut trace, seq, 24 * GIB, 22 * GIB, GIB / 2);
        }
    }
    Scene { trace }
}

/// Twenty steps, of which the first ones leave 300 MiB each.
fn stays(leaving: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    for step in 0..20 {
        if step < leaving {
            trace.alloc(0x100_0000_0000 + step * GIB, 300 * MIB);
        }
        trace.alloc(0x20_0000_0000, 4 * GIB);
        trace.free(0x20_0000_0000);
    }
    Scene { trace }
}

/// What the blocks of a trace take of the card.
#[derive(Clone, Copy)]
enum Takes {
    /// What was asked for.
    AsAsked,
    /// The same, and the driver counts it for the process.
    CountedAsAsked,
    /// A multiple of 256 MiB each.
    Rounded,
    /// The same, and the driver counts it for the process.
    CountedRounded,
}

/// Blocks of some sizes at addresses some distance apart, and a request that is refused although it fits.
fn rounded(blocks: &[(u64, u64)], apart: u64, total: u64, asked: u64, takes: Takes) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", total);
    let (mut address, mut used) = (0x10_0000_0000, 0);
    let granule = if matches!(takes, Takes::Rounded | Takes::CountedRounded) { 256 * MIB } else { 1 };
    for &(count, bytes) in blocks {
        for _ in 0..count {
            trace.alloc(address, bytes);
            // An odd multiple, so that the addresses show this distance and none larger.
            address += (bytes.div_ceil(apart) | 1) * apart;
            used += bytes.next_multiple_of(granule);
        }
    }
    let seq = trace.refuse(asked);
    let read = [(RuntimeFree, total - used), (VramTotal, total), (VramUsed, used), (KfdOthersVram, 0)];
    at_failure(&mut trace, seq, read);
    if matches!(takes, Takes::CountedAsAsked | Takes::CountedRounded) {
        at_failure(&mut trace, seq, [(KfdProcessVram, used)]);
    }
    Scene { trace }
}

/// V3d on a card that is full of it if each block is rounded to 256 MiB.
fn mixed(takes: Takes) -> Scene {
    rounded(&[(25, 384 * MIB), (10, 128 * MIB)], 128 * MIB, 15_360 * MIB, 128 * MIB, takes)
}

fn texts(scene: &Scene, id: &str) -> String {
    let summary = crate::testing::summary(&scene.trace);
    let found = summary.conclusion.findings.iter().find(|finding| finding.id == id);
    let excluded = summary.conclusion.excluded.iter().find(|excluded| excluded.id == id);
    let evidence = found.into_iter().flat_map(|finding| &finding.evidence).map(|evidence| evidence.text.as_str());
    evidence.chain(excluded.map(|excluded| excluded.by.as_str())).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_vectors_of_the_rounding_model() {
    let v3d = || rounded(&[(37, 402_653_184), (1, 134_217_728)], 128 * MIB, 19_250 * MIB, 128 * MIB, Takes::AsAsked);
    assert!(
        texts(&v3d(), "mixed-size-padding").contains("waste 34 % of what"),
        "{}",
        texts(&v3d(), "mixed-size-padding")
    );
    for (count, bytes, shown) in [(75, THREE_QUARTERS, "33.0 %"), (76, 199_207_365, "34.8 %")] {
        let scene = rounded(&[(count, bytes)], 256 * MIB, 19_500 * MIB, 260 * MIB, Takes::AsAsked);
        let text = texts(&scene, "granularity-waste");
        assert!(text.contains(&format!("adds {shown} of what was asked for")), "{text}");
    }
    for scene in [v3d(), rounded(&[(75, THREE_QUARTERS)], 256 * MIB, 19_250 * MIB, 160 * MIB, Takes::AsAsked)] {
        let json = serde_json::to_string(&crate::testing::summary(&scene.trace).conclusion.findings).unwrap();
        assert!(!json.contains("18.9"), "{json}");
    }
}

#[test]
fn where_model_and_addresses_disagree_both_are_said() {
    let text =
        texts(&rounded(&[(75, THREE_QUARTERS)], 2 * MIB, 19_250 * MIB, GIB, Takes::AsAsked), "granularity-waste");
    let wanted = "the 256 MiB model predicts a failure, and the granularity that the addresses show (2 MiB) does not";
    assert!(text.contains(wanted), "{text}");
}

/// What was checked and does not hold is told as what it would have been, and not as if it held.
#[test]
fn a_refuter_that_does_not_hold_contradicts_nothing() {
    let summary = crate::testing::summary(&mixed(Takes::CountedRounded).trace);
    let found = summary.conclusion.findings.iter().find(|finding| finding.id == "granularity-waste").expect("found");
    let checked: Vec<&str> = found.refuters_checked.iter().map(|refuter| &*refuter.text).collect();
    assert!(checked.iter().any(|text| text.contains("a smaller granularity")), "{checked:?}");
    assert!(
        checked.iter().all(|text| !text.contains("does not") && !text.contains("yet they were given")),
        "{checked:?}"
    );
}

/// A block that lives and had no room in the model, because others lay in between when it came: what is free there is not for the request.
#[test]
fn where_the_model_left_a_block_out_a_request_does_not_fit() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    let at = 0x10_0000_0000;
    (0..3).for_each(|block| _ = trace.alloc(at + block * 3 * GIB, 2560 * MIB));
    trace.free(at + 3 * GIB);
    trace.alloc(at + 16 * GIB, 2816 * MIB);
    let seq = trace.refuse(2560 * MIB);
    at_failure(&mut trace, seq, [(RuntimeFree, 256 * MIB), (VramTotal, 8 * GIB), (VramUsed, 7936 * MIB)]);
    let summary = crate::testing::summary(&trace);
    let model = summary.facts.ooms[0].model.unwrap();
    assert_eq!((model.free_bytes, model.left_out_bytes, model.fits), (3 * GIB, 2816 * MIB, false));
    let page = crate::report::text::write(&summary, &[], crate::report::page::Look::new(4000, false));
    assert!(page.contains("would not fit: 256 MiB free beside"), "{page}");
}

/// 64 blocks of 256 MiB on 16 GiB, nine of them freed that do not lie side by side, and 512 MiB asked for: no place in the
/// model, and no reason for rounding, which wastes nothing.
#[test]
fn a_hole_of_the_model_is_no_waste() {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    (0..64).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 256 * MIB, 256 * MIB));
    (0..9).for_each(|block| _ = trace.free(0x10_0000_0000 + block * 4 * 256 * MIB));
    let seq = trace.refuse(512 * MIB);
    let free = 9 * 256 * MIB;
    at_failure(&mut trace, seq, [(RuntimeFree, free), (VramTotal, 16 * GIB), (VramUsed, 16 * GIB - free)]);
    let summary = crate::testing::summary(&trace);
    let model = summary.facts.ooms[0].model.unwrap();
    assert_eq!((model.free_bytes, model.largest_free_block_bytes, model.fits), (free, 256 * MIB, false));
    assert_eq!(summary.conclusion.findings[0].id, "phantom-free");
    assert!(summary.conclusion.findings.iter().all(|finding| finding.id != "granularity-waste"));
}
