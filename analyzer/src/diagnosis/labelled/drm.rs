//! Buffers of the DRM (Vulkan, OpenGL, video): the kernel may put what was asked of the card into GTT.

use gpuoom_trace::metadata::Quantity::{GttTotal, GttUsed, VramTotal, VramUsed};
use gpuoom_trace::record::{Event, Kind, Record};

use super::machines::CARD;
use super::scenes::sampled;
use super::{Labelled, Says, Scene, readings};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
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
        id: "request-exceeds-device",
        says: Says::First(Proven),
        also: &[],
        story: "one buffer of 40 GiB on an empty card of 24 with 32 GiB of GTT",
        scene: || refused(held(0), 40 * GIB, Some((0, 0))),
    },
    Labelled {
        id: "gtt-exhaustion",
        says: Says::Not,
        also: &["request-exceeds-device"],
        story: "one buffer of 40 GiB, which neither of them would ever hold",
        scene: || refused(held(0), 40 * GIB, Some((0, 0))),
    },
    Labelled {
        id: "gtt-exhaustion",
        says: Says::First(Probable),
        also: &[],
        story: "31 GiB of buffers in GTT of 32, and 2 more are refused: nothing was pinned",
        scene: || in_gtt(31),
    },
    Labelled {
        id: "pinned-host-exhaustion",
        says: Says::Not,
        also: &["gtt-exhaustion"],
        story: "31 GiB of buffers in GTT of 32, and 2 more are refused: the kernel need not keep them pinned",
        scene: || in_gtt(31),
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
    refused(held(count), 2 * GIB, used)
}

/// So many buffers of 1 GiB in GTT of 32, and one of 2 GiB that is refused.
fn in_gtt(count: u64) -> Scene {
    let mut scene = held(0);
    (1..=count).for_each(|handle| _ = scene.trace.alloc_kind(Kind::HostPinned, CREATE, handle, GIB));
    let read = [(VramTotal, 24 * GIB), (VramUsed, 0), (GttTotal, 32 * GIB), (GttUsed, count * GIB)];
    sampled(&mut scene.trace, read);
    let record = scene.trace.record(Event::Alloc, Kind::HostPinned, CREATE);
    scene.trace.push(Record { status: 12, requested: 2 * GIB, ..record }, &[]);
    scene
}

fn refused(mut scene: Scene, bytes: u64, used: Option<(u64, u64)>) -> Scene {
    let record = scene.trace.record(Event::Alloc, Kind::Device, CREATE);
    let seq = scene.trace.push(Record { status: 12, requested: bytes, ..record }, &[]);
    if let Some((card, gtt)) = used {
        let read = [(VramTotal, 24 * GIB), (VramUsed, card), (GttTotal, 32 * GIB), (GttUsed, gtt)];
        scene.trace.read_at_failure(seq, &readings(read));
    }
    scene
}
