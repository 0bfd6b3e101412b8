//! C. Memory that was given back in the order of a stream.

use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};
use gpuoom_trace::record::{Event, Kind, Record};

use super::scenes::{at_failure, full, sampled};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "async-free-pending",
        says: Says::First(Proven),
        also: &["mallocasync-oom", "true-capacity", "known-bad-version"],
        story: "8 GiB freed on a stream; the same request succeeds right after, without a free in between",
        scene: || freed_on_stream(true, false),
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["other-process-on-gpu", "true-capacity", "mallocasync-oom", "known-bad-version"],
        story: "the same, and other processes hold 6 GiB: they may have made the room",
        scene: || freed_on_stream_beside(6 * GIB, None),
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Probable),
        also: &["other-process-on-gpu", "true-capacity", "mallocasync-oom", "known-bad-version"],
        story: "the same, and at the next reading the others hold as much as before",
        scene: || freed_on_stream_beside(6 * GIB, Some(6 * GIB)),
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["other-process-on-gpu", "true-capacity", "mallocasync-oom", "known-bad-version"],
        story: "the same, and at the next reading the others hold 2 GiB: they made room",
        scene: || freed_on_stream_beside(6 * GIB, Some(2 * GIB)),
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Not,
        also: &["mallocasync-oom", "phantom-free", "sysfs-free-overreported", "known-bad-version"],
        story: "8 GiB freed on a stream, and the driver's counters show room enough: a call that fails now and then",
        scene: || {
            let trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            freed_on_stream_read(trace, true, false, 16 * GIB)
        },
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["true-capacity", "known-bad-version"],
        story: "8 GiB freed on a stream, and nobody asks again: the program may have waited before",
        scene: || freed_on_stream(false, false),
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["true-capacity", "known-bad-version"],
        story: "the same request succeeds, and another thread has given 5 GiB back in between",
        scene: || {
            let mut scene = freed_on_stream(false, false);
            let trace = &mut scene.trace;
            (0..5).for_each(|block| {
                let record = trace.record_on(77, Event::Free, Kind::Device, "hipFree");
                trace.push(Record { address: 0x10_0000_0000 + block * 2 * GIB, ..record }, &[]);
            });
            trace.alloc(0xA0_0000_0000, 4 * GIB);
            scene
        },
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["mallocasync-oom", "true-capacity", "known-bad-version"],
        story: "the same request succeeds, and a pool was destroyed in between",
        scene: || freed_on_stream_and(&[(Event::Free, Kind::Pool, "hipMemPoolDestroy")]),
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["mallocasync-oom", "true-capacity", "known-bad-version"],
        story: "the same, and it was the memory of graphs that was trimmed",
        scene: || freed_on_stream_and(&[(Event::Sync, Kind::Pool, "hipDeviceGraphMemTrim")]),
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["mallocasync-oom", "true-capacity", "known-bad-version"],
        story: "the same, and it was code that was unloaded",
        scene: || freed_on_stream_and(&[(Event::Module, Kind::Code, "hipModuleUnload")]),
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["mallocasync-oom", "true-capacity", "known-bad-version"],
        story: "the same, and managed memory was moved off the card",
        scene: || freed_on_stream_and(&[(Event::Map, Kind::Managed, "hipMemPrefetchAsync")]),
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["other-process-on-gpu", "true-capacity", "mallocasync-oom", "known-bad-version"],
        story: "others held as much at a reading before the next try: they may have made the room after it",
        scene: || {
            let mut scene = freed_on_stream_beside_at(6 * GIB);
            sampled(&mut scene.trace, [(KfdOthersVram, 6 * GIB)]);
            scene.trace.alloc(0xA0_0000_0000, 4 * GIB);
            scene
        },
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["true-capacity", "mallocasync-oom", "known-bad-version"],
        story: "the same request succeeds by itself, and another thread's free right before the failure may have waited for the device",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            (0..14).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
            let record = trace.record_on(77, Event::Free, Kind::Device, "hipFree");
            trace.push(Record { address: 0x10_0000_0000, ..record }, &[]);
            trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x90_0000_0000, 8 * GIB);
            trace.free_kind(Kind::Pool, "hipFreeAsync", 0x90_0000_0000);
            let seq = trace.refuse(4 * GIB);
            full(&mut trace, seq, 24 * GIB, 22 * GIB, 2 * GIB);
            trace.alloc(0xA0_0000_0000, 4 * GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Found(Possible),
        also: &["true-capacity", "mallocasync-oom", "known-bad-version"],
        story: "hipMalloc failed, and the pool gives the same: it may have kept it",
        scene: || {
            let mut scene = freed_on_stream(false, false);
            scene.trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0xA0_0000_0000, 4 * GIB);
            scene
        },
    },
    Labelled {
        id: "async-free-pending",
        says: Says::First(Proven),
        also: &["mallocasync-oom", "true-capacity", "known-bad-version"],
        story: "another pool was told to keep 8 GiB, which came from it: what the device's own gave is pending all the same",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 40 * GIB);
            let record = trace.record(Event::Reserve, Kind::Pool, "hipMemPoolCreate");
            trace.push(Record { address: 0x55, ..record }, &[]);
            let record = trace.record(Event::Sync, Kind::Pool, "hipMemPoolSetAttribute");
            trace.with_numbers(Record { address: 0x55, ..record }, &[4, u64::MAX]);
            let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocFromPoolAsync");
            trace.with_numbers(Record { address: 0xB0_0000_0000, requested: 8 * GIB, ..record }, &[0x55]);
            trace.free_kind(Kind::Pool, "hipFreeAsync", 0xB0_0000_0000);
            trace.now_ns += 10_000_000_000;
            freed_on_stream_read(trace, true, false, 31 * GIB)
        },
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Not,
        also: &["pool-retention", "true-capacity", "known-bad-version"],
        story: "the pool was told to keep what is given back to it",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            let record = trace.record(Event::Sync, Kind::Pool, "hipMemPoolSetAttribute");
            trace.with_numbers(Record { address: 0xD0, ..record }, &[4, u64::MAX]);
            freed_on_stream_of(trace, false, false)
        },
    },
    Labelled {
        id: "async-free-pending",
        says: Says::Not,
        also: &["true-capacity", "known-bad-version"],
        story: "a plain hipFree came in between, which waits for the device",
        scene: || freed_on_stream(false, true),
    },
];

