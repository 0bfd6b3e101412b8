//! Ledgers: who holds what, and that it adds up.

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::record::{Event, Kind, Layer, NO_DEVICE, Record, flag};
use proptest::prelude::*;

use super::stack::{Stack, action, depth};
use super::{builder, read};
use crate::conclusion::Summary;
use crate::passes::ledger::{DeviceLedger, Row};
use crate::report::page::Look;
use crate::testing::{At, GIB, MIB, TraceBuilder, at, summary};

/// Owner, layer, kind, function, library and MiB of a row.
type Line<'a> = (&'a str, Option<&'a str>, &'a str, Option<&'a str>, Option<&'a str>, u64);

fn rows(ledger: &DeviceLedger) -> Vec<Line<'_>> {
    let row = |row: &'_ Row| row.bytes / MIB;
    let all = ledger.rows.iter();
    all.map(|line| (line.owner, line.layer, line.kind, line.api.as_deref(), line.library.as_deref(), row(line)))
        .collect()
}

/// Rows, remainder and free memory add up to the total of what was read.
fn assert_closes(ledger: &DeviceLedger) {
    let (Some(total), Some(free), Some(rest)) = (ledger.total_bytes, ledger.free_bytes, ledger.unattributed_bytes)
    else {
        panic!("nothing was read: {ledger:#?}")
    };
    let rows: u64 = ledger.rows.iter().map(|row| row.bytes).sum();
    let over = ledger.overattributed_bytes.unwrap_or(0);
    assert_eq!(rows + rest + free, total + over, "{ledger:#?}");
    assert!(rest == 0 || over == 0, "{ledger:#?}");
}

fn moment<'a>(summary: &'a Summary, moment: &str) -> &'a DeviceLedger {
    summary.facts.ledger.iter().find(|ledger| ledger.moment == moment).unwrap()
}

/// One of everything on one card, down to the kernel.
fn everything() -> TraceBuilder {
    let mut trace = builder().library("/opt/libmodel.so.2", 0x10_0000, 1).library("/opt/librccl.so", 0x20_0000, 2);
    let hsa = "hsa_amd_memory_pool_allocate";
    let kfd = "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU";
    trace.site = 1;
    trace.alloc_through(0, &[at("hipMalloc", 0x1000, 3 * MIB), at(hsa, 0x1000, 3 * MIB), at(kfd, 1, 4 * MIB)]);
    let pool = At { kind: Kind::Pool, ..at("hipMallocAsync", 0x2000, MIB) };
    trace.alloc_through(0, &[pool, at(hsa, 0x2000, 32 * MIB), at(kfd, 2, 32 * MIB)]);
    trace.site = 2;
    trace.alloc_through(
        flag::FROM_RUNTIME,
        &[at("hipMalloc", 0x3000, 2 * MIB), at(hsa, 0x3000, 2 * MIB), at(kfd, 3, 2 * MIB)],
    );
    trace.site = 0;
    trace.alloc_through(flag::FROM_RUNTIME, &[at(hsa, 0x4000, MIB), at(kfd, 4, 2 * MIB)]);
    trace.alloc_through(flag::FROM_RUNTIME, &[at(kfd, 5, 8 * MIB)]);
    let load = trace.record(Event::Module, Kind::Code, "hsa_executable_load_agent_code_object");
    let load = Record { kind_flags: Kind::Code as u8 | flag::FROM_RUNTIME, ..load };
    trace.set_up_through(load, &[at(kfd, 6, 16 * MIB)]);
    trace
}

