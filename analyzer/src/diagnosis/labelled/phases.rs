//! Phases of a training with PyTorch, by the functions on the way to its blocks and to its error.

use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::record::process;

use super::scenes::{full, torch};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, THREAD, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Probable),
        also: FULL,
        story: "PyTorch raises its error in Module.to, and its blocks are a model's",
        scene: || Run::new().gives(LOAD, 1, 8 * GIB).gives(LOAD, 4, 3 * GIB).fails(LOAD, 5 * GIB),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Possible),
        also: FULL,
        story: "the same, and one of these blocks was given back, as where a model on the card is converted",
        scene: || Run::new().gives(LOAD, 1, 8 * GIB).passes(LOAD, GIB).gives(LOAD, 4, 3 * GIB).fails(LOAD, 5 * GIB),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Probable),
        also: FULL,
        story: "the same, and all its blocks are equal: these may be older models, which a list keeps",
        scene: || Run::new().gives(LOAD, 20, GIB).fails(LOAD, 3 * GIB),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Probable),
        also: FULL,
        story: "PyTorch raises its error in Module.to, and most of what it holds came elsewhere",
        scene: || Run::new().gives(OTHER, 4, 5 * GIB).fails(LOAD, 3 * GIB),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Not,
        also: FULL,
        story: "what an optimizer loads is no model",
        scene: || Run::new().gives(OTHER, 4, 5 * GIB).fails(STATE, 3 * GIB),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Found(Probable),
        also: FULL,
        story: "a model is loaded, and all that came in a forward pass lives",
        scene: || Run::new().gives(LOAD, 4, GIB).gives(FORWARD, 16, GIB).fails(DEEPER, 3 * GIB),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Not,
        also: FULL,
        story: "the same behind a step of the optimizer",
        scene: || Run::new().gives(STEP, 2, GIB).gives(FORWARD, 18, GIB).fails(DEEPER, 3 * GIB),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Not,
        also: FULL,
        story: "of the way that what lives came by, blocks are gone: it may be any batch",
        scene: || {
            let run = (0..20).fold(Run::new(), |run, _| run.passes(FORWARD, GIB));
            run.gives(LOAD, 4, GIB).gives(FORWARD, 16, GIB).fails(FORWARD, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Found(Proven),
        also: FULL,
        story: "a load, a forward pass, and the backward pass fails",
        scene: || before_backward().passes(BEGINS, MIB).gives(BACKWARD, 2, GIB).fails(BACKWARD, 5 * GIB),
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Found(Possible),
        also: FULL,
        story: "the same, and the pass was given its gradients: whether it is the first, nobody knows",
        scene: || before_backward().gives(BACKWARD, 2, GIB).fails(BACKWARD, 5 * GIB),
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Found(Possible),
        also: FULL,
        story: "the same, and two passes had begun: one for each of two losses, or one behind the other",
        scene: || {
            let run = before_backward().passes(BEGINS, MIB).passes(BEGINS, MIB);
            run.gives(BACKWARD, 2, GIB).fails(BACKWARD, 5 * GIB)
        },
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Not,
        also: FULL,
        story: "the tenth backward pass over one forward pass",
        scene: || {
            let run = (0..9).fold(before_backward(), |run, _| run.passes(BEGINS, MIB).passes(BACKWARD, GIB));
            run.passes(BEGINS, MIB).gives(BACKWARD, 2, GIB).fails(BACKWARD, 5 * GIB)
        },
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Not,
        also: &["true-capacity"],
        story: "more lives of backward passes than one can have beside so little else",
        scene: || {
            let run = Run::new().gives(LOAD, 1, GIB).gives(FORWARD, 1, GIB).passes(BEGINS, MIB);
            run.gives(BACKWARD, 18, GIB).fails(BACKWARD, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Found(Possible),
        also: &["caching-fragmentation"],
        story: "the same, and twice of what was asked for lay unused in pieces",
        scene: || {
            Run::new().gives(LOAD, 4, GIB).gives(FORWARD, 11, GIB).gives(BACKWARD, 1, GIB).fails(BACKWARD, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Found(Probable),
        also: FULL,
        story: "the same, and on some ways nobody looked for Python's frames",
        scene: || {
            let run = Run::new().gives(LOAD, 4, GIB).gives(UNSEEN, 1, GIB).gives(FORWARD, 13, GIB);
            run.passes(BEGINS, MIB).gives(BACKWARD, 2, GIB).fails(BACKWARD, 5 * GIB)
        },
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Found(Possible),
        also: FULL,
        story: "a backward pass over what no module computed: whether it is the first, nobody knows",
        scene: || Run::new().gives(OTHER, 14, GIB).gives(BACKWARD, 6, GIB).fails(BACKWARD, 3 * GIB),
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Found(Possible),
        also: FULL,
        story: "the first backward pass, and nearly all of the card is held by something else",
        scene: || Run::new().gives(OTHER, 19, GIB).gives(FORWARD, 1, GIB).fails(BACKWARD, 3 * GIB),
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Not,
        also: FULL,
        story: "the optimizer had done a step",
        scene: || {
            let run = Run::new().gives(STEP, 4, GIB).gives(FORWARD, 14, GIB);
            run.gives(BACKWARD, 2, GIB).fails(BACKWARD, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Not,
        also: FULL,
        story: "a forward pass came behind an earlier backward pass, and the optimizer keeps nothing",
        scene: || {
            let run = Run::new().gives(FORWARD, 4, GIB).gives(BACKWARD, 4, GIB);
            run.gives(FORWARD, 12, GIB).fails(BACKWARD, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Found(Proven),
        also: FULL,
        story: "the function that makes the optimizer's state gets no memory",
        scene: || {
            let run = Run::new().gives(LOAD, 6, GIB).gives(BACKWARD, 6, GIB);
            run.gives(STEP, 8, GIB).fails(STEP, 5 * GIB)
        },
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Found(Possible),
        also: FULL,
        story: "the same, and another library's block is more than was missing",
        scene: || {
            let run = Run::with_segment(14 * GIB).gives(LOAD, 4, GIB).gives(BACKWARD, 4, GIB);
            let mut trace = run.gives(STEP, 5, GIB).trace;
            trace.site = UNSEEN;
            trace.alloc(0x90_0000_0000, 8 * GIB);
            trace.site = STEP;
            for _ in 0..2 {
                let seq = trace.refuse(3 * GIB);
                full(&mut trace, seq, 24 * GIB, HELD, 2 * GIB);
            }
            trace.no_tensor(0, 3 * GIB);
            trace.throws(THREAD, 0x5555_0000_1000, None);
            trace.end(process::EXITS, 1);
            Scene { trace }
        },
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Found(Possible),
        also: &["caching-fragmentation"],
        story: "the same, and more than the step still needs lay unused in pieces",
        scene: || {
            let run = Run::new().gives(LOAD, 6, GIB).gives(BACKWARD, 6, GIB);
            run.gives(STEP, 4, GIB).gives(STEP, 4, GIB / 4).fails(STEP, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Found(Possible),
        also: FULL,
        story: "data take more than the step has still to make, if its state is Adam's",
        scene: || {
            let run = Run::new().gives(LOAD, 2, GIB).gives(OTHER, 13, GIB).gives(BACKWARD, 2, GIB);
            run.gives(STEP, 3, GIB).fails(STEP, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Found(Possible),
        also: FULL,
        story: "a loss of an earlier forward pass is kept with what it needs",
        scene: || {
            let run = Run::new().gives(LOAD, 3, GIB).gives(FORWARD, 11, GIB).gives(BACKWARD, 3, GIB);
            run.gives(STEP, 3, GIB).fails(STEP, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Found(Possible),
        also: FULL,
        story: "most blocks came in the step that asks for more: whether they are its state, or gone at its end, nobody says",
        scene: || {
            let run = Run::new().gives(LOAD, 6, GIB).gives(BACKWARD, 6, GIB);
            run.gives(STEP, 8, GIB).fails(LATER_STEP, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Not,
        also: FULL,
        story: "a step asks for more, and of the optimizer hardly anything lives",
        scene: || Run::new().gives(OTHER, 19, GIB).gives(STEP, 1, GIB).fails(LATER_STEP, 3 * GIB),
    },
    Labelled {
        id: "oom-optimizer-step",
        says: Says::Not,
        also: FULL,
        story: "the same line made state in an earlier step: this is of another optimizer",
        scene: || {
            let run = Run::new().gives(STEP, 6, GIB).passes(FORWARD, GIB).passes(BACKWARD, GIB);
            run.gives(STEP, 14, GIB).fails(STEP, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-first-backward",
        says: Says::Not,
        also: FULL,
        story: "two backward passes were over, of a training whose passes no function names",
        scene: || {
            let passes = |run: Run| run.passes(BACKWARD, GIB).passes(OTHER, GIB);
            passes(passes(Run::new().gives(OTHER, 14, GIB).gives(BACKWARD, 6, GIB))).fails(BACKWARD, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Possible),
        also: FULL,
        story: "something is moved to the card behind many steps of a training",
        scene: || trained(5).gives(OTHER, 19, GIB).fails(LOAD, 3 * GIB),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Possible),
        also: FULL,
        story: "a second model is loaded behind a training of the first",
        scene: || trained(5).gives(LOAD, 19, GIB).fails(LOAD, 3 * GIB),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Found(Possible),
        also: FULL,
        story: "half of the blocks that live in a first pass came by a way of whose blocks every other one goes, as layers of two steps",
        scene: || {
            let run = (0..6).fold(Run::new().gives(LOAD, 4, GIB), |run, _| run.passes(DEEPER, GIB));
            run.gives(DEEPER, 9, GIB).gives(FORWARD, 6, GIB).fails(FORWARD, 3 * GIB)
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Probable),
        also: &["oom-longest-batch"],
        story: "the cache has 9.4 % of the memory unused, in which the request would have fitted: no more than any cache has",
        scene: || Run::new().gives(OTHER, 19, GIB).gives(OTHER, 1, GIB - 64 * MIB).fails(OTHER, 2 * GIB + 2 * MIB),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Not,
        also: FULL,
        story: "the program gives up tensors of its own to make room, and the cache had held nothing",
        scene: || {
            let mut run = Run::new().gives(OTHER, 22, GIB);
            let seq = run.trace.refuse(3 * GIB);
            full(&mut run.trace, seq, 24 * GIB, HELD, 2 * GIB);
            (0..22).for_each(|block| _ = run.trace.free_tensor(SEGMENT + block * GIB));
            run.trace.free(SEGMENT);
            run.trace.alloc(SEGMENT, 3 * GIB);
            Scene { trace: run.trace }
        },
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Found(Probable),
        also: FULL,
        story: "thirty batches of 1 GiB fit, and one of 3 does not, of which another layer had taken more than ever before",
        scene: || batches_and(3 * GIB / 2).fails(FORWARD, 3 * GIB),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Found(Possible),
        also: FULL,
        story: "the same, and a model came to the card after the first steps: it may be a larger one, and the batch as before",
        scene: || batches_and(3 * GIB / 2).gives(LOAD, 1, 64 * MIB).fails(FORWARD, 3 * GIB),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Not,
        also: FULL,
        story: "the same, and the other layer had taken no more than before: one layer is larger, and not the batch",
        scene: || batches_and(GIB / 2).fails(FORWARD, 3 * GIB),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Found(Possible),
        also: FULL,
        story: "the first request of a batch says nothing of its other layers",
        scene: || trained(30).gives(OTHER, 18, GIB).fails(FORWARD, 3 * GIB),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Found(Possible),
        also: FULL,
        story: "the same, and other layers of that batch had their 3 GiB by the same way already",
        scene: || trained(30).gives(OTHER, 12, GIB).gives(FORWARD, 2, 3 * GIB).fails(FORWARD, 3 * GIB),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Found(Probable),
        also: FULL,
        story: "each batch is longer than the last: the segments that stay rise with it, and no block stays",
        scene: || longer_and_longer(30).gives(OTHER, 18, GIB).passes(DEEPER, GIB).fails(FORWARD, 3 * GIB),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Not,
        also: FULL,
        story: "three batches are none to compare with",
        scene: || trained(3).gives(OTHER, 18, GIB).fails(FORWARD, 3 * GIB),
    },
    Labelled {
        id: "oom-longest-batch",
        says: Says::Not,
        also: FULL,
        story: "the batch is as large as those before",
        scene: || trained(30).gives(OTHER, 19, GIB).fails(FORWARD, GIB),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Found(Probable),
        also: FULL,
        story: "behind a training with blocks of 1 GiB, the evaluation asks for more at both lines of the model",
        scene: || {
            let run = stepped(5).passes(FORWARD, GIB).passes(BACKWARD, GIB).gives(OTHER, 18, GIB);
            run.passes(EVALUATION, GIB * 3 / 2).fails(EVALUATION_HEAD, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Found(Possible),
        also: FULL,
        story: "the same at one of them: another head for the evaluation asks like that, too",
        scene: || trained(5).gives(OTHER, 18, GIB).fails(EVALUATION, 3 * GIB),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Not,
        also: FULL,
        story: "what the training went through gets as much as there: a line that only the evaluation has asks for 3 GiB",
        scene: || trained(5).gives(OTHER, 18, GIB).passes(EVALUATION, GIB).fails(EVALUATION_HEAD, 3 * GIB),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Not,
        also: FULL,
        story: "the evaluation asks for no more than the training did",
        scene: || trained(5).gives(OTHER, 19, GIB).fails(EVALUATION, GIB),
    },
    Labelled {
        id: "oom-eval-accumulation",
        says: Says::Found(Probable),
        also: FULL,
        story: "fifteen blocks of one line of the evaluation live",
        scene: || trained(5).gives(EVALUATION, 15, GIB).gives(OTHER, 3, GIB).fails(EVALUATION, GIB),
    },
    Labelled {
        id: "oom-eval-accumulation",
        says: Says::Not,
        also: FULL,
        story: "two blocks are what any forward pass has",
        scene: || trained(5).gives(EVALUATION, 2, GIB).gives(OTHER, 16, GIB).fails(EVALUATION, GIB),
    },
    Labelled {
        id: "oom-eval-accumulation",
        says: Says::Found(Possible),
        also: FULL,
        story: "fifteen blocks of a line of the program's own `validate` live, which is in no package",
        scene: || trained(5).gives(VALIDATE, 15, GIB).gives(OTHER, 3, GIB).fails(VALIDATE, GIB),
    },
    Labelled {
        id: "oom-eval-accumulation",
        says: Says::Not,
        also: FULL,
        story: "the same of a function that is called so and calls no module",
        scene: || trained(5).gives(EVALUATE, 15, GIB).gives(OTHER, 3, GIB).fails(EVALUATE, GIB),
    },
    Labelled {
        id: "oom-eval-accumulation",
        says: Says::Found(Probable),
        also: FULL,
        story: "fifteen results of a decorated `predict` live, and it puts them together itself",
        scene: || trained(5).gives(PREDICT, 15, GIB).gives(OTHER, 3, GIB).fails(TOGETHER, 15 * GIB),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Not,
        also: &["true-capacity", "oom-eval-accumulation"],
        story: "the same: what puts results together is no batch",
        scene: || trained(5).gives(PREDICT, 15, GIB).gives(OTHER, 3, GIB).fails(TOGETHER, 15 * GIB),
    },
    Labelled {
        id: "oom-eval-accumulation",
        says: Says::Not,
        also: FULL,
        story: "weights are averaged without gradients, too, in a function that is not called after an evaluation",
        scene: || trained(5).gives(AVERAGE, 15, GIB).gives(OTHER, 3, GIB).fails(AVERAGE, 3 * GIB),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Found(Possible),
        also: FULL,
        story: "a forward pass in the program's own `validate` asks for three times what the training did, at a line of its own",
        scene: || trained(5).gives(OTHER, 18, GIB).fails(VALIDATE, 3 * GIB),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Found(Possible),
        also: FULL,
        story: "as much had come by the same way: whether to an earlier batch, or to another layer of this one, nobody knows",
        scene: || trained(5).passes(VALIDATE, GIB * 3 / 2).gives(OTHER, 18, GIB).fails(VALIDATE, GIB * 3 / 2),
    },
    Labelled {
        id: "oom-eval-batch",
        says: Says::Not,
        also: FULL,
        story: "what is called `validate` is a part of each training step, and took as much there",
        scene: || {
            let run = (0..5).fold(Run::new().gives(STEP, 1, GIB), |run, _| {
                run.passes(VALIDATE, GIB * 3 / 2).passes(BACKWARD, GIB / 2)
            });
            run.gives(OTHER, 18, GIB).fails(VALIDATE, GIB * 3 / 2)
        },
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Found(Probable),
        also: FULL,
        story: "behind five steps eighteen forward passes come that no backward pass follows, and each keeps the four blocks that one pass takes",
        scene: || {
            let run = (0..5).fold(Run::new().gives(STEP, 1, GIB), |run, _| {
                (0..4).fold(run, |run, _| run.passes(DEEPER, GIB / 4)).passes(BACKWARD, GIB)
            });
            run.gives(SCORE, 72, GIB / 4).fails(SCORE, 3 * GIB)
        },
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Found(Possible),
        also: FULL,
        story: "the same with one block, which may be a pass's result: results are kept without gradients, too",
        scene: || stepped(5).gives(SCORE, 18, GIB).fails(SCORE, 3 * GIB),
    },
    Labelled {
        id: "oom-first-forward",
        says: Says::Not,
        also: FULL,
        story: "the same, and the model's line takes eighteen blocks in each pass: this is one pass",
        scene: || {
            let run = (0..5).fold(Run::new().gives(STEP, 1, GIB), |run, _| {
                let run = (0..18).fold(run, |run, _| run.passes(DEEPER, GIB));
                run.passes(BACKWARD, GIB)
            });
            run.gives(SCORE, 18, GIB).fails(SCORE, 3 * GIB)
        },
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &["true-capacity", "oom-first-backward"],
        story: "forty gradients come in one backward pass, between blocks that go: these are no steps",
        scene: || {
            let pass = (0..40).fold(Run::new().gives(FORWARD, 1, GIB), |run, _| {
                run.gives(BACKWARD, 1, 256 * MIB).passes(BACKWARD, GIB)
            });
            pass.gives(BACKWARD, 8, GIB).fails(BACKWARD, 3 * GIB)
        },
    },
];

/// The card is full, whoever filled it.
const FULL: &[&str] = &["true-capacity"];
/// Where the segment lies, and how large it is; the card has 2 GiB more than it.
const SEGMENT: u64 = 0x10_0000_0000;
const HELD: u64 = 22 * GIB;

/// Call sites, by the places in [`WAYS`].
const OTHER: u32 = 20;
const LOAD: u32 = 21;
const STATE: u32 = 22;
const FORWARD: u32 = 23;
const DEEPER: u32 = 24;
const BACKWARD: u32 = 25;
const STEP: u32 = 26;
const LATER_STEP: u32 = 27;
const EVALUATION: u32 = 28;
/// A way on which nobody looked for Python's frames.
const UNSEEN: u32 = 29;
/// The model's own line again, called by another function of the program's; and two functions of the program's that evaluate.
const SCORE: u32 = 30;
const EVALUATE: u32 = 31;
/// A forward pass in the program's own `validate`; one in a function that is decorated with `no_grad`; what that function and another
/// one that is so decorated take themselves.
const VALIDATE: u32 = 32;
const PREDICT: u32 = 33;
const TOGETHER: u32 = 34;
const AVERAGE: u32 = 35;
/// Where the first gradient of a backward pass is made.
const BEGINS: u32 = 36;
/// The model's own line in an evaluation.
const EVALUATION_HEAD: u32 = 37;

/// Files and functions on the ways, innermost first, under the folder of installed packages where there is no `/` before them.
const WAYS: &[(u32, &[(&str, &str)])] = &[
    (OTHER, &[("/home/me/train.py", "prepare")]),
    (LOAD, &[("torch/nn/modules/module.py", "Module.to"), ("/home/me/train.py", "main")]),
    (STATE, &[("torch/optim/optimizer.py", "Optimizer.load_state_dict"), ("/home/me/train.py", "main")]),
    (FORWARD, &[CALL, ("/home/me/train.py", "train")]),
    (DEEPER, &[("/home/me/model.py", "Net.head"), CALL, ("/home/me/train.py", "train")]),
    (BACKWARD, &[("torch/autograd/graph.py", "_engine_run_backward"), BACKWARD_CALL, ("/home/me/train.py", "train")]),
    (STEP, &[("torch/optim/adam.py", "Adam._init_group"), ("torch/optim/adam.py", "Adam.step"), WRAPPER]),
    (LATER_STEP, &[("torch/optim/adam.py", "_multi_tensor_adam"), ("torch/optim/adam.py", "Adam.step"), WRAPPER]),
    (EVALUATION, &[CALL, ("transformers/trainer.py", "Trainer.evaluation_loop"), ("/home/me/train.py", "main")]),
];
const MORE_WAYS: &[(u32, &[(&str, &str)])] = &[
    (
        EVALUATION_HEAD,
        &[
            ("/home/me/model.py", "Net.head"),
            CALL,
            ("transformers/trainer.py", "Trainer.evaluation_loop"),
            ("/home/me/train.py", "main"),
        ],
    ),
    (SCORE, &[("/home/me/model.py", "Net.head"), CALL, ("/home/me/train.py", "score")]),
    (EVALUATE, &[("/home/me/train.py", "evaluate"), ("/home/me/train.py", "main")]),
    (
        VALIDATE,
        &[("/home/me/model.py", "Net.scores"), CALL, ("/home/me/train.py", "validate"), ("/home/me/train.py", "main")],
    ),
    (PREDICT, &[CALL, ("/home/me/train.py", "predict"), NO_GRAD, ("/home/me/train.py", "main")]),
    (TOGETHER, &[("/home/me/train.py", "predict"), NO_GRAD, ("/home/me/train.py", "main")]),
    (AVERAGE, &[("/home/me/train.py", "average"), NO_GRAD, ("/home/me/train.py", "main")]),
    (BEGINS, &[("torch/autograd/__init__.py", "_make_grads"), BACKWARD_CALL, ("/home/me/train.py", "train")]),
];
const NO_GRAD: (&str, &str) = ("torch/utils/_contextlib.py", "no_grad");
const BACKWARD_CALL: (&str, &str) = ("torch/autograd/__init__.py", "backward");
const CALL: (&str, &str) = ("torch/nn/modules/module.py", "Module._call_impl");
const WRAPPER: (&str, &str) = ("torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper");

/// A run whose allocator holds one segment of 22 GiB, on a card of 24.
struct Run {
    trace: TraceBuilder,
    next: u64,
}

impl Run {
    fn new() -> Self {
        Run::with_segment(HELD)
    }

    fn with_segment(bytes: u64) -> Self {
        let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
        trace.process.executable = "/usr/bin/python3".into();
        // One function is one line, whichever way leads through it.
        let mut known: Vec<(&str, &str)> = Vec::new();
        for (site, way) in WAYS.iter().chain(MORE_WAYS) {
            let mut python = Vec::new();
            for (file, function) in *way {
                let place = known.iter().position(|known| known == &(*file, *function)).unwrap_or_else(|| {
                    known.push((file, function));
                    known.len() - 1
                });
                let code = place as u32 + 1;
                let folder = if file.starts_with('/') { "" } else { "/usr/lib/python3/dist-packages/" };
                trace.code(code, &format!("{folder}{file}"), function);
                python.push(PythonFrame { code, line: 10 + code });
            }
            // One line takes its blocks in one place of PyTorch, whoever calls it.
            let operator = python.first().map_or(0, |frame| u64::from(frame.code));
            trace.stack(*site, &[0x7000_0000 + 8 * operator], &python);
        }
        trace.stack(UNSEEN, &[0x7000_0400], &[]);
        trace.alloc(SEGMENT, bytes);
        trace.reserved(0, bytes);
        Run { trace, next: SEGMENT }
    }

    /// So many blocks of this size come by a way, and stay.
    fn gives(mut self, site: u32, blocks: u64, bytes: u64) -> Self {
        self.trace.site = site;
        for _ in 0..blocks {
            self.trace.tensor(0, self.next, bytes);
            self.next += bytes;
        }
        self
    }

    /// One block comes by a way, and goes.
    fn passes(mut self, site: u32, bytes: u64) -> Self {
        self.trace.site = site;
        self.trace.tensor(0, SEGMENT + HELD - 2 * GIB, bytes);
        self.trace.free_tensor(SEGMENT + HELD - 2 * GIB);
        self
    }

    /// No block comes by a way: PyTorch asks twice and raises an error, which ends the program.
    fn fails(mut self, site: u32, bytes: u64) -> Scene {
        self = self.raises(site, bytes);
        self.trace.end(process::EXITS, 1);
        Scene { trace: self.trace }
    }

    /// The same, and the program catches it.
    fn raises(mut self, site: u32, bytes: u64) -> Self {
        let used = self.next - SEGMENT;
        self.trace.site = site;
        for _ in 0..2 {
            let seq = self.trace.refuse(bytes.max(2 * GIB + 2 * MIB));
            full(&mut self.trace, seq, 24 * GIB, HELD, 2 * GIB);
        }
        self.trace.no_tensor(0, bytes);
        let in_gib = |bytes: u64| bytes as f64 / GIB as f64;
        let text = format!(
            "CUDA out of memory. Tried to allocate {0:.2} GiB. GPU 0 has a total capacity of 24.00 GiB of which 2.00 GiB is free. Of the \
             allocated memory {1:.2} GiB is allocated by PyTorch, and {2:.2} GiB is reserved by PyTorch but unallocated.",
            in_gib(bytes),
            in_gib(used),
            in_gib(HELD - used)
        );
        self.trace.throws(THREAD, 0x5555_0000_1000 + self.next, Some(&text));
        self
    }
}

/// A training whose batches grow, and with them what its allocator holds.
fn longer_and_longer(steps: u64) -> Run {
    let mut run = Run::with_segment(HELD - steps * 20 * MIB).gives(STEP, 1, GIB);
    for step in 0..steps {
        let held = HELD - (steps - step) * 20 * MIB;
        run.trace.alloc(0x80_0000_0000, GIB);
        run.trace.reserved(0, held + GIB);
        run = run.passes(DEEPER, GIB / 4).passes(FORWARD, GIB / 2 + step * 20 * MIB).passes(BACKWARD, GIB / 2);
        run.trace.free(0x80_0000_0000);
        run.trace.alloc(SEGMENT + held, 20 * MIB);
        run.trace.reserved(0, held + 20 * MIB);
    }
    run
}

/// Thirty steps, in each of which another layer takes half of what the first takes, and the beginning of one more.
fn batches_and(other_bytes: u64) -> Run {
    let run = (0..30).fold(Run::new().gives(STEP, 1, GIB), |run, _| {
        run.passes(DEEPER, GIB / 2).passes(FORWARD, GIB).passes(BACKWARD, GIB)
    });
    run.gives(OTHER, 18, GIB).passes(DEEPER, other_bytes)
}

/// A model that is loaded, and a forward pass of it.
fn before_backward() -> Run {
    Run::new().gives(LOAD, 4, GIB).gives(FORWARD, 14, GIB)
}

/// Steps by the model's own line.
fn stepped(steps: u64) -> Run {
    let run = Run::new().gives(STEP, 1, GIB);
    (0..steps).fold(run, |run, _| run.passes(DEEPER, GIB).passes(BACKWARD, GIB))
}

/// A training that did so many steps with blocks of 1 GiB, of which the optimizer kept one.
fn trained(steps: u64) -> Run {
    let run = Run::new().gives(STEP, 1, GIB);
    (0..steps).fold(run, |run, _| run.passes(FORWARD, GIB).passes(BACKWARD, GIB))
}

/// What an evaluation puts together are its outputs: what makes a training smaller does not make them smaller.
#[test]
fn outputs_that_are_put_together_belong_on_the_host() {
    let advice = |scene: Scene| {
        let steps = crate::testing::summary(&scene.trace).conclusion.ladder.steps;
        steps.into_iter().map(|step| format!("{} {}", step.fix.command, step.fix.why)).collect::<Vec<_>>().join("\n")
    };
    let outputs = advice(trained(5).gives(PREDICT, 15, GIB).gives(OTHER, 3, GIB).fails(TOGETHER, 8 * GIB));
    assert!(outputs.contains(".cpu()"), "{outputs}");
    for text in ["micro-batches", "activation checkpointing", "8-bit", "LoRA"] {
        assert!(!outputs.contains(text), "{text}: {outputs}");
    }
    let training = advice(trained(5).gives(OTHER, 18, GIB).fails(FORWARD, 8 * GIB));
    assert!(training.contains("micro-batches") && !training.contains(".cpu()"), "{training}");
}

/// What an earlier pass took that failed lives on with its error: where that is kept, a smaller batch is no remedy.
#[test]
fn an_error_that_is_kept_keeps_what_its_pass_took() {
    let of_second = |run: Run| {
        let summary = crate::testing::summary(&run.fails(DEEPER, 4 * GIB).trace);
        let is_it = |finding: &&crate::conclusion::finding::Finding| {
            finding.id == "oom-first-forward" && finding.ooms.contains(&2)
        };
        let forward = summary.conclusion.findings.iter().find(is_it).map(|finding| finding.confidence);
        let says = summary.conclusion.ladder.steps.iter().any(|step| step.fix.why.contains("str(error)"));
        (forward, says)
    };
    let failed = || Run::new().gives(LOAD, 4, GIB).gives(FORWARD, 14, GIB).raises(DEEPER, 6 * GIB);
    assert_eq!(of_second(failed().gives(FORWARD, 2, GIB)), (Some(Possible), true));
    let alone =
        crate::testing::summary(&Run::new().gives(LOAD, 4, GIB).gives(FORWARD, 16, GIB).fails(DEEPER, 4 * GIB).trace);
    assert!(alone.conclusion.ladder.steps.iter().all(|step| !step.fix.why.contains("str(error)")));
}

/// Where a backward pass holds hardly an activation any more, fewer of them free nothing.
#[test]
fn activations_are_no_advice_where_gradients_are_held() {
    let advises = |activations: u64| {
        let run = Run::new().gives(LOAD, 10, GIB).gives(FORWARD, activations, GIB).passes(BEGINS, MIB);
        let scene = run.gives(BACKWARD, 10 - activations, GIB).fails(BACKWARD, 5 * GIB);
        let steps = crate::testing::summary(&scene.trace).conclusion.ladder.steps;
        steps.iter().any(|step| step.fix.why.contains("activation checkpointing"))
    };
    assert_eq!([advises(8), advises(1)], [true, false]);
}
