//! E. Leaks.

use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable};
use crate::scene::{Scene, scene};
use crate::training::{LOAD, STEP};

pub(crate) fn scenes() -> Vec<Scene> {
    let swaps = "loop 5; push 1G 4; launch; sleep 250; pop; module; sleep 250; end; push 3G";
    let labelled = "loop 5; mark load_model; push 1G 4; launch; sleep 250; pop; mark unload_model; module; sleep 250; end; push 3G";
    vec![
        scene(
            "live-leak",
            First(Possible),
            "20 MiB of each of 30 steps stay, and nothing fails: it may be a cache that is not full yet",
            format!("{LOAD} loop 30; {STEP} alloc a 20M; end"),
        ),
        scene(
            "live-leak",
            First(Possible),
            "300 MiB of each of 30 steps stay, and then 16 GiB do not fit, which would have fitted at first",
            format!("{LOAD} loop 30; {STEP} alloc a 300M; end; alloc x 16G"),
        )
        .also(&["true-capacity"]),
        scene(
            "live-leak",
            First(Possible),
            "4 MiB of each of 60 steps stay beside 16 GiB",
            "alloc m 16G; loop 60; push 200M 4; launch; pop 4; alloc a 4M; end",
        ),
        scene(
            "live-leak",
            Not,
            "what stays is flat after 12 steps",
            format!("{LOAD} loop 12; {STEP} alloc a 20M; end; loop 28; {STEP} end"),
        ),
        scene(
            "model-swap-residual",
            Found(Probable),
            "200 MiB stay of each of five models, which labels name, by the memory that this process uses",
            labelled,
        )
        .set("SIM_HIDDEN_PER_MODULE", "200M"),
        scene(
            "model-swap-residual",
            Found(Possible),
            "the same without labels: nothing says that these are models",
            swaps,
        )
        .set("SIM_HIDDEN_PER_MODULE", "200M"),
        scene("model-swap-residual", Not, "five models, and nothing stays", labelled),
        scene(
            "module-load-unbalanced",
            Found(Possible),
            "80 modules are loaded over the run and 10 are unloaded",
            "alloc a 1G; loop 10; loop 8; module; sleep 1; end; unload; end",
        ),
        scene(
            "module-load-unbalanced",
            Not,
            "80 modules are loaded, and each is unloaded",
            "alloc a 1G; loop 80; module; unload; end",
        ),
    ]
}
