//! D. Pools and virtual memory.

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};
use gpuoom_trace::record::{Event, Kind, Record};

use super::scenes::{NAVI_31, amd_gpu, at_failure, full, sampled, torch, with_log};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{At, GIB, MIB, TraceBuilder, at};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "mallocasync-oom",
        says: Says::First(Probable),
        also: &["known-bad-version"],
        story: "hipMallocAsync of 1 GiB fails on ROCm 6.4 with 10 GiB free, and hipMalloc of the same size succeeds",
        scene: || stream_ordered(60_443_483, true),
    },
    Labelled {
        id: "mallocasync-oom",
        says: Says::Found(Possible),
        also: &["phantom-free", "known-bad-version"],
        story: "the same from a pool that the program made: it may have a size that it may not exceed",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(60_443_483);
            let pool = trace.record(Event::Reserve, Kind::Pool, "hipMemPoolCreate");
            trace.push(Record { address: 0x55, ..pool }, &[]);
            stream_ordered_in(trace, true)
        },
    },
    Labelled {
        id: "mallocasync-oom",
        says: Says::First(Probable),
        also: &["known-bad-version"],
        story: "the same, and nobody tries hipMalloc",
        scene: || stream_ordered(60_443_483, false),
    },
    Labelled {
        id: "mallocasync-oom",
        says: Says::Not,
        also: &["true-capacity", "known-bad-version"],
        story: "the card was full, and 12 GiB were given back before hipMalloc succeeded",
        scene: || full_card(None),
    },
    Labelled {
        id: "mallocasync-oom",
        says: Says::Not,
        also: &["true-capacity", "known-bad-version"],
        story: "the same, and it was another thread that gave them back",
        scene: || full_card(Some(77)),
    },
    Labelled {
        id: "mallocasync-oom",
        says: Says::Not,
        also: &["phantom-free", "known-bad-version"],
        story: "ROCm 7.0 has the fix",
        scene: || on_rocm_7(120_001),
    },
    Labelled {
        id: "mallocasync-oom",
        says: Says::Found(Probable),
        also: &["phantom-free", "known-bad-version"],
        story: "ROCm 7.0 on gfx1100, where it is a regression",
        scene: || on_rocm_7(NAVI_31),
    },
    Labelled {
        id: "mallocasync-oom",
        says: Says::Found(Possible),
        also: &["phantom-free", "known-bad-version"],
        story: "ROCm 7.0, and nobody knows on which card",
        scene: || stream_ordered(70_051_831, true),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Found(Proven),
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "10 GiB were free before hipMallocAsync of 4 GiB failed, and 6 after",
        scene: || leaked(6 * GIB, false),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Not,
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "the same, and the driver counts none of it for this process: who only draws is in no list of processes",
        scene: || leaked_by(6 * GIB, false, 4 * GIB, |_| {}),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Found(Possible),
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "the same, and a block of 8 GiB comes afterwards: it was free again",
        scene: || leaked_by(6 * GIB, true, 8 * GIB, |_| {}),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Not,
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "another thread was giving 4 GiB back that came since the reading before",
        scene: || {
            leaked_beside(6 * GIB, |trace| {
                trace.alloc(0x90_0000_0000, 4 * GIB);
                let free = trace.record_on(crate::testing::THREAD + 7, Event::Free, Kind::Device, "hipFree");
                trace.push(Record { address: 0x90_0000_0000, ..free }, &[]);
            })
        },
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Found(Possible),
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "code was loaded between the two readings, which takes memory, too",
        scene: || leaked(6 * GIB, true),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Not,
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "10 GiB were free before, and 10 after",
        scene: || leaked(10 * GIB, false),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Not,
        also: &["phantom-free", "mallocasync-oom", "known-bad-version"],
        story: "4 GiB came while the card was being read: the reading has them not, and was recorded after them",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 10 * GIB);
            sampled(&mut trace, [(RuntimeFree, 14 * GIB)]);
            trace.alloc(0x80_0000_0000, 4 * GIB);
            sampled(&mut trace, [(RuntimeFree, 14 * GIB)]);
            let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocAsync");
            let seq = trace.push(Record { status: 2, requested: 4 * GIB, ..record }, &[]);
            at_failure(&mut trace, seq, [(RuntimeFree, 10 * GIB), (VramTotal, 24 * GIB), (VramUsed, 14 * GIB)]);
            Scene { trace }
        },
    },
    Labelled {
        id: "vmm-half-returned",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "6 GiB were unmapped, and their handles are not released: 2 GiB were missing",
        scene: || half_returned(6 * GIB, true),
    },
    Labelled {
        id: "vmm-half-returned",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the same of 1 GiB",
        scene: || half_returned(GIB, true),
    },
    Labelled {
        id: "vmm-half-returned",
        says: Says::Not,
        also: &["true-capacity"],
        story: "6 GiB are mapped, and their handles held",
        scene: || half_returned(6 * GIB, false),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "8 GiB unmapped and released, free memory rose by 100 MiB, the addresses stay reserved",
        scene: || released(100 * MIB),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::Found(Probable),
        also: &["known-bad-version"],
        story: "two such releases, and nobody read what other processes took meanwhile",
        scene: || released_twice([(RuntimeFree, 10 * GIB)]),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::Found(Proven),
        also: &["known-bad-version"],
        story: "the same, and the others held as much as before",
        scene: || released_twice([(RuntimeFree, 10 * GIB), (KfdOthersVram, GIB)]),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::First(Probable),
        also: &["true-capacity", "known-bad-version"],
        story: "nobody read what was free between, and HSA's blocks of 40 handles live that were released: that is nothing hidden",
        scene: || handles_released(false),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::Not,
        also: &["true-capacity", "known-bad-version", "hidden-runtime-memory"],
        story: "the same, and HSA has each of them back",
        scene: || handles_released(true),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "code was loaded between the readings, which may have taken as much",
        scene: || released_and(100 * MIB, true),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "4000 small blocks came between the readings: what rounding adds to them is 8 GiB",
        scene: || released_between(100 * MIB, |trace| small_blocks(trace, 4000)),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::First(Probable),
        also: &["mallocasync-oom", "phantom-free", "true-capacity"],
        story: "the refused call took 4 GiB, and the next one finds 2 too little: it is the same memory",
        scene: || leaked_and_missed(true),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Not,
        also: &["mallocasync-oom", "phantom-free", "hidden-runtime-memory", "true-capacity"],
        story: "the same, and the refused call took nothing: something else holds what is missing",
        scene: || leaked_and_missed(false),
    },
    Labelled {
        id: "pool-failure-leak",
        says: Says::Not,
        also: &["phantom-free", "mallocasync-oom"],
        story: "2000 small blocks came before the failure: what rounding adds to them is what vanished",
        scene: || leaked_beside(6 * GIB, |trace| small_blocks(trace, 2000)),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "free memory rose by what was released",
        scene: || released(8 * GIB),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "as much was taken between the readings as was released: free memory need not rise",
        scene: || released_between(0, |trace| _ = trace.alloc(0x80_0000_0000, 8 * GIB)),
    },
    Labelled {
        id: "vmm-release-ineffective",
        says: Says::Not,
        also: &["known-bad-version"],
        story: "as much was given by a pool between the readings and freed on a stream: it may not be back yet",
        scene: || {
            released_between(0, |trace| {
                trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x90_0000_0000, 8 * GIB);
                trace.free_kind(Kind::Pool, "hipFreeAsync", 0x90_0000_0000);
            })
        },
    },
    Labelled {
        id: "graph-private-pool",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "PyTorch's message: graphs keep 6 GiB, and 3 were missing; what of it is in tensors nobody says",
        scene: || graphs(PRIVATE_6_GIB),
    },
    Labelled {
        id: "graph-private-pool",
        says: Says::Not,
        also: &["true-capacity"],
        story: "graphs keep 512 MiB, which is not enough",
        scene: || graphs(PRIVATE_512_MIB),
    },
    Labelled {
        id: "graph-private-pool",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "6 GiB that were taken during two captures live, and 3 were missing",
        scene: || captured_by(torch(TraceBuilder::default().device(0, "card", 24 * GIB)), 6, true),
    },
    Labelled {
        id: "graph-private-pool",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the same in a program without PyTorch: whose pools keep what, nobody knows",
        scene: || captured(6, true),
    },
    Labelled {
        id: "graph-private-pool",
        says: Says::Not,
        also: &["true-capacity"],
        story: "2 GiB that were taken during captures live, which is not enough",
        scene: || captured(2, true),
    },
    Labelled {
        id: "graph-private-pool",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the 6 GiB of the captures were freed, and others took their place",
        scene: || captured(6, false),
    },
    Labelled {
        id: "graph-private-pool",
        says: Says::Not,
        also: &["true-capacity"],
        story: "a recorder that kept no captures",
        scene: || {
            let mut scene = captured(6, true);
            scene.trace.header.minor = 2;
            scene
        },
    },
];

