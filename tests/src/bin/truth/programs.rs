//! Kinds of programs, as people write them. Sizes are relative: [`Program::fit`] makes them as large as a card wants them.

use crate::rng::Rng;
use crate::script::{Kind, Model, Op, Part, alloc, each, free, innermost, raw};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Answers requests of different sizes.
    Service,
    /// Trains a network.
    Training,
    /// Loads a language model and makes tokens.
    Llama,
    /// Steps a grid, with double buffers.
    Stencil,
    /// One file after the other.
    Batch,
    /// Libraries that others wrote do the work.
    Plugins,
    /// Does one thing and ends.
    Tool,
}

/// All of them.
pub(crate) const PURPOSES: [Purpose; 7] = [
    Purpose::Service,
    Purpose::Training,
    Purpose::Llama,
    Purpose::Stencil,
    Purpose::Batch,
    Purpose::Plugins,
    Purpose::Tool,
];

/// A program that has nothing wrong.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) purpose: Purpose,
    pub(crate) setup: Vec<Op>,
    /// Each leaves as much as it finds, but for what is made once.
    pub(crate) steps: Vec<Vec<Op>>,
    pub(crate) end: Vec<Op>,
    pub(crate) libraries: Vec<&'static str>,
    /// Whether it says what it does, by marks.
    pub(crate) has_marks: bool,
    /// Whether it takes and gives back memory of different sizes all the time.
    pub(crate) has_varying_temporaries: bool,
    /// How it asks for temporary memory.
    pub(crate) temporary: Kind,
    pub(crate) devices: usize,
    /// The one that its main thread works on.
    pub(crate) device: usize,
}

impl Program {
    /// A program for that purpose.
    pub(crate) fn random(rng: &mut Rng, purpose: Purpose, can_be_async: bool, devices: usize) -> Self {
        let mut program = Program {
            purpose,
            setup: Vec::new(),
            steps: Vec::new(),
            end: Vec::new(),
            libraries: Vec::new(),
            has_marks: rng.chance(0.25),
            has_varying_temporaries: false,
            temporary: if can_be_async && rng.chance(0.2) { Kind::Async } else { Kind::Device },
            devices: 1,
            device: 0,
        };
        match purpose {
            Purpose::Service => service(&mut program, rng),
            Purpose::Training => training(&mut program, rng),
            Purpose::Llama => llama(&mut program, rng),
            Purpose::Stencil => stencil(&mut program, rng),
            Purpose::Batch => batch(&mut program, rng),
            Purpose::Plugins => plugins(&mut program, rng),
            Purpose::Tool => tool(&mut program, rng),
        }
        program.spread(devices);
        program
    }

    /// Everything, in order.
    pub(crate) fn ops(&self) -> Vec<Op> {
        [self.setup.clone(), self.steps.concat(), self.end.clone()].concat()
    }

    /// Changes all sizes so that the highest peak on any device is this.
    pub(crate) fn fit(&mut self, peak_bytes: u64) {
        let peak = Model::of(&self.ops(), None).highest_peak();
        let factor = peak_bytes as f64 / peak.max(1) as f64;
        let mut scale = |op: &mut Op| {
            if let Op::Alloc { kind, bytes, .. } = op {
                let unit = if *kind == Kind::Virtual { 2 * MIB } else { 4096 };
                *bytes = ((*bytes as f64 * factor) as u64 / unit * unit).max(unit);
            }
        };
        each(&mut self.setup, &mut scale);
        each(&mut self.end, &mut scale);
        self.steps.iter_mut().for_each(|step| each(step, &mut scale));
    }

    /// The same on each of several devices: whole copies of a training's step, a device for each other request.
    fn spread(&mut self, devices: usize) {
        if devices == 1 || self.steps.is_empty() {
            return;
        }
        self.devices = devices;
        let on = |ops: &[Op], device: usize| [vec![Op::Device(device)], on_device(ops, device)].concat();
        let all = |ops: &[Op]| -> Vec<Op> { (0..devices).flat_map(|device| on(ops, device)).collect() };
        self.setup = all(&self.setup);
        self.end = all(&self.end);
        self.steps = self.steps.iter().map(|step| all(step)).collect();
    }

    /// The same on the second device; the first one stays idle.
    pub(crate) fn move_to_second(&mut self) {
        self.devices = 2;
        self.device = 1;
        let stay = &mut |op: &mut Op| {
            if let Op::Worker(_, body) = op {
                body.insert(0, Op::Device(1));
            }
        };
        each(&mut self.setup, stay);
        self.steps.iter_mut().for_each(|step| each(step, stay));
        self.setup.insert(0, Op::Device(1));
    }

    /// Adds to the innermost block of a step: at its beginning or at its end.
    pub(crate) fn add_to_step(&mut self, step: usize, ops: Vec<Op>, at_end: bool) {
        let body = innermost(&mut self.steps[step]);
        match at_end {
            true => body.extend(ops),
            false => drop(body.splice(0..0, ops)),
        }
    }
}

