//! A. Capacity and the shape of requests.

use crate::machine::Machine;
use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable, Proven};
use crate::scene::{Scene, scene};

/// 40 % of the card.
const TWO_FIFTHS: u64 = 10_301_210_624;
/// Half of it.
const HALF: u64 = 12_876_513_280;

const ALLOWED: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of \
    23.98 GiB of which 20.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.00 MiB is allocated by PyTorch, with \
    17.00 MiB allocated in private pools (e.g., CUDA Graphs), and 72.00 MiB is reserved by PyTorch but unallocated.\n";

pub(crate) fn scenes() -> Vec<Scene> {
    [sizes(), ceilings(), uses()].concat()
}

fn sizes() -> Vec<Scene> {
    let cpx = |says, story| {
        scene("partition-slice", says, story, "alloc a 1G; sleep 250")
            .on(Machine::of("mi300x"))
            .set("SIM_CAPACITY", 25_757_220_864_u64)
            .set("SIM_SYSFS_CARD", "")
    };
    vec![
        scene(
            "true-capacity",
            First(Probable),
            "22 of 24 GiB are held, 4 more are asked for",
            "push 1G 22; alloc b 4G",
        ),
        scene("true-capacity", First(Probable), "19 of 24 GiB are held", "push 1G 19; alloc b 6G"),
        scene("true-capacity", First(Probable), "the same over CUDA", "push 1G 23; alloc b 4G").cuda(),
        scene("true-capacity", Not, "the program holds half, another process the rest", "push 1G 12; alloc b 4G")
            .on(others(11))
            .set("SIM_OTHERS", "11G")
            .also(&["other-process-on-gpu"]),
        scene("request-exceeds-device", First(Proven), "77 GiB at once on a card of 24", "alloc a 1G; alloc b 77G"),
        scene("request-exceeds-device", Not, "23 GiB on a card of 24 that holds 22", "push 1G 22; alloc b 23G")
            .also(&["true-capacity"]),
        cpx(Found(Proven), "an eighth of an MI300X in CPX mode").set("SIM_PCI_BUS_ID", "0000:26:00.0"),
        cpx(Not, "a whole card").on(Machine::card()).set("SIM_PCI_BUS_ID", "0000:03:00.0"),
    ]
}

/// A card of which another process holds so much.
pub(crate) fn others(gib: u64) -> Machine {
    Machine::card().with("sys/class/kfd/kfd/proc/1/vram_51312", gib << 30)
}

fn ceilings() -> Vec<Scene> {
    let single = |says, story, script: &str| {
        scene("single-alloc-cap", says, story, script)
            .set("GPU_SINGLE_ALLOC_PERCENT", 40)
            .set("SIM_LARGEST_REQUEST", TWO_FIFTHS)
    };
    let heap = |says, story, percent: u64| {
        scene("process-fraction-cap", says, story, "push 1G 11; alloc b 4G")
            .set("GPU_MAX_HEAP_SIZE", percent)
            .set("SIM_PROCESS_LIMIT", HALF)
    };
    vec![
        single(
            First(Probable),
            "12 GiB at once with a cap of 40 %, and nothing below the runtime was seen",
            "alloc a 1G; alloc b 12G",
        ),
        single(Not, "8 GiB are below the cap", "alloc a 1G; alloc b 8G")
            .set("SIM_PROCESS_LIMIT", "5G")
            .also(&["phantom-free"]),
        heap(Found(Possible), "GPU_MAX_HEAP_SIZE=50, 11 GiB are held, 4 more are asked for", 50)
            .also(&["phantom-free"]),
        heap(Not, "GPU_MAX_HEAP_SIZE=90 leaves enough room", 90).also(&["phantom-free"]),
        scene(
            "process-fraction-cap",
            Found(Possible),
            "JAX has a share, and ends with an error although no call failed",
            "alloc a 12G; sleep 250; exit 1",
        )
        .library("xla_extension.so")
        .set("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5"),
        scene(
            "process-fraction-cap",
            First(Proven),
            "PyTorch's message: 1.05 GiB allowed, and no call failed",
            "alloc a 1G; sleep 250; exit 1",
        )
        .torch("2.10.0+rocm7.0", "7.0.51831")
        .set("SIM_HIP_VERSION", 70_051_831)
        .given("--torch-log", ALLOWED),
    ]
}

