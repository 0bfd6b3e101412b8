//! C. Readings that disagree.

use gpuoom_trace::metadata::Quantity::{
    GraphicsVram, GttUsed, KfdOthersVram, KfdProcessVram, RuntimeFree, RuntimeTotal, VisibleVramTotal, VisibleVramUsed,
    VramTotal, VramUsed,
};
use gpuoom_trace::record::{Event, Kind, Record};

use super::scenes::{NAVI_31, STRIX_HALO, amd_gpu, at_failure, sampled, set};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder, gib};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "free-overreported-graphics",
        says: Says::First(Proven),
        also: &[],
        story: "a desktop holds 2 of 16 GiB, HIP does not know it, and the request lies between",
        scene: || two_readings(4 * GIB, 5 * GIB, 3 * GIB, 2 * GIB),
    },
    Labelled {
        id: "free-overreported-graphics",
        says: Says::Found(Possible),
        also: &[],
        story: "both readings say that it is not enough, and a desktop holds 1 GiB",
        scene: || two_readings(8 * GIB, 5 * GIB, 4 * GIB, GIB),
    },
    Labelled {
        id: "free-overreported-graphics",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the two readings are 100 MiB apart, and both say that it was enough",
        scene: || two_readings(GIB, 5 * GIB, 5 * GIB - 100 * MIB, 100 * MIB),
    },
    Labelled {
        id: "free-overreported-graphics",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and the clients of other users can't be read",
        scene: || two_readings_of(4 * GIB, 5 * GIB, 3 * GIB, 2 * GIB, 16 * GIB, 0),
    },
    Labelled {
        id: "free-overreported-graphics",
        says: Says::Not,
        also: &[],
        story: "sysfs has the counters of a board of 48 GiB, of which the device is a slice",
        scene: || two_readings_of(4 * GIB, 5 * GIB, 3 * GIB, 2 * GIB, 48 * GIB, 2 * GIB),
    },
    Labelled {
        id: "sysfs-free-overreported",
        says: Says::Not,
        also: &[],
        story: "a setting hides memory from HIP",
        scene: || {
            let mut scene = sysfs_shows_more();
            set(&mut scene.trace, "HIP_HIDDEN_FREE_MEM", "6758");
            scene
        },
    },
    Labelled {
        id: "sysfs-free-overreported",
        says: Says::Not,
        also: &[],
        story: "the device is at another place on the bus than the card that sysfs shows",
        scene: || {
            let mut scene = sysfs_shows_more();
            scene.trace = scene.trace.bus_id("0000:26:00.0");
            scene
        },
    },
    Labelled {
        id: "sysfs-free-overreported",
        says: Says::First(Probable),
        also: &[],
        story: "sysfs shows 8 GiB free and HIP 1.4 (user document 000)",
        scene: sysfs_shows_more,
    },
    Labelled {
        id: "sysfs-free-overreported",
        says: Says::Not,
        also: &["free-overreported-graphics"],
        story: "it is HIP that shows more",
        scene: || two_readings(4 * GIB, 5 * GIB, 3 * GIB, 2 * GIB),
    },
    Labelled {
        id: "reading-mismatch-benign",
        says: Says::Found(Proven),
        also: &["other-process-on-gpu"],
        story: "two readings 170 MiB apart, as measured upstream",
        scene: || mismatch(170 * MIB),
    },
    Labelled {
        id: "reading-mismatch-benign",
        says: Says::Not,
        also: &["other-process-on-gpu"],
        story: "two readings 2 GiB apart are more than accounting",
        scene: || mismatch(2 * GIB),
    },
    Labelled {
        id: "bar-visible-limit",
        says: Says::First(Probable),
        also: &["phantom-free"],
        story: "hipExtMallocWithFlags asks for 128 MiB through a window of 256, of which 64 are left",
        scene: || through_window("hipExtMallocWithFlags", 256 * MIB, 192 * MIB),
    },
    Labelled {
        id: "bar-visible-limit",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same call through a window as large as the card",
        scene: || through_window("hipExtMallocWithFlags", 24 * GIB, 192 * MIB),
    },
    Labelled {
        id: "bar-visible-limit",
        says: Says::Found(Proven),
        also: &[],
        story: "a card of 24 GiB behind a window of 256 MiB",
        scene: || window(256 * MIB),
    },
    Labelled {
        id: "bar-visible-limit",
        says: Says::Not,
        also: &[],
        story: "resizable BAR: the whole card is in sight",
        scene: || window(24 * GIB - 16 * MIB),
    },
    Labelled {
        id: "gfx-override-active",
        says: Says::Found(Proven),
        also: &[],
        story: "a card of RDNA 3 that is said to be RDNA 2",
        scene: || override_is("10.3.0"),
    },
    Labelled {
        id: "reading-mismatch-benign",
        says: Says::Not,
        also: &["free-overreported-graphics", "true-capacity"],
        story: "two readings 170 MiB apart, and the request lies between them",
        scene: || two_readings(GIB, GIB + 80 * MIB, GIB - 90 * MIB, 170 * MIB),
    },
    Labelled {
        id: "gfx-override-active",
        says: Says::Not,
        also: &[],
        story: "the variable is for a node that is no GPU",
        scene: || {
            let mut scene = override_is("");
            set(&mut scene.trace, "HSA_OVERRIDE_GFX_VERSION_0", "10.3.0");
            scene
        },
    },
    Labelled {
        id: "gfx-override-active",
        says: Says::Not,
        also: &[],
        story: "the variable is empty, which sets nothing",
        scene: || override_is(""),
    },
];

