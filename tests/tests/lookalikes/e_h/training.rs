//! What has the shape of a training's part, in programs that train nothing.

use super::{COPIED, FIELDS, REVERSED, TOO_MUCH};
use crate::looks_like;
use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [loads(), forwards(), backwards(), optimizers(), batches(), evaluations()].concat()
}

/// A step of a simulation: temporaries of its own sizes, and all back.
const STEP: &str = "push 200M; push 201M; push 202M; push 203M; push 204M; push 205M; launch; pop 6;";

fn loads() -> Vec<Scene> {
    let load = |story, script: String| looks_like("oom-model-load", story, script).also(&["true-capacity"]);
    vec![
        load("a simulation copies its fields to the card, and the last does not fit", format!("{COPIED} {TOO_MUCH}")),
        load(
            "a database reads its columns, equal ones, until the card is full",
            "loop 60; push 500M; copy -; end".to_owned(),
        ),
        load(
            "a renderer loads textures behind the label `load_textures`",
            format!("mark load_textures; {COPIED} {COPIED} {TOO_MUCH}"),
        ),
        load(
            "a game loads a figure behind the label `load_model`",
            format!("mark load_model; {COPIED} {COPIED} {TOO_MUCH}"),
        ),
        load(
            "tiles of an image, and then the panorama that they are to be stitched into",
            "loop 20; push 96M; copy -; end; launch; alloc p 23G".to_owned(),
        ),
    ]
}

fn forwards() -> Vec<Scene> {
    let forward = |story, script: String| looks_like("oom-first-forward", story, script).also(&["true-capacity"]);
    let temporaries = "push 200M; push 201M; push 202M; push 203M;";
    vec![
        forward(
            "fields of a simulation, a pause for a file, and the temporaries of the first step do not fit",
            format!("{COPIED} sleep 200; {temporaries} {TOO_MUCH}"),
        ),
        forward(
            "a mail relay's label: `forwarding`",
            format!("{FIELDS} sleep 50; mark forwarding; {temporaries} {TOO_MUCH}"),
        ),
        forward(
            "a hidden Markov model's label: `forward`",
            format!("{FIELDS} sleep 50; mark forward; {temporaries} {TOO_MUCH}"),
        ),
        forward(
            "a Fourier transform's label: `fft-forward`",
            format!("{FIELDS} sleep 50; mark fft-forward; {temporaries} {TOO_MUCH}"),
        ),
        forward(
            "columns of a table, a pause until the first query, and its hash tables do not fit",
            format!("{FIELDS} sleep 300; push 1G 3; launch; {TOO_MUCH}"),
        ),
    ]
}

fn backwards() -> Vec<Scene> {
    let backward = |story, script: String| looks_like("oom-first-backward", story, script).also(&["true-capacity"]);
    vec![
        backward(
            "a multigrid solver: levels are made from fine to coarse, corrections from coarse to fine",
            "push 800M; push 400M; push 200M; push 100M; push 50M; push 25M; sleep 200; push 130M; push 131M; push 25M; \
             push 50M; push 100M; push 200M; push 400M; push 800M; alloc x 23G"
                .to_owned(),
        ),
        backward(
            "second buffers of all fields, made in reverse when the first time step begins",
            format!("{COPIED} sleep 200; push 150M; push 151M; {REVERSED} {TOO_MUCH}"),
        ),
        backward(
            "columns are sorted from the last to the first, each into a new one",
            format!("{FIELDS} sleep 200; alloc w 900M; alloc v 901M; {REVERSED} {TOO_MUCH}"),
        ),
    ]
}

