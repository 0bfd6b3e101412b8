//! I. The host's memory, and J. the hardware.

use crate::machine::Machine;
use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable, Proven};
use crate::scene::{Scene, scene};

const KILL: &str = "[20599.491542] Out of memory: Killed process {pid} (scene_hip) total-vm:53312244kB, anon-rss:31451456kB, \
                    file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n";
const GROUP_KILL: &str = "[18026.221140] Memory cgroup out of memory: Killed process {pid} (scene_hip) total-vm:120832kB, \
                          anon-rss:15596kB, file-rss:8924kB, shmem-rss:0kB, UID:0 pgtables:276kB oom_score_adj:-997\n";
const QUIET: &str = "[    1.000000] Linux version 6.12.0\n";
const XID_48: &str = "[  102.123456] NVRM: Xid (PCI:0000:03:00): 48, pid=4711, name=llama-cli, Ch 00000008\n";

/// `nvidia-smi -q -x` of a card with so many bad pages.
fn nvidia_smi(pages: u64) -> String {
    format!(
        "<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n<attached_gpus>1</attached_gpus>\n<gpu id=\"00000000:01:00.0\">\n\
         <fb_memory_usage>\n<total>24564 MiB</total>\n<used>1400 MiB</used>\n<free>23164 MiB</free>\n</fb_memory_usage>\n\
         <retired_pages><double_bit_retirement><retired_count>{pages}</retired_count></double_bit_retirement></retired_pages>\n\
         </gpu>\n</nvidia_smi_log>\n"
    )
}

pub(crate) fn scenes() -> Vec<Scene> {
    let killed = |id, says, story, log: &str| {
        scene(id, says, story, "alloc a 1G; sleep 250; kill").watched().given("--kernel-log", log)
    };
    let group = |used: u64, limit: u64| {
        Machine::card()
            .with("sys/fs/cgroup/memory.current", used)
            .with("sys/fs/cgroup/memory.max", limit)
            .with("sys/fs/cgroup/memory/memory.usage_in_bytes", used)
            .with("sys/fs/cgroup/memory/memory.limit_in_bytes", limit)
    };
    let gib = 1_u64 << 30;
    let pages = |says, story, pages| {
        let scene = scene("retired-pages", says, story, "alloc a 1G; sleep 250").cuda().on(Machine::of("nvidia"));
        scene.set("SIM_CAPACITY", "24460M").given("--nvidia-smi", nvidia_smi(pages))
    };
    vec![
        pages(Found(Proven), "12 bad pages, and the runtime offers less than the board has", 12),
        pages(Not, "no bad page", 0),
        killed("host-ram-oom-kill", First(Proven), "SIGKILL, and the kernel's log names the process", KILL),
        killed("host-ram-oom-kill", Not, "SIGKILL by somebody: the kernel's log has no kill", QUIET),
        killed(
            "cgroup-memory-limit",
            Found(Proven),
            "a full container, and the kernel's log names its limit",
            GROUP_KILL,
        )
        .on(group(8 * gib, 8 * gib))
        .also(&["host-ram-oom-kill"]),
        killed("cgroup-memory-limit", Not, "a container with much room", QUIET).on(group(8 * gib, 64 * gib)),
        scene(
            "cgroup-memory-limit",
            Found(Probable),
            "pinned memory that the container has no room for beside the program's own",
            "resident 300M; alloc a 1G; sleep 250; host b 200M",
        )
        .on(group(320 << 20, 400 << 20))
        .set("SIM_PINNED_LIMIT", "100M")
        .also(&["pinned-host-exhaustion"]),
        scene(
            "cgroup-memory-limit",
            Found(Possible),
            "the same, and what the container holds may be files that the kernel can drop",
            "alloc a 1G; sleep 250; host b 4G",
        )
        .on(group(6 * gib, 8 * gib))
        .set("SIM_PINNED_LIMIT", "2G")
        .also(&["pinned-host-exhaustion"]),
        scene(
            "suspect-hardware",
            Found(Possible),
            "refused at 1 of 24 GiB, enough is free, and the kernel tells of an ECC error",
            "alloc a 1G; alloc b 64M",
        )
        .set("SIM_PROCESS_LIMIT", "1G")
        .given("--kernel-log", XID_48)
        .also(&["phantom-free"]),
        scene(
            "suspect-hardware",
            Not,
            "the same error, and a request that explains the failure by itself",
            "alloc a 1G; alloc b 80G",
        )
        .given("--kernel-log", XID_48)
        .also(&["request-exceeds-device"]),
    ]
}
