//! What the blocks of an allocator above the runtime show: lines of the program whose tensors become more, and memory in pieces. The
//! segments below them stay as they are.

use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::record::{Event, Kind, Record, flag, injected, process};

use super::scenes::{full, torch};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, THREAD, TraceBuilder, summary};

/// One segment, in which all of a training lies.
const SEGMENT: u64 = 0x10_0000_0000;
/// Where in it activations lie, the first gradient, and what may stay.
const ACTIVATIONS: u64 = SEGMENT;
const GRADIENT: u64 = SEGMENT + 2 * GIB;
const KEPT: u64 = SEGMENT + 3 * GIB;
/// Call sites: a line of the model, the first gradient of a backward pass, the line that may keep something.
const MODEL: u32 = 21;
const BACKWARD: u32 = 22;
const KEEPS: u32 = 23;
/// Gradients that stay, and an optimizer's state.
const GRADIENTS: u32 = 24;
const STATE: u32 = 25;
const STEPS: u64 = 24;

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "one line keeps a tensor of each step of a training, inside of one segment",
        scene: || training(|trace, step| keep(trace, step, 30 * MIB)),
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "each step puts what is kept together with more, by a copy into a larger tensor: nobody knows whether that has an end",
        scene: copied,
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Probable),
        also: &["live-leak"],
        story: "the same: a leak is not ruled out",
        scene: copied,
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "the same training, and nothing stays",
        scene: || training(|_, _| ()),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "a cache of eight tensors, which is full after a third of the run",
        scene: || {
            training(|trace, step| {
                if step < STEPS / 3 {
                    keep(trace, step, 60 * MIB);
                }
            })
        },
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "a cache of twenty tensors that became full just before the end: in the last steps each new one takes an older one's place",
        scene: || training(|trace, step| cached(trace, step, STEPS - 4)),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "the same, and only the last step did not rise: nothing tells a full cache from a leak that pauses",
        scene: || training(|trace, step| cached(trace, step, STEPS - 2)),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "layers are unfrozen one after the other: gradients and an optimizer's state become more, and nothing else",
        scene: || unfreezing(false),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "the same, and another line keeps a tensor of each step",
        scene: || unfreezing(true),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "a sweep of models, each with more layers than the last, which is given back before",
        scene: || training(swept),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "the same, and the last model is given back where the sweep ends",
        scene: || {
            let mut scene = training(swept);
            (0..STEPS + 3).for_each(|layer| _ = scene.trace.free_tensor(swept_at(STEPS - 1, layer)));
            scene
        },
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "a replay buffer at its bound: each tensor takes the place of an older one",
        scene: || {
            training(|trace, step| {
                if step >= 8 {
                    trace.free_tensor(KEPT + (step - 8) * 64 * MIB);
                }
                keep(trace, step, 60 * MIB);
            })
        },
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "the batch grows: one tensor, each time a larger one",
        scene: || {
            training(|trace, step| {
                if step > 0 {
                    trace.free_tensor(KEPT + (step % 2) * GIB);
                }
                keep_at(trace, KEPT + ((step + 1) % 2) * GIB, 30 * MIB * (step + 1));
            })
        },
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "results of an evaluation pile up over the last steps of an epoch and are given back: the second epoch does the same",
        scene: || {
            training(|trace, step| {
                if step == STEPS / 2 {
                    (0..step).for_each(|number| _ = trace.free_tensor(KEPT + number * 64 * MIB));
                }
                keep(trace, step, 30 * MIB);
            })
        },
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "tensors stay of each round, and nobody says what a round is: a cache that fills with a context does the same",
        scene: || rounds(false),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "the same, and what stays is given back where a request ends, twice before",
        scene: || rounds(true),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "segments rise step by step, and what tensors hold does not: the cache grows",
        scene: segments_rise,
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "tensors stay as they are, and another library keeps 64 MiB of each step",
        scene: || beside_pytorch(64 * MIB, false),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "tensors stay as they are, and a pool beside PyTorch keeps a block of each step, of 64 MiB",
        scene: || beside_pytorch(64 * MIB, true),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Probable),
        also: &[],
        story: "one line keeps a tensor of each step until the card is full",
        scene: || until_it_is_full(40 * MIB),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "the same training needs more than the card, and keeps nothing of its steps; what came since the last is more than any was given",
        scene: || until_it_is_full(0),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Proven),
        also: &[],
        story: "9 GiB are unused in pieces of 1 GiB after the cache was given back, and 8 GiB are asked for; nobody recorded what the exception says",
        scene: || in_pieces(GIB, None),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and the exception says that 6 GiB are unused: one of the two is wrong",
        scene: || in_pieces(GIB, Some(OTHER_SUMS)),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Probable),
        also: &[],
        story: "what rises from round to round and is given back now and then left the pieces: it may be garbage that waits to be collected",
        scene: in_pieces_of_garbage,
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Found(Possible),
        also: &[],
        story: "9 GiB are unused in one piece, which would have held the request but for another stream or pool: the rest of its segment is \
                in use",
        scene: || in_pieces(9 * GIB, None),
    },
];