fn uses() -> Vec<Scene> {
    let burst = |says, story, taken: &str, asks: &str| {
        let script =
            format!("through {{lib}}/xla_extension.so; alloc a {taken}; sleep 20; through {{lib}}/{asks}; alloc b 8G");
        scene("preallocation-by-framework", says, story, script)
            .library("xla_extension.so")
            .library("libtorch_hip.so")
            .also(&["true-capacity"])
    };
    let lengths = |says, story, sizes: [&str; 4]| {
        let [a, b, c, last] = sizes;
        let run = |length, size| format!("mark forward_seq={length}; push 16M; push {size}; pop 2;");
        let script = format!(
            "push 1G 12; {} {} {} mark forward_seq=16384; alloc x {last}",
            run(1024, a),
            run(2048, b),
            run(4096, c)
        );
        scene("attention-quadratic", says, story, script)
    };
    let loaded = |says, story, weights: u64| {
        let script =
            format!("alloc w {weights}G; mark model_loaded; push 1G {}; mark backward; alloc b 2G", 23 - weights);
        scene("training-state-exceeds-card", says, story, script).also(&["true-capacity"])
    };
    vec![
        burst(
            Found(Probable),
            "JAX takes three quarters of the card, then another library finds no room",
            "18G",
            "libtorch_hip.so",
        ),
        burst(Not, "the library that is refused took the large block itself", "18G", "xla_extension.so"),
        lengths(
            Found(Probable),
            "the largest request grows with the square of the length",
            ["64M", "256M", "1G", "16G"],
        ),
        lengths(Not, "it grows with the length itself: fused attention", ["1G", "2G", "4G", "16G"]),
        loaded(Found(Probable), "16 GiB of weights, and labels of a training: 72 with optimizer and gradients", 16),
        scene(
            "training-state-exceeds-card",
            Found(Possible),
            "16 GiB of weights, and nothing says that they are trained",
            "alloc w 16G; mark model_loaded; push 1G 7; alloc b 2G",
        )
        .also(&["true-capacity"]),
        loaded(Found(Possible), "4 GiB of weights: too much if they have two bytes each", 4),
        loaded(Not, "1 GiB of weights: the state fits either way", 1),
        scene(
            "fixed-vs-activation",
            Found(Probable),
            "4 GiB after each step, 20 at its peak",
            "alloc f 4G; loop 8; mark forward; push 8G 2; launch; pop; end; push 8G 2; alloc x 8G",
        )
        .also(&["true-capacity"]),
        scene(
            "fixed-vs-activation",
            Found(Possible),
            "the same of a program whose cycles have no names",
            "alloc f 4G; loop 8; push 8G 2; launch; pop; end; push 8G 2; alloc x 8G",
        )
        .also(&["true-capacity"]),
        scene(
            "fixed-vs-activation",
            Found(Probable),
            "batches of 1, 2 and 4, and the peaks grow with them",
            "alloc f 2G; mark forward_batch=1; push 2G 2; launch; pop; mark forward_batch=2; push 4G 2; launch; pop; \
             mark forward_batch=4; push 8G 2; launch; pop; mark forward_batch=8; push 11G 2; alloc x 8G",
        )
        .also(&["true-capacity"]),
        scene(
            "fixed-vs-activation",
            Not,
            "16 GiB stay after each step",
            "alloc f 16G; loop 8; push 2G 2; launch; pop; end; push 2G 2; alloc x 8G",
        )
        .also(&["true-capacity"]),
        scene(
            "repeated-large-temporaries",
            Found(Possible),
            "twelve pieces of work of different size",
            "alloc f 2G; loop 3; loop 4; push 4G+1G 2; pop; end; end; push 7G 2; alloc x 8G",
        ),
        scene(
            "repeated-large-temporaries",
            Not,
            "the same with constant sizes: a training",
            "alloc f 2G; loop 12; push 8G 2; pop; end; push 8G 2; alloc x 8G",
        ),
    ]
}
