//! F. Errors.

use gpuoom_trace::header::ClockPoint;
use gpuoom_trace::metadata::Quantity::RuntimeFree;
use gpuoom_trace::metadata::{Reading, trigger};
use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::record::{Event, Kind, Record, flag, process};

use super::{Labelled, Says, Scene, readings};
use crate::evidence::{Given, runtime_message};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{At, GIB, MIB, TraceBuilder, at};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "requested-refusal",
        says: Says::First(Proven),
        also: &[],
        story: "GPUOOM_INJECT refuses the second call",
        scene: || {
            let mut scene = Scene { trace: TraceBuilder::default().device(0, "card", 24 * GIB) };
            scene.trace.alloc(0x1000_0000, GIB);
            let record = scene.trace.record(Event::Alloc, Kind::Device, "hipMalloc");
            let kind_flags = Kind::Device as u8 | flag::INJECTED;
            scene.trace.push(Record { status: 2, requested: GIB, address: 2 << 8 | 2, kind_flags, ..record }, &[]);
            scene
        },
    },
    Labelled {
        id: "requested-refusal",
        says: Says::Not,
        also: &[],
        story: "the runtime itself refuses it",
        scene: || {
            let mut scene = Scene { trace: TraceBuilder::default().device(0, "card", 24 * GIB) };
            scene.trace.refuse(GIB);
            scene
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "a kernel is launched after the failure: a program that looks at the status and does without does that, too",
        scene: || after_failure(Event::GpuWork, "hipLaunchKernel", 0),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Probable),
        also: &[],
        story: "the pointer of the failed call goes into a copy",
        scene: || null_is_used(|_| (), |seq| vec![0, 1, seq + 1, 1, 0]),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Probable),
        also: &[],
        story: "work goes on, and then the pointer of the failed call goes into a copy",
        scene: || {
            let launch = |trace: &mut TraceBuilder| _ = trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
            null_is_used(launch, |seq| vec![0, 1, seq + 1, 1, 0])
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Probable),
        also: &[],
        story: "the variable of the failed call holds something else when a null goes into a copy",
        scene: || null_is_used(|_| (), |seq| vec![0, 1, seq + 1, 0, 0]),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Probable),
        also: &[],
        story: "another call failed before, whose null it may be",
        scene: || null_is_used(|_| (), |seq| vec![0, 1, seq + 1, 1, 1]),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Probable),
        also: &[],
        story: "a recorder of before wrote down that a null was used, and not whose",
        scene: || after_failure(Event::GpuWork, "hipMemcpy", flag::FAILED_POINTER),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Probable),
        also: &[],
        story: "two calls failed, and one null goes into a copy: nobody knows whose",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.site = 7;
            trace.refuse(2 * GIB);
            trace.site = 9;
            trace.refuse(64 * GIB);
            trace.used_pointer("hipMemset", &[0, 2, 0, 0, 2]);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Not,
        also: &[],
        story: "an exception is thrown after the failure",
        scene: || after_failure(Event::Exception, "__cxa_throw", 0),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Not,
        also: &[],
        story: "the program goes on with half the size, on purpose",
        scene: || {
            after_failure_at(7, |trace| {
                trace.site = 7;
                trace.alloc(0x1000_0000, 512 * MIB);
            })
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "a smaller request came later, and no call paths are known: whether it is a way out on purpose is missing",
        scene: || {
            let mut scene = after_failure(Event::GpuWork, "hipLaunchKernel", 0);
            scene.trace.alloc(0x1000_0000, 512 * MIB);
            scene
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "a trifle from another place comes before the work: no way out on purpose",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.site = 7;
            trace.refuse(2 * GIB);
            trace.site = 9;
            trace.alloc(0x1000_0000, 4096);
            trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Probable),
        also: &[],
        story: "other memory comes, and then a null is used: it may be that of another variable",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.site = 7;
            let seq = trace.refuse(2 * GIB);
            trace.site = 9;
            trace.alloc(0x1000_0000, GIB);
            trace.used_null_of("hipMemset", seq);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Not,
        also: &[],
        story: "a block is copied to the host and given back, and the same request then succeeds",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.site = 7;
            trace.alloc(0x1000_0000, GIB);
            trace.refuse(GIB);
            trace.after(Event::GpuWork, "hipMemcpy", 0, 0);
            trace.free(0x1000_0000);
            trace.alloc(0x2000_0000, GIB);
            trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "weights of different sizes are refused one after the other: the smaller one is no way out",
        scene: || refused_twice(0),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Not,
        also: &[],
        story: "a loop asks for less each time, into one variable, and then goes on without: it looks at what it is told",
        scene: || refused_twice(flag::SAME_VARIABLE),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "Python asked for it: whether it raised an exception is not seen",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.code(1, "/home/me/run.py", "load");
            trace.stack(7, &[], &[PythonFrame { code: 1, line: 3 }]);
            trace.site = 7;
            trace.refuse(GIB);
            trace.after(Event::GpuWork, "hipMemset", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "another thread makes room and gets the memory, and the first one works with it",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.refuse(GIB);
            let record = trace.record_on(77, Event::Alloc, Kind::Device, "hipMalloc");
            trace.push(Record { address: 0x1000_0000, requested: GIB, ..record }, &[]);
            trace.after(Event::GpuWork, "hipMemset", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "another thread gets a quarter before the work: nothing shows what for",
        scene: || made_up_by_another(GIB / 4, 0),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Not,
        also: &[],
        story: "another thread gets a quarter, and the work is given that block",
        scene: || made_up_by_another(GIB / 4, 0x1000_1000),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "another thread gets a trifle before the work, which is given something else",
        scene: || made_up_by_another(4096, 0x1000_1000),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "the work is given a trifle that another thread got: that is not in the place of 1 GiB",
        scene: || made_up_by_another(8192, 0x1000_1000),
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "so many calls of another thread came before the work that not all are kept: what they got is missing",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            // The first calls of the run are kept, and the last ones before a failure.
            (0..10_000).for_each(|block| drop_at(&mut trace, block));
            trace.refuse(GIB);
            (0..50_000).for_each(|block| drop_at(&mut trace, block));
            trace.after(Event::GpuWork, "hipMemset", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "after a launch, another place asks for a small block",
        scene: || {
            after_failure_at(7, |trace| {
                trace.site = 9;
                trace.alloc(0x1000_0000, 64 * MIB);
            })
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Not,
        also: &["request-exceeds-device"],
        story: "forty attempts, each for half of the last one, and the last one fits",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            for number in 0..40u32 {
                trace.refuse((1 << 62) >> number);
                trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
            }
            trace.alloc(0x1000_0000, (1 << 62) >> 40);
            trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Not,
        also: &[],
        story: "the last error is read before the launch: whether anybody looked at it can't be seen",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.refuse(GIB);
            trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
            trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Not,
        also: &[],
        story: "pinned memory of the host takes its place",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.refuse(GIB);
            trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x1000_0000, GIB);
            trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "dropped-oom-return",
        says: Says::Found(Possible),
        also: &[],
        story: "the variable of the failed call still holds an older block, which is what the copy works on",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x1000_0000, GIB);
            trace.refuse(GIB);
            trace.used_pointer("hipMemset", &[0x1000_0000]);
            Scene { trace }
        },
    },
    Labelled {
        id: "late-surfacing-oom",
        says: Says::Not,
        also: &["phantom-free"],
        story: "CUDA's driver interface keeps no last error: the second call has failed by itself",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            let refuse = |trace: &mut TraceBuilder, requested| {
                let record = trace.record(Event::Alloc, Kind::Device, "cuMemAlloc_v2");
                trace.push(Record { status: 2, requested, ..record }, &[])
            };
            refuse(&mut trace, 20 * GIB);
            trace.after(Event::GpuWork, "cuLaunchKernel", 0, 0);
            let seq = refuse(&mut trace, 64 * MIB);
            trace.read_at_failure(seq, &readings([(RuntimeFree, 20 * GIB)]));
            Scene { trace }
        },
    },
    Labelled {
        id: "late-surfacing-oom",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "an ignored error comes back from a small call with 20 GiB free, on HIP 7.0; or it really was refused",
        scene: || ignored_then(70_000_000, 20 * GIB),
    },
    Labelled {
        id: "late-surfacing-oom",
        says: Says::Found(Probable),
        also: &["request-exceeds-device", "dropped-oom-return", "library-alloc-failed"],
        story: "an ignored error comes back from a library's handle with 20 GiB free, on HIP 7.0",
        scene: || library_after_failure(20 * GIB),
    },
    Labelled {
        id: "late-surfacing-oom",
        says: Says::Found(Possible),
        also: &["request-exceeds-device", "dropped-oom-return", "library-alloc-failed"],
        story: "the same with 16 MiB free: the library may have needed more, and said so itself",
        scene: || library_after_failure(16 * MIB),
    },
    Labelled {
        id: "late-surfacing-oom",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the last error was read after the launch, as most programs do: it is gone",
        scene: || surfaces_after(|trace| _ = trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0)),
    },
    Labelled {
        id: "late-surfacing-oom",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "it was looked at and kept",
        scene: || surfaces_after(|trace| _ = trace.after(Event::ErrorQuery, "hipPeekAtLastError", 0, 0)),
    },
    Labelled {
        id: "late-surfacing-oom",
        says: Says::Not,
        also: &["pinned-host-exhaustion"],
        story: "the second request is for pinned memory, which has nothing to do with what the card has free",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(70_000_000);
            trace.refuse(20 * GIB);
            trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
            let record = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
            let seq = trace.push(Record { status: 2, requested: 64 * MIB, ..record }, &[]);
            trace.read_at_failure(seq, &readings([(RuntimeFree, 20 * GIB)]));
            trace.after(Event::Exception, "__cxa_throw", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "late-surfacing-oom",
        says: Says::Not,
        also: &[],
        story: "the same with 32 MiB free: this one really ran out",
        scene: || ignored_then(70_000_000, 32 * MIB),
    },
    Labelled {
        id: "late-surfacing-oom",
        says: Says::Not,
        also: &["phantom-free"],
        story: "HIP 6.4, where a later call that succeeds clears the error",
        scene: || ignored_then(60_443_483, 20 * GIB),
    },
    Labelled {
        id: "runtime-internal-abort",
        says: Says::First(Possible),
        also: &[],
        story: "abort with 16 MiB free at the last reading",
        scene: || aborted(16 * MIB),
    },
    Labelled {
        id: "runtime-internal-abort",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and standard error says why",
        scene: || {
            let mut scene = aborted(16 * MIB);
            let content = runtime_message::find_all("  what():  MemoryRegion::BlockAllocator::alloc failed.");
            scene.trace.evidence.runtime_logs = vec![Given { path: "log.txt".into(), content }];
            scene
        },
    },
    Labelled {
        id: "runtime-internal-abort",
        says: Says::Not,
        also: &[],
        story: "abort with 10 GiB free",
        scene: || aborted(10 * GIB),
    },
    Labelled {
        id: "library-alloc-failed",
        says: Says::First(Proven),
        also: &[],
        story: "hipblasCreate fails, and nothing failed below it",
        scene: || library(None),
    },
    Labelled {
        id: "library-alloc-failed",
        says: Says::Found(Proven),
        also: &[],
        story: "hipblasCreate fails because an allocation of 32 MiB inside it fails",
        scene: || library(Some(32 * MIB)),
    },
    Labelled {
        id: "library-alloc-failed",
        says: Says::Not,
        also: &[],
        story: "it is the program's own allocation that fails",
        scene: || after_failure(Event::Exception, "__cxa_throw", 0),
    },
    Labelled {
        id: "library-alloc-failed",
        says: Says::Found(Possible),
        also: &[],
        story: "the same call succeeds once memory was given back: a broken set-up does not mend itself",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            let [device, hsa] = ["hipMalloc", "hsa_amd_memory_pool_allocate"].map(|api| at(api, 0x1000_0000, GIB));
            trace.alloc_through(0, &[device, hsa]);
            let create = trace.record(Event::Module, Kind::None, "hipblasCreate");
            trace.push(Record { status: 2, ..create }, &[]);
            trace.free(0x1000_0000);
            trace.after(Event::Module, "hipblasCreate", 0, 0);
            trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
            Scene { trace }
        },
    },
    Labelled {
        id: "hang-not-oom",
        says: Says::First(Proven),
        also: &[],
        story: "hipMemMap has not returned after 90 s",
        scene: || hangs(90, Some("hipMemMap")),
    },
    Labelled {
        id: "hang-not-oom",
        says: Says::Found(Possible),
        also: &[],
        story: "the same, and another thread allocates and frees until 5 s before the end",
        scene: || {
            let mut scene = hangs(90, Some("hipMemMap"));
            scene.trace.now_ns = 85_000_000_000;
            drop_at(&mut scene.trace, 3);
            scene
        },
    },
    Labelled {
        id: "hang-not-oom",
        says: Says::First(Proven),
        also: &[],
        story: "hipMemMap has not returned after 90 s, and another thread's last call was 80 s ago",
        scene: || {
            let mut scene = hangs(90, Some("hipMemMap"));
            scene.trace.now_ns = 10_000_000_000;
            drop_at(&mut scene.trace, 3);
            scene
        },
    },
    Labelled {
        id: "hang-not-oom",
        says: Says::First(Probable),
        also: &[],
        story: "hipMemCreate has not returned after 90 s: it maps and reserves no addresses",
        scene: || hangs(90, Some("hipMemCreate")),
    },
    Labelled {
        id: "hang-not-oom",
        says: Says::Found(Possible),
        also: &[],
        story: "hipFree has not returned after 90 s: it waits for the device, and a long kernel looks the same",
        scene: || hangs(90, Some("hipFree")),
    },
    Labelled {
        id: "hang-not-oom",
        says: Says::First(Probable),
        also: &[],
        story: "hipMalloc has not returned after 90 s",
        scene: || hangs(90, Some("hipMalloc")),
    },
    Labelled {
        id: "hang-not-oom",
        says: Says::Found(Possible),
        also: &[],
        story: "silence for 90 s, then SIGKILL: a hang, or a long step",
        scene: || hangs(90, None),
    },
    Labelled {
        id: "hang-not-oom",
        says: Says::Not,
        also: &[],
        story: "killed 5 s after the last call",
        scene: || hangs(5, None),
    },
    Labelled {
        id: "hang-not-oom",
        says: Says::Not,
        also: &[],
        story: "a long step without calls, and then a clean end",
        scene: || {
            let mut scene = hangs(90, None);
            scene.trace.header.end_kind = gpuoom_trace::header::end::EXITED;
            scene.trace.end(process::EXITS, 0);
            scene
        },
    },
];