#[test]
fn each_holder_has_its_row_and_the_sum_closes() {
    let mut trace = everything();
    let seq = trace.refuse(GIB);
    let readings = [
        (Quantity::VramTotal, 16 * GIB),
        (Quantity::VramUsed, 200 * MIB),
        (Quantity::KfdProcessVram, 66 * MIB),
        (Quantity::KfdOthersVram, 40 * MIB),
        (Quantity::GraphicsVram, 80 * MIB),
        (Quantity::RuntimeTotal, 16 * GIB),
        (Quantity::RuntimeFree, 16 * GIB - 120 * MIB),
    ];
    let readings: Vec<(u16, u64)> = readings.iter().map(|(quantity, value)| (*quantity as u16, *value)).collect();
    trace.read_at_failure(seq, &readings);
    let summary = summary(&trace);
    let ledger = moment(&summary, "oom:1");
    let model = Some("libmodel.so.2");
    assert_eq!(
        rows(ledger),
        [
            ("graphics clients", None, "device", None, None, 80),
            ("other processes", None, "device", None, None, 40),
            ("runtime pools and caches", Some("hsa"), "pool", None, None, 31),
            ("runtime", Some("kernel"), "code", None, None, 16),
            ("runtime", Some("kernel"), "device", Some("AMDKFD_IOC_ALLOC_MEMORY_OF_GPU"), None, 8),
            ("program", Some("runtime"), "device", Some("hipMalloc"), model, 3),
            ("rounding", Some("kernel"), "device", None, None, 2),
            ("vendor libraries", Some("runtime"), "device", Some("hipMalloc"), Some("librccl.so"), 2),
            ("program", Some("runtime"), "pool", Some("hipMallocAsync"), model, 1),
            ("runtime", Some("hsa"), "device", Some("hsa_amd_memory_pool_allocate"), None, 1),
        ]
    );
    assert_closes(ledger);
    assert_eq!((ledger.free_by, ledger.unattributed_bytes), (Some("sysfs"), Some(16 * MIB)));
    assert_eq!(ledger.unattributed_in_process_bytes, Some(2 * MIB));
    let sources: Vec<&str> = ledger.readings.iter().map(|reading| reading.source).collect();
    assert_eq!(sources, ["sysfs", "hipMemGetInfo", "KFD"]);
    let sources: Vec<&str> = ledger.rows.iter().map(|row| row.source).take(3).collect();
    assert_eq!(sources, ["fdinfo", "KFD", "calls"]);
    let devices: Vec<&str> = summary.facts.ledger.iter().map(|ledger| ledger.moment.as_str()).collect();
    assert_eq!(devices, ["oom:1", "peak", "end"]);
}

#[test]
fn the_peak_is_remembered_when_all_of_it_is_gone() {
    let mut trace = everything();
    read(&mut trace, &[(Quantity::RuntimeTotal, GIB), (Quantity::RuntimeFree, GIB - 100 * MIB)]);
    let free = [at("hipFree", 0x1000, 0), at("hsa_amd_memory_pool_free", 0x1000, 0)];
    trace.free_through(0, &[free[0], free[1], at("AMDKFD_IOC_FREE_MEMORY_OF_GPU", 1, 0)]);
    read(&mut trace, &[(Quantity::RuntimeTotal, GIB), (Quantity::RuntimeFree, GIB - 90 * MIB)]);
    let summary = summary(&trace);
    // What came after the peak (the calls behind the program's last) is not part of it.
    let (peak, end) = (moment(&summary, "peak"), moment(&summary, "end"));
    let sum = |ledger: &DeviceLedger| ledger.rows.iter().map(|row| row.bytes / MIB).sum::<u64>();
    assert_eq!((sum(peak), sum(end)), (36, 60));
    assert_eq!((peak.unattributed_bytes, end.unattributed_bytes), (Some(64 * MIB), Some(30 * MIB)));
    assert_closes(peak);
    assert_closes(end);
}

