//! A. Capacity and the shape of requests, I. the host's memory, and J. the hardware.

use crate::looks_like;
use crate::machine::{Machine, ram_bytes};
use crate::scene::Scene;

const GIB: u64 = 1 << 30;

pub(crate) fn scenes() -> Vec<Scene> {
    [
        full_by_something_else(),
        full_for_another_reason(),
        larger_than_the_device(),
        scores(),
        single_allocation_caps(),
        fraction_caps(),
        fraction_messages(),
        preallocations(),
        partitions(),
        training_states(),
        activations(),
        temporaries(),
        kills(),
        groups(),
        bad_pages(),
    ]
    .concat()
}

/// The whole is a card of NVIDIA's: nothing tells how much other processes hold.
fn on_nvidia(scene: Scene) -> Scene {
    scene.cuda().on(Machine::of("nvidia"))
}

/// `true-capacity`: what the program holds and asks for would fit, were it not for something else.
fn full_by_something_else() -> Vec<Scene> {
    let full = |story, script: &str| looks_like("true-capacity", story, script);
    vec![
        on_nvidia(full(
            "22 of 24 GiB are its own, an unseen process holds 1.5, and 1 more is refused",
            "push 1G 22; alloc b 1G",
        ))
        .set("SIM_OTHERS", "1536M")
        .also(&["other-process-on-gpu"]),
        on_nvidia(full(
            "22 of 24 GiB are its own, and what the runtime takes is all the rest",
            "push 1G 22; alloc b 1G",
        ))
        .set("SIM_HIDDEN", "1536M")
        .also(&["hidden-runtime-memory"]),
        full("the same on a machine whose driver counts it", "push 1G 22; alloc b 1G")
            .set("SIM_HIDDEN", "1536M")
            .also(&["hidden-runtime-memory"]),
        full("a desktop holds 1.5 GiB, less than a tenth, and without it 1 more would fit", "push 1G 22; alloc b 1G")
            .set("SIM_OTHERS", "1536M")
            .also(&["other-process-on-gpu"]),
        on_nvidia(full(
            "blocks of 1.75 MiB that take 2 MiB each: the sum of the requests would leave room",
            "push 1792K 11800; alloc b 1G",
        ))
        .also(&["granularity-waste"]),
        on_nvidia(full(
            "20 GiB of managed memory lie in RAM, and an unseen process fills the card",
            "alloc a 3G; managed m 20G; alloc b 4G",
        ))
        .set("SIM_MANAGED_LIMIT", "48G")
        .set("SIM_OTHERS", "20G")
        .also(&["other-process-on-gpu"]),
        full("the same where the driver counts what the process holds", "alloc a 3G; managed m 20G; alloc b 4G")
            .set("SIM_MANAGED_LIMIT", "48G")
            .set("SIM_OTHERS", "20G")
            .also(&["other-process-on-gpu"]),
        full(
            "20 GiB of managed memory in RAM, an empty card, and a ceiling that nobody names",
            "alloc a 3G; managed m 20G; alloc b 4G",
        )
        .set("SIM_MANAGED_LIMIT", "48G")
        .set("SIM_PROCESS_LIMIT", "4G")
        .also(&["phantom-free"]),
        full("22 GiB of addresses without memory behind them", "alloc a 1G; reserve 22G; alloc b 4G")
            .set("SIM_PROCESS_LIMIT", "4G")
            .set("SIM_HIP_VERSION", 70_051_831)
            .also(&["phantom-free"]),
    ]
}