/// A full card of which so many GiB were taken during two captures, and kept or not.
fn captured(count: u64, kept: bool) -> Scene {
    captured_by(TraceBuilder::default().device(0, "card", 24 * GIB), count, kept)
}

fn captured_by(mut trace: TraceBuilder, count: u64, kept: bool) -> Scene {
    let address = |block: u64| 0x10_0000_0000 + block * 2 * GIB;
    (0..23 - count).for_each(|block| _ = trace.alloc(address(block), GIB));
    for capture in 0..2 {
        let of_stream = |trace: &mut TraceBuilder, api: &str| {
            let record = trace.record(Event::Sync, Kind::None, api);
            trace.push(Record { address: 0x51, ..record }, &[]);
        };
        of_stream(&mut trace, "hipStreamBeginCapture");
        (0..count / 2).for_each(|block| _ = trace.alloc(address(100 + capture * 50 + block), GIB));
        of_stream(&mut trace, "hipStreamEndCapture");
    }
    if !kept {
        (0..2).for_each(|capture| (0..count / 2).for_each(|block| _ = trace.free(address(100 + capture * 50 + block))));
        (0..count).for_each(|block| _ = trace.alloc(address(300 + block), GIB));
    }
    let seq = trace.refuse(4 * GIB);
    full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
    Scene { trace }
}