/// The same with names and threads of that device.
fn on_device(ops: &[Op], device: usize) -> Vec<Op> {
    let mut ops = ops.to_vec();
    each(&mut ops, &mut |op| match op {
        Op::Alloc { name, .. } | Op::Free(name) | Op::Copy(name) | Op::Fetch(name) | Op::Use(name) => {
            *name = format!("{name}.{device}");
        }
        Op::Worker(name, body) => {
            *name = format!("{name}.{device}");
            body.insert(0, Op::Device(device));
        }
        _ => {}
    });
    ops
}

fn mark(program: &Program, label: impl Into<String>) -> Option<Op> {
    program.has_marks.then(|| Op::Mark(label.into()))
}

fn service(program: &mut Program, rng: &mut Rng) {
    let states = rng.within(1, 6);
    let state: u64 = rng.size(GIB, 8 * GIB);
    for number in 0..states {
        let name = format!("s{number}");
        let made = vec![alloc(&*name, Kind::Device, rng.about(state / states, 0.5)), Op::Copy(name)];
        program.setup.push(Op::At("start_up", made));
    }
    let workers = rng.pick(&[0, 0, 1, 2, 4]);
    let largest = rng.size(200 * MIB, 4 * GIB);
    let cached = if rng.chance(0.4) { rng.within(3, 20) } else { 0 };
    let entry = rng.size(MIB, 128 * MIB);
    let requests = rng.within(15, 90);
    program.has_varying_temporaries = true;
    for request in 0..requests {
        let mut body = Vec::new();
        let buffers = rng.within(1, 4);
        for number in 0..buffers {
            body.push(alloc(format!("r{number}"), program.temporary, rng.size(largest / 64, largest / buffers)));
        }
        body.extend([Op::Copy("r0".into()), Op::Launch]);
        if program.temporary == Kind::Async || rng.chance(0.3) {
            body.push(Op::Sync);
        }
        body.push(Op::Fetch("r0".into()));
        (0..buffers).rev().for_each(|number| body.push(free(format!("r{number}"))));
        if program.temporary == Kind::Async {
            body.push(Op::Sync);
        }
        if cached > 0 && request < cached {
            let grows = vec![alloc(format!("c{request}"), Kind::Device, rng.about(entry, 0.6))];
            body.push(Op::At("remember", grows));
        } else if cached > 0 && rng.chance(0.4) {
            let old = format!("c{}", rng.within(0, cached - 1));
            body.push(Op::At("remember", vec![free(&*old), alloc(&*old, Kind::Device, rng.about(entry, 0.6))]));
        }
        let handled = Op::At("handle", body);
        let step = match workers {
            0 => handled,
            _ => Op::Worker(format!("worker-{}", rng.within(0, workers - 1)), vec![handled]),
        };
        program.steps.push(vec![Op::Part(Part::Work), step]);
    }
    for number in 0..cached.min(requests) {
        program.end.push(free(format!("c{number}")));
    }
    if rng.chance(0.5) {
        (0..states).for_each(|number| program.end.push(free(format!("s{number}"))));
    }
}

fn training(program: &mut Program, rng: &mut Rng) {
    let layers = rng.within(5, 20);
    let average = rng.size(40 * MIB, 400 * MIB);
    let weights: Vec<u64> = (0..layers).map(|_| rng.about(average, 0.8)).collect();
    program.setup.push(Op::Part(Part::Load));
    program.setup.extend(mark(program, "load_weights"));
    let load = weights
        .iter()
        .enumerate()
        .flat_map(|(i, &bytes)| [alloc(format!("w{i}"), Kind::Device, bytes), Op::Copy(format!("w{i}"))]);
    program.setup.push(Op::At("load", load.collect()));
    let activations = rng.between(0.4, 4.0);
    let variation = if rng.chance(0.5) { rng.between(0.1, 0.6) } else { 0.0 };
    let has_states = rng.chance(0.7);
    for number in 0..rng.within(8, 40) {
        let of_batch = activations * rng.between(1.0 - variation, 1.0 + variation);
        let first = number == 0;
        let part = |part| if first { Op::Part(part) } else { Op::Part(Part::Work) };
        let mut step: Vec<Op> = vec![part(Part::FirstForward)];
        step.extend(mark(program, "forward"));
        let forward = weights.iter().enumerate().flat_map(|(i, &bytes)| {
            [alloc(format!("a{i}"), Kind::Device, ((bytes as f64 * of_batch) as u64).max(4096)), Op::Launch]
        });
        step.push(Op::At("forward", forward.collect()));
        step.extend(first.then_some(Op::Part(Part::FirstBackward)));
        step.extend(mark(program, "backward"));
        let backward =
            weights.iter().enumerate().rev().flat_map(|(i, &bytes)| {
                [alloc(format!("g{i}"), Kind::Device, bytes), Op::Launch, free(format!("a{i}"))]
            });
        step.push(Op::At("backward", backward.collect()));
        step.extend(first.then_some(Op::Part(Part::Optimizer)));
        step.extend(mark(program, "optimizer_step"));
        if first && has_states {
            let states = weights
                .iter()
                .enumerate()
                .flat_map(|(i, &bytes)| ["m", "v"].map(|state| alloc(format!("{state}{i}"), Kind::Device, bytes)));
            step.push(Op::At("states", states.collect()));
        }
        step.push(Op::Launch);
        step.push(Op::At("zero", (0..layers).map(|i| free(format!("g{i}"))).collect()));
        if rng.chance(0.3) {
            step.push(Op::Sync);
        }
        program.steps.push(step);
    }
    if rng.chance(0.3) {
        program.end.extend((0..layers).map(|i| free(format!("w{i}"))));
    }
}