/// `true-capacity`: the card is full, and not of memory that is in use.
fn full_for_another_reason() -> Vec<Scene> {
    let full = |story, script: &str| looks_like("true-capacity", story, script);
    vec![
        full(
            "the program gives back 12 of its 22 GiB when it is refused, and then has what it wanted",
            "push 1G 22; failures retry; on_failure; pop 12; end; alloc b 4G",
        )
        .also(&["cache-greed"]),
        full(
            "half a GiB stays of each cycle, until the card is full",
            "push 1G 2; loop 60; push 512M; push 1G 2; launch; pop 2; end",
        )
        .also(&["live-leak"]),
        full("a pool keeps 20 GiB that were freed", "keep 24G; async a 20G; launch; free a; sync; alloc b 8G")
            .set("SIM_HIP_VERSION", 70_051_831)
            .also(&["pool-retention"]),
        full("frees in the stream's order have not taken effect", "async a 12G; async b 11G; free a; async c 10G")
            .set("SIM_FREES_WAIT", 1)
            .set("SIM_HIP_VERSION", 70_051_831)
            .also(&["async-free-pending"]),
        full("one card is full, and another, empty one refuses", "push 1G 22; device 1; alloc b 4G")
            .set("SIM_DEVICES", 2)
            .set("SIM_FAIL_AT", 23)
            .also(&["phantom-free"]),
        full("22 of 24 GiB are live, and the 23rd is refused on request", "push 1G 22; alloc b 1G")
            .set("GPUOOM_INJECT", "oom@23")
            .also(&["requested-refusal"]),
        on_nvidia(full("the same over CUDA", "push 1G 22; alloc b 1G"))
            .set("GPUOOM_INJECT", "oom@23")
            .also(&["requested-refusal"]),
    ]
}

/// `request-exceeds-device`: a request above the total that is said, and that total is not what decides.
fn larger_than_the_device() -> Vec<Scene> {
    let larger = |story, script: &str| looks_like("request-exceeds-device", story, script);
    vec![
        larger("a setting lets the runtime say 8 of 24 GiB, and 12 are asked for", "alloc a 1G; alloc b 12G")
            .set("GPU_MAX_HEAP_SIZE", 33)
            .set("SIM_REPORTED_CAPACITY", "8G")
            .set("SIM_PROCESS_LIMIT", "8G")
            .also(&["process-fraction-cap"]),
        larger("40 GiB of pinned host memory, which the machine has no room for", "alloc a 1G; host b 40G")
            .set("SIM_PINNED_LIMIT", "8G")
            .also(&["pinned-host-exhaustion", "kfd-system-memory-limit"]),
        larger("40 GiB of the program's pages are to be pinned", "alloc a 1G; register b 40G")
            .set("SIM_PINNED_LIMIT", "8G")
            .also(&["pinned-host-exhaustion", "kfd-system-memory-limit"]),
        larger("40 GiB of managed memory, which may exceed the card, and RAM has 32", "alloc a 1G; managed b 40G")
            .set("SIM_MANAGED_LIMIT", "32G")
            .also(&["kfd-system-memory-limit"]),
        on_nvidia(larger("the same over CUDA", "alloc a 1G; managed b 40G")).set("SIM_MANAGED_LIMIT", "32G"),
        larger("100 GiB of addresses are refused: they need no memory", "alloc a 1G; reserve 100G")
            .set("SIM_RESERVED_LIMIT", "64G")
            .set("SIM_HIP_VERSION", 70_051_831)
            .also(&["gpu-va-limit"]),
        larger("an APU whose runtime knows only the carve-out of 512 MiB", "alloc a 128M; alloc b 1G")
            .on(Machine::apu(ram_bytes("strix-halo-after") / 2, GIB / 2, ram_bytes("strix-halo-after") / 2, GIB / 2))
            .set("SIM_CAPACITY", "512M")
            .set("SIM_SYSFS_CARD", "")
            .also(&["uma-carveout-only"]),
    ]
}

