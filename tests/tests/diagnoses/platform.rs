//! G. Limits of the platform.

use crate::machine::{APU, CARD, Machine, ram_bytes};
use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable, Proven};
use crate::scene::{Scene, scene};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const SUBMISSION: &str =
    "[85392.497777] amdgpu 0000:03:00.0: amdgpu: [drm] *ERROR* Not enough memory for command submission!\n";

fn mib(bytes: u64) -> String {
    format!("{}M", bytes / MIB)
}

pub(crate) fn scenes() -> Vec<Scene> {
    [apus(), apu_settings(), host_pressure(), host_memory(), parts()].concat()
}

/// A program on an APU that offers so much: so many per cent of it live, and some more are asked for.
fn apu(
    id: &'static str,
    says: crate::scene::Says,
    story: &'static str,
    machine: Machine,
    total: u64,
    asked: u64,
) -> Scene {
    scene(id, says, story, format!("push {} 95; alloc b {}", mib(total / 100), mib(asked)))
        .on(machine)
        .set("SIM_CAPACITY", total)
        .set("SIM_SYSFS_CARD", "")
}

fn apus() -> Vec<Scene> {
    let ram = ram_bytes(APU);
    let (half, most) = (ram / 2, ram / 8 * 7);
    let delivered = || Machine::apu(half, 512 * MIB, half, half);
    let raised = || Machine::apu(most, 512 * MIB, most, most);
    // A carve-out as large as what is left to the host, and a small GTT.
    let starved = || Machine::apu(15 * GIB, ram.max(31 * GIB), 15 * GIB, 15 * GIB);
    vec![
        apu(
            "uma-ttm-limit",
            First(Proven),
            "half of the RAM is all that the kernel gives",
            delivered(),
            half,
            half / 10,
        )
        .also(&["true-capacity"]),
        apu(
            "uma-ttm-limit",
            Not,
            "the limit was raised, and most of the RAM lives on the GPU",
            raised(),
            most,
            most / 10,
        )
        .also(&["true-capacity"]),
        apu(
            "uma-carveout-only",
            First(Proven),
            "the runtime sees the carve-out of 4 GiB, GTT would be more",
            Machine::apu(half, 4 * GIB, half.max(9 * GIB), 4 * GIB),
            4 * GIB,
            GIB,
        )
        .also(&["true-capacity"]),
        apu("uma-carveout-only", Not, "the total is what the kernel gives", delivered(), half, half / 10)
            .also(&["uma-ttm-limit", "true-capacity"]),
        apu(
            "uma-large-carveout-starves-gtt",
            First(Proven),
            "15 GiB of GTT are used up, the carve-out lies idle",
            starved(),
            15 * GIB,
            2 * GIB,
        )
        .also(&["true-capacity", "uma-ttm-limit"]),
        apu("uma-large-carveout-starves-gtt", Not, "a small carve-out", delivered(), half, half / 10)
            .also(&["uma-ttm-limit", "true-capacity"]),
        apu(
            "apu-reporting-inconsistent",
            First(Proven),
            "more is reported free than there is",
            starved(),
            15 * GIB,
            2 * GIB,
        )
        .set("SIM_OVER_REPORTED", 70 * GIB)
        .also(&["phantom-free", "uma-large-carveout-starves-gtt", "uma-ttm-limit"]),
        apu("apu-reporting-inconsistent", Not, "free is below the total", delivered(), half, half / 10)
            .also(&["uma-ttm-limit", "true-capacity"]),
        apu(
            "uma-runtime-clamp",
            First(Proven),
            "the kernel offers most of the RAM, the runtime half of it",
            raised(),
            half,
            half / 10,
        )
        .also(&["true-capacity"]),
        apu("uma-runtime-clamp", Not, "the runtime follows the kernel", raised(), most, most / 10)
            .also(&["true-capacity"]),
    ]
}

fn apu_settings() -> Vec<Scene> {
    let half = ram_bytes(APU) / 2;
    let delivered = || Machine::apu(half, 512 * MIB, half, half);
    let agree = || {
        delivered().with("sys/module/amdgpu/parameters/gttsize", -1).with("sys/module/amdgpu/parameters/vm_size", -1)
    };
    let quiet = |id, says, story, machine: Machine| {
        scene(id, says, story, "push 100M 10; launch; pop; sleep 250")
            .on(machine)
            .set("SIM_CAPACITY", half)
            .set("SIM_SYSFS_CARD", "")
    };
    let spills = |says, story, machine: Machine| {
        scene("sysmem-fallback", says, story, format!("push {} 11; launch; sleep 250", mib(half / 10)))
            .on(machine)
            .set("SIM_CAPACITY", ram_bytes(APU))
            .set("SIM_REPORTED_CAPACITY", half)
            .set("SIM_HIP_VERSION", 60_443_483)
            .set("SIM_SYSFS_CARD", "")
    };
    vec![
        quiet(
            "uma-param-mismatch",
            Found(Proven),
            "gttsize beside another TTM limit, vm_size in MiB",
            agree()
                .with("sys/module/amdgpu/parameters/gttsize", 122_880)
                .with("sys/module/amdgpu/parameters/vm_size", 131_072),
        ),
        quiet("uma-param-mismatch", Not, "all layers agree", agree()),
        spills(Found(Probable), "more lives than the APU has, and nothing fails", agree()),
        spills(Not, "the same on a card", Machine::card()),
    ]
}