const OTHER_SUMS: &str = "HIP out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Of \
     the allocated memory 14.00 GiB is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but unallocated.";

/// A card with PyTorch, and the lines of a program.
fn program(total: u64) -> TraceBuilder {
    let mut trace = torch(TraceBuilder::default().device(0, "card", total));
    trace.code(1, "/home/me/train.py", "train_step").code(2, "/home/me/model.py", "forward").code(
        3,
        "/venv/lib/python3.12/site-packages/torch/autograd/__init__.py",
        "_make_grads",
    );
    trace.code(4, "/venv/lib/python3.12/site-packages/torch/autograd/__init__.py", "backward");
    let line = |code: u32, line: u32| PythonFrame { code, line };
    trace.stack(MODEL, &[0x7000_0020], &[line(2, 7), line(1, 30)]);
    trace.stack(BACKWARD, &[0x7000_0030], &[line(3, 233), line(4, 390), line(1, 31)]);
    trace.stack(KEEPS, &[0x7000_0040], &[line(1, 38)]);
    trace.code(5, "/venv/lib/python3.12/site-packages/torch/optim/optimizer.py", "wrapper");
    trace.stack(GRADIENTS, &[0x7000_0050], &[line(4, 390), line(1, 31)]);
    trace.stack(STATE, &[0x7000_0060], &[line(5, 480), line(1, 32)]);
    trace
}

fn from(trace: &mut TraceBuilder, site: u32, address: u64, bytes: u64) {
    trace.site = site;
    trace.tensor(0, address, bytes);
    trace.site = 0;
}

fn keep_at(trace: &mut TraceBuilder, address: u64, bytes: u64) {
    from(trace, KEEPS, address, bytes);
}

fn keep(trace: &mut TraceBuilder, step: u64, bytes: u64) {
    keep_at(trace, KEPT + step * 64 * MIB, bytes);
}

/// A cache of so many tensors.
fn cached(trace: &mut TraceBuilder, step: u64, most: u64) {
    if step >= most {
        trace.free_tensor(KEPT + (step - most) * 64 * MIB);
    }
    keep(trace, step, 30 * MIB);
}

/// A model of four layers and one more for each step, in place of the last one.
fn swept(trace: &mut TraceBuilder, step: u64) {
    if step > 0 {
        (0..step + 3).for_each(|layer| _ = trace.free_tensor(swept_at(step - 1, layer)));
    }
    (0..step + 4).for_each(|layer| keep_at(trace, swept_at(step, layer), 16 * MIB));
}

fn swept_at(step: u64, layer: u64) -> u64 {
    KEPT + (step % 2) * GIB + layer * 16 * MIB
}