fn llama(program: &mut Program, rng: &mut Rng) {
    let buffers = rng.within(1, 8);
    let weights = rng.size(2 * GIB, 16 * GIB);
    program.setup.push(Op::Part(Part::Load));
    if rng.chance(0.5) {
        program.setup.push(alloc("host", Kind::Host, rng.size(64 * MIB, GIB)));
    }
    let load = (0..buffers).flat_map(|i| {
        [alloc(format!("w{i}"), Kind::Device, rng.about(weights / buffers, 0.2)), Op::Copy(format!("w{i}"))]
    });
    let load: Vec<Op> = load.collect();
    program.setup.push(Op::At("load_tensors", load));
    program.setup.push(Op::Part(Part::KvCache));
    let caches = rng.pick(&[1, 1, 2, 4]);
    let cache = (weights as f64 * rng.between(0.05, 0.8)) as u64 / caches;
    let made = (0..caches).map(|i| alloc(format!("k{i}"), Kind::Device, cache & !0xFFFF));
    program.setup.push(Op::At("kv_cache", made.collect()));
    let compute = rng.size(64 * MIB, 2 * GIB);
    program.setup.push(Op::At("reserve", vec![alloc("c0", Kind::Device, compute)]));
    for _ in 0..rng.within(10, 60) {
        let mut token = vec![Op::Launch; rng.within(1, 6) as usize];
        token.push(Op::Fetch("c0".into()));
        if rng.chance(0.2) {
            token.extend([alloc("t0", Kind::Device, rng.size(MIB, 64 * MIB)), Op::Launch, free("t0")]);
        }
        program.steps.push(vec![Op::Part(Part::Work), Op::At("decode", token)]);
    }
    if rng.chance(0.6) {
        program.libraries.push("libggml-hip.so");
    }
}

fn stencil(program: &mut Program, rng: &mut Rng) {
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

fn batch(program: &mut Program, rng: &mut Rng) {
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

/// Libraries of the program that others wrote.
const PLUGINS: [&str; 3] = ["libfilter.so", "libdetect.so", "librender.so"];

fn plugins(program: &mut Program, rng: &mut Rng) {
    program.libraries = PLUGINS.to_vec();
    for (number, library) in PLUGINS.iter().enumerate() {
        let own = vec![
            raw(format!("through {{lib}}/{library}")),
            alloc(format!("p{number}"), Kind::Device, rng.size(64 * MIB, 2 * GIB)),
            Op::Copy(format!("p{number}")),
        ];
        program.setup.push(Op::At("load_plugin", own));
    }
    let largest = rng.size(100 * MIB, 3 * GIB);
    program.has_varying_temporaries = true;
    for _ in 0..rng.within(15, 80) {
        let library = rng.pick(&PLUGINS);
        let mut body =
            vec![raw(format!("through {{lib}}/{library}")), alloc("x", Kind::Device, rng.size(largest / 40, largest))];
        if rng.chance(0.5) {
            body.extend([alloc("y", Kind::Device, rng.size(largest / 40, largest)), Op::Launch, free("y")]);
        }
        body.extend([Op::Launch, Op::Fetch("x".into()), free("x")]);
        program.steps.push(vec![Op::Part(Part::Work), Op::At("run_plugin", body)]);
    }
}

fn tool(program: &mut Program, rng: &mut Rng) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a step takes it gives back: whatever grows in a run was put there on purpose.
    #[test]
    fn programs_fit_their_card_and_leave_what_they_found() {
        for number in 0..200 {
            let mut rng = Rng::of(11, number);
            let devices = rng.pick(&[1, 1, 2, 3]);
            let purpose = rng.pick(&PURPOSES);
            let mut program = Program::random(&mut rng, purpose, true, devices);
            program.fit(10 * GIB);
            let all = Model::of(&program.ops(), None);
            let peak = all.highest_peak();
            assert!(peak.abs_diff(10 * GIB) < 2 * GIB, "{number}: {peak}");
            let half = [program.setup.clone(), program.steps[..program.steps.len() / 2 + 1].concat()].concat();
            let whole = [program.setup.clone(), program.steps.concat()].concat();
            let (half, whole) = (Model::of(&half, None), Model::of(&whole, None));
            for device in 0..devices {
                let grown = whole.held(device).saturating_sub(half.held(device));
                assert!(grown <= peak / 4, "{number}: {purpose:?} grows by {grown}");
            }
        }
    }
}
