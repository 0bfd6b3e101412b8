//! F. Programs that handle a failure, or in which something else fails.

use crate::looks_like;
use crate::scene::Scene;

/// A card with 2 GiB left, and a program that handles failures by itself.
const FULL: &str = "push 1G 22; failures go;";

pub(super) fn scenes() -> Vec<Scene> {
    [handled(), another_failure(), libraries(), no_hang()].concat()
}

fn handled() -> Vec<Scene> {
    let handled =
        |story, rest: &str| looks_like("dropped-oom-return", story, format!("{FULL} {rest}")).also(&["true-capacity"]);
    vec![
        handled(
            "a smaller block takes the place of the failed one, and is used",
            "alloc b 4G; alloc b 1G; copy b; launch",
        ),
        handled("pinned memory of the host takes its place", "alloc b 4G; host b 4G; copy b; launch"),
        handled(
            "the size is halved until it fits",
            "alloc b 16G; alloc b 8G; alloc b 4G; alloc b 2G; alloc b 1G; copy b; launch",
        ),
        handled(
            "the program cleans up, which frees a null pointer, and ends with an error",
            "alloc b 4G; free b; exit 1",
        ),
        handled("the blocks are smaller ones, as many as are needed", "alloc b 4G; push 512M 3; launch"),
        looks_like(
            "dropped-oom-return",
            "another thread frees before the same request is made again",
            "push 1G 22; failures retry; on_failure; thread cache; pop 4; end; end; alloc b 4G; copy b; launch",
        )
        .also(&["true-capacity"]),
        looks_like(
            "dropped-oom-return",
            "the block is made on the other device",
            "push 1G 22; failures go; alloc b 4G; device 1; alloc b 4G; copy b; launch",
        )
        .set("SIM_DEVICES", 2)
        .also(&["true-capacity"]),
    ]
}

/// An earlier failure, and a later one that has nothing to do with it. On HIP 7.0, where an error stays until it is read.
fn another_failure() -> Vec<Scene> {
    let late = |story, script: &str| {
        looks_like("late-surfacing-oom", story, script)
            .set("SIM_HIP_VERSION", 70_051_831)
            .set("SIM_LAST_ERROR", "rocm7")
            .set("GPUOOM_PROBE", "off")
    };
    vec![
        late(
            "the ignored failure was another thread's",
            "alloc a 1G; failures go; thread w; alloc b 30G; launch; end; alloc c 64M; query; exit 1",
        )
        .set("SIM_FAIL_AT", 3)
        .also(&["request-exceeds-device", "phantom-free", "dropped-oom-return"]),
        late(
            "the program had read and cleared the first error",
            "alloc a 1G; failures go; alloc b 30G; query; launch; alloc c 64M; query; exit 1",
        )
        .set("SIM_FAIL_AT", 3)
        .also(&["request-exceeds-device", "phantom-free"]),
        late(
            "the second request does not fit either",
            "push 1G 22; failures go; alloc b 4G; launch; alloc c 3G; query; exit 1",
        )
        .also(&["true-capacity", "dropped-oom-return"]),
        late(
            "the second request is for pinned memory, of which there is no more",
            "alloc a 1G; failures go; alloc b 30G; launch; host h 64M; query; exit 1",
        )
        .set("SIM_PINNED_LIMIT", "32M")
        .also(&["request-exceeds-device", "pinned-host-exhaustion", "dropped-oom-return"]),
        late(
            "the program asks for the error right after the failure, as it should",
            "alloc a 1G; failures go; alloc b 30G; query; alloc c 64M; launch",
        )
        .also(&["request-exceeds-device"]),
    ]
}

fn libraries() -> Vec<Scene> {
    let fails = |story, library: &str, function: &str, status: u32| {
        looks_like("library-alloc-failed", story, format!("alloc a 1G; handle {{sim}}/{library} {function}"))
            .set("SIM_HANDLE_FAIL_AT", 1)
            .set("SIM_HANDLE_STATUS", status)
    };
    vec![
        fails("hipBLAS is not initialised", "libhipblas.so.2", "hipblasCreate", 1),
        fails(
            "rocBLAS has an internal error, such as no kernels for this card",
            "librocblas.so.4",
            "rocblas_create_handle",
            6,
        ),
        fails("cuBLAS is not made for this card", "libcublas.so.13", "cublasCreate_v2", 8).cuda(),
        looks_like(
            "library-alloc-failed",
            "a request before the handle was refused, and the handle is made",
            format!("{FULL} alloc b 4G; handle {{sim}}/libhipblas.so.2 hipblasCreate; exit 1"),
        )
        .also(&["true-capacity"]),
    ]
}

fn no_hang() -> Vec<Scene> {
    let waits = |story, script: &str| {
        looks_like("hang-not-oom", story, script).set("SIM_HIP_VERSION", 70_051_831).threshold("hang=1s")
    };
    vec![
        waits("a service that waits for requests is killed", "alloc a 1G; launch; sync; kill_in 2500; sleep 9000"),
        waits("a long step that ends", "alloc a 1G; sync; launch").set("SIM_SLOW_US", 1_200_000),
        waits(
            "a long kernel, for which the program waits until it is killed",
            "alloc a 1G; launch; kill_in 2500; sync",
        )
        .set("SIM_SLOW_US", 60_000_000)
        .set("SIM_SLOW_AT", 2),
        waits("the program reads its data for some seconds, and ends with an error", "alloc a 1G; sleep 2500; exit 1"),
        waits(
            "the call that was under way at the end had just begun",
            "alloc a 1G; sleep 1500; kill_in 300; virtual v 64M",
        )
        .set("SIM_MAPS_HANG", 1),
        waits(
            "an allocation had failed before: it is no failure without a failed allocation",
            "alloc a 1G; failures go; alloc b 30G; query; kill_in 2500; virtual v 64M",
        )
        .set("SIM_MAPS_HANG", 1)
        .also(&["request-exceeds-device"]),
    ]
}
