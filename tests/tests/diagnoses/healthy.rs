//! Runs in which nothing is wrong, and which a careless eye takes for trouble.

use crate::machine::Machine;
use crate::scene::Says::Healthy;
use crate::scene::{Scene, scene};
use crate::training::{LOAD, STEP};

pub(crate) fn scenes() -> Vec<Scene> {
    let healthy = |story, script: String| scene("", Healthy, story, script);
    vec![
        healthy("a training with equal steps", format!("{LOAD} sleep 20; loop 40; {STEP} end")),
        healthy(
            "a training whose batches differ",
            format!("{LOAD} loop 8; loop 5; push 200M+40M 8; launch; pop 8; end; end"),
        ),
        healthy(
            "a training with optimizer states from the second step on",
            format!("{LOAD} {STEP} push 96M 2; push 84M 2; push 71M 2; loop 30; {STEP} end"),
        ),
        healthy(
            "a cache that rises to a plateau",
            format!(
                "{LOAD} loop 10; push 100M; push 300M 4; launch; pop 4; end; loop 40; push 300M 4; launch; pop 4; end"
            ),
        ),
        healthy(
            "five models one after the other, and nothing stays",
            "loop 5; push 1G 4; launch; sleep 30; pop; sleep 30; end".to_owned(),
        ),
        healthy("modules are loaded at the start", format!("loop 80; module; end; {LOAD} loop 10; {STEP} end")),
        healthy("a full card on which nothing is refused", "push 1G 23; launch; sync".to_owned()),
        healthy(
            "stream-ordered memory in steps, on a pool that keeps it",
            "keep 4G; loop 40; async a 1G; async b 512M; launch; free a; free b; sync; end".to_owned(),
        )
        .set("SIM_HIP_VERSION", 70_051_831),
        healthy(
            "virtual memory that grows and is given back",
            "alloc a 1G; loop 20; virtual v 64M+2M; launch; free v; end".to_owned(),
        )
        .set("SIM_HIP_VERSION", 70_051_831),
        healthy(
            "serving with a cache of a fixed size",
            "alloc w 12G; alloc k 6G; alloc c 2G; loop 50; launch; end".to_owned(),
        )
        .library("libggml-hip.so"),
        healthy(
            "memory that other processes may open, given back",
            "alloc w 1G; loop 20; alloc a 512M; export a; launch; free a; end".to_owned(),
        )
        .set("SIM_HIP_VERSION", 70_051_831),
        healthy("a training over CUDA", format!("{LOAD} loop 30; {STEP} end")).cuda().on(Machine::of("nvidia")),
        healthy("a program that ends with an error of its own", format!("{LOAD} {STEP} exit 1")),
        healthy(
            "pinned memory of a loader, given back",
            "alloc a 1G; loop 20; host h 256M; copy a; free h; end".to_owned(),
        ),
        healthy("other processes hold half of the card, and there is room", "push 1G 4; launch; pop".to_owned())
            .on(Machine::card().with("sys/class/kfd/kfd/proc/1/vram_51312", 12_u64 << 30))
            .set("SIM_OTHERS", "12G"),
    ]
}
