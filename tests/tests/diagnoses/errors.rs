//! F. Errors.

use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable, Proven};
use crate::scene::{Scene, scene};

/// A program whose allocations are refused above a limit of its own, with the rest of the card free.
const FULL: &str = "push 1G 22; failures go; alloc b 4G;";

fn with(beginning: &str, rest: &str) -> String {
    format!("{beginning} {rest}")
}

pub(crate) fn scenes() -> Vec<Scene> {
    [dropped(), late(), ended(), forked()].concat()
}

fn dropped() -> Vec<Scene> {
    let dropped =
        |says, story, rest: &str| scene("dropped-oom-return", says, story, with(FULL, rest)).also(&["true-capacity"]);
    vec![
        scene(
            "requested-refusal",
            First(Proven),
            "GPUOOM_INJECT refuses the second call",
            "alloc a 1G; alloc b 1G; launch",
        )
        .set("GPUOOM_INJECT", "oom@2")
        .also(&["dropped-oom-return"]),
        scene(
            "requested-refusal",
            Not,
            "the same calls, and nobody asks for a failure",
            "alloc a 1G; alloc b 1G; launch",
        ),
        dropped(Found(Probable), "the pointer of the failed call goes into a copy", "copy b; launch"),
        dropped(Found(Possible), "a kernel is launched after the failure: nobody sees a look at the status", "launch"),
        dropped(Not, "the program asks what went wrong, and ends", "query; exit 1"),
        dropped(Not, "the program goes on with a quarter of the size, on purpose", "launch; alloc c 1G; launch"),
        scene("dropped-oom-return", Found(Probable), "the same over CUDA", with(FULL, "copy b; launch"))
            .cuda()
            .also(&["true-capacity"]),
    ]
}

fn forked() -> Vec<Scene> {
    let forked = |says, story, script| scene("forked-after-init", says, story, script).set("SIM_FAIL_AT", 2);
    vec![
        forked(
            First(Probable),
            "the runtime refuses in a child, and most of the card is free",
            "alloc a 1G; child; alloc b 1G",
        ),
        forked(Not, "the same in the process that started it", "alloc a 1G; alloc b 1G").also(&["phantom-free"]),
        forked(Not, "the child has had memory", "alloc a 1G; child; failures go; alloc b 1G; alloc c 1G")
            .set("SIM_FAIL_AT", 3)
            .also(&["phantom-free"]),
    ]
}

fn late() -> Vec<Scene> {
    // The first failure is ignored. The second call needs little, and much is free: a wrapper that hands out the old error.
    let script = "alloc a 1G; failures go; alloc b 30G; launch; alloc c 64M; query; exit 1";
    vec![
        // A limit that nobody sees would look the same.
        scene(
            "late-surfacing-oom",
            Found(Possible),
            "an ignored error comes back from a small call, on HIP 7.0",
            script,
        )
        .set("SIM_HIP_VERSION", 70_051_831)
        .set("SIM_LAST_ERROR", "rocm7")
        .set("SIM_FAIL_AT", 3)
        .set("GPUOOM_PROBE", "off")
        .also(&["request-exceeds-device", "phantom-free", "dropped-oom-return"]),
        scene("late-surfacing-oom", Not, "HIP 6.4, which forgets an error at the next success", script)
            .set("SIM_HIP_VERSION", 60_443_483)
            .set("SIM_FAIL_AT", 3)
            .set("GPUOOM_PROBE", "off")
            .also(&["request-exceeds-device", "phantom-free", "dropped-oom-return"]),
    ]
}

fn ended() -> Vec<Scene> {
    let handle = "alloc a 1G; handle {sim}/libhipblas.so.2 hipblasCreate";
    vec![
        scene(
            "runtime-internal-abort",
            First(Possible),
            "an abort with almost nothing free",
            "push 1G 23; push 980M; sleep 250; abort",
        ),
        scene(
            "runtime-internal-abort",
            First(Probable),
            "the same, and the runtime said why",
            "push 1G 23; push 980M; sleep 250; abort",
        )
        .given(
            "--torch-log",
            "rocdevice.cpp:2980: Queue 0x7f aborting: HSA_STATUS_ERROR_OUT_OF_RESOURCES: failed to allocate\n",
        ),
        scene(
            "runtime-internal-abort",
            Not,
            "the same, and it was an illegal address",
            "push 1G 23; push 980M; sleep 250; abort",
        )
        .given(
            "--torch-log",
            "Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.\n",
        ),
        scene("runtime-internal-abort", Not, "an abort with 20 GiB free", "push 1G 3; sleep 250; abort"),
        scene("library-alloc-failed", First(Possible), "hipblasCreate fails, and nobody saw what it asked for", handle)
            .set("SIM_HANDLE_FAIL_AT", 1),
        scene("library-alloc-failed", Not, "the handle is made", handle),
        scene(
            "hang-not-oom",
            Found(Proven),
            "mapping virtual memory does not return for three seconds, where one is too long",
            "alloc a 1G; kill_in 3000; virtual v 64M",
        )
        .set("SIM_MAPS_HANG", 1)
        .set("SIM_HIP_VERSION", 70_051_831)
        .threshold("hang=1s"),
        scene("hang-not-oom", Not, "a long step, and then a clean end", "alloc a 1G; sleep 300"),
    ]
}
