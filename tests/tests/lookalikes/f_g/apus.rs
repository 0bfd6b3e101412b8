//! G. Machines whose numbers look like those of an APU with a wrong setting.

use super::{GIB, MIB, beside, card_and_processor_graphics, card_of, mib, node, on_the_card};
use crate::looks_like;
use crate::machine::{APU, CARD, Machine, ram_bytes};
use crate::scene::Scene;

pub(super) fn scenes() -> Vec<Scene> {
    [kernel_limit(), parameters(), carve_outs(), large_carve_outs(), totals(), clamps(), pressure()].concat()
}

/// A program that fills so many per cent of a device of this size, and then asks for more.
fn fills(id: &'static str, story: &'static str, machine: Machine, total: u64, percent: u64, asked: u64) -> Scene {
    looks_like(id, story, format!("push {} {percent}; alloc b {}", mib(total / 100), mib(asked)))
        .on(machine)
        .set("SIM_CAPACITY", total)
        .set("SIM_SYSFS_CARD", "")
}

fn apu_of(limit: u64) -> Machine {
    Machine::apu(limit, 512 * MIB, limit, limit)
}

fn kernel_limit() -> Vec<Scene> {
    const ID: &str = "uma-ttm-limit";
    let (ram, host) = (ram_bytes(APU), ram_bytes(CARD));
    let half = ram / 2;
    vec![
        fills(ID, "a card whose memory happens to be half of the RAM", card_of(host / 2), host / 2, 95, 4 * GIB)
            .also(&["true-capacity"]),
        fills(ID, "70 % of the RAM, set by hand", apu_of(ram / 10 * 7), ram / 10 * 7, 95, 8 * GIB)
            .also(&["true-capacity"]),
        fills(ID, "half of the RAM, and other processes hold most of it", apu_of(half), half, 10, 10 * GIB)
            .set("SIM_OTHERS", half / 10 * 8)
            .also(&["other-process-on-gpu"]),
        fills(
            ID,
            "half of the RAM, and a large request is refused although there is room",
            apu_of(half),
            half,
            20,
            20 * GIB,
        )
        .set("SIM_LARGEST_REQUEST", 16 * GIB)
        .also(&["phantom-free", "single-alloc-cap"]),
        on_the_card(looks_like(
            ID,
            "the card is full, and the processor's graphics are beside it",
            "push 1G 22; alloc b 4G",
        ))
        .also(&["true-capacity"]),
    ]
}

fn parameters() -> Vec<Scene> {
    const ID: &str = "uma-param-mismatch";
    let half = ram_bytes(APU) / 2;
    let set =
        |name: &str, value: i64, machine: Machine| machine.with(&format!("sys/module/amdgpu/parameters/{name}"), value);
    let plain = || set("gttsize", -1, set("vm_size", -1, apu_of(half)));
    let quiet = |story, machine: Machine| {
        looks_like(ID, story, "push 100M 10; launch; pop; sleep 250")
            .on(machine)
            .set("SIM_CAPACITY", half)
            .set("SIM_SYSFS_CARD", "")
    };
    let boot = |words: &str| format!("BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p3 {words}");
    vec![
        quiet("gttsize says in MiB what the limit says in pages", set("gttsize", (half / MIB) as i64, plain())),
        quiet("an address space of 1 TiB, in GiB as it should be", set("vm_size", 1024, plain())),
        quiet(
            "amdttm's parameters with AMD's own driver, which has them",
            plain()
                .with("sys/module/amdttm/parameters/pages_limit", half / 4096)
                .with("sys/module/amdttm/parameters/page_pool_size", half / 4096)
                .with("proc/cmdline", boot(&format!("amdttm.pages_limit={0} amdttm.page_pool_size={0}", half / 4096))),
        ),
        quiet(
            "64 GiB for the GPU in the firmware, and what the host sees of the RAM is the rest",
            set("gttsize", -1, set("vm_size", -1, Machine::apu(half / 2, 64 * GIB, half / 2, half / 2)))
                .with("proc/meminfo", format!("MemTotal: {} kB\nMemAvailable: {} kB", half >> 10, half >> 11)),
        ),
        looks_like(ID, "gttsize on a machine with a card and without an APU", "push 100M 10; launch; pop; sleep 250")
            .on(set("gttsize", 8192, Machine::card())),
    ]
}

