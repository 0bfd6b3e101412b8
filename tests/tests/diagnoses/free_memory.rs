//! C. Free memory is reported, and what is asked for is refused.

use crate::capacity::others;
use crate::machine::Machine;
use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable, Proven};
use crate::scene::{Scene, scene};

pub(crate) fn scenes() -> Vec<Scene> {
    [held(), exported(), reported(), conditions()].concat()
}

fn held() -> Vec<Scene> {
    let headless = || Machine::card().with("sys/class/drm/card1/device/boot_vga", 0);
    let pending =
        |rest: &str| format!("async a 12G; async b 6G; free a; failures retry; on_failure; {rest} end; async c 10G");
    vec![
        scene("phantom-free", First(Probable), "64 MiB are refused with 20 GiB free", "alloc a 1G; alloc b 64M")
            .set("SIM_PROCESS_LIMIT", "1G"),
        scene("phantom-free", Not, "what was free was not enough", "alloc a 1G; alloc b 8G")
            .on(others(20))
            .set("SIM_OTHERS", "20G")
            .also(&["other-process-on-gpu"]),
        scene("other-process-on-gpu", First(Proven), "another process holds 20 GiB", "alloc a 1G; alloc b 8G")
            .on(others(20))
            .set("SIM_OTHERS", "20G"),
        scene(
            "other-process-on-gpu",
            Not,
            "another process holds 3 GiB, and there was enough left",
            "alloc a 1G; alloc b 64M",
        )
        .on(others(3))
        .set("SIM_OTHERS", "3G")
        .set("SIM_PROCESS_LIMIT", "1G")
        .also(&["phantom-free"]),
        scene(
            "zombie-vram",
            First(Probable),
            "8 GiB were in use before, and nobody holds them",
            "alloc a 1G; alloc b 20G",
        )
        .on(headless())
        .set("SIM_OTHERS", "8G"),
        scene("zombie-vram", Not, "the same, and a process holds them", "alloc a 1G; alloc b 20G")
            .on(others(8))
            .set("SIM_OTHERS", "8G")
            .also(&["other-process-on-gpu"]),
        scene(
            "hidden-runtime-memory",
            First(Probable),
            "the driver counts 3 GiB more for this process than its blocks",
            "push 1G 18; alloc b 4G",
        )
        .set("SIM_HIDDEN", "3G"),
        scene("hidden-runtime-memory", Not, "200 MiB are what every runtime takes", "push 1G 22; alloc b 4G")
            .set("SIM_HIDDEN", "200M")
            .also(&["true-capacity"]),
        scene("async-free-pending", First(Proven), "what was freed is there after a synchronisation", pending("sync;"))
            .set("SIM_FREES_WAIT", 1)
            .set("SIM_HIP_VERSION", 70_051_831),
        scene(
            "async-free-pending",
            Not,
            "nothing had been freed",
            "async a 12G; async b 6G; failures retry; async c 10G",
        )
        .set("SIM_HIP_VERSION", 70_051_831),
    ]
}

/// 12 GiB that other processes may open are freed, and a request comes that needs some of them.
fn exported() -> Vec<Scene> {
    let story = |script: &str| format!("alloc a 8G; export a; alloc b 4G; export b; sleep 250; {script}");
    let pinned = |says, story: &'static str, script: String| {
        let scene = scene("ipc-export-pin", says, story, script).set("SIM_HIP_VERSION", 70_051_831);
        scene.also(&["known-bad-version"])
    };
    let full = story("free a; free b; sleep 250; push 1G 20; alloc c 8G");
    vec![
        pinned(
            First(Probable),
            "12 GiB were exported and freed, and stay in use",
            story("free a; free b; sleep 250; alloc c 20G"),
        )
        .set("SIM_EXPORTS_STAY", 1),
        pinned(Not, "the same, what was freed can be had again, and the card is full of other blocks", full)
            .also(&["known-bad-version", "true-capacity"]),
        pinned(
            Not,
            "as much was freed, and none of it had been exported",
            "alloc a 8G; alloc b 4G; export b; sleep 250; free a; sleep 250; push 1G 16; alloc c 8G".to_owned(),
        )
        .set("SIM_EXPORTS_STAY", 1)
        .also(&["known-bad-version", "true-capacity"]),
    ]
}

fn reported() -> Vec<Scene> {
    vec![
        scene(
            "free-overreported-graphics",
            First(Probable),
            "a desktop of another user holds 2 GiB, HIP does not know it, and the request lies between",
            "push 1G 18; alloc b 5G",
        )
        .set("SIM_OTHERS", "2G")
        .set("SIM_OVER_REPORTED", "2G"),
        scene("free-overreported-graphics", Not, "both readings say that it was enough", "push 1G 18; alloc b 1G")
            .set("SIM_PROCESS_LIMIT", "18G")
            .also(&["phantom-free"]),
        scene(
            "sysfs-free-overreported",
            First(Possible),
            "sysfs shows 9 GiB free and HIP 1.4",
            "push 1G 15; alloc b 4G",
        )
        .set("SIM_UNDER_REPORTED", "7780M")
        .set("SIM_PROCESS_LIMIT", "16G"),
        scene("sysfs-free-overreported", Not, "it is HIP that shows more", "push 1G 18; alloc b 5G")
            .set("SIM_OTHERS", "2G")
            .set("SIM_OVER_REPORTED", "2G")
            .also(&["free-overreported-graphics"]),
        scene(
            "reading-mismatch-benign",
            Found(Proven),
            "two readings 170 MiB apart, as measured upstream",
            "alloc a 1G; alloc b 8G",
        )
        .on(others(20))
        .set("SIM_OTHERS", "20G")
        .set("SIM_OVER_REPORTED", "170M")
        .also(&["other-process-on-gpu"]),
        scene("reading-mismatch-benign", Not, "2 GiB apart are more than accounting", "alloc a 1G; alloc b 8G")
            .on(others(20))
            .set("SIM_OTHERS", "20G")
            .set("SIM_OVER_REPORTED", "2G")
            .also(&["other-process-on-gpu"]),
    ]
}

fn conditions() -> Vec<Scene> {
    vec![
        scene(
            "bar-visible-limit",
            Found(Proven),
            "a card of 16 GiB behind a window of 256 MiB",
            "alloc a 1G; sleep 250",
        )
        .on(Machine::of("rdna3-16g"))
        .set("SIM_OTHERS", "9G"),
        scene("bar-visible-limit", Not, "resizable BAR: the whole card is in sight", "alloc a 1G; sleep 250"),
        scene(
            "gfx-override-active",
            Found(Proven),
            "a card of RDNA3 that is said to be RDNA2",
            "alloc a 1G; sleep 250",
        )
        .set("HSA_OVERRIDE_GFX_VERSION", "10.3.0"),
        scene("gfx-override-active", Not, "the variable is empty, which sets nothing", "alloc a 1G; sleep 250")
            .set("HSA_OVERRIDE_GFX_VERSION", ""),
    ]
}
