//! Each shape by a trace that has it and by one that is refuted, and runs that have none.

mod runs;

use proptest::prelude::*;

use super::programs::{PARAMETERS, Program};
use super::run::{self, DeviceRun};
use super::{Shape, Shapes};
use crate::judgement::check::{Check, Confidence, Judgement};
use crate::passes::growth;
use crate::passes::trend::Course;
use crate::replay::{Options, Replay};
use crate::testing::{GIB, MIB, replay};
use crate::thresholds::Thresholds;

fn thresholds(settings: &[&str]) -> Thresholds {
    let mut thresholds = Thresholds::default();
    settings.iter().for_each(|setting| thresholds.set(setting).expect("a threshold"));
    thresholds
}

impl Program {
    fn replay(&self) -> Replay {
        replay(&self.trace, Options::default())
    }

    /// The shapes of the first failure that hold.
    fn shapes(&self) -> Vec<(Shape, Confidence)> {
        self.shapes_by(&[])
    }

    /// The same with other thresholds.
    fn shapes_by(&self, settings: &[&str]) -> Vec<(Shape, Confidence)> {
        let judged = Shapes::of(&self.replay(), &thresholds(settings)).judged(0).into_iter();
        judged
            .filter_map(|(shape, judgement)| match judgement {
                Judgement::Found(confidence) => Some((shape, confidence)),
                _ => None,
            })
            .collect()
    }

    fn is(&self, shape: Shape) -> Option<Confidence> {
        self.shapes().into_iter().find(|(found, _)| *found == shape).map(|(_, confidence)| confidence)
    }

    fn run(&self, judge: fn(&DeviceRun, &mut Check)) -> Judgement {
        let runs = DeviceRun::all(&self.replay(), &Thresholds::default());
        let mut check = Check::default();
        judge(runs.iter().find(|run| run.device == 0).unwrap(), &mut check);
        check.judgement()
    }
}

fn leak(run: &DeviceRun, check: &mut Check) {
    run::leak(run.rise.as_ref(), run.are_segments, &run.thresholds, check);
}

fn swap(run: &DeviceRun, check: &mut Check) {
    run::model_swap(run, None, check);
}

#[test]
fn a_load_that_fails() {
    let mut program = Program::new();
    program.load();
    program.trace.refuse(16 * GIB);
    assert_eq!(program.shapes(), [(Shape::Load, Confidence::Possible)], "nothing says that it loads a model");
    let mut marked = Program::new();
    marked.mark("load weights");
    marked.load();
    marked.trace.refuse(16 * GIB);
    assert_eq!(marked.is(Shape::Load), Some(Confidence::Probable));
    let mut stepped = Program::new();
    stepped.load();
    stepped.step(200 * MIB);
    stepped.load();
    stepped.trace.refuse(16 * GIB);
    assert_eq!(stepped.is(Shape::Load), None);
}

#[test]
fn a_failure_that_a_retry_made_up_for_has_no_shape() {
    let mut program = Program::new();
    let blocks = program.load();
    program.trace.refuse(GIB);
    program.take(&blocks);
    program.give(GIB);
    assert!(program.shapes().is_empty());
}

#[test]
fn the_first_forward_pass() {
    let fails_in = |label: Option<&str>, sizes: &[u64]| {
        let mut program = Program::new();
        program.load();
        program.pause();
        label.into_iter().for_each(|label| program.mark(label));
        sizes.iter().for_each(|size| program.keep(*size));
        program.trace.refuse(16 * GIB);
        program
    };
    let activations = [200 * MIB, 201 * MIB, 202 * MIB, 203 * MIB];
    assert_eq!(fails_in(None, &activations).is(Shape::FirstForward), Some(Confidence::Possible));
    assert_eq!(fails_in(Some("forward"), &activations).is(Shape::FirstForward), Some(Confidence::Probable));
    let gradients: Vec<u64> = PARAMETERS.iter().rev().map(|size| size * MIB).collect();
    assert_eq!(fails_in(None, &gradients).is(Shape::FirstForward), None);
}