/// A program that holds nearly all memory of an APU, and is killed.
fn host_pressure() -> Vec<Scene> {
    const KILL: &str = "[20599.491542] Out of memory: Killed process {pid} (scene_hip) total-vm:53312244kB, \
                        anon-rss:31451456kB, file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n";
    const QUIET: &str = "[    1.000000] Linux version 6.12.0\n";
    let ram = ram_bytes(APU);
    let apu = |available: u64| {
        let limit = ram / 32 * 31;
        let memory = format!("MemTotal: {} kB\nMemAvailable: {} kB", ram >> 10, available >> 10);
        Machine::apu(limit, 512 * MIB, limit, limit).with("proc/meminfo", memory)
    };
    let held = |says, story, percent: u64, machine, log: &str| {
        let script = format!("push {} {percent}; launch; sleep 250; kill", mib(ram / 100));
        scene("uma-host-pressure", says, story, script)
            .on(machine)
            .set("SIM_CAPACITY", ram / 32 * 31)
            .set("SIM_SYSFS_CARD", "")
            .watched()
            .given("--kernel-log", log)
            .also(&["host-ram-oom-kill"])
    };
    vec![
        held(Found(Proven), "90 % of the RAM live on the GPU, 900 MiB are left", 90, apu(900 * MIB), KILL),
        held(Not, "the same, and the kernel killed nobody", 90, apu(900 * MIB), QUIET),
        held(Not, "the kernel killed it, and 20 % of the RAM live on the GPU", 20, apu(900 * MIB), KILL),
    ]
}

fn host_memory() -> Vec<Scene> {
    let ram = ram_bytes(CARD);
    let kernel_gives = |bytes: u64| Machine::card().with("sys/module/ttm/parameters/pages_limit", bytes / 4096);
    let gtt = |used: u64| Machine::card().with("sys/class/drm/card1/device/mem_info_gtt_used", used);
    vec![
        scene(
            "kfd-system-memory-limit",
            First(Proven),
            "the kernel gives half of the RAM, and the program pins all of it",
            format!("host a {}; host b {}", mib(ram / 5 * 2), mib(ram / 5)),
        )
        .on(kernel_gives(ram / 2))
        .set("SIM_PINNED_LIMIT", ram / 2)
        .also(&["pinned-host-exhaustion"]),
        scene("kfd-system-memory-limit", Not, "device memory of a card", "push 1G 22; alloc b 4G")
            .also(&["true-capacity"]),
        scene("pinned-host-exhaustion", First(Proven), "pinned memory is refused", "host a 1G; host b 4G")
            .set("SIM_PINNED_LIMIT", "2G"),
        scene(
            "pinned-host-exhaustion",
            First(Proven),
            "memory can't be registered, over CUDA",
            "alloc a 1G; register b 4G",
        )
        .set("SIM_PINNED_LIMIT", "2G")
        .cuda(),
        scene("pinned-host-exhaustion", Not, "device memory is refused", "push 1G 22; alloc b 4G")
            .also(&["true-capacity"]),
        scene(
            "gtt-exhaustion",
            First(Possible),
            "all of GTT is in use, and the program fails for a reason of its own, or for that",
            "alloc a 1G; sleep 250; exit 1",
        )
        .on(gtt(33_600_000_000)),
        scene(
            "gtt-exhaustion",
            Found(Proven),
            "the same, and the kernel says that it refused a command of this card",
            "alloc a 1G; sleep 250; exit 1",
        )
        .on(gtt(33_600_000_000))
        .given("--kernel-log", SUBMISSION),
        scene(
            "gtt-exhaustion",
            Found(Probable),
            "all of GTT is in use, and pinned memory is refused",
            "alloc d 1G; host a 4G; sleep 250; host b 4G",
        )
        .on(gtt(33_600_000_000))
        .set("SIM_PINNED_LIMIT", "6G")
        .also(&["pinned-host-exhaustion"]),
        scene("gtt-exhaustion", Not, "half of GTT is in use", "alloc a 1G; sleep 250; exit 1").on(gtt(16 * GIB)),
        scene("device-cgroup-limit", First(Proven), "the group may have 8 GiB of the card", "push 1G 7; alloc b 2G")
            .on(Machine::of("container").with("sys/fs/cgroup/dmem.current", "drm/0000:03:00.0/vram 7600000000"))
            .set("SIM_PROCESS_LIMIT", "8G"),
        scene(
            "device-cgroup-limit",
            Found(Possible),
            "the same, and the group held nothing when the program started: does its memory count there?",
            "push 1G 7; alloc b 2G",
        )
        .on(Machine::of("container"))
        .set("SIM_PROCESS_LIMIT", "8G")
        .also(&["phantom-free"]),
        scene("device-cgroup-limit", Not, "the group has no limit", "push 1G 7; alloc b 2G")
            .on(Machine::of("container").with("sys/fs/cgroup/dmem.max", "drm/0000:03:00.0/vram max"))
            .set("SIM_PROCESS_LIMIT", "8G")
            .also(&["phantom-free"]),
    ]
}

