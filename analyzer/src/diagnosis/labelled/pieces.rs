//! Cards full of PyTorch's tensors: what lies between them, and what they are.

use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::record::{Event, process};

use super::scenes::{full, torch};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, THREAD, TraceBuilder};

const SEGMENT: u64 = 0x7f00_0000_0000;
const PIECE: u64 = 128 * MIB;
const WORK: u32 = 3;
const BACKWARD: u32 = 4;

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Possible),
        also: &[],
        story: "3.75 GiB of 22.5 lie in pieces between tensors, which never held as much as with the 2 GiB that are asked for",
        scene: || in_pieces(|_| ()),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and tensors had held as much before",
        scene: || {
            in_pieces(|trace| {
                trace.tensor(0, SEGMENT, 21 * GIB);
                trace.free_tensor(SEGMENT);
            })
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "44 equal tensors of one line, of which none is gone, fill the card: parts of what is needed, or what was forgotten",
        scene: || equal_tensors(|_, _, _| ()),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and one more came by that line before them and is gone: those that live may have been forgotten since",
        scene: || {
            equal_tensors(|trace, address, number| {
                if number == 0 {
                    comes_and_goes(trace, address)
                }
            })
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "the same, and one came by that line in their midst and is gone",
        scene: || {
            equal_tensors(|trace, address, number| {
                if number == 20 {
                    comes_and_goes(trace, address)
                }
            })
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "40 equal gradients live beside 3.5 GiB of all else: of one backward pass they can't be",
        scene: || gradients(40),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "22 gradients live beside as much: their weights",
        scene: || gradients(22),
    },
];

fn program() -> TraceBuilder {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    trace.code(1, "/home/me/run.py", "work");
    trace.stack(WORK, &[0x7000_0020], &[PythonFrame { code: 1, line: 7 }]);
    trace
}

/// A call that is refused, again after the cache was given back, and PyTorch raises its error.
fn refused(mut trace: TraceBuilder, bytes: u64, [allocated, reserved]: [u64; 2]) -> Scene {
    let in_use = reserved + GIB / 4;
    for _ in 0..2 {
        let seq = trace.refuse(bytes);
        full(&mut trace, seq, 24 * GIB, in_use, 24 * GIB - in_use);
        trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
    }
    trace.framework_error(THREAD, bytes, [allocated, reserved]);
    trace.throws(THREAD, 0x5555_0000_1000, None);
    trace.end(process::EXITS, 1);
    Scene { trace }
}

/// 30 tensors of 640 MiB with a piece of 128 MiB behind each.
fn in_pieces(before: impl Fn(&mut TraceBuilder)) -> Scene {
    let mut trace = program();
    trace.segment(SEGMENT, 30 * 768 * MIB);
    before(&mut trace);
    (0..30).for_each(|number| _ = trace.tensor(0, SEGMENT + number * 768 * MIB, 768 * MIB - PIECE));
    refused(trace, 2 * GIB, [30 * 640 * MIB, 30 * 768 * MIB])
}

fn comes_and_goes(trace: &mut TraceBuilder, address: u64) {
    trace.tensor(0, address, 512 * MIB);
    trace.free_tensor(address);
}

/// So many equal gradients, and other tensors of the program's that fill the card.
fn gradients(number: u64) -> Scene {
    let mut trace = program();
    let folder = "/usr/lib/python3/dist-packages/torch/autograd";
    trace.code(2, &format!("{folder}/graph.py"), "_engine_run_backward");
    trace.code(3, &format!("{folder}/__init__.py"), "backward");
    trace.stack(BACKWARD, &[0x7000_0040], &[PythonFrame { code: 2, line: 8 }, PythonFrame { code: 3, line: 9 }]);
    trace.segment(SEGMENT, 47 * 512 * MIB);
    // Others of different sizes: no pile.
    let others = (0..2 * (47 - number)).map(|other| (WORK, if other % 2 == 0 { 257 * MIB } else { 255 * MIB }));
    let mut next = SEGMENT;
    for (site, bytes) in (0..number).map(|_| (BACKWARD, 512 * MIB)).chain(others) {
        trace.site = site;
        trace.tensor(0, next, bytes);
        next += bytes;
    }
    trace.site = 0;
    refused(trace, 2 * GIB, [47 * 512 * MIB, 47 * 512 * MIB])
}

/// `beside`: what else comes by that line before each of them.
fn equal_tensors(beside: impl Fn(&mut TraceBuilder, u64, u64)) -> Scene {
    let mut trace = program();
    trace.segment(SEGMENT, 44 * 512 * MIB);
    trace.site = WORK;
    for number in 0..44 {
        beside(&mut trace, SEGMENT + number * 512 * MIB, number);
        trace.tensor(0, SEGMENT + number * 512 * MIB, 512 * MIB);
    }
    trace.site = 0;
    refused(trace, 2 * GIB, [44 * 512 * MIB, 44 * 512 * MIB])
}