/// Stream-ordered memory is given back, and a plain request comes at once.
fn freed_on_stream(again: bool, plain_free: bool) -> Scene {
    freed_on_stream_of(TraceBuilder::default().device(0, "card", 24 * GIB), again, plain_free)
}

/// `after`: what the others hold at a reading after the next try.
fn freed_on_stream_beside(others: u64, after: Option<u64>) -> Scene {
    let mut scene = freed_on_stream_beside_at(others);
    scene.trace.alloc(0xA0_0000_0000, 4 * GIB);
    after.into_iter().for_each(|bytes| sampled(&mut scene.trace, [(KfdOthersVram, bytes)]));
    scene
}

/// The failure alone.
fn freed_on_stream_beside_at(others: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    (0..14).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x90_0000_0000, 3 * GIB);
    trace.free_kind(Kind::Pool, "hipFreeAsync", 0x90_0000_0000);
    let seq = trace.refuse(4 * GIB);
    let used = 23 * GIB;
    let read = [
        (RuntimeFree, GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, used),
        (KfdProcessVram, used - others),
        (KfdOthersVram, others),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// Stream-ordered memory is given back, and after these calls a plain request comes.
fn freed_on_stream_and(calls: &[(Event, Kind, &str)]) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let record = trace.record(Event::Reserve, Kind::Pool, "hipMemPoolCreate");
    trace.push(Record { address: 0x55, ..record }, &[]);
    let mut scene = freed_on_stream_of(trace, false, false);
    for (event, kind, api) in calls {
        let record = scene.trace.record(*event, *kind, api);
        let address = if *event == Event::Sync { 0 } else { 0x55 };
        scene.trace.push(Record { address, ..record }, &[]);
    }
    scene.trace.alloc(0xA0_0000_0000, 4 * GIB);
    scene
}

pub(super) fn freed_on_stream_of(trace: TraceBuilder, again: bool, plain_free: bool) -> Scene {
    freed_on_stream_read(trace, again, plain_free, 23 * GIB)
}

/// `used`: what the driver counts in use at the failure.
fn freed_on_stream_read(mut trace: TraceBuilder, again: bool, plain_free: bool, used: u64) -> Scene {
    (0..14).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x90_0000_0000, 8 * GIB);
    trace.free_kind(Kind::Pool, "hipFreeAsync", 0x90_0000_0000);
    if plain_free {
        trace.free(0x10_0000_0000);
    }
    let seq = trace.refuse(4 * GIB);
    let read =
        [(RuntimeFree, GIB), (VramTotal, 24 * GIB), (VramUsed, used), (KfdProcessVram, used), (KfdOthersVram, 0)];
    at_failure(&mut trace, seq, read);
    if again {
        trace.alloc(0xA0_0000_0000, 4 * GIB);
    }
    Scene { trace }
}