/// `attention-quadratic`: a function with a telling name, or a size that fits by chance.
fn scores() -> Vec<Scene> {
    let attention = |story, script: &str| looks_like("attention-quadratic", story, script);
    let fused = |size: [&str; 4]| {
        let [a, b, c, last] = size;
        let run = |length, size| format!("mark forward_seq={length}; push {size}; pop 1;");
        format!(
            "alloc w 18G; through {{lib}}/libtorch_hip.so attention_forward; {} {} {} mark forward_seq=16384; alloc x {last}",
            run(2048, a),
            run(4096, b),
            run(8192, c)
        )
    };
    let grid = "push 1G 12; mark grid_n=1024; push 64M; pop 1; mark grid_n=2048; push 256M; pop 1; mark grid_n=4096; push 1G; \
                pop 1; mark grid_n=16384; alloc x 16G";
    vec![
        attention(
            "logits of a large vocabulary: the softmax of a loss grows with the tokens, not with their square",
            "alloc w 20G; through {lib}/libtorch_hip.so log_softmax_forward; alloc x 6G",
        )
        .library("libtorch_hip.so")
        .also(&["true-capacity"]),
        attention("fused attention: its output grows with the length", &fused(["1G", "2G", "4G", "8G"]))
            .library("libtorch_hip.so")
            .also(&["true-capacity"]),
        attention(
            "a projection inside of attention, on a full card",
            "alloc w 22G; through {lib}/libtorch_hip.so attention_forward; alloc x 3G",
        )
        .library("libtorch_hip.so")
        .also(&["true-capacity"]),
        attention("a simulation on a grid: its matrix grows with the square of the points on a side", grid)
            .also(&["true-capacity"]),
        attention(
            "a cache of 4 GiB, which is also 32 heads times 8192 times 8192 times 2 bytes",
            "alloc w 20G; mark model_loaded; alloc kv 4G",
        )
        .library("libggml-hip.so")
        .given("--model-facts", "layers = 32\nheads = 32\nkv_heads = 32\nhead_dim = 128\nbatch = 1\nsequence = 8192\n")
        .also(&["true-capacity", "kv-cache-prealloc", "oom-model-load"]),
    ]
}

/// `single-alloc-cap`: a large request is refused and a small one is not, for another reason than a cap.
fn single_allocation_caps() -> Vec<Scene> {
    let capped = |story, script: &str| looks_like("single-alloc-cap", story, script);
    let one_large = "alloc a 1G; failures go; alloc b 12G; alloc c 1G; alloc d 1G";
    let small_ram = Machine::of("nvidia")
        .with("proc/meminfo", "MemTotal: 11534336 kB\nMemFree: 8000000 kB\nMemAvailable: 9000000 kB");
    vec![
        on_nvidia(capped("a setting of HIP's, and the program runs over CUDA", one_large))
            .set("GPU_SINGLE_ALLOC_PERCENT", 40)
            .set("SIM_LARGEST_REQUEST", "10G")
            .also(&["phantom-free"]),
        capped("more than the RAM has, with which only HIP compares", one_large)
            .cuda()
            .on(small_ram)
            .set("SIM_LARGEST_REQUEST", "10G")
            .also(&["phantom-free"]),
        capped(
            "12 GiB of host memory, which the percentage is not about",
            "alloc a 1G; failures go; host b 12G; host c 1G",
        )
        .set("GPU_SINGLE_ALLOC_PERCENT", 40)
        .set("SIM_PINNED_LIMIT", "8G")
        .also(&["pinned-host-exhaustion"]),
        capped(
            "18 GiB were given at once before, and 17 are refused",
            "alloc s 18G; free s; failures go; alloc b 17G; alloc c 1G",
        )
        .set("GPU_SINGLE_ALLOC_PERCENT", 50)
        .set("SIM_FAIL_AT", 2)
        .also(&["phantom-free"]),
        capped(
            "one block may be as large as the card, and 20 GiB are refused",
            "alloc a 1G; failures go; alloc b 20G; alloc c 1G",
        )
        .set("GPU_SINGLE_ALLOC_PERCENT", 100)
        .set("SIM_LARGEST_REQUEST", "16G")
        .also(&["phantom-free"]),
        capped(
            "12 GiB are below the cap of 14.4, and the card has no room",
            "push 1G 14; failures go; alloc b 12G; alloc c 1G",
        )
        .set("GPU_SINGLE_ALLOC_PERCENT", 60)
        .also(&["true-capacity"]),
    ]
}