/// A program that holds some bytes of a card of 24 GiB, in blocks that need no rounding.
fn held(bytes: u64) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    amd_gpu(&mut trace, NAVI_31, 24 * GIB, 32 * GIB);
    for block in 0..bytes / GIB {
        trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB);
    }
    trace
}

fn sysfs_shows_more() -> Scene {
    let mut trace = held(15 * GIB);
    let seq = trace.refuse(4 * GIB);
    let read = [
        (RuntimeFree, gib(1.4)),
        (VramTotal, 24 * GIB),
        (VramUsed, 16 * GIB),
        (KfdProcessVram, 15 * GIB),
        (KfdOthersVram, 0),
        (GttUsed, 6 * GIB),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// A card of 16 GiB of which graphics and this process hold what sysfs does not call free.
fn two_readings(asked: u64, by_hip: u64, by_sysfs: u64, graphics: u64) -> Scene {
    two_readings_of(asked, by_hip, by_sysfs, graphics, 16 * GIB, graphics)
}

/// The same with the counters of a board of so much, where graphics clients that may be read hold so much.
fn two_readings_of(asked: u64, by_hip: u64, by_sysfs: u64, graphics: u64, board: u64, read: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    amd_gpu(&mut trace, NAVI_31, 16 * GIB, 32 * GIB);
    let own = 16 * GIB - by_sysfs - graphics;
    trace.alloc(0x10_0000_0000, own);
    let seq = trace.refuse(asked);
    at_failure(
        &mut trace,
        seq,
        [
            (RuntimeFree, by_hip),
            (RuntimeTotal, 16 * GIB),
            (VramTotal, board),
            (VramUsed, board - by_sysfs),
            (KfdProcessVram, own),
            (KfdOthersVram, board - 16 * GIB),
            (GraphicsVram, read),
        ],
    );
    Scene { trace }
}

fn mismatch(gap: u64) -> Scene {
    let mut trace = held(GIB);
    let seq = trace.refuse(8 * GIB);
    let read = [
        (RuntimeFree, 3 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 21 * GIB + gap),
        (KfdProcessVram, GIB),
        (KfdOthersVram, 20 * GIB),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

fn window(visible: u64) -> Scene {
    let mut trace = held(GIB);
    sampled(&mut trace, [(VramTotal, 24 * GIB), (VisibleVramTotal, visible)]);
    Scene { trace }
}

fn override_is(value: &str) -> Scene {
    let mut trace = held(GIB);
    set(&mut trace, "HSA_OVERRIDE_GFX_VERSION", value);
    Scene { trace }
}

#[test]
fn an_override_of_another_family_is_called_serious() {
    let text = |target: u64| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        amd_gpu(&mut trace, target, 24 * GIB, 32 * GIB);
        set(&mut trace, "HSA_OVERRIDE_GFX_VERSION_1", "11.0.0");
        let summary = crate::testing::summary(&trace);
        summary.conclusion.findings[0]
            .evidence
            .iter()
            .map(|evidence| evidence.text.clone())
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert_eq!(text(STRIX_HALO), "HSA_OVERRIDE_GFX_VERSION_1=11.0.0 is in the environment");
    assert!(text(100_300).contains("serious: the machine has a gfx1030"), "{}", text(100_300));
}

/// 128 MiB are refused with 20 GiB free on a card with such a window.
fn through_window(api: &str, visible: u64, used: u64) -> Scene {
    let mut trace = held(GIB);
    sampled(&mut trace, [(VramTotal, 24 * GIB), (VisibleVramTotal, visible), (VisibleVramUsed, used)]);
    let record = trace.record(Event::Alloc, Kind::Device, api);
    let seq = trace.push(Record { status: 2, requested: 128 * MIB, ..record }, &[]);
    let read = [
        (RuntimeFree, 20 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 4 * GIB),
        (KfdProcessVram, GIB),
        (KfdOthersVram, 0),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}
