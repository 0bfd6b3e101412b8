//! Kinds of programs, as people write them. Sizes are relative: [`Program::fit`] makes them as large as a card wants them.

mod computing;
mod serving;

use crate::rng::Rng;
use crate::script::{Kind, Model, Op, each, innermost};

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
            Purpose::Service => serving::service(&mut program, rng),
            Purpose::Training => computing::training(&mut program, rng),
            Purpose::Llama => serving::llama(&mut program, rng),
            Purpose::Stencil => computing::stencil(&mut program, rng),
            Purpose::Batch => computing::batch(&mut program, rng),
            Purpose::Plugins => serving::plugins(&mut program, rng),
            Purpose::Tool => computing::tool(&mut program, rng),
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
