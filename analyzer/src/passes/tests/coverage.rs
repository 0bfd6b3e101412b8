//! How complete a trace is: each sign of a bypass, with what refutes it.

use gpuoom_trace::metadata::{Bypass, Quantity, Reading, trigger};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, flag};

use super::{builder, read};
use crate::passes::coverage::Coverage;
use crate::testing::{At, GIB, MIB, TraceBuilder, at, summary};

const HSA: &str = "hsa_amd_memory_pool_allocate";
const KFD: &str = "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU";
const MS: u64 = 1_000_000;

fn coverage(trace: &TraceBuilder) -> Coverage {
    summary(trace).facts.coverage
}

fn interfaces(trace: &TraceBuilder) -> Vec<String> {
    coverage(trace).bypassed.into_iter().map(|bypass| bypass.interface).collect()
}

#[test]
fn the_share_is_of_the_moment_when_most_was_in_use() {
    let mut trace = builder();
    trace.alloc_through(0, &[at("hipMalloc", 0x1000, GIB), at(HSA, 0x1000, GIB), at(KFD, 1, GIB)]);
    read(&mut trace, &[(Quantity::KfdProcessVram, GIB + 16 * MIB), (Quantity::RuntimeFree, 3 * GIB)]);
    trace.free_through(0, &[at("hipFree", 0x1000, 0), at("hsa_amd_memory_pool_free", 0x1000, 0)]);
    read(&mut trace, &[(Quantity::KfdProcessVram, 20 * MIB), (Quantity::RuntimeFree, 4 * GIB)]);
    let coverage = coverage(&trace);
    assert_eq!((coverage.accounted_bytes, coverage.in_use_bytes), (Some(GIB), Some(GIB + 16 * MIB)));
    assert_eq!((coverage.by, coverage.of_process, coverage.lowest_layer), (Some("KFD"), true, Some("kernel")));
    assert!(coverage.share.is_some_and(|share| (0.98..0.99).contains(&share)));
    assert!(coverage.bypassed.is_empty(), "{coverage:?}");
}

#[test]
fn nothing_is_claimed_where_nothing_was_read() {
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    let coverage = coverage(&trace);
    assert_eq!((coverage.accounted_bytes, coverage.in_use_bytes, coverage.share), (None, None, None));
}

#[test]
fn a_free_without_its_allocation_shows_a_bypass() {
    let mut trace = builder();
    trace.alloc(0x1000, MIB);
    trace.free(0x1000);
    assert!(interfaces(&trace).is_empty());
    trace.free(0x2000);
    assert_eq!(interfaces(&trace), ["HIP"]);
    // A free that fails says nothing, and neither does one in a trace that lost records.
    let mut failed = builder();
    failed.free(0x2000);
    failed.last_call_failed(17);
    assert!(interfaces(&failed).is_empty());
    trace.header.events_lost = 1;
    assert!(interfaces(&trace).is_empty());
}

#[test]
fn a_free_below_without_its_allocation_shows_a_bypass() {
    let mut trace = builder();
    trace.alloc_through(0, &[at("hipMalloc", 0x1000, MIB), at(HSA, 0x1000, MIB)]);
    trace.free_through(0, &[at("hipFree", 0x1000, 0), at("hsa_amd_memory_pool_free", 0x9000, 0)]);
    assert_eq!(interfaces(&trace), ["HSA"]);
    // Handles of the kernel's drivers come from requests that are no memory, too.
    for api in ["AMDKFD_IOC_FREE_MEMORY_OF_GPU", "DRM_IOCTL_GEM_CLOSE", "NV_ESC_RM_FREE"] {
        let mut kernel = builder();
        kernel.alloc_through(0, &[at("hipMalloc", 0x1000, MIB), at(HSA, 0x1000, MIB)]);
        kernel.free_through(0, &[at("hipFree", 0x1000, 0), at(api, 9, 0)]);
        kernel.free_kind(Kind::Device, api, 10);
        assert!(interfaces(&kernel).is_empty(), "{api}");
    }
}

fn runtime_takes(trace: &mut TraceBuilder, api: &'static str, pieces: u64) {
    for number in 1..=pieces {
        trace.alloc_through(flag::FROM_RUNTIME, &[at(api, number << 32, 256 * MIB)]);
    }
}

#[test]
fn a_runtime_that_takes_too_much_for_itself_was_called_past_the_hooks() {
    let mut trace = builder();
    runtime_takes(&mut trace, HSA, 4);
    let coverage = coverage(&trace);
    assert_eq!((coverage.bypassed[0].interface.as_str(), coverage.bypassed[0].bytes), ("HIP", Some(GIB)));
    assert!(coverage.bypassed[0].why.contains("1024 MiB were taken by hsa_amd_memory_pool_allocate"));
    let mut driver = builder();
    runtime_takes(&mut driver, "cuMemAlloc_v2", 4);
    assert_eq!(interfaces(&driver), ["the CUDA runtime"]);
    let mut kernel = builder();
    runtime_takes(&mut kernel, KFD, 4);
    assert_eq!(interfaces(&kernel), ["HIP or HSA"]);
}