/// What others took between a peak and the first reading behind it is in that reading: the page says when it was taken.
#[test]
fn a_peak_that_was_read_later_says_when() {
    let notes = |later_ns: u64| {
        let mut trace = builder();
        trace.alloc(0x1000, 4 * GIB);
        trace.now_ns += later_ns;
        read(&mut trace, &[(Quantity::RuntimeTotal, 16 * GIB), (Quantity::RuntimeFree, GIB)]);
        let summary = summary(&trace);
        let peak = moment(&summary, "peak");
        assert!(peak.read_at_ns >= Some(peak.at_ns + later_ns), "{peak:?}");
        crate::report::text::write(&summary, &[], Look::new(100, false))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert!(notes(750_000_000).contains("nobody read it at the peak itself"));
    assert!(!notes(0).contains("nobody read it"));
}

#[test]
fn calls_that_hold_more_than_is_used_are_named() {
    let mut trace = builder();
    trace.alloc(0x1000, 4 * GIB);
    read(&mut trace, &[(Quantity::RuntimeTotal, 16 * GIB), (Quantity::RuntimeFree, 13 * GIB)]);
    let summary = summary(&trace);
    let ledger = moment(&summary, "peak");
    assert_closes(ledger);
    assert_eq!((ledger.unattributed_bytes, ledger.overattributed_bytes), (Some(0), Some(GIB)));
}

#[test]
fn nvidia_s_numbers_close_too() {
    let mut trace = builder();
    trace.alloc_through(0, &[at("cudaMalloc", 0x1000, 3 * MIB), at("cuMemAlloc_v2", 0x1000, 3 * MIB)]);
    let readings = [
        (Quantity::NvmlTotal, 16 * GIB),
        (Quantity::NvmlUsed, 900 * MIB),
        (Quantity::NvmlReserved, 300 * MIB),
        (Quantity::NvmlProcess, 400 * MIB),
    ];
    read(&mut trace, &readings);
    let summary = summary(&trace);
    let ledger = moment(&summary, "peak");
    assert_closes(ledger);
    let rows: Vec<(&str, u64)> = ledger.rows.iter().map(|row| (row.owner, row.bytes / MIB)).collect();
    assert_eq!(rows, [("driver reserve", 300), ("not this process", 200), ("program", 3)]);
    assert_eq!(ledger.unattributed_in_process_bytes, Some(397 * MIB));
    read(&mut trace, &[&readings[..], &[(Quantity::NvmlOthers, 150 * MIB)]].concat());
    let summary = crate::testing::summary(&trace);
    let ledger = moment(&summary, "end");
    assert_closes(ledger);
    let rows: Vec<(&str, u64)> = ledger.rows.iter().map(|row| (row.owner, row.bytes / MIB)).collect();
    assert_eq!(rows, [("driver reserve", 300), ("other processes", 150), ("in no process", 50), ("program", 3)]);
}

#[test]
fn pinned_host_memory_has_a_ledger_of_its_own() {
    let mut trace = builder();
    let lock = "hsa_amd_memory_lock_to_pool";
    let pinned = At { kind: Kind::HostPinned, ..at("hipHostMalloc", 0x1000, 3 * MIB) };
    let below = At { kind: Kind::HostPinned, ..at("hsa_amd_memory_pool_allocate", 0x1000, 4 * MIB) };
    trace.alloc_through(0, &[pinned, below]);
    let registered = At { kind: Kind::Registered, ..at("hipHostRegister", 0x9000, 8 * MIB) };
    trace.alloc_through(flag::FROM_RUNTIME, &[At { kind: Kind::Registered, ..at(lock, 0x50_0000, 16 * MIB) }]);
    let staging = At { kind: Kind::HostPinned, ..at("hsa_amd_memory_pool_allocate", 0x60_0000, 2 * MIB) };
    trace.alloc_through(flag::FROM_RUNTIME, &[staging]);
    trace.alloc_through(0, &[registered, At { kind: Kind::Registered, ..at(lock, 0x9000, 8 * MIB) }]);
    let summary = summary(&trace);
    let ledger = summary.facts.host_ledger.first().unwrap();
    let rows: Vec<(&str, &str, u64)> = ledger.rows.iter().map(|row| (row.owner, row.kind, row.bytes / MIB)).collect();
    let expected = [
        ("runtime", "registered", 16),
        ("program", "registered", 8),
        ("program", "host-pinned", 3),
        ("runtime", "host-pinned", 2),
        ("rounding", "host-pinned", 1),
    ];
    assert_eq!((ledger.moment.as_str(), rows), ("peak", expected.to_vec()));
    assert!(summary.facts.ledger.iter().all(|ledger| ledger.rows.is_empty()));
}

/// HIP 6.4 answers success where memory is registered twice, asks the kernel once, and its first `hipHostUnregister` is the last
/// (`docs/rocm-versions.md`): what it pinned stays.
#[test]
fn what_is_registered_twice_stays_pinned() {
    let mut trace = builder();
    let registered = At { kind: Kind::Registered, ..at("hipHostRegister", 0x9000, 600 * MIB) };
    trace
        .alloc_through(0, &[registered, At { kind: Kind::Registered, ..at("hsa_amd_memory_lock", 0x9000, 600 * MIB) }]);
    trace.alloc_through(0, &[registered]);
    trace.free_through(0, &[At { kind: Kind::Registered, ..at("hipHostUnregister", 0x9000, 0) }]);
    trace.alloc_through(0, &[At { kind: Kind::HostPinned, ..at("hipHostMalloc", 0x9000_0000, GIB) }]);
    let summary = summary(&trace);
    let host = &summary.facts.host;
    assert_eq!((host.allocations, host.frees, host.registered_again, host.replaced), (3, 1, 1, 0));
    let ledger = summary.facts.host_ledger.first().unwrap();
    let rows: Vec<(&str, &str, u64)> = ledger.rows.iter().map(|row| (row.owner, row.kind, row.bytes / MIB)).collect();
    assert_eq!(rows, [("program", "host-pinned", 1024), ("still pinned", "registered", 600)]);
}

/// A runtime that moves no pages takes managed memory out of pinned memory: the program asked for it.
#[test]
fn managed_memory_that_is_pinned_is_the_programs() {
    let mut trace = builder();
    let below = At { kind: Kind::HostPinned, ..at("hsa_amd_memory_pool_allocate", 0x1000, 300 * MIB) };
    trace.alloc_through(0, &[At { kind: Kind::Managed, ..at("hipMallocManaged", 0x1000, 300 * MIB) }, below]);
    // What the runtime takes for itself in such a call has an address of its own.
    let staging = At { kind: Kind::HostPinned, ..at("hsa_amd_memory_pool_allocate", 0x6000_0000, 4 * MIB) };
    trace.alloc_through(0, &[At { kind: Kind::Managed, ..at("hipMallocManaged", 0x4000_0000, MIB) }, staging]);
    let pinned = At { kind: Kind::HostPinned, ..at("hipHostMalloc", 0x9000_0000, 3 * MIB) };
    trace.alloc_through(0, &[pinned]);
    let summary = summary(&trace);
    let ledger = summary.facts.host_ledger.first().unwrap();
    let rows: Vec<(&str, &str, u64)> = ledger.rows.iter().map(|row| (row.owner, row.kind, row.bytes / MIB)).collect();
    assert_eq!(rows, [("program", "managed", 300), ("runtime", "host-pinned", 4), ("program", "host-pinned", 3)]);
}

#[test]
fn what_was_read_of_a_card_is_not_the_hosts() {
    let mut trace = builder();
    trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x1000, 3 * MIB);
    let record = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
    let seq = trace.push(Record { status: 2, requested: 64 * MIB, ..record }, &[]);
    let of_card = [(Quantity::RuntimeFree as u16, 100 * MIB), (Quantity::KfdOthersVram as u16, 50 * MIB)];
    trace.read_at_failure(seq, &of_card);
    let summary = summary(&trace);
    let ledger = summary.facts.host_ledger.iter().find(|ledger| ledger.moment == "oom:1").unwrap();
    let rows: Vec<(&str, u64)> = ledger.rows.iter().map(|row| (row.owner, row.bytes / MIB)).collect();
    assert_eq!(rows, [("program", 3)]);
    assert_eq!((ledger.total_bytes, ledger.free_bytes, ledger.unattributed_bytes), (None, None, None));
    assert!(ledger.readings.is_empty());
}