/// 1 GiB is refused, another thread is given so much, and the first one works on this address.
fn made_up_by_another(bytes: u64, works_on: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.refuse(GIB);
    let record = trace.record_on(77, Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { address: 0x1000_0000, requested: bytes, ..record }, &[]);
    let work = trace.record(Event::GpuWork, Kind::None, "hipMemset");
    trace.push(Record { address: works_on, ..work }, &[]);
    Scene { trace }
}

/// A small block of another thread, given and taken back.
fn drop_at(trace: &mut TraceBuilder, block: u64) {
    let address = 0x10_0000_0000 + block * MIB;
    let record = trace.record_on(77, Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { address, requested: MIB, ..record }, &[]);
    trace.free(address);
}

fn after_failure(event: Event, api: &str, flags: u8) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.refuse(GIB);
    trace.after(event, api, 0, flags);
    Scene { trace }
}

/// A failure after which a null is used; the record says so with these numbers.
fn null_is_used(before: impl FnOnce(&mut TraceBuilder), numbers: impl FnOnce(u64) -> Vec<u64>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let seq = trace.refuse(GIB);
    before(&mut trace);
    trace.used_pointer("hipMemcpy", &numbers(seq));
    Scene { trace }
}

/// A failure of a known place after which a kernel is launched, and what comes then.
fn after_failure_at(site: u32, then: impl FnOnce(&mut TraceBuilder)) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.site = site;
    trace.refuse(GIB);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    then(&mut trace);
    Scene { trace }
}