#[test]
fn what_a_runtime_needs_is_no_bypass() {
    let few = |build: &dyn Fn(&mut TraceBuilder)| {
        let mut trace = builder();
        build(&mut trace);
        assert!(interfaces(&trace).is_empty(), "{:?}", coverage(&trace).bypassed);
    };
    few(&|trace| runtime_takes(trace, HSA, 2));
    // A program on the driver alone: what a launch takes for the local memory of its kernel, no call says.
    few(&|trace| {
        trace.alloc_through(0, &[at("cuMemAlloc_v2", 0x1000, MIB)]);
        runtime_takes(trace, "NV_ESC_RM_ALLOC", 17);
    });
    // Calls of the program explain any amount.
    few(&|trace| {
        for number in 1..9u64 {
            trace.alloc_through(0, &[at("hipMalloc", number << 32, GIB), at(HSA, number << 32, GIB)]);
        }
    });
    // Scratch and queues are asked for by HSA itself.
    few(&|trace| {
        trace.alloc_through(0, &[at("hipMalloc", 1 << 32, MIB), at(HSA, 1 << 32, MIB), at(KFD, 77, 2 * MIB)]);
        runtime_takes(trace, KFD, 4);
    });
    // A graph gets its memory when it runs.
    few(&|trace| {
        let node = trace.record(Event::Reserve, Kind::Pool, "hipGraphAddMemAllocNode");
        trace.push(Record { address: 5 << 32, requested: GIB, ..node }, &[]);
        runtime_takes(trace, HSA, 4);
    });
    // A library with a runtime of its own is no runtime that the program calls.
    let mut library = builder().library("/opt/libnccl.so.2", 0x10_0000, 1);
    library.site = 1;
    runtime_takes(&mut library, "cuMemAlloc_v2", 4);
    assert!(interfaces(&library).is_empty());
    let mut runtime = builder().library("/opt/libcudart.so.12", 0x10_0000, 1);
    runtime.site = 1;
    runtime_takes(&mut runtime, "cuMemAlloc_v2", 4);
    assert_eq!(interfaces(&runtime), ["the CUDA runtime"]);
}

fn with_process_readings(readings: &[u64]) -> TraceBuilder {
    let mut trace = builder();
    trace.alloc_through(0, &[at("hipMalloc", 0x1000, GIB), at(HSA, 0x1000, GIB), at(KFD, 1, GIB)]);
    for bytes in readings {
        read(&mut trace, &[(Quantity::KfdProcessVram, *bytes)]);
    }
    trace
}

#[test]
fn a_process_that_holds_more_than_its_calls_bypassed_them() {
    let missing = coverage(&with_process_readings(&[GIB + 600 * MIB, GIB + 500 * MIB]));
    assert_eq!(missing.bypassed[0].interface, "the kernel's requests");
    assert_eq!(missing.bypassed[0].bytes, Some(500 * MIB));
    assert!(missing.bypassed[0].why.contains("tolerated: 64 MiB"), "{missing:?}");
    // Within the tolerance, or in a single reading between a call and its record, it is none.
    assert!(interfaces(&with_process_readings(&[GIB + 60 * MIB, GIB + 60 * MIB])).is_empty());
    assert!(interfaces(&with_process_readings(&[GIB + 600 * MIB, GIB, GIB + 600 * MIB])).is_empty());
    // Without the kernel's calls there is more that nobody counted.
    let mut upper = builder();
    upper.alloc(0x1000, GIB);
    (0..2).for_each(|_| read(&mut upper, &[(Quantity::KfdProcessVram, GIB + 600 * MIB)]));
    assert!(interfaces(&upper).is_empty());
    // What all processes use says nothing about this one.
    let mut all = builder();
    all.alloc(0x1000, GIB);
    (0..2).for_each(|_| read(&mut all, &[(Quantity::RuntimeFree, GIB)]));
    assert!(interfaces(&all).is_empty());
}

#[test]
fn a_program_that_bypassed_everything_is_seen_by_its_memory() {
    let mut trace = builder();
    trace.after(Event::Sync, "hipDeviceSynchronize", 0, 0);
    (0..2).for_each(|_| read(&mut trace, &[(Quantity::KfdProcessVram, 4 * GIB)]));
    let coverage = coverage(&trace);
    assert_eq!((coverage.bypassed.len(), coverage.share), (1, Some(0.0)));
    assert_eq!(coverage.bypassed[0].interface, "all recorded interfaces");
}

