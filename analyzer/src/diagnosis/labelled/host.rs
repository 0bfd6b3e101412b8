//! I. The host's memory.

use gpuoom_trace::metadata::Quantity::{self, CgroupLimit, CgroupUsed, HostTotal, ResidentMemory};
use gpuoom_trace::metadata::{Reading, trigger};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

use super::{Labelled, Says, Scene};
use crate::evidence::{Given, kernel_log};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder};

const KILL: &str = "[20599.491542] Out of memory: Killed process 4711 (llama-cli) total-vm:53312244kB, anon-rss:31451456kB, \
                    file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0";
const GROUP_KILL: &str = "[18026.221140] Memory cgroup out of memory: Killed process 4711 (llama-cli) total-vm:120832kB, \
                          anon-rss:15596kB, file-rss:8924kB, shmem-rss:0kB, UID:0 pgtables:276kB oom_score_adj:-997";
const OTHER_NAME: &str = "[   99.491542] Out of memory: Killed process 4711 (chromium) total-vm:53312244kB, anon-rss:31451456kB, \
                          file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0";
const SIBLING: &str = "[18026.221140] Memory cgroup out of memory: Killed process 4712 (llama-cli) total-vm:120832kB, \
                       anon-rss:15596kB, file-rss:8924kB, shmem-rss:0kB, UID:0 pgtables:276kB oom_score_adj:-997";
const QUIET: &str = "[    1.000000] Linux version 6.12.0";

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "host-ram-oom-kill",
        says: Says::First(Proven),
        also: &[],
        story: "SIGKILL, and the kernel's log names the process",
        scene: || killed(&[(ResidentMemory, 30 * GIB), (HostTotal, 32 * GIB)], Some(KILL)),
    },
    Labelled {
        id: "host-ram-oom-kill",
        says: Says::First(Probable),
        also: &[],
        story: "SIGKILL with 30 of 32 GiB resident, and no log",
        scene: || killed(&[(ResidentMemory, 30 * GIB), (HostTotal, 32 * GIB)], None),
    },
    Labelled {
        id: "host-ram-oom-kill",
        says: Says::Not,
        also: &[],
        story: "SIGKILL by somebody: the kernel's log has no kill",
        scene: || killed(&[(ResidentMemory, 30 * GIB), (HostTotal, 32 * GIB)], Some(QUIET)),
    },
    Labelled {
        id: "host-ram-oom-kill",
        says: Says::Not,
        also: &[],
        story: "SIGKILL with 2 of 32 GiB resident",
        scene: || killed(&[(ResidentMemory, 2 * GIB), (HostTotal, 32 * GIB)], None),
    },
    Labelled {
        id: "host-ram-oom-kill",
        says: Says::Not,
        also: &[],
        story: "SIGKILL with 2 of 32 GiB resident, and an old log in which another program had its number",
        scene: || killed(&[(ResidentMemory, 2 * GIB), (HostTotal, 32 * GIB)], Some(OTHER_NAME)),
    },
    Labelled {
        id: "host-ram-oom-kill",
        says: Says::Not,
        also: &[],
        story: "SIGKILL with 2 of 32 GiB resident, and the kernel killed a sibling",
        scene: || killed(&[(ResidentMemory, 2 * GIB), (HostTotal, 32 * GIB)], Some(SIBLING)),
    },
    Labelled {
        id: "cgroup-memory-limit",
        says: Says::Found(Possible),
        also: &[],
        story: "a full container, SIGKILL by somebody, and a kill in another container of a program of the same name",
        scene: || killed(&[(ResidentMemory, GIB), (CgroupLimit, 8 * GIB), (CgroupUsed, 8 * GIB)], Some(SIBLING)),
    },
    Labelled {
        id: "cgroup-memory-limit",
        says: Says::Found(Proven),
        also: &["host-ram-oom-kill"],
        story: "a container of 8 GiB with 8 GiB used, and the kernel's log names its limit",
        scene: || {
            killed(
                &[(ResidentMemory, 7 * GIB + 900 * MIB), (CgroupLimit, 8 * GIB), (CgroupUsed, 8 * GIB)],
                Some(GROUP_KILL),
            )
        },
    },
    Labelled {
        id: "cgroup-memory-limit",
        says: Says::Found(Probable),
        also: &["pinned-host-exhaustion"],
        story: "pinned memory that the container of 8 GiB has no room for",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            read(&mut trace, &[(CgroupLimit, 8 * GIB), (CgroupUsed, 6 * GIB), (ResidentMemory, 5 * GIB)]);
            let record = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
            trace.push(Record { status: 2, requested: 4 * GIB, ..record }, &[]);
            Scene { trace }
        },
    },
    Labelled {
        id: "cgroup-memory-limit",
        says: Says::Found(Possible),
        also: &["pinned-host-exhaustion"],
        story: "the same, and what the container holds may be files that the kernel can drop",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            read(&mut trace, &[(CgroupLimit, 8 * GIB), (CgroupUsed, 8 * GIB), (ResidentMemory, GIB)]);
            let record = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
            trace.push(Record { status: 2, requested: GIB, ..record }, &[]);
            Scene { trace }
        },
    },
    Labelled {
        id: "cgroup-memory-limit",
        says: Says::Not,
        also: &[],
        story: "a container of 8 GiB, and a request for pinned memory that no machine could meet",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            read(&mut trace, &[(CgroupLimit, 8 * GIB), (CgroupUsed, GIB), (ResidentMemory, GIB), (HostTotal, 8 * GIB)]);
            let record = trace.record(Event::Alloc, Kind::HostPinned, "cuMemAllocHost_v2");
            trace.push(Record { status: 2, requested: 1 << 50, ..record }, &[]);
            Scene { trace }
        },
    },
    Labelled {
        id: "cgroup-memory-limit",
        says: Says::Not,
        also: &[],
        story: "a container of 64 GiB with 8 GiB used",
        scene: || killed(&[(ResidentMemory, 7 * GIB), (CgroupLimit, 64 * GIB), (CgroupUsed, 8 * GIB)], None),
    },
];

fn read(trace: &mut TraceBuilder, values: &[(Quantity, u64)]) {
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let reading =
        |(quantity, value): &(Quantity, u64)| Reading { quantity: *quantity as u16, device: NO_DEVICE, value: *value };
    let readings: Vec<Reading> = values.iter().map(reading).collect();
    trace.reading(Record { status: trigger::PERIOD, device: NO_DEVICE, ..record }, &readings);
}

/// A run that SIGKILL ends, with a log of the kernel.
fn killed(values: &[(Quantity, u64)], log: Option<&str>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    read(&mut trace, values);
    trace.header.end_kind = gpuoom_trace::header::end::SIGNALED;
    trace.header.end_code = libc::SIGKILL;
    let logs = log.map(|log| Given { path: "dmesg.txt".into(), content: kernel_log::read(log) });
    trace.evidence.kernel_logs = logs.into_iter().collect();
    Scene { trace }
}