/// Every second step has a gradient and a state that no step before had; `keeps`: each step keeps a tensor by another line.
fn unfreezing(keeps: bool) -> Scene {
    let mut trace = program(16 * GIB);
    trace.segment(SEGMENT, 8 * GIB);
    for number in 0..STEPS {
        let place = KEPT + number * 128 * MIB;
        let unfreezes = number.is_multiple_of(2);
        step_with(&mut trace, |trace| {
            from(trace, BACKWARD, GRADIENT, 512);
            if unfreezes {
                from(trace, GRADIENTS, place, 15 * MIB);
            }
        });
        trace.free_tensor(GRADIENT);
        if unfreezes {
            from(&mut trace, STATE, place + 16 * MIB, 30 * MIB);
        }
        if keeps {
            keep_at(&mut trace, place + 64 * MIB, 30 * MIB);
        }
    }
    Scene { trace }
}

/// Six activations, and what comes before they are given back.
fn step_with(trace: &mut TraceBuilder, inside: impl FnOnce(&mut TraceBuilder)) {
    step_of(6, trace, inside);
}

fn step_of(layers: u64, trace: &mut TraceBuilder, inside: impl FnOnce(&mut TraceBuilder)) {
    (0..layers).for_each(|layer| from(trace, MODEL, ACTIVATIONS + layer * 100 * MIB, 100 * MIB));
    inside(trace);
    (0..layers).for_each(|layer| _ = trace.free_tensor(ACTIVATIONS + layer * 100 * MIB));
}

/// The same with a backward pass.
fn step(trace: &mut TraceBuilder) {
    step_with(trace, |trace| from(trace, BACKWARD, GRADIENT, 512));
    trace.free_tensor(GRADIENT);
}

fn training(mut behind: impl FnMut(&mut TraceBuilder, u64)) -> Scene {
    let mut trace = program(16 * GIB);
    trace.segment(SEGMENT, 8 * GIB);
    for number in 0..STEPS {
        step(&mut trace);
        behind(&mut trace, number);
    }
    Scene { trace }
}

/// Rounds without a backward pass; `given_back`: as two requests before did.
fn rounds(given_back: bool) -> Scene {
    let mut trace = program(16 * GIB);
    trace.segment(SEGMENT, 12 * GIB);
    each_round(&mut trace, given_back);
    Scene { trace }
}

fn each_round(trace: &mut TraceBuilder, given_back: bool) {
    for number in 0..3 * STEPS {
        if given_back && number > 0 && number.is_multiple_of(STEPS) {
            (number - STEPS..number).for_each(|number| _ = trace.free_tensor(KEPT + number * 64 * MIB));
        }
        from(trace, MODEL, ACTIVATIONS, 100 * MIB);
        trace.free_tensor(ACTIVATIONS);
        keep(trace, number, 30 * MIB);
    }
}

/// A training whose tensors do not rise, while another library keeps so much of each step; `by_pool`: and says that it is a pool's.
fn beside_pytorch(kept_bytes: u64, by_pool: bool) -> Scene {
    training(|trace, step| {
        let address = 0x90_0000_0000 + step * GIB;
        trace.alloc(0x88_0000_0000, GIB);
        trace.alloc(address, kept_bytes);
        trace.free(0x88_0000_0000);
        if by_pool {
            trace.pool_alloc("other", "kept", address, kept_bytes);
        }
    })
}

/// Segments of 2 MiB and more come and go, of which one more stays each time; a tensor lies in each that comes, and in none that stays.
fn segments_rise() -> Scene {
    let mut trace = program(16 * GIB);
    let mut next = 0x20_0000_0000;
    let mut held = 0;
    for _ in 0..STEPS {
        let mut give = |trace: &mut TraceBuilder| {
            next += GIB;
            trace.segment(next, 100 * MIB);
            held += 100 * MIB;
            from(trace, MODEL, next, 90 * MIB);
            next
        };
        let given: Vec<u64> = (0..6).map(|_| give(&mut trace)).collect();
        given.iter().for_each(|address| _ = trace.free_tensor(*address));
        for address in &given[1..] {
            trace.free(*address);
            held -= 100 * MIB;
        }
        trace.reserved(0, held);
    }
    Scene { trace }
}