fn carve_outs() -> Vec<Scene> {
    const ID: &str = "uma-carveout-only";
    let ram = ram_bytes(APU);
    vec![
        looks_like(ID, "a card of 8 GiB in a machine with 64 GiB of RAM", "push 1G 7; alloc b 4G")
            .on(card_of(8 * GIB))
            .also(&["true-capacity"]),
        fills(
            ID,
            "a carve-out of 96 GiB is used, GTT is the smaller one",
            Machine::apu(15 * GIB, 96 * GIB, 15 * GIB, 96 * GIB)
                .with("proc/meminfo", "MemTotal: 32000000 kB\nMemAvailable: 26000000 kB"),
            96 * GIB,
            95,
            8 * GIB,
        )
        .also(&["true-capacity"]),
        fills(
            ID,
            "carve-out and GTT are about the same, and the kernel gives GTT",
            Machine::apu(ram / 2, ram / 2, ram / 2, ram / 2),
            ram / 2,
            95,
            8 * GIB,
        )
        .also(&["true-capacity", "uma-ttm-limit"]),
        on_the_card(looks_like(
            ID,
            "the card is full; the processor's graphics have a small carve-out",
            "push 1G 22; alloc b 4G",
        ))
        .also(&["true-capacity"]),
    ]
}

fn large_carve_outs() -> Vec<Scene> {
    const ID: &str = "uma-large-carveout-starves-gtt";
    let machine = || Machine::of("strix-halo-carveout-96g");
    vec![
        fills(
            ID,
            "the carve-out of 96 GiB is what the program gets, and it is full",
            machine()
                .with(
                    "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties",
                    format!("heap_type 1\nsize_in_bytes {}\nflags 0", 96 * GIB),
                )
                .with("sys/class/drm/card1/device/mem_info_vram_used", 95 * GIB),
            96 * GIB,
            95,
            8 * GIB,
        )
        .also(&["true-capacity"]),
        looks_like(ID, "a card of 48 GiB with 16 GiB of GTT, refused at 15 GiB", "push 1G 15; alloc b 1G")
            .on(card_of(48 * GIB).with("sys/class/drm/card1/device/mem_info_gtt_total", 15 * GIB))
            .set("SIM_PROCESS_LIMIT", "15G")
            .also(&["phantom-free"]),
        looks_like(ID, "pinned memory of the host is refused, not memory of the GPU", "push 1G 4; host h 4G")
            .on(machine())
            .set("SIM_CAPACITY", 96 * GIB)
            .set("SIM_PINNED_LIMIT", "2G")
            .also(&["pinned-host-exhaustion"]),
        looks_like(ID, "one request that is larger than the machine has memory", "push 1G 4; alloc b 200G")
            .on(machine())
            .set("SIM_CAPACITY", 96 * GIB)
            .also(&["request-exceeds-device"]),
    ]
}

fn totals() -> Vec<Scene> {
    const ID: &str = "apu-reporting-inconsistent";
    let more_free = |story, machine: Machine| {
        looks_like(ID, story, "push 1G 22; alloc b 4G")
            .on(machine)
            .set("SIM_OVER_REPORTED", 70 * GIB)
            .also(&["phantom-free"])
    };
    vec![
        more_free("free exceeds the total on a card", Machine::card()),
        more_free("free exceeds the total over CUDA", Machine::of("nvidia")).cuda(),
        more_free("free exceeds the total, and nobody knows what machine it was", Machine::of("")),
        on_the_card(more_free("free exceeds the total on a card beside the processor's graphics", Machine::card())),
        looks_like(ID, "all of an APU is free, as much as there is", "alloc a 1M; free a; sleep 250")
            .on(apu_of(ram_bytes(APU) / 2))
            .set("SIM_CAPACITY", ram_bytes(APU) / 2)
            .set("SIM_SYSFS_CARD", ""),
    ]
}