/// A full card with PyTorch's message, which says what private pools hold.
fn graphs(log: &'static str) -> Scene {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    (0..23).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(4 * GIB);
    full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
    with_log(trace, log)
}

const PRIVATE_6_GIB: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of \
    24.00 GiB of which 1.00 GiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, with 6.00 GiB allocated in \
    private pools (e.g., CUDA Graphs), and 800.00 MiB is reserved by PyTorch but unallocated.";
const PRIVATE_512_MIB: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of \
    24.00 GiB of which 1.00 GiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, with 512.00 MiB allocated in \
    private pools (e.g., CUDA Graphs), and 800.00 MiB is reserved by PyTorch but unallocated.";

/// Physical memory of so many bytes beside other blocks fills a card of 24 GiB but for 2, and 4 GiB are refused.
fn half_returned(bytes: u64, unmaps: bool) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x80_0000_0000, 22 * GIB - bytes);
    trace.create_and_map(0x1000, 0x10_0000_0000, bytes);
    if unmaps {
        trace.unmap(0x10_0000_0000, bytes);
    }
    let seq = trace.refuse(4 * GIB);
    let read = [
        (RuntimeFree, 2 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 22 * GIB),
        (KfdProcessVram, 22 * GIB),
        (KfdOthersVram, 0),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// Stream-ordered requests that grow, until one fails with 10 GiB free.
fn stream_ordered(version: i32, plain_after: bool) -> Scene {
    stream_ordered_in(TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(version), plain_after)
}

fn on_rocm_7(target: u64) -> Scene {
    let mut scene = stream_ordered(70_051_831, true);
    amd_gpu(&mut scene.trace, target, 24 * GIB, 32 * GIB);
    scene
}

fn stream_ordered_in(mut trace: TraceBuilder, plain_after: bool) -> Scene {
    for step in 1..9 {
        trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x100_0000_0000 + step * GIB, step * 100 * MIB);
        trace.now_ns += 3_000_000_000;
    }
    let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocAsync");
    let seq = trace.push(Record { status: 2, requested: GIB, ..record }, &[]);
    let read = [
        (RuntimeFree, 10 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 14 * GIB),
        (KfdProcessVram, 4 * GIB),
        (KfdOthersVram, 0),
    ];
    at_failure(&mut trace, seq, read);
    if plain_after {
        trace.alloc(0x200_0000_0000, GIB);
    }
    Scene { trace }
}

/// Blocks of 4 KiB that stay.
fn small_blocks(trace: &mut TraceBuilder, count: u64) {
    (0..count).for_each(|block| _ = trace.alloc(0x900_0000_0000 + block * 2 * MIB, 4096));
}

fn leaked(free_after: u64, loads_code: bool) -> Scene {
    leaked_beside(free_after, |trace| {
        if loads_code {
            let record = trace.record(Event::Module, Kind::None, "hipModuleLoadData");
            trace.push(record, &[]);
        }
    })
}