/// A training that holds 14 of 16 GiB, keeps so much of each step in segments of its own, and is refused 2 GiB at last.
fn until_it_is_full(kept_bytes: u64) -> Scene {
    let mut trace = program(16 * GIB);
    let base = if kept_bytes > 0 { 13 * GIB } else { 15 * GIB };
    trace.segment(SEGMENT, base);
    from(&mut trace, MODEL, SEGMENT + 3 * GIB, base - 3 * GIB);
    let steps = if kept_bytes > 0 { 48 } else { STEPS };
    let layers = if kept_bytes > 0 { 29 } else { 6 };
    for number in 0..steps {
        step_of(layers, &mut trace, |trace| from(trace, BACKWARD, GRADIENT, 512));
        trace.free_tensor(GRADIENT);
        if kept_bytes > 0 {
            let address = 0x80_0000_0000 + number * GIB;
            trace.segment(address, kept_bytes);
            keep_at(&mut trace, address, kept_bytes);
        }
    }
    let own = base + kept_bytes * steps;
    (0..29).for_each(|layer| from(&mut trace, MODEL, ACTIVATIONS + layer * 100 * MIB, 100 * MIB));
    for _ in 0..2 {
        let seq = trace.refuse(16 * GIB - own + 100 * MIB);
        full(&mut trace, seq, 16 * GIB, own, 16 * GIB - own);
        trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
    }
    let allocated = base - 3 * GIB + kept_bytes * steps + 2900 * MIB;
    trace.site = MODEL;
    trace.framework_error(THREAD, 16 * GIB - own + 100 * MIB, [allocated, own]);
    trace.throws(THREAD, 0x5555_0000_1000, None);
    trace.end(process::EXITS, 1);
    Scene { trace }
}

/// A training that puts together what it keeps of each step, each time in a larger segment of its own, until the next copy is refused.
fn copied() -> Scene {
    const CARD: u64 = 14 * GIB;
    const BASE: u64 = 9 * GIB;
    const MORE: u64 = 60 * MIB;
    let mut trace = program(CARD);
    trace.segment(SEGMENT, BASE);
    from(&mut trace, MODEL, SEGMENT + GIB, 8 * GIB);
    let place = |number: u64| 0x80_0000_0000 + number * 8 * GIB;
    for number in 0..48 {
        let bytes = (number + 1) * MORE;
        step_of(6, &mut trace, |trace| from(trace, BACKWARD, SEGMENT + 900 * MIB, 512));
        trace.free_tensor(SEGMENT + 900 * MIB);
        trace.segment(place(number), bytes);
        keep_at(&mut trace, place(number), bytes);
        if number > 0 {
            trace.free_tensor(place(number - 1));
            trace.free(place(number - 1));
        }
        trace.reserved(0, BASE + bytes);
    }
    let (own, asked) = (BASE + 48 * MORE, 49 * MORE);
    for _ in 0..2 {
        let seq = trace.refuse(asked);
        full(&mut trace, seq, CARD, own, CARD - own);
        trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
    }
    trace.site = KEEPS;
    trace.framework_error(THREAD, asked, [8 * GIB + 48 * MORE, own]);
    trace.throws(THREAD, 0x5555_0000_1000, None);
    trace.end(process::EXITS, 1);
    Scene { trace }
}

/// PyTorch holds 23 of 24 GiB, of which 9 are unused in pieces of so many bytes, and 8 GiB are refused.
fn in_pieces(piece: u64, message: Option<&str>) -> Scene {
    let mut trace = program(24 * GIB);
    trace.segment(SEGMENT, 23 * GIB);
    let (pieces, used) = (9 * GIB / piece, 14 * GIB);
    let each = used / pieces;
    (0..pieces).for_each(|number| from(&mut trace, MODEL, SEGMENT + number * (each + piece), each));
    let used = each * pieces;
    refused_twice(trace, used, message)
}

/// Rounds of which each third is given back, between blocks with pieces of 1 GiB.
fn in_pieces_of_garbage() -> Scene {
    let mut trace = program(24 * GIB);
    trace.segment(SEGMENT, 23 * GIB);
    (0..9).for_each(|number| from(&mut trace, MODEL, SEGMENT + 8 * GIB + number * 1600 * MIB, 600 * MIB));
    each_round(&mut trace, true);
    refused_twice(trace, 9 * 600 * MIB + STEPS * 30 * MIB, None)
}

