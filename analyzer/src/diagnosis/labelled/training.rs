//! H. Where in a training a failure came.

use gpuoom_trace::metadata::Module;

use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable};
use crate::passes::shape::programs::{PARAMETERS, Program};
use crate::testing::{GIB, MIB};

/// More than the card of these traces has left; what it has is 16 GiB.
const TOO_MUCH: u64 = 15 * GIB;

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Possible),
        also: &[],
        story: "blocks of different sizes, none given back, and the next fails",
        scene: || load(None, false),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Possible),
        also: &[],
        story: "the same in a process with PyTorch, whose library names no load",
        scene: || with_torch(load(None, false)),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Probable),
        also: &[],
        story: "the same with a label of the program",
        scene: || load(Some("load weights"), false),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Not,
        also: &[],
        story: "a label says that the model is loaded",
        scene: || {
            let mut program = python();
            program.load();
            program.mark("model loaded");
            program.keep(200 * MIB);
            ends(program, TOO_MUCH)
        },
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Not,
        also: &[],
        story: "a step came before it",
        scene: || load(None, true),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Not,
        also: &[],
        story: "others held 6 of 16 GiB before the load",
        scene: || {
            let mut program = python();
            program.read(6 * GIB);
            program.load();
            ends(program, TOO_MUCH)
        },
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Possible),
        also: &[],
        story: "a label that need not mean a network's model: no framework is there, as in a game",
        scene: || load(Some("load model"), false),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Probable),
        also: &[],
        story: "the same label in a process with PyTorch",
        scene: || with_torch(load(Some("load model"), false)),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Found(Probable),
        also: &[],
        story: "activations behind the load, and a label, in a process with PyTorch",
        scene: || with_torch(behind_load(Some("forward"), &[200, 201, 202, 203])),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Found(Possible),
        also: &[],
        story: "the same label without a framework: a hidden Markov model has a forward pass, too",
        scene: || behind_load(Some("forward"), &[200, 201, 202, 203]),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Found(Possible),
        also: &[],
        story: "a label that names another sort of forward",
        scene: || behind_load(Some("fft-forward"), &[200, 201, 202, 203]),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Found(Possible),
        also: &[],
        story: "the same without a label",
        scene: || behind_load(None, &[200, 201, 202, 203]),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Not,
        also: &[],
        story: "the sizes of the parameters come again: gradients",
        scene: || behind_load(None, &[63, 45, 29, 18, 84, 71, 12, 57, 21, 40, 33, 96]),
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Found(Possible),
        also: &[],
        story: "activations, and then the sizes of the parameters in reverse",
        scene: || backward(true, None),
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Found(Probable),
        also: &[],
        story: "the same behind a label",
        scene: || backward(true, Some("backward pass")),
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Not,
        also: &[],
        story: "the sizes of the parameters in the order of the load",
        scene: || backward(false, Some("backward pass")),
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Found(Possible),
        also: &[],
        story: "one step, and then each parameter's size twice",
        scene: || optimizer(1, 2, None),
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Found(Probable),
        also: &[],
        story: "the same behind a label, and by the model's facts Adam's state takes more",
        scene: || of_model(optimizer(1, 2, Some("optimizer step")), "parameters=140M"),
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Not,
        also: &[],
        story: "the same sizes, and the model has too few parameters for so much state",
        scene: || of_model(optimizer(1, 2, Some("optimizer step")), "parameters=20M"),
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Not,
        also: &[],
        story: "four steps came before it",
        scene: || optimizer(4, 2, Some("optimizer step")),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::First(Probable),
        also: &[],
        story: "24 steps of batches that differ, as labels say, a longer input, and then the same place asks for 15 GiB",
        scene: || batches_of(24, TOO_MUCH, Some(1), None, Some(90 * MIB)),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Not,
        also: &[],
        story: "the same, and the input was as long as before: one layer is larger, and not the batch",
        scene: || batches_of(24, TOO_MUCH, Some(1), None, Some(50 * MIB)),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::First(Possible),
        also: &[],
        story: "the first request of a batch says nothing of the others",
        scene: || batches(24, TOO_MUCH, Some(1)),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Found(Possible),
        also: &[],
        story: "the same without labels: nothing says that these are batches",
        scene: || batches(24, 12 * GIB, None),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Not,
        also: &[],
        story: "the same with labels, and another place asks",
        scene: || batches(24, 12 * GIB, Some(2)),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Not,
        also: &[],
        story: "eight steps: too few to call the run stable",
        scene: || batches(8, 12 * GIB, Some(1)),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Not,
        also: &[],
        story: "24 steps of batches that differ, of which one had asked for as much, and been refused",
        scene: || batches_of(24, TOO_MUCH, Some(1), Some(TOO_MUCH - MIB), None),
    },
    Labelled {
        id: "oom-eval-accumulation",
        says: Says::First(Probable),
        also: &[],
        story: "after six steps, 40 MiB of each of twelve batches stay, and a label says evaluation",
        scene: || evaluation(true, Some("eval")),
    },
    Labelled {
        id: "oom-eval-accumulation",
        says: Says::Found(Possible),
        also: &[],
        story: "the same without a label",
        scene: || evaluation(true, None),
    },
    Labelled {
        id: "oom-eval-accumulation",
        says: Says::Not,
        also: &[],
        story: "the same, and nothing stays",
        scene: || evaluation(false, Some("eval")),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Found(Possible),
        also: &[],
        story: "the first batch behind the label asks for more than all training did, which a label names, too",
        scene: || first_eval(TOO_MUCH, "train step"),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Found(Possible),
        also: &[],
        story: "the same behind labels that name no training: a solver is validated, too",
        scene: || first_eval(TOO_MUCH, "iteration"),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Not,
        also: &[],
        story: "the first batch behind the label asks for less",
        scene: || first_eval(100 * MIB, "train step"),
    },
];