/// A failure after which work goes on, what the thread then does, and a small request that is refused with much free.
fn surfaces_after(then: impl FnOnce(&mut TraceBuilder)) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(70_000_000);
    trace.refuse(20 * GIB);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    then(&mut trace);
    let seq = trace.refuse(64 * MIB);
    trace.read_at_failure(seq, &readings([(RuntimeFree, 20 * GIB)]));
    Scene { trace }
}

/// Two requests of one call path that are refused, the second for less, and work that goes on.
fn refused_twice(flags: u8) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.site = 7;
    trace.refuse(1500 * MIB);
    let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let kind_flags = record.kind_flags | flags;
    trace.push(Record { status: 2, requested: 1400 * MIB, site: 7, kind_flags, ..record }, &[]);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    Scene { trace }
}

/// A failure that is ignored, and a second one of 64 MiB.
fn ignored_then(hip_version: i32, free: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(hip_version);
    trace.refuse(20 * GIB);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    let seq = trace.refuse(64 * MIB);
    trace.read_at_failure(seq, &readings([(RuntimeFree, free)]));
    Scene { trace }
}

fn aborted(free: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x1000_0000, 2 * GIB);
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let record = Record { status: trigger::PERIOD, ..record };
    trace.reading(record, &[Reading { quantity: RuntimeFree as u16, device: 0, value: free }]);
    trace.end(process::SIGNALS, libc::SIGABRT);
    Scene { trace }
}