/// What the recorder saw in the tables of a library stands for itself; without it there is no such sign.
#[test]
fn references_that_lead_past_the_hooks_are_named() {
    let mut trace = builder();
    trace.alloc(0x1000, MIB);
    assert!(interfaces(&trace).is_empty());
    trace.bypasses.push(Bypass {
        caller: "/opt/app/libplugin.so".into(),
        function: "hipMalloc".into(),
        target: "/opt/rocm/lib/libamdhip64.so.6".into(),
        functions: 2,
    });
    let [bypass] = &coverage(&trace).bypassed[..] else { panic!("{:?}", coverage(&trace)) };
    assert_eq!(bypass.interface, "HIP");
    assert!(bypass.why.contains("libplugin.so (hipMalloc among them)"), "{}", bypass.why);
    assert!(bypass.why.contains("libamdhip64.so.6"), "{}", bypass.why);
}

/// Who has `ioctl` before the recorder may answer a driver's requests itself, or pass them on.
#[test]
fn requests_that_somebody_in_front_kept_are_not_seen() {
    let in_front = |layers: &[At]| {
        let mut trace = builder();
        trace.alloc_through(0, layers);
        trace.bypasses.push(Bypass {
            caller: String::new(),
            function: "ioctl".into(),
            target: "/opt/tool/libfirst.so".into(),
            functions: 1,
        });
        coverage(&trace).bypassed
    };
    let [hip, hsa, kfd] = [at("hipMalloc", 0x1000, GIB), at(HSA, 0x1000, GIB), at(KFD, 1, GIB)];
    let [bypass] = &in_front(&[hip, hsa])[..] else { panic!("one") };
    assert_eq!((bypass.interface.as_str(), bypass.certain), ("the kernel's requests", false));
    assert!(bypass.why.contains("ioctl leads to libfirst.so"), "{}", bypass.why);
    assert!(in_front(&[hip, hsa, kfd]).is_empty(), "they were passed on");
    assert!(in_front(&[]).is_empty(), "nobody needed a driver");
}

/// A recorder's reading that took from one moment to another.
fn read_from(trace: &mut TraceBuilder, from_ns: u64, to_ns: u64, in_use: u64) {
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let duration = u32::try_from(to_ns - from_ns).unwrap();
    let record = Record { at: from_ns, duration, status: trigger::PERIOD, device: NO_DEVICE, call: 0, ..record };
    let free = Reading { quantity: Quantity::RuntimeFree as u16, device: 0, value: 16 * GIB - in_use };
    trace.reading(record, &[free]);
}

/// The recorder reads, the program frees, the recorder writes down what it read: what lives then is not what was in use.
#[test]
fn memory_that_went_while_the_recorder_read_is_not_called_missing() {
    let mut trace = builder();
    trace.alloc(0x1000, 8 * GIB);
    trace.now_ns = 9 * MS;
    trace.free(0x1000);
    read_from(&mut trace, 9 * MS, 12 * MS, 8 * GIB);
    let found = coverage(&trace);
    assert_eq!((found.share, found.disturbed_readings), (None, 1));
    assert!(found.bypassed.is_empty());
}

#[test]
fn a_call_that_is_written_down_after_the_reading_that_it_overlaps_spoils_it_too() {
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    read_from(&mut trace, 9 * MS, 12 * MS, 9 * GIB);
    trace.now_ns = 10 * MS;
    trace.alloc(0x2000, 8 * GIB);
    assert_eq!((coverage(&trace).share, coverage(&trace).disturbed_readings), (None, 1));
    // One that began when all was read does not.
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    read_from(&mut trace, 9 * MS, 12 * MS, 2 * GIB);
    trace.now_ns = 12 * MS;
    trace.alloc(0x2000, 8 * GIB);
    assert_eq!((coverage(&trace).share, coverage(&trace).disturbed_readings), (Some(0.5), 0));
}

#[test]
fn managed_memory_is_named_beside_the_share_that_it_is_not_part_of() {
    let mut trace = builder();
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x1000, 8 * GIB);
    read(&mut trace, &[(Quantity::RuntimeFree, 10 * GIB)]);
    let found = coverage(&trace);
    assert_eq!((found.accounted_bytes, found.devices[0].managed_bytes), (Some(0), 8 * GIB));
}

/// An empty card that somebody read is not one that nobody read.
#[test]
fn nothing_in_use_is_said_to_be_read() {
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    trace.free(0x1000);
    read(&mut trace, &[(Quantity::RuntimeFree, 16 * GIB)]);
    let found = coverage(&trace);
    assert_eq!((found.share, found.was_read), (None, true));
    let mut unread = builder();
    unread.alloc(0x1000, GIB);
    assert!(!coverage(&unread).was_read);
}