fn parts() -> Vec<Scene> {
    let node = "sys/class/kfd/kfd/topology/nodes/1/properties";
    let target = |number: &str| {
        Machine::card().changed(node, "gfx_target_version 110000", &format!("gfx_target_version {number}"))
    };
    let half = |says, story, machine| {
        scene("vram-half-cap", says, story, "push 1G 12; alloc b 1G")
            .on(machine)
            .torch("2.12.0+rocm7.0", "7.0.51831")
            .set("SIM_HIP_VERSION", 70_051_831)
            .set("SIM_PROCESS_LIMIT", "12G")
            .also(&["phantom-free"])
    };
    let libdrm =
        |says, story, wrote: &str| scene("missing-libdrm-link", says, story, "alloc a 1G").given("--torch-log", wrote);
    vec![
        libdrm(
            Found(Proven),
            "the runtime can't open libdrm",
            "Fail to open libdrm_amdgpu.so: libdrm_amdgpu.so: cannot open shared object file\n",
        ),
        scene("xnack-ineffective", Found(Proven), "HSA_XNACK=1 on gfx1100", "alloc a 1G; sleep 250")
            .set("HSA_XNACK", 1),
        scene("xnack-ineffective", Not, "HSA_XNACK=1 on gfx90a, which has it", "alloc a 1G; sleep 250")
            .on(target("90010"))
            .set("HSA_XNACK", 1),
        half(Found(Possible), "RDNA4 with PyTorch 2.12: refused at 12 of 24 GiB", target("120001")),
        half(Not, "the same on RDNA3", Machine::card()),
        scene(
            "known-bad-version",
            Found(Probable),
            "stream-ordered memory is refused on ROCm 6.4 where plain memory is not",
            "alloc w 1G; async a 3G; failures go; async x 2G; alloc y 2G; exit 1",
        )
        .set("SIM_HIP_VERSION", 60_443_483)
        .set("SIM_POOL_LIMIT", "4G")
        .also(&["mallocasync-oom"]),
        scene(
            "known-bad-version",
            Not,
            "virtual memory on ROCm 6.4, and all of it comes back",
            "alloc a 1G; virtual v 64M; free v; sleep 250",
        )
        .set("SIM_HIP_VERSION", 60_443_483),
        scene("known-bad-version", Not, "virtual memory on ROCm 7.0", "alloc a 1G; virtual v 64M; free v; sleep 250")
            .set("SIM_HIP_VERSION", 70_051_831),
        scene(
            "version-mismatch",
            Found(Proven),
            "PyTorch for ROCm 6.2 with the runtime of 7.0",
            "alloc a 1G; sleep 250",
        )
        .torch("2.5.1+rocm6.2", "6.2.41133-dd7f95766")
        .set("SIM_HIP_VERSION", 70_051_831),
        scene(
            "version-mismatch",
            Found(Proven),
            "the same, where PyTorch is loaded when memory was taken already",
            "alloc a 1G; sleep 250; load {lib}/libtorch_hip.so; sleep 250",
        )
        .torch("2.5.1+rocm6.2", "6.2.41133-dd7f95766")
        .loads_torch_late()
        .set("SIM_HIP_VERSION", 70_051_831),
        scene("version-mismatch", Not, "PyTorch for the runtime that is loaded", "alloc a 1G; sleep 250")
            .torch("2.10.0+rocm7.0", "7.0.51831-a3e329ad8")
            .set("SIM_HIP_VERSION", 70_051_831),
    ]
}