fn clamps() -> Vec<Scene> {
    const ID: &str = "uma-runtime-clamp";
    let ram = ram_bytes(APU);
    let (half, most) = (ram / 2, ram / 8 * 7);
    let host = ram_bytes(CARD);
    vec![
        fills(ID, "the user lets the runtime have half of the heap", apu_of(most), half, 95, 8 * GIB)
            .set("GPU_MAX_HEAP_SIZE", 57)
            .also(&["true-capacity"]),
        fills(
            ID,
            "a card whose memory happens to be half of the RAM, with the kernel's limit raised",
            card_of(host / 2).with("sys/module/ttm/parameters/pages_limit", host / 8 * 7 / 4096),
            host / 2,
            95,
            4 * GIB,
        )
        .also(&["true-capacity"]),
        fills(
            ID,
            "the carve-out happens to be half of the host's RAM, and the runtime gives the carve-out",
            Machine::apu(most, half, most, half),
            half,
            95,
            8 * GIB,
        )
        .also(&["true-capacity", "uma-carveout-only"]),
        fills(ID, "a virtual card of half of the RAM, for a trial", apu_of(most), most, 45, 10 * GIB)
            .set("GPUOOM_CAPACITY", half)
            .set("GPUOOM_GRANULARITY", "2M")
            .also(&["requested-refusal"]),
    ]
}

fn pressure() -> Vec<Scene> {
    const ID: &str = "uma-host-pressure";
    const OTHER: &str = "[20599.491542] Out of memory: Killed process 1 (chrome) total-vm:53312244kB, anon-rss:31451456kB, \
                         file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n";
    const OWN: &str = "[20599.491542] Out of memory: Killed process {pid} (scene_hip) total-vm:53312244kB, \
                       anon-rss:31451456kB, file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n";
    let ram = ram_bytes(APU);
    let limit = ram / 32 * 31;
    let low = |machine: Machine| {
        machine.with("proc/meminfo", format!("MemTotal: {} kB\nMemAvailable: {} kB", ram >> 10, (900 * MIB) >> 10))
    };
    let held = |story, machine: Machine, log: &str| {
        looks_like(ID, story, format!("push {} 90; launch; sleep 250; kill", mib(ram / 100)))
            .on(machine)
            .set("SIM_CAPACITY", limit)
            .set("SIM_SYSFS_CARD", "")
            .watched()
            .given("--kernel-log", log)
    };
    vec![
        held("the kernel killed a browser, and the user killed this process", low(apu_of(limit)), OTHER),
        held("a card with that much memory of its own, and no RAM left", low(card_of(limit)), OWN)
            .also(&["host-ram-oom-kill"]),
        looks_like(
            ID,
            "the RAM was full and the kernel killed it, but the program worked on the card",
            "push 1G 22; launch; sleep 250; kill",
        )
        .on(low(node(beside(Machine::card(), 0, "0000:0e:00.0", 512 * MIB, 31 * GIB), 2, 7_777, 100_306, 0x0e00, 129)))
        .set("SIM_PCI_BUS_ID", "0000:03:00.0")
        .set("SIM_SYSFS_CARD", "card1")
        .set("SIM_CAPACITY", 24 * GIB)
        .watched()
        .given("--kernel-log", OWN)
        .also(&["host-ram-oom-kill"]),
        looks_like(ID, "little RAM at the end of a run that ends well", "push 1G 4; launch; pop; sleep 250")
            .on(low(card_and_processor_graphics()))
            .set("SIM_PCI_BUS_ID", "0000:03:00.0")
            .set("SIM_SYSFS_CARD", "card1")
            .set("SIM_CAPACITY", 24 * GIB),
    ]
}