#[test]
fn memory_of_an_unknown_device_is_not_the_hosts() {
    let mut trace = builder();
    let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { requested: MIB, address: 0x1000, device: NO_DEVICE, ..record }, &[]);
    let unknown = summary(&trace);
    let places: Vec<String> = unknown.facts.ledger.iter().filter(|l| !l.rows.is_empty()).map(|l| l.place()).collect();
    assert_eq!(places, ["an unknown device"; 2], "at the peak and at the end");
    let mut trace = builder();
    trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x1000, MIB);
    assert_eq!(summary(&trace).facts.host_ledger[0].place(), "pinned host memory");
}

#[test]
fn a_handle_that_found_no_memory_is_a_failure_of_unknown_size() {
    let mut trace = builder();
    let create = |trace: &mut TraceBuilder, status| {
        let record = trace.record(Event::Module, Kind::None, "cublasCreate_v2");
        trace.push(Record { status, ..record }, &[]);
    };
    create(&mut trace, 3);
    // Another allocation does not make up for it, nor does code that is about to be loaded.
    trace.alloc(0x1000, 8 * GIB);
    trace.after(Event::Module, "hipModuleLoad", 0, 0);
    create(&mut trace, 0);
    create(&mut trace, 1);
    let summary = summary(&trace);
    let [oom] = &summary.facts.ooms[..] else { panic!("{:#?}", summary.facts.ooms) };
    assert_eq!((oom.requested_bytes, oom.unknown_size, oom.outcome.name()), (0, true, "recovered"));
    assert_eq!(oom.evidence.last().unwrap().event, "module");
}