/// 4 GiB are refused, and then so much is free; something else was done right before that.
fn leaked_beside(free_after: u64, before: impl FnOnce(&mut TraceBuilder)) -> Scene {
    leaked_by(free_after, true, 4 * GIB, before)
}

/// The same: the driver counts it for this process or for none, and so much can be had afterwards.
fn leaked_by(free_after: u64, is_own: bool, given_after: u64, before: impl FnOnce(&mut TraceBuilder)) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, 14 * GIB);
    let earlier = [(RuntimeFree, 10 * GIB), (KfdProcessVram, 14 * GIB), (KfdOthersVram, 0)];
    (0..2).for_each(|_| sampled(&mut trace, earlier));
    before(&mut trace);
    let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocAsync");
    let seq = trace.push(Record { status: 2, requested: 4 * GIB, ..record }, &[]);
    let used = 24 * GIB - free_after;
    let own = if is_own { used } else { 14 * GIB };
    let [total, used] = [(VramTotal, 24 * GIB), (VramUsed, used)];
    let read = [(RuntimeFree, free_after), total, used, (KfdProcessVram, own), (KfdOthersVram, 0)];
    at_failure(&mut trace, seq, read);
    trace.alloc(0x200_0000_0000, given_after);
    Scene { trace }
}

/// A stream-ordered call of 4 GiB is refused with 10 free, and then one of 8 GiB with 6 free.
fn leaked_and_missed(takes: bool) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, 14 * GIB);
    let free_before = if takes { 10 * GIB } else { 6 * GIB };
    let earlier = [(RuntimeFree, free_before), (KfdProcessVram, 24 * GIB - free_before), (KfdOthersVram, 0)];
    (0..2).for_each(|_| sampled(&mut trace, earlier));
    for requested in [4 * GIB, 8 * GIB] {
        let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocAsync");
        let seq = trace.push(Record { status: 2, requested, ..record }, &[]);
        let read = [
            (RuntimeFree, 6 * GIB),
            (VramTotal, 24 * GIB),
            (VramUsed, 18 * GIB),
            (KfdProcessVram, 18 * GIB),
            (KfdOthersVram, 0),
        ];
        at_failure(&mut trace, seq, read);
    }
    Scene { trace }
}

/// hipMallocAsync fails on a full card; some thread gives 12 GiB back, and hipMalloc succeeds.
fn full_card(other: Option<u32>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).runtime_version(60_443_483);
    (0..22).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB));
    let record = trace.record(Event::Alloc, Kind::Pool, "hipMallocAsync");
    let seq = trace.push(Record { status: 2, requested: 8 * GIB, ..record }, &[]);
    full(&mut trace, seq, 24 * GIB, 22 * GIB, 2 * GIB);
    for block in 0..12 {
        let address = 0x10_0000_0000 + block * 2 * GIB;
        let record = match other {
            Some(thread) => trace.record_on(thread, Event::Free, Kind::Device, "hipFree"),
            None => trace.record(Event::Free, Kind::Device, "hipFree"),
        };
        trace.push(Record { address, ..record }, &[]);
    }
    trace.alloc(0x200_0000_0000, 8 * GIB);
    Scene { trace }
}

/// 40 handles of 512 MiB are created and released; the driver counts 20 GiB for the process, and 8 more are refused. `come_back`: the layer
/// below was given back what it gave.
fn handles_released(come_back: bool) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    for handle in 1..=40 {
        let address = 0x100_0000_0000 + handle * GIB;
        let create = At { api: "hipMemCreate", kind: Kind::Physical, ..at("", handle, 512 * MIB) };
        trace.alloc_through(0, &[create, at("hsa_amd_memory_pool_allocate", address, 512 * MIB)]);
        let release = At { api: "hipMemRelease", kind: Kind::Physical, ..at("", handle, 0) };
        let below = [release, at("hsa_amd_memory_pool_free", address, 0)];
        trace.free_through(0, if come_back { &below } else { &below[..1] });
    }
    let seq = trace.refuse(8 * GIB);
    full(&mut trace, seq, 24 * GIB, 20 * GIB, 4 * GIB);
    Scene { trace }
}

/// 8 GiB of mapped physical memory go, and then a request fails.
fn released(risen: u64) -> Scene {
    released_and(risen, false)
}