#[test]
fn the_first_backward_pass() {
    let fails = |reversed: bool, step_before: bool| {
        let mut program = Program::new();
        program.load();
        program.pause();
        if step_before {
            program.step(200 * MIB);
        }
        (0..6).for_each(|layer| program.keep(200 * MIB + layer * MIB));
        let mut gradients: Vec<u64> = PARAMETERS.to_vec();
        if reversed {
            gradients.reverse();
        }
        gradients[..9].iter().for_each(|size| program.keep(size * MIB));
        program.trace.refuse(16 * GIB);
        program
    };
    assert_eq!(fails(true, false).is(Shape::FirstBackward), Some(Confidence::Possible));
    assert_eq!(fails(false, false).is(Shape::FirstBackward), None);
    assert_eq!(fails(true, true).is(Shape::FirstBackward), None);
}

#[test]
fn the_optimizers_first_step() {
    let fails = |steps: usize, states: usize| {
        let mut program = Program::new();
        program.load();
        program.pause();
        (0..steps).for_each(|_| program.step(200 * MIB));
        for size in PARAMETERS.iter().take(10) {
            (0..states).for_each(|_| program.keep(size * MIB));
        }
        program.trace.refuse(16 * GIB);
        program
    };
    assert_eq!(fails(1, 2).is(Shape::Optimizer), Some(Confidence::Possible));
    assert_eq!(fails(1, 1).is(Shape::Optimizer), None);
    assert_eq!(fails(4, 2).is(Shape::Optimizer), None);
}

fn batches(count: u64, kept_bytes: u64, largest: u64) -> Program {
    let mut program = Program::new();
    program.load();
    for step in 0..count {
        if kept_bytes > 0 {
            program.give(kept_bytes);
        }
        program.step(200 * MIB + step % 5 * 40 * MIB);
    }
    program.trace.refuse(largest);
    program
}

#[test]
fn one_long_batch_in_a_stable_run() {
    assert_eq!(batches(24, 0, 12 * GIB).is(Shape::LongestBatch), Some(Confidence::Possible));
    assert_eq!(batches(24, 0, 200 * MIB).is(Shape::LongestBatch), None, "no more than before");
    assert_eq!(batches(24, 20 * MIB, 12 * GIB).is(Shape::LongestBatch), None, "the floor rises");
    let few = batches(8, 0, 12 * GIB);
    assert_eq!(few.is(Shape::LongestBatch), None, "too few steps");
    let holds = |settings: &[&str]| few.shapes_by(settings).iter().any(|(shape, _)| *shape == Shape::LongestBatch);
    assert!(holds(&["stable-cycles=8"]), "the user says how many are enough");
    assert!(!holds(&["stable-cycles=8", "peak-variation-share=0.9"]));
}

#[test]
fn results_of_an_evaluation_pile_up() {
    let fails = |kept_bytes: u64| {
        let mut program = Program::new();
        program.load();
        (0..6).for_each(|_| program.step(200 * MIB));
        for _ in 0..12 {
            let block = program.give(300 * MIB);
            program.give(kept_bytes);
            program.take(&[block]);
            if kept_bytes == MIB {
                let last = (program.next - 1) << 36;
                program.take(&[last]);
            }
        }
        program.trace.refuse(16 * GIB);
        program
    };
    assert_eq!(fails(40 * MIB).is(Shape::EvalAccumulation), Some(Confidence::Possible));
    assert_eq!(fails(MIB).is(Shape::EvalAccumulation), None);
}