#[test]
fn the_lowest_layer_of_a_device_is_known() {
    let lowest = |trace: &TraceBuilder| summary(trace).facts.coverage.lowest_layer;
    let mut trace = builder();
    assert_eq!(lowest(&trace), None);
    trace.alloc(0x1000, MIB);
    assert_eq!(lowest(&trace), Some(Layer::Runtime.name()));
    assert_eq!(lowest(&everything()), Some(Layer::Kernel.name()));
    let outer = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let inner = trace.record(Event::Alloc, Kind::Device, "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU");
    let parent_distance = (inner.call - outer.call) as u16;
    trace.push(Record { status: 12, requested: GIB, parent_distance, ..inner }, &[]);
    trace.push(Record { status: 2, requested: GIB, ..outer }, &[]);
    assert_eq!(lowest(&trace), Some(Layer::Kernel.name()), "a layer that only refused");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// What the rows hold is what the simulated stack says that its lowest layer holds, at each failure and at the end.
    #[test]
    fn no_byte_counts_twice(depth in depth(), actions in prop::collection::vec(action(), 1..120)) {
        let mut stack = Stack::new(depth);
        actions.iter().for_each(|action| stack.act(*action));
        read(&mut stack.trace, &[(Quantity::RuntimeTotal, 64 * GIB), (Quantity::RuntimeFree, 1)]);
        let summary = summary(&stack.trace);
        for ledger in &summary.facts.ledger {
            let sum: u64 = ledger.rows.iter().map(|row| row.bytes).sum();
            let expected = match ledger.moment.strip_prefix("oom:") {
                Some(number) => stack.held_at_refusals[number.parse::<usize>().unwrap() - 1],
                None if ledger.moment == "end" => stack.total(),
                None => continue,
            };
            prop_assert_eq!(sum, expected, "{} {:#?}", ledger.moment, ledger.rows);
        }
        if let Some(end) = summary.facts.ledger.iter().find(|ledger| ledger.moment == "end") {
            assert_closes(end);
            prop_assert_eq!(summary.facts.coverage.accounted_bytes, Some(stack.total()));
        }
        prop_assert_eq!(summary.facts.unmatched_frees, 0);
        // A runtime that takes much for itself looks like one whose callers were not seen.
        if stack.runtimes_own_bytes <= 512 * MIB {
            prop_assert!(summary.facts.coverage.bypassed.is_empty(), "{:?}", summary.facts.coverage.bypassed);
        }
    }
}

/// Each failure has its ledger; the one that decides the verdict comes first, and only then the peak.
#[test]
fn each_failure_has_a_ledger() {
    let mut trace = builder();
    for (number, address) in [0x1000u64, 0x2000, 0x3000].into_iter().enumerate() {
        trace.alloc(address, GIB);
        trace.refuse(64 * GIB + number as u64 * GIB);
    }
    let summary = summary(&trace);
    let moments: Vec<&str> = summary.facts.ledger.iter().map(|ledger| ledger.moment.as_str()).collect();
    let mut sorted = moments.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["end", "oom:1", "oom:2", "oom:3", "peak"]);
    assert!(moments[0].starts_with("oom:") && moments[1] == "peak", "{moments:?}");
    let held = |name: &str| {
        let ledger = summary.facts.ledger.iter().find(|ledger| ledger.moment == name).expect("a ledger");
        ledger.rows.iter().map(|row| row.bytes).sum::<u64>()
    };
    assert_eq!(["oom:1", "oom:2", "oom:3"].map(held), [GIB, 2 * GIB, 3 * GIB]);
}