fn optimizers() -> Vec<Scene> {
    let optimizer = |story, script: String| looks_like("oom-optimizer-step", story, script).also(&["true-capacity"]);
    let whole_step = format!("push 200M; push 201M; push 202M; push 203M; {REVERSED} launch; pop 16;");
    let twice =
        "push 96M 2; push 33M 2; push 40M 2; push 21M 2; push 57M 2; push 12M 2; push 71M 2; push 84M 2; push 18M 2;";
    vec![
        optimizer(
            "a Runge-Kutta scheme: after a first step by Euler, two more arrays for each field",
            format!("{FIELDS} sleep 200; {whole_step} {twice} {TOO_MUCH}"),
        ),
        optimizer(
            "a table: after the first query, an index and its reverse for each column",
            format!("{COPIED} sleep 100; {whole_step} sleep 100; {twice} {TOO_MUCH}"),
        ),
        optimizer(
            "a mean and a variance for each field, once the first step has run",
            format!("{FIELDS} {STEP} {twice} {TOO_MUCH}"),
        ),
    ]
}

fn batches() -> Vec<Scene> {
    let batch = |story, script: String| looks_like("oom-longest-batch", story, script);
    let differing = "loop 5; loop 5; push 205001K+41001K 8; launch; pop 8; end; end;";
    vec![
        batch("25 queries of different sizes, and then a join that is far larger", format!("{FIELDS} {differing} {TOO_MUCH}"))
            .also(&["true-capacity"]),
        batch(
            "25 frames of different scenes, and then a picture for print, from another thread",
            format!("{FIELDS} {differing} thread export; {TOO_MUCH}; end"),
        )
        .also(&["true-capacity"]),
        batch(
            "a simulation of differing steps is over, and its result is to be sorted",
            format!("{FIELDS} {differing} sleep 300; pop; alloc r 8G; alloc s 20G"),
        )
        .also(&["true-capacity"]),
        batch(
            "requests of different sizes to a service, each of which also leaves 400 MiB; the last would have fitted at first",
            format!("{FIELDS} loop 6; loop 5; alloc a 205001K+41001K; alloc b 300M; push 400M; launch; free b; free a; end; end; push 1G 14"),
        )
        .also(&["true-capacity", "live-leak"]),
    ]
}

fn evaluations() -> Vec<Scene> {
    let grows = |story, script: String| looks_like("oom-eval-accumulation", story, script);
    let larger = |story, script: String| looks_like("oom-eval-batch", story, script).also(&["true-capacity"]);
    vec![
        grows(
            "after six equal steps, a simulation keeps a snapshot of each further step",
            format!("{FIELDS} loop 6; {STEP} end; loop 12; alloc b 300M; push 40M; free b; end; {TOO_MUCH}"),
        )
        .also(&["live-leak", "true-capacity"]),
        grows(
            "a service: six calls to warm up, and then sessions, each of which keeps its state",
            format!("{FIELDS} loop 6; {STEP} end; loop 40; alloc b 300M; push 560M; free b; end"),
        )
        .also(&["live-leak", "true-capacity"]),
        grows(
            "a renderer: six frames, and then twelve more whose tiles stay until the picture is whole",
            format!("{FIELDS} loop 6; {STEP} end; loop 12; alloc b 300M; push 700M; free b; end; sleep 20; alloc picture 18G"),
        )
        .also(&["live-leak", "true-capacity"]),
        larger(
            "a label that names another evaluation: `evaluate_forces`",
            format!("{FIELDS} loop 6; {STEP} end; mark evaluate_forces; push 250M; {TOO_MUCH}"),
        ),
        larger(
            "a polynomial is evaluated: `eval_poly`",
            format!("{FIELDS} loop 6; {STEP} end; mark eval_poly; push 250M; {TOO_MUCH}"),
        ),
        larger(
            "the same label stood before each of the six steps, which fitted",
            format!("{FIELDS} loop 6; mark eval; {STEP} end; mark eval; push 250M; {TOO_MUCH}"),
        ),
        larger(
            "after six steps the simulation asks for a picture of all fields, without a label",
            format!("{FIELDS} loop 6; {STEP} end; sleep 100; push 250M; {TOO_MUCH}"),
        ),
    ]
}
