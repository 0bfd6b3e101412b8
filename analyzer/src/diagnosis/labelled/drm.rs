//! Buffers of the DRM (Vulkan, OpenGL, video): the kernel may put what was asked of the card into GTT.

use gpuoom_trace::metadata::Quantity::{GttTotal, GttUsed, VramTotal, VramUsed};
use gpuoom_trace::record::{Event, Kind, Record};

use super::machines::CARD;
use super::{Labelled, Says, Scene, readings};
use crate::judgement::check::Confidence::{Possible, Probable};
use crate::testing::{GIB, MIB, TraceBuilder};

const CREATE: &str = "DRM_IOCTL_AMDGPU_GEM_CREATE";

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "gtt-exhaustion",
        says: Says::First(Probable),
        also: &[],
        story: "54 GiB of buffers on a card of 24 with 32 GiB of GTT, and neither has room for 2 more",
        scene: || buffers(27, Some((24 * GIB - 512 * MIB, 31 * GIB))),
    },
    Labelled {
        id: "gtt-exhaustion",
        says: Says::Found(Possible),
        also: &[],
        story: "the same, and the card has room: GTT is full, and why the card was not taken nobody knows",
        scene: || buffers(24, Some((18 * GIB, 31 * GIB))),
    },
    Labelled {
        id: "gtt-exhaustion",
        says: Says::Not,
        also: &[],
        story: "the card is full, and GTT has room for half of the card",
        scene: || buffers(18, Some((24 * GIB - 512 * MIB, 12 * GIB))),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &[],
        story: "buffers that would fill the card are refused, and nobody read where they lie",
        scene: || buffers(11, None),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &["gtt-exhaustion"],
        story: "the card is full of buffers, and so is GTT: what was refused may lie in either",
        scene: || buffers(27, Some((24 * GIB - 512 * MIB, 31 * GIB))),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &[],
        story: "hipMalloc is refused 4 GiB beside 22 GiB of buffers: those may have been moved to GTT",
        scene: || {
            let mut scene = held(11);
            _ = scene.trace.refuse(4 * GIB);
            scene
        },
    },
];

/// So many buffers of 2 GiB.
fn held(count: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine = CARD.files();
    (1..=count).for_each(|handle| _ = trace.alloc_kind(Kind::Device, CREATE, handle, 2 * GIB));
    Scene { trace }
}

/// One more is refused; what was in use then of the card and of GTT, where somebody read it.
fn buffers(count: u64, used: Option<(u64, u64)>) -> Scene {
    let mut scene = held(count);
    let record = scene.trace.record(Event::Alloc, Kind::Device, CREATE);
    let seq = scene.trace.push(Record { status: 12, requested: 2 * GIB, ..record }, &[]);
    if let Some((card, gtt)) = used {
        let read = [(VramTotal, 24 * GIB), (VramUsed, card), (GttTotal, 32 * GIB), (GttUsed, gtt)];
        scene.trace.read_at_failure(seq, &readings(read));
    }
    scene
}