/// `process-fraction-cap`: a ceiling is set that does not reach this program, or was not reached by it.
fn fraction_caps() -> Vec<Scene> {
    let script = "push 1G 11; alloc b 4G";
    let capped = |story, script: &str| looks_like("process-fraction-cap", story, script);
    let refused = |story, name: &str, value: &str| {
        capped(story, script).set(name, value).set("SIM_PROCESS_LIMIT", "12G").also(&["phantom-free"])
    };
    vec![
        on_nvidia(refused("a setting of HIP's, and the program runs over CUDA", "GPU_MAX_HEAP_SIZE", "50")),
        refused("a setting of CUDA's, and the program runs over HIP", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=12G"),
        on_nvidia(refused("the limit is for another device", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "1=12G")),
        on_nvidia(refused("the limit leaves enough room", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=20G")),
        refused("a share for JAX, and no JAX in the process", "XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5"),
        refused("a share for JAX, in a process of PyTorch's", "XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
            .torch("2.10.0+rocm7.0", "7.0.51831")
            .set("SIM_HIP_VERSION", 70_051_831),
        refused("JAX may have 0.9 of the card and has less than a half", "XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")
            .library("xla_extension.so"),
        refused("less is reported free than there is: a reading, and no ceiling", "HIP_HIDDEN_FREE_MEM", "1024")
            .set("SIM_UNDER_REPORTED", "1G"),
        capped("the same setting, and a full card", "push 1G 22; alloc b 4G")
            .set("HIP_HIDDEN_FREE_MEM", 320)
            .set("SIM_UNDER_REPORTED", "320M")
            .also(&["true-capacity"]),
        capped("a program of JAX's ends with an error of its own", "alloc a 2G; launch; free a; sleep 250; exit 1")
            .library("xla_extension.so")
            .set("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5"),
    ]
}

/// Of PyTorch's message.
const FULL: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of \
    23.98 GiB of which 1.98 GiB is free. 22.78 GiB allowed; Of the allocated memory 21.90 GiB is allocated by PyTorch, and \
    100.00 MiB is reserved by PyTorch but unallocated.\n";
const BELOW: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
    23.98 GiB of which 12.98 GiB is free. 21.58 GiB allowed; Of the allocated memory 10.90 GiB is allocated by PyTorch, and \
    100.00 MiB is reserved by PyTorch but unallocated.\n";

fn fraction_messages() -> Vec<Scene> {
    let torch = |story, script: &str, message| {
        looks_like("process-fraction-cap", story, script)
            .torch("2.10.0+rocm7.0", "7.0.51831")
            .set("SIM_HIP_VERSION", 70_051_831)
            .given("--torch-log", message)
    };
    vec![
        torch(
            "PyTorch names what is allowed, and the driver refused: the card is full",
            "push 1G 22; alloc b 4G",
            FULL,
        )
        .also(&["true-capacity"]),
        torch("PyTorch names what is allowed, and that was not reached", "push 1G 11; alloc b 2G", BELOW)
            .set("SIM_PROCESS_LIMIT", "12G")
            .also(&["phantom-free"]),
    ]
}

/// `preallocation-by-framework`: a large block at the start that is no longer there, or nobody's reservation.
fn preallocations() -> Vec<Scene> {
    let took = |story, script: &str| {
        looks_like("preallocation-by-framework", story, script)
            .library("xla_extension.so")
            .library("libtorch_hip.so")
            .also(&["true-capacity"])
    };
    vec![
        took(
            "JAX took 18 GiB and gave them back before PyTorch filled the card",
            "through {lib}/xla_extension.so; alloc a 18G; free a; sleep 20; through {lib}/libtorch_hip.so; push 1G 22; alloc b 4G",
        ),
        took(
            "JAX takes 2 GiB, PyTorch the rest",
            "through {lib}/xla_extension.so; alloc a 2G; sleep 20; through {lib}/libtorch_hip.so; push 1G 21; alloc b 4G",
        ),
        took(
            "the program itself takes its data at once, and a library finds no room for its own",
            "alloc a 18G; copy a; sleep 20; through {lib}/libtorch_hip.so; push 1G 4; alloc b 4G",
        ),
    ]
}

/// `partition-slice`: the total is below the board's, and the device is a whole one.
fn partitions() -> Vec<Scene> {
    let small = |story| looks_like("partition-slice", story, "alloc a 1G; sleep 250");
    vec![
        small("a whole MI300X whose runtime says 24 GiB; another card is in CPX mode")
            .on(Machine::of("mi300x"))
            .set("SIM_CAPACITY", 206_141_652_992_u64)
            .set("SIM_REPORTED_CAPACITY", 24 * GIB)
            .set("SIM_PCI_BUS_ID", "0000:05:00.0")
            .set("SIM_SYSFS_CARD", ""),
        small("a whole MI300X of which a ceiling shows 48 GiB")
            .on(Machine::of("mi300x"))
            .set("GPU_MAX_HEAP_SIZE", 25)
            .set("SIM_CAPACITY", 206_141_652_992_u64)
            .set("SIM_REPORTED_CAPACITY", 48 * GIB)
            .set("SIM_PCI_BUS_ID", "0000:05:00.0")
            .set("SIM_SYSFS_CARD", "")
            .also(&["process-fraction-cap"]),
        on_nvidia(small("another card of the machine is divided"))
            .set("SIM_CAPACITY", "24460M")
            .given("--nvidia-smi", nvidia_smi(&[("01:00.0", 24564, 0, "Disabled"), ("02:00.0", 81559, 0, "Enabled")])),
        on_nvidia(small("the driver keeps a part of the board for itself, as it does on each"))
            .set("SIM_CAPACITY", "24110M")
            .given("--nvidia-smi", nvidia_smi(&[("01:00.0", 24564, 0, "Disabled")])),
    ]
}

/// `training-state-exceeds-card`: weights were loaded, and nobody trains all of them here.
fn training_states() -> Vec<Scene> {
    let state = |story, script: &str| {
        looks_like("training-state-exceeds-card", story, script).also(&["true-capacity", "oom-model-load"])
    };
    let serving = "alloc w 16G; copy w; mark model_loaded; push 1G 7; alloc b 2G";
    let trained =
        "alloc w 8G; copy w; mark model_loaded; mark forward; push 1G 7; mark backward; push 1G 8; alloc b 2G";
    vec![
        state("llama.cpp serves a model of 16 GiB: there is no optimizer", serving).library("libllama.so"),
        state("a server with PyTorch: 16 GiB of weights and a cache", serving)
            .torch("2.10.0+rocm7.0", "7.0.51831")
            .set("SIM_HIP_VERSION", 70_051_831),
        state(
            "the number of parameters is known, and nothing trains them",
            "alloc w 14G; mark model_loaded; push 1G 9; alloc b 2G",
        )
        .given("--model-facts", "parameters = \"7B\"\n")
        .also(&["true-capacity", "oom-model-load", "oom-first-forward"]),
        state("7 billion parameters with adapters only: 2.2 bytes each", trained)
            .given("--model-facts", "parameters = \"7B\"\nstate_bytes = 2.2\n")
            .also(&["true-capacity", "oom-first-backward", "oom-first-forward"]),
        state("four billion parameters, divided among eight ranks", trained)
            .torch("2.10.0+rocm7.0", "7.0.51831")
            .set("SIM_HIP_VERSION", 70_051_831)
            .library("librccl.so.1")
            .set("RANK", 0)
            .set("WORLD_SIZE", 8)
            .given("--model-facts", "parameters = \"4B\"\n")
            .also(&["true-capacity", "oom-first-backward", "oom-first-forward"]),
        state("a simulation reads 16 GiB of data", "alloc w 16G; copy w; push 1G 7; alloc b 2G"),
    ]
}

/// `fixed-vs-activation`: a high peak above a low floor, of something else than a batch's activations.
fn activations() -> Vec<Scene> {
    let peaks = |story, script: &str| looks_like("fixed-vs-activation", story, script).also(&["true-capacity"]);
    let workspace = "alloc f 4G; mark forward_batch=1; push 8G 2; launch; pop; mark forward_batch=2; push 8G 2; launch; pop; \
                     mark forward_batch=4; push 8G 2; launch; pop; mark forward_batch=8; push 8G 2; alloc x 8G";
    vec![
        peaks("a workspace of 16 GiB, however large the batch is", workspace),
        peaks(
            "a simulation with temporary arrays",
            "alloc f 4G; loop 8; push 8G 2; launch; pop; end; push 8G 2; alloc x 8G",
        ),
        peaks(
            "weights are converted once with a copy beside them, and the failure comes later",
            "mark load_weights; push 8G 2; pop 2; push 1G 22; launch; alloc x 4G",
        )
        .also(&["true-capacity", "oom-model-load"]),
    ]
}

/// `repeated-large-temporaries`: temporary blocks in cycles, of a program that has another name.
fn temporaries() -> Vec<Scene> {
    let cycles = |story, script: &str| looks_like("repeated-large-temporaries", story, script).also(&["true-capacity"]);
    vec![
        cycles(
            "a training whose batches differ in length",
            "alloc f 2G; loop 3; loop 4; mark forward; push 4G+1G; mark backward; push 4G+1G; launch; pop; end; end; push 11G 2; alloc x 8G",
        )
        .also(&["true-capacity", "oom-longest-batch"]),
        cycles(
            "the temporary blocks were given back long ago, and the card fills with what stays",
            "alloc f 2G; loop 3; loop 4; push 4G+1G 2; pop; end; end; push 1G 21; alloc x 4G",
        ),
    ]
}

const OTHERS_KILL: &str = "[20599.491542] Out of memory: Killed process 1 (python3) total-vm:53312244kB, anon-rss:31451456kB, \
    file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n";
const OTHER_NAME: &str = "[   99.491542] Out of memory: Killed process {pid} (chromium) total-vm:53312244kB, \
    anon-rss:31451456kB, file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n";
const SIBLING_KILL: &str = "[20599.491542] Out of memory: Killed process 1 (scene_hip) total-vm:53312244kB, anon-rss:31451456kB, \
    file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n";
const OTHER_GROUP_KILL: &str = "[18026.221140] Memory cgroup out of memory: Killed process 1 (scene_hip) total-vm:120832kB, \
    anon-rss:15596kB, file-rss:8924kB, shmem-rss:0kB, UID:0 pgtables:276kB oom_score_adj:-997\n";
const OTHERS_GROUP_KILL: &str = "[18026.221140] Memory cgroup out of memory: Killed process 1 (loader) total-vm:120832kB, \
    anon-rss:15596kB, file-rss:8924kB, shmem-rss:0kB, UID:0 pgtables:276kB oom_score_adj:-997\n";
const OWN_KILL: &str = "[20599.491542] Out of memory: Killed process {pid} (scene_hip) total-vm:53312244kB, \
    anon-rss:31451456kB, file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n";

/// `host-ram-oom-kill`: it was killed, or ended as if it were, and not for want of memory.
fn kills() -> Vec<Scene> {
    let killed = |story, script: &str| looks_like("host-ram-oom-kill", story, script).watched();
    let script = "alloc a 1G; sleep 250; kill";
    vec![
        killed("somebody kills it, and the kernel killed another process", script).given("--kernel-log", OTHERS_KILL),
        killed("a log of before: its number was another program's then", script).given("--kernel-log", OTHER_NAME),
        killed("the kernel killed another rank of the same job, and the launcher kills this one", script)
            .given("--kernel-log", SIBLING_KILL),
        killed("it exits with 137 by itself", "alloc a 1G; sleep 250; exit 137"),
        killed("it ends well, and its number was that of a process that was killed", "alloc a 1G; sleep 250")
            .given("--kernel-log", OWN_KILL),
        killed("somebody kills it; in its group there were kills long before", script)
            .on(Machine::card().with("sys/fs/cgroup/memory.events", "low 0\nhigh 0\nmax 5\noom 3\noom_kill 3")),
        killed("somebody kills it while the machine is short of memory", script).on(Machine::card().with(
            "proc/meminfo",
            "MemTotal: 65780732 kB\nMemFree: 200000 kB\nMemAvailable: 300000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB",
        )),
        killed(
            "a full card, which it is told of, and then somebody kills it",
            "push 1G 22; failures go; alloc b 4G; kill",
        )
        .given("--kernel-log", OTHERS_KILL)
        .also(&["true-capacity"]),
    ]
}

/// `cgroup-memory-limit`: the group is full, and that is not what went wrong.
fn groups() -> Vec<Scene> {
    let group = |used: u64, limit: u64| {
        Machine::card()
            .with("sys/fs/cgroup/memory.current", used * GIB)
            .with("sys/fs/cgroup/memory.max", limit * GIB)
            .with("sys/fs/cgroup/memory/memory.usage_in_bytes", used * GIB)
            .with("sys/fs/cgroup/memory/memory.limit_in_bytes", limit * GIB)
    };
    let events = "low 0\nhigh 0\nmax 812\noom 2\noom_kill 2";
    let limited = |story, script: &str| looks_like("cgroup-memory-limit", story, script);
    vec![
        limited("a group full of cached files, and a program that ends well", "alloc a 1G; launch; sleep 250")
            .on(group(8, 8).with("sys/fs/cgroup/memory.events", events)),
        limited("a full group, and a full card", "push 1G 22; alloc b 4G")
            .on(group(8, 8).with("sys/fs/cgroup/memory.events", events))
            .also(&["true-capacity"]),
        limited(
            "a full group in which another process was killed; somebody killed this one",
            "alloc a 1G; sleep 250; kill",
        )
        .on(group(8, 8).with("sys/fs/cgroup/memory.events", events))
        .watched()
        .given("--kernel-log", OTHERS_GROUP_KILL),
        limited(
            "a full group; the same program was killed in another one, and somebody killed this one",
            "alloc a 1G; sleep 250; kill",
        )
        .on(group(8, 8).with("sys/fs/cgroup/memory.events", events))
        .watched()
        .given("--kernel-log", OTHER_GROUP_KILL),
        limited("pinned memory is refused, and the group has room", "alloc a 1G; sleep 250; host b 4G")
            .on(group(6, 64))
            .set("SIM_PINNED_LIMIT", "2G")
            .also(&["pinned-host-exhaustion"]),
        limited(
            "the group is full of files that the kernel would drop, and pinned memory meets another limit",
            "alloc a 1G; sleep 250; host b 1G",
        )
        .on(group(8, 8)
            .with("sys/fs/cgroup/memory.events", events)
            .with("sys/fs/cgroup/memory.stat", format!("anon 536870912\nfile {}\ninactive_file {}", 7 * GIB, 6 * GIB)))
        .set("SIM_PINNED_LIMIT", "512M")
        .also(&["pinned-host-exhaustion"]),
    ]
}

/// What `nvidia-smi -q -x` says of cards: place, MiB in all, bad pages, and whether they are divided.
fn nvidia_smi(cards: &[(&str, u64, u64, &str)]) -> String {
    let card = |(place, total, pages, divided): &(&str, u64, u64, &str)| {
        format!(
            "<gpu id=\"00000000:{place}\">\n<mig_mode><current_mig>{divided}</current_mig></mig_mode>\n<fb_memory_usage>\n\
             <total>{total} MiB</total>\n<used>1400 MiB</used>\n<free>{} MiB</free>\n</fb_memory_usage>\n\
             <retired_pages><double_bit_retirement><retired_count>{pages}</retired_count></double_bit_retirement></retired_pages>\n\
             </gpu>\n",
            total - 1400
        )
    };
    let cards: String = cards.iter().map(card).collect();
    format!("<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n<attached_gpus>1</attached_gpus>\n{cards}</nvidia_smi_log>\n")
}

/// `retired-pages`: bad pages of another card, or less memory without any.
fn bad_pages() -> Vec<Scene> {
    let pages = |story, cards: &[(&str, u64, u64, &str)]| {
        on_nvidia(looks_like("retired-pages", story, "alloc a 1G; sleep 250"))
            .set("SIM_CAPACITY", "24460M")
            .given("--nvidia-smi", nvidia_smi(cards))
    };
    vec![
        pages(
            "another card of the machine has bad pages",
            &[("01:00.0", 24564, 0, "Disabled"), ("41:00.0", 24564, 12, "Disabled")],
        ),
        pages(
            "the other card comes first in the list, and the program sees only its own",
            &[("00:1e.0", 24564, 12, "Disabled"), ("01:00.0", 24564, 0, "Disabled")],
        )
        .set("CUDA_VISIBLE_DEVICES", "1"),
        pages(
            "the output is of another machine, which has no card in that place",
            &[("81:00.0", 24564, 12, "Disabled")],
        ),
        pages("the driver keeps a part of the board, and no page is bad", &[("01:00.0", 24576, 0, "Disabled")]),
        pages("all that the board has can be used", &[("01:00.0", 24460, 0, "Disabled")]),
    ]
}