/// A handle that can't be made; the trace has the layer below.
fn library(fails_inside: Option<u64>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc_through(0, &[at("hipMalloc", 0x1000_0000, GIB), at("hsa_amd_memory_pool_allocate", 0x1000_0000, GIB)]);
    let outer = trace.record(Event::Module, Kind::None, "hipblasCreate");
    if let Some(bytes) = fails_inside {
        let At { api, kind, .. } = at("hipMalloc", 0, bytes);
        let inner = trace.record(Event::Alloc, kind, api);
        let parent_distance = (inner.call - outer.call) as u16;
        trace.push(Record { status: 2, requested: bytes, parent_distance, ..inner }, &[]);
    }
    trace.push(Record { status: 2, ..outer }, &[]);
    trace.after(Event::Exception, "__cxa_throw", 0, 0);
    Scene { trace }
}

/// A failure that is ignored, work, and then a handle that can't be made while so much is free.
fn library_after_failure(free: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(70_051_831);
    trace.alloc_through(0, &[at("hipMalloc", 0x1000_0000, GIB), at("hsa_amd_memory_pool_allocate", 0x1000_0000, GIB)]);
    trace.refuse(30 * GIB);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    let create = trace.record(Event::Module, Kind::None, "hipblasCreate");
    let seq = trace.push(Record { status: 2, ..create }, &[]);
    trace.read_at_failure(seq, &readings([(RuntimeFree, free)]));
    trace.after(Event::Exception, "__cxa_throw", 0, 0);
    Scene { trace }
}

/// One allocation, and then nothing for some seconds while the process lives.
fn hangs(seconds: u64, under_way: Option<&str>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x1000_0000, GIB);
    if let Some(api) = under_way {
        trace.under_way(api, 2 * MIB);
    }
    let first = trace.header.clock_first;
    let later = seconds * 1_000_000_000;
    trace.header.clock_last[0] = ClockPoint { ticks: later, monotonic_ns: later, wall_ns: first.wall_ns + later };
    trace.header.end_kind = gpuoom_trace::header::end::SIGNALED;
    trace.header.end_code = libc::SIGKILL;
    Scene { trace }
}