fn released_and(risen: u64, loads_code: bool) -> Scene {
    released_between(risen, |trace| {
        if loads_code {
            let record = trace.record(Event::Module, Kind::None, "hipModuleLoadData");
            trace.push(record, &[]);
        }
    })
}

fn released_between(risen: u64, before_reading: impl FnOnce(&mut TraceBuilder)) -> Scene {
    let mut trace = reserved();
    release_8_gib(&mut trace, [(RuntimeFree, 10 * GIB)], [(RuntimeFree, 10 * GIB + risen)], before_reading);
    fails_with_free(trace, 10 * GIB + risen)
}

/// Two releases that the card does not get back, with these readings around each.
fn released_twice<const N: usize>(read: [(Quantity, u64); N]) -> Scene {
    let mut trace = reserved();
    (0..2).for_each(|_| release_8_gib(&mut trace, read, read, |_| ()));
    fails_with_free(trace, 10 * GIB)
}

/// 64 GiB of addresses.
fn reserved() -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let record = trace.record(Event::Reserve, Kind::Reserved, "hipMemAddressReserve");
    trace.push(Record { address: 0x10_0000_0000, requested: 64 * GIB, ..record }, &[]);
    trace
}

/// 8 GiB of mapped physical memory go between two readings.
fn release_8_gib<const N: usize>(
    trace: &mut TraceBuilder,
    before: [(Quantity, u64); N],
    after: [(Quantity, u64); N],
    before_reading: impl FnOnce(&mut TraceBuilder),
) {
    (0..8).for_each(|handle| trace.create_and_map(0x1000 + handle, 0x10_0000_0000 + handle * GIB, GIB));
    sampled(trace, before);
    for handle in 0..8 {
        trace.unmap(0x10_0000_0000 + handle * GIB, GIB);
        trace.free_kind(Kind::Physical, "hipMemRelease", 0x1000 + handle);
    }
    before_reading(trace);
    sampled(trace, after);
}

fn fails_with_free(mut trace: TraceBuilder, free: u64) -> Scene {
    let seq = trace.refuse(20 * GIB);
    let read = [(RuntimeFree, free), (VramTotal, 24 * GIB), (VramUsed, 24 * GIB - free), (KfdOthersVram, GIB)];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// Why the release is said to have worked, of a trace.
fn ruled_out(scene: &Scene) -> Option<String> {
    let excluded = crate::testing::summary(&scene.trace).conclusion.excluded;
    excluded.into_iter().find(|out| out.id == "vmm-release-ineffective").map(|out| out.by)
}

#[test]
fn a_release_worked_only_where_nothing_else_gave_memory_back() {
    let risen = |others: [u64; 2], between: fn(&mut TraceBuilder)| {
        let mut trace = reserved();
        let read = |free: u64, others: u64| [(RuntimeFree, free), (KfdOthersVram, others)];
        release_8_gib(&mut trace, read(10 * GIB, others[0]), read(18 * GIB, others[1]), between);
        ruled_out(&fails_with_free(trace, 18 * GIB))
    };
    let worked = "free memory rose by 8.00 GiB of the 8.00 GiB that were released";
    assert_eq!(risen([GIB, GIB], |_| ()).as_deref(), Some(worked));
    assert_eq!(risen([9 * GIB, GIB], |_| ()), None, "another process gave 8 GiB back");
    assert_eq!(risen([GIB, GIB], |trace| _ = trace.after(Event::Device, "hipDeviceReset", 0, 0)), None);
    let unload = |trace: &mut TraceBuilder| _ = trace.after(Event::Module, "hipModuleUnload", 0, 0);
    assert_eq!(risen([GIB, GIB], unload), None, "code that went, or the release");
    assert_eq!(ruled_out(&released(8 * GIB)), None, "nobody knows what others held");
}

/// What a reset takes away was never released.
#[test]
fn a_reset_is_no_release() {
    let mut trace = reserved();
    (0..8).for_each(|handle| trace.create_and_map(0x1000 + handle, 0x10_0000_0000 + handle * GIB, GIB));
    let read = |free: u64| [(RuntimeFree, free), (KfdOthersVram, GIB)];
    sampled(&mut trace, read(10 * GIB));
    trace.after(Event::Device, "hipDeviceReset", 0, 0);
    sampled(&mut trace, read(18 * GIB));
    assert_eq!(ruled_out(&fails_with_free(trace, 18 * GIB)), None);
}
