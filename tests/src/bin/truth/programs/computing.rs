//! Programs that compute until they are done: training loops, grids, files one after the other, tools.

use super::{GIB, MIB, Program};
use crate::rng::Rng;
use crate::script::{Kind, Op, Part, alloc, free};

/// A network, and how it is trained.
struct Training {
    weights: Vec<u64>,
    /// Activations of a batch, against the weights.
    activations: f64,
    /// How much batches differ.
    variation: f64,
    /// Adam's: two for each weight, from the first step on.
    has_states: bool,
}

/// Trains a network.
pub(super) fn training(program: &mut Program, rng: &mut Rng) {
    let layers = rng.within(5, 20);
    let average = rng.size(40 * MIB, 400 * MIB);
    let training = Training {
        weights: (0..layers).map(|_| rng.about(average, 0.8)).collect(),
        activations: rng.between(0.4, 4.0),
        variation: if rng.chance(0.5) { rng.between(0.1, 0.6) } else { 0.0 },
        has_states: rng.chance(0.7),
    };
    program.setup.push(Op::Part(Part::Load));
    program.setup.extend(mark(program, "load_weights"));
    let load = (0..)
        .zip(&training.weights)
        .flat_map(|(i, &bytes): (u64, _)| [alloc(format!("w{i}"), Kind::Device, bytes), Op::Copy(format!("w{i}"))]);
    program.setup.push(Op::At("load", load.collect()));
    for number in 0..rng.within(8, 40) {
        let mut step = step(program, &training, number == 0, rng);
        if rng.chance(0.3) {
            step.push(Op::Sync);
        }
        program.steps.push(step);
    }
    if rng.chance(0.3) {
        program.end.extend((0..layers).map(|i| free(format!("w{i}"))));
    }
}

fn step(program: &Program, training: &Training, is_first: bool, rng: &mut Rng) -> Vec<Op> {
    let of_batch = training.activations * rng.between(1.0 - training.variation, 1.0 + training.variation);
    let layers: Vec<(usize, u64)> = training.weights.iter().copied().enumerate().collect();
    let mut step: Vec<Op> = vec![Op::Part(if is_first { Part::FirstForward } else { Part::Work })];
    step.extend(mark(program, "forward"));
    let forward = layers.iter().flat_map(|&(i, bytes)| {
        [alloc(format!("a{i}"), Kind::Device, ((bytes as f64 * of_batch) as u64).max(4096)), Op::Launch]
    });
    step.push(Op::At("forward", forward.collect()));
    step.extend(is_first.then_some(Op::Part(Part::FirstBackward)));
    step.extend(mark(program, "backward"));
    let backward = layers
        .iter()
        .rev()
        .flat_map(|&(i, bytes)| [alloc(format!("g{i}"), Kind::Device, bytes), Op::Launch, free(format!("a{i}"))]);
    step.push(Op::At("backward", backward.collect()));
    step.extend(is_first.then_some(Op::Part(Part::Optimizer)));
    step.extend(mark(program, "optimizer_step"));
    if is_first && training.has_states {
        let states = layers
            .iter()
            .flat_map(|&(i, bytes)| ["m", "v"].map(|state| alloc(format!("{state}{i}"), Kind::Device, bytes)));
        step.push(Op::At("states", states.collect()));
    }
    step.push(Op::Launch);
    step.push(Op::At("zero", layers.iter().map(|(i, _)| free(format!("g{i}"))).collect()));
    step
}

fn mark(program: &Program, label: &str) -> Option<Op> {
    program.has_marks.then(|| Op::Mark(label.into()))
}

/// Steps a grid, with double buffers.
pub(super) fn stencil(program: &mut Program, rng: &mut Rng) {
    let fields = rng.within(1, 5);
    let grid = rng.size(128 * MIB, 4 * GIB);
    let mut grids = Vec::new();
    for field in 0..fields {
        for buffer in ["a", "b"] {
            let name = format!("{buffer}{field}");
            grids.extend([alloc(&*name, Kind::Device, grid), Op::Copy(name)]);
        }
    }
    program.setup.push(Op::At("make_grids", grids));
    let halo = (grid / rng.within(20, 200)).max(4096);
    program.setup.push(Op::At("make_halos", vec![alloc("h0", Kind::Device, halo), alloc("h1", Kind::Device, halo)]));
    let norms = rng.chance(0.6).then(|| rng.size(MIB, grid / 2));
    let regrids = rng.chance(0.3);
    for number in 0..rng.within(15, 80) {
        let mut body = vec![Op::Launch, Op::Use("h0".into()), Op::Launch];
        if let Some(bytes) = norms.filter(|_| number % 4 == 0) {
            body.extend([alloc("n", program.temporary, bytes), Op::Launch, Op::Sync, free("n"), Op::Sync]);
        }
        if regrids && number % 10 == 9 {
            body.extend([free("b0"), alloc("b0", Kind::Device, grid)]);
        }
        program.steps.push(vec![Op::Part(Part::Work), Op::At("advance", body)]);
    }
    if rng.chance(0.5) {
        program.end.extend((0..fields).flat_map(|field| [free(format!("a{field}")), free(format!("b{field}"))]));
    }
}

/// One file after the other.
pub(super) fn batch(program: &mut Program, rng: &mut Rng) {
    program.setup.push(Op::At("start_up", vec![alloc("table", Kind::Device, rng.size(32 * MIB, 2 * GIB))]));
    let largest = rng.size(512 * MIB, 6 * GIB);
    let growth = rng.between(0.3, 3.0);
    let varies = rng.chance(0.7);
    program.has_varying_temporaries = varies;
    for _ in 0..rng.within(10, 50) {
        let input = if varies { rng.size(largest / 30, largest) } else { largest };
        let body = vec![
            alloc("hin", Kind::Host, input.min(GIB)),
            alloc("in", program.temporary, input),
            Op::Copy("in".into()),
            free("hin"),
            alloc("out", program.temporary, ((input as f64 * growth) as u64).max(4096)),
            Op::Launch,
            Op::Launch,
            Op::Fetch("out".into()),
            free("in"),
            free("out"),
            Op::Sync,
        ];
        program.steps.push(vec![Op::Part(Part::Work), Op::At("one_file", body)]);
    }
    if rng.chance(0.5) {
        program.end.push(free("table"));
    }
}

/// Does one thing and ends.
pub(super) fn tool(program: &mut Program, rng: &mut Rng) {
    let blocks = rng.within(1, 8);
    for number in 0..blocks {
        let name = format!("b{number}");
        program.setup.extend([alloc(&*name, Kind::Device, rng.size(16 * MIB, 4 * GIB)), Op::Copy(name)]);
    }
    for _ in 0..rng.within(1, 4) {
        program.steps.push(vec![Op::Part(Part::Work), Op::At("work", vec![Op::Launch, Op::Fetch("b0".into())])]);
    }
    if rng.chance(0.7) {
        program.end.extend((0..blocks).map(|number| free(format!("b{number}"))));
    }
}