/// 8 GiB are refused, again after the cache was given back, and PyTorch raises its error.
fn refused_twice(mut trace: TraceBuilder, used: u64, message: Option<&str>) -> Scene {
    for _ in 0..2 {
        let seq = trace.refuse(8 * GIB);
        full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
        trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
    }
    trace.framework_error(THREAD, 8 * GIB, [used, 23 * GIB]);
    trace.throws(THREAD, 0x5555_0000_1000, message);
    trace.end(process::EXITS, 1);
    Scene { trace }
}

fn told(scene: &Scene, id: &str) -> String {
    let summary = super::summed_up(scene);
    let found = summary.conclusion.findings.iter().find(|finding| finding.id == id).expect(id);
    found.evidence.iter().map(|evidence| evidence.text.as_str()).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_report_names_the_line_that_keeps_tensors() {
    insta::assert_snapshot!(told(&training(|trace, step| keep(trace, step, 30 * MIB)), "live-leak"));
    insta::assert_snapshot!(told(&until_it_is_full(40 * MIB), "live-leak"));
}

#[test]
fn the_report_names_the_pieces_that_are_too_small() {
    insta::assert_snapshot!(told(&in_pieces(GIB, None), "caching-fragmentation"));
    insta::assert_snapshot!(told(&in_pieces(GIB, Some(OTHER_SUMS)), "caching-fragmentation"));
}

#[test]
fn what_grows_is_one_section_with_its_lines() {
    let page = |scene: &Scene| {
        let page =
            crate::report::text::write(&super::summed_up(scene), &[], crate::report::page::Look::new(100, false));
        let from = page.find("GROWTH").map_or(page.len(), |place| place);
        page[from..].lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(page(&training(|trace, step| keep(trace, step, 30 * MIB))));
    insta::assert_snapshot!(page(&segments_rise()));
    assert_eq!(page(&training(|_, _| ())), "");
}

const CAPPED: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 16.00 GiB of \
    which 7.00 GiB is free. 8.02 GiB allowed; Of the allocated memory 3.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by \
    PyTorch but unallocated.";

/// A higher ceiling is only met later.
#[test]
fn to_raise_a_ceiling_comes_after_the_fix_of_what_rises() {
    let advised = |bytes: u64| {
        let mut scene = training(|trace, step| keep(trace, step, bytes));
        scene.trace.no_tensor(0, 64 * MIB);
        scene.trace.throws(THREAD, 0x5555_0000_1000, Some(CAPPED));
        let steps = summary(&scene.trace).conclusion.ladder.steps;
        let mut advised: Vec<_> = steps.into_iter().map(|step| (step.id, step.fix.only_if)).collect();
        advised.dedup_by_key(|(id, _)| *id);
        advised
    };
    let rises = advised(30 * MIB);
    assert_eq!(rises.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ["live-leak", "process-fraction-cap"]);
    assert_eq!(rises[1].1, "what rises has an end below the new one");
    assert_eq!(advised(0).first(), Some(&("process-fraction-cap", String::new())));
}

/// A refusal on request says nothing of the real card, and what rises there would fill it, too.
#[test]
fn the_fix_of_a_leak_stands_beside_a_refusal_on_request() {
    let advised = |reason: u8| {
        let mut scene = training(|trace, step| keep(trace, step, 30 * MIB));
        let record = scene.trace.record(Event::Alloc, Kind::Device, "hipMalloc");
        let kind_flags = Kind::Device as u8 | flag::INJECTED;
        scene.trace.push(Record { status: 2, requested: GIB, address: reason.into(), kind_flags, ..record }, &[]);
        let mut ids: Vec<&str> = summary(&scene.trace).conclusion.ladder.steps.iter().map(|step| step.id).collect();
        ids.dedup();
        ids
    };
    let of_both = advised(injected::CAPACITY);
    assert_eq!(of_both[..2], ["live-leak", "requested-refusal"]);
    assert_eq!(
        advised(injected::CALL)[..2],
        ["requested-refusal", "live-leak"],
        "a call that was chosen to fail shows nothing"
    );
}