#[test]
fn the_first_batch_of_an_evaluation() {
    let fails = |label: Option<&str>, bytes: u64, pause: bool| {
        let mut program = Program::new();
        program.load();
        label.into_iter().for_each(|_| program.mark("train"));
        (0..6).for_each(|_| program.step(200 * MIB));
        if pause {
            program.pause();
        }
        label.into_iter().for_each(|label| program.mark(label));
        program.give(250 * MIB);
        program.trace.refuse(bytes);
        program
    };
    assert_eq!(fails(Some("eval"), 14 * GIB, false).is(Shape::EvalBatch), Some(Confidence::Possible));
    assert_eq!(fails(None, 14 * GIB, true).is(Shape::EvalBatch), Some(Confidence::Possible));
    assert_eq!(fails(None, 14 * GIB, false).is(Shape::EvalBatch), None);
    assert_eq!(fails(Some("eval"), 100 * MIB, false).is(Shape::EvalBatch), None);
}

#[test]
fn a_cache_that_grows_token_by_token() {
    let fails = |step: &dyn Fn(u64) -> u64| {
        let mut program = Program::new();
        program.load();
        let mut caches: Vec<(u64, u64)> = (0..4).map(|_| (program.give(64 * MIB), 64 * MIB)).collect();
        for token in 0..8 {
            for cache in &mut caches {
                let bytes = cache.1 + step(token);
                let larger = program.give(bytes);
                program.take(&[cache.0]);
                *cache = (larger, bytes);
            }
        }
        program.trace.refuse(caches[0].1 + MIB);
        program
    };
    assert_eq!(fails(&|_| MIB).is(Shape::KvIncremental), Some(Confidence::Possible));
    assert_eq!(fails(&|token| (1 + token * 3) * MIB).is(Shape::KvIncremental), None, "no constant");
    assert_eq!(fails(&|_| 0).is(Shape::KvIncremental), None);
}

#[test]
fn a_pool_that_keeps_each_peak() {
    let fails = |gives_back: bool, vmm: bool| {
        let mut program = Program::new();
        program.load();
        if vmm {
            program.trace.create_and_map(0x77, 5 << 50, 64 * MIB);
        }
        let mut bytes = 200 * MIB;
        for _ in 0..6 {
            let buffer = program.give(bytes);
            if gives_back {
                program.take(&[buffer]);
            }
            bytes += bytes / 10;
        }
        program.trace.refuse(bytes);
        program
    };
    assert_eq!(fails(false, false).is(Shape::LegacyPool), Some(Confidence::Proven));
    assert_eq!(fails(true, false).is(Shape::LegacyPool), None);
    assert_eq!(fails(false, true).is(Shape::LegacyPool), None);
}

#[test]
fn gathered_parts_that_live_at_once() {
    let fails = |at_once: usize, long: bool| {
        let mut program = Program::new();
        program.load();
        for _ in 0..12 {
            let part = program.give(128 * MIB);
            program.trace.now_ns += if long { 200_000_000 } else { 0 };
            program.take(&[part]);
        }
        (0..at_once).for_each(|_| program.keep(128 * MIB));
        program.trace.refuse(128 * MIB);
        program
    };
    assert_eq!(fails(2, false).is(Shape::GatherSpike), Some(Confidence::Possible));
    assert_eq!(fails(0, false).is(Shape::GatherSpike), None);
    assert_eq!(fails(2, true).is(Shape::GatherSpike), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_calls_make_the_shapes_fail(calls in prop::collection::vec((0u64..24, 0u64..3 * GIB, 0u8..8), 0..500)) {
        let mut program = Program::new();
        for (place, bytes, what) in calls {
            match what {
                0 => _ = program.trace.refuse(bytes),
                1 => program.mark(["eval", "forward", "load", "x"][place as usize % 4]),
                2 => program.read(bytes),
                3..5 => _ = program.trace.free((place + 1) << 36),
                _ => _ = program.trace.alloc((place + 1) << 36, bytes),
            }
        }
        let replay = program.replay();
        let shapes = Shapes::of(&replay, &Thresholds::default());
        (0..replay.failures.listed.len()).for_each(|index| drop(shapes.judged(index)));
        for device in DeviceRun::all(&replay, &Thresholds::default()) {
            for judge in [leak, run::plateau, swap] {
                judge(&device, &mut Check::default());
            }
        }
        growth::of_devices(&replay, &Thresholds::default());
    }
}
