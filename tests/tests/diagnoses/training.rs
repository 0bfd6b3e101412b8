//! H. Where in a training a failure came.

use crate::machine::Machine;
use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable};
use crate::scene::{Scene, scene};

/// Parameters of a small model, all different.
pub(crate) const LOAD: &str = "push 96M; push 33M; push 40M; push 21M; push 57M; push 12M; push 71M; push 84M; push 18M; push 29M; \
                               push 45M; push 63M;";
/// The same once more in reverse.
const GRADIENTS: &str = "push 63M; push 45M; push 29M; push 18M; push 84M; push 71M; push 12M; push 57M; push 21M; push 40M; push 33M; \
                         push 96M;";
/// A step: activations, gradients in reverse, and all back.
pub(crate) const STEP: &str = "push 200M; push 201M; push 202M; push 203M; push 204M; push 205M; push 206M; push 207M; push 63M; \
                               push 45M; push 29M; push 18M; push 84M; push 71M; push 12M; push 57M; push 21M; push 40M; push 33M; \
                               push 96M; launch; pop 20;";
/// What the card of 24 GiB can't give beside the model.
const TOO_MUCH: &str = "alloc x 24400M";

pub(crate) fn scenes() -> Vec<Scene> {
    [beginning(), optimizer(), later()].concat()
}

fn beginning() -> Vec<Scene> {
    let forward = "push 200M; push 201M; push 202M; push 203M;";
    vec![
        scene(
            "oom-model-load",
            Found(Probable),
            "blocks of different sizes, a label, and the next fails",
            format!("mark load_weights; {LOAD} {TOO_MUCH}"),
        ),
        scene("oom-model-load", Not, "a step came before it", format!("{LOAD} {STEP} {TOO_MUCH}")),
        scene(
            "oom-model-load",
            Not,
            "others held 6 of 24 GiB before the load",
            format!("mark load_weights; {LOAD} {TOO_MUCH}"),
        )
        .on(Machine::card().with("sys/class/kfd/kfd/proc/1/vram_51312", 6_u64 << 30))
        .set("SIM_OTHERS", "6G")
        .also(&["other-process-on-gpu"]),
        scene(
            "oom-first-forward",
            Found(Probable),
            "activations behind the load, and a label, in a process with PyTorch",
            format!("{LOAD} sleep 50; mark forward; {forward} {TOO_MUCH}"),
        )
        .library("libtorch_hip.so"),
        scene(
            "oom-first-forward",
            Found(Possible),
            "the same label without a framework: other things than a network have a forward pass",
            format!("{LOAD} sleep 50; mark forward; {forward} {TOO_MUCH}"),
        ),
        scene(
            "oom-first-forward",
            Found(Possible),
            "the same without a label",
            format!("{LOAD} sleep 200; {forward} {TOO_MUCH}"),
        ),
        scene(
            "oom-first-forward",
            Not,
            "the sizes of the parameters come again: gradients",
            format!("{LOAD} sleep 200; {GRADIENTS} {TOO_MUCH}"),
        ),
        scene(
            "oom-first-backward",
            Found(Possible),
            "activations, and then the sizes of the parameters in reverse",
            format!("{LOAD} sleep 200; {forward} {GRADIENTS} {TOO_MUCH}"),
        ),
        scene(
            "oom-first-backward",
            Found(Probable),
            "the same, and a label",
            format!("{LOAD} sleep 200; {forward} mark backward; {GRADIENTS} {TOO_MUCH}"),
        ),
        scene(
            "oom-first-backward",
            Not,
            "the sizes of the parameters in the order of the load",
            format!("{LOAD} sleep 200; {forward} {LOAD} {TOO_MUCH}"),
        ),
    ]
}

/// A step, and then so many times each parameter's size.
fn optimizer() -> Vec<Scene> {
    let states =
        "push 96M 2; push 33M 2; push 40M 2; push 21M 2; push 57M 2; push 12M 2; push 71M 2; push 84M 2; push 18M 2;";
    vec![
        scene(
            "oom-optimizer-step",
            Found(Possible),
            "one step, and then each parameter's size twice",
            format!("{LOAD} sleep 200; {STEP} {states} {TOO_MUCH}"),
        ),
        scene(
            "oom-optimizer-step",
            Found(Probable),
            "the same, and a label",
            format!("{LOAD} sleep 200; {STEP} mark optimizer_step; {states} {TOO_MUCH}"),
        ),
        scene(
            "oom-optimizer-step",
            Not,
            "four steps came before it",
            format!("{LOAD} sleep 200; loop 4; {STEP} end; {states} {TOO_MUCH}"),
        ),
    ]
}

fn later() -> Vec<Scene> {
    // Two lines ask in each batch. A longer one makes what either asks for larger.
    let batches = |count: u64, label: &str, last: &str| {
        let mask = |size: &str| format!("through {{lib}}/libmask.so; alloc mask {size}; through {{lib}}/liblayers.so;");
        let batch = format!("{label} {} push 205001K+41001K 8; launch; pop 8; free mask;", mask("20M"));
        format!("{LOAD} loop {count}; loop 5; {batch} end; end; {} push 24400M", mask(last))
    };
    let longest = |says, story, script: String| {
        scene("oom-longest-batch", says, story, script).library("libmask.so").library("liblayers.so")
    };
    let evaluation = |keep: &str| {
        format!("{LOAD} loop 6; {STEP} end; mark eval; loop 12; alloc b 300M; {keep} free b; end; {TOO_MUCH}")
    };
    let first_eval =
        |label: &str, asked: &str| format!("{LOAD} loop 6; {label} {STEP} end; mark eval; push 250M; alloc x {asked}");
    vec![
        longest(
            First(Probable),
            "25 batches that differ, as labels say, and then one that is far larger",
            batches(5, "mark batch;", "60M"),
        ),
        longest(Not, "the same, and only one line asks for more than ever", batches(5, "mark batch;", "20M")),
        longest(Found(Possible), "the same without labels", batches(5, "", "60M")),
        longest(Not, "five steps: too few to call the run stable", batches(1, "mark batch;", "60M")),
        scene(
            "oom-eval-accumulation",
            First(Probable),
            "after six steps, 40 MiB of each of twelve batches stay, and a label says evaluation",
            evaluation("push 40M;"),
        ),
        scene("oom-eval-accumulation", Not, "the same, and nothing stays", evaluation("push 40M; pop 1;")),
        scene(
            "oom-eval-batch",
            Found(Possible),
            "the first batch behind the label asks for more than all training did, whose batches have labels",
            first_eval("mark batch;", "24400M"),
        ),
        scene(
            "oom-eval-batch",
            Found(Possible),
            "the same, and no label says that there was a training",
            first_eval("", "24400M"),
        ),
        scene(
            "oom-eval-batch",
            Not,
            "the first batch behind the label asks for less than training did",
            first_eval("mark batch;", "150M"),
        )
        .set("SIM_FAIL_AT", 134)
        .also(&["phantom-free"]),
    ]
}