/// A Python program.
pub(super) fn python() -> Program {
    let mut program = Program::new();
    program.trace.process.executable = "/usr/bin/python3".into();
    program
}

fn ends(mut program: Program, asked: u64) -> Scene {
    program.trace.refuse(asked);
    Scene { trace: program.trace }
}

fn load(label: Option<&str>, step: bool) -> Scene {
    let mut program = python();
    program.read(100 * MIB);
    label.into_iter().for_each(|label| program.mark(label));
    program.load();
    if step {
        program.step(200 * MIB);
        program.load();
    }
    ends(program, TOO_MUCH)
}

fn with_torch(mut scene: Scene) -> Scene {
    let path = "/usr/lib/python3/dist-packages/torch/lib/libtorch_hip.so".to_owned();
    scene.trace.modules.push(Module { path, build_id: String::new(), start: 0x1000, end: 0x2000, vendor: false });
    scene
}

fn behind_load(label: Option<&str>, sizes_mib: &[u64]) -> Scene {
    let mut program = python();
    program.load();
    program.pause();
    label.into_iter().for_each(|label| program.mark(label));
    sizes_mib.iter().for_each(|size| program.keep(size * MIB));
    ends(program, TOO_MUCH)
}

fn backward(reversed: bool, label: Option<&str>) -> Scene {
    let mut program = python();
    program.load();
    program.pause();
    (0..6).for_each(|layer| program.keep(200 * MIB + layer * MIB));
    let mut gradients = PARAMETERS.to_vec();
    if reversed {
        gradients.reverse();
    }
    label.into_iter().for_each(|label| program.mark(label));
    gradients[..9].iter().for_each(|size| program.keep(size * MIB));
    ends(program, TOO_MUCH)
}

fn optimizer(steps: u64, states: u64, label: Option<&str>) -> Scene {
    let mut program = python();
    program.load();
    program.pause();
    (0..steps).for_each(|_| program.step(200 * MIB));
    label.into_iter().for_each(|label| program.mark(label));
    for size in PARAMETERS.iter().take(10) {
        (0..states).for_each(|_| program.keep(size * MIB));
    }
    ends(program, TOO_MUCH)
}

/// Steps of batches that differ. `site` is the call site that asks last, where labels and call sites tell of batches.
fn batches(count: u64, largest: u64, site: Option<u32>) -> Scene {
    batches_of(count, largest, site, None, None)
}

/// The same, where one in the middle asks for so much, too, and does without, and where each begins with an input of 50 MiB, the last one
/// with one of so much.
fn batches_of(count: u64, largest: u64, site: Option<u32>, refused: Option<u64>, input: Option<u64>) -> Scene {
    let mut program = python();
    if site.is_some() {
        program.trace =
            program.trace.library("/opt/train/libops.so", 0x1000, 1).library("/opt/train/libio.so", 0x2000, 2);
        program.trace.site = 1;
    }
    program.load();
    for step in 0..count {
        if site.is_some() {
            program.mark(&format!("batch {step}"));
        }
        if let Some(refused) = refused.filter(|_| step == count / 2) {
            program.trace.refuse(refused);
        }
        let own = input.map(|_| of_input(&mut program, 50 * MIB));
        program.step(200 * MIB + step % 5 * 40 * MIB);
        program.take(&own.into_iter().collect::<Vec<_>>());
    }
    input.into_iter().for_each(|bytes| _ = of_input(&mut program, bytes));
    program.trace.site = site.unwrap_or(0);
    ends(program, largest)
}

/// An input of a batch, from a place of its own.
fn of_input(program: &mut Program, bytes: u64) -> u64 {
    let site = std::mem::replace(&mut program.trace.site, 2);
    let input = program.give(bytes);
    program.trace.site = site;
    input
}

/// What fails in the end would never have fitted.
fn evaluation(keeps: bool, label: Option<&str>) -> Scene {
    let mut program = python();
    program.load();
    (0..6).for_each(|_| program.step(200 * MIB));
    label.into_iter().for_each(|label| program.mark(label));
    for _ in 0..12 {
        let batch = program.give(300 * MIB);
        let result = program.give(40 * MIB);
        program.take(&[batch]);
        if !keeps {
            program.take(&[result]);
        }
    }
    ends(program, 16 * GIB - 100 * MIB)
}

fn first_eval(asked: u64, label: &str) -> Scene {
    let mut program = python();
    program.load();
    for _ in 0..6 {
        program.mark(label);
        program.step(200 * MIB);
    }
    program.mark("eval");
    program.keep(250 * MIB);
    ends(program, asked)
}

fn of_model(mut scene: Scene, facts: &str) -> Scene {
    scene.trace.evidence.model.get_or_insert_default().add(facts).expect("facts of a model");
    scene
}
