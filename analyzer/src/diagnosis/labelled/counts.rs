//! B. Limits on counts and addresses.

use gpuoom_trace::metadata::Quantity::{
    AddressSpace, AddressSpaceLimit, DescriptorLimit, HostAvailable, HostTotal, KfdOthersVram, KfdProcessVram,
    LargestAllocatable, MemoryMapLimit, MemoryMaps, OpenDescriptors, RuntimeFree, VramTotal, VramUsed,
};
use gpuoom_trace::record::{Event, Kind, Record};

use super::scenes::at_failure;
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{At, GIB, MIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "2 MiB refused with 20 GiB free and 65,500 of 65,530 mappings (pytorch#175431)",
        scene: || mappings(65_500),
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::First(Probable),
        also: &[],
        story: "the same with no mapping left: few of them are the program's blocks",
        scene: || mappings(65_530),
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Found(Possible),
        also: &["pinned-host-exhaustion", "kfd-system-memory-limit"],
        story: "no mapping is left, and 2 MiB of the host's memory are refused with 20 GiB of RAM available",
        scene: host_without_mappings,
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::First(Probable),
        also: &[],
        story: "no mapping is left, and most are the program's blocks",
        scene: || mappings_of(300, 300, Some(0)),
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the same, and the same request is refused again with most mappings left",
        scene: || {
            let mut scene = mappings_of(300, 300, Some(0));
            let seq = scene.trace.refuse(2 * MIB);
            mapped(&mut scene.trace, seq, 50, 300);
            scene
        },
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the same, and nobody tried whether a smaller block is given",
        scene: || mappings_and_probe(65_530, None),
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the same, and a block of 1 MiB could be allocated right after it: mappings come and go",
        scene: || mappings_and_probe(65_530, Some(MIB)),
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the same with one mapping left",
        scene: || mappings(65_529),
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the same with 63,500 mappings: 2,000 are left",
        scene: || mappings(63_500),
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same with 65,500, and the thread's next request of that size is granted",
        scene: || {
            let mut scene = mappings(65_500);
            scene.trace.alloc(0x80_0000_0000, 2 * MIB);
            scene
        },
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same with 700 mappings",
        scene: || mappings(700),
    },
    Labelled {
        id: "map-count-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "nobody counted the mappings, and 28,500 blocks live",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 288 * GIB);
            (0..28_500).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 4 * MIB, 2 * MIB));
            let seq = trace.refuse(2 * MIB);
            at_failure(&mut trace, seq, [(RuntimeFree, 203 * GIB), (VramTotal, 288 * GIB), (VramUsed, 85 * GIB)]);
            Scene { trace }
        },
    },
    Labelled {
        id: "address-space-limit",
        says: Says::First(Probable),
        also: &[],
        story: "2 GiB refused with 20 GiB free, and 252 MiB of addresses left below ulimit -v",
        scene: || addresses(2 * GIB, 252 * MIB),
    },
    Labelled {
        id: "address-space-limit",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same with 3 GiB of addresses left",
        scene: || addresses(2 * GIB, 3 * GIB),
    },
    Labelled {
        id: "address-space-limit",
        says: Says::Not,
        also: &["phantom-free"],
        story: "252 MiB left, and a block of 1 GiB could be allocated right after it",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 64 * MIB);
            let seq = trace.refuse(2 * GIB);
            limited(&mut trace, seq, 252 * MIB);
            at_failure(&mut trace, seq, [(LargestAllocatable, GIB)]);
            Scene { trace }
        },
    },
    Labelled {
        id: "vmm-fd-exhaustion",
        says: Says::First(Probable),
        also: &["known-bad-version"],
        story: "1000 handles live, and 1024 of 1024 descriptors are open: as many need not be the same",
        scene: || handles(1000, [(OpenDescriptors, 1024), (DescriptorLimit, 1024)]),
    },
    Labelled {
        id: "vmm-fd-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free", "known-bad-version"],
        story: "76 handles live, and 200 of 200 descriptors are open",
        scene: || handles(76, [(OpenDescriptors, 200), (DescriptorLimit, 200)]),
    },
    Labelled {
        id: "vmm-fd-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free", "known-bad-version"],
        story: "the same with two left",
        scene: || handles(1000, [(OpenDescriptors, 1022), (DescriptorLimit, 1024)]),
    },
    Labelled {
        id: "vmm-fd-exhaustion",
        says: Says::Not,
        also: &["phantom-free", "known-bad-version"],
        story: "1024 of 1024 are open, and another thread makes a small handle although none was given back",
        scene: || {
            let mut scene = handles(1000, [(OpenDescriptors, 1024), (DescriptorLimit, 1024)]);
            let record = scene.trace.record_on(77, Event::Alloc, Kind::Physical, "hipMemCreate");
            scene.trace.push(Record { address: 0x9000, requested: 4096, ..record }, &[]);
            scene
        },
    },
    Labelled {
        id: "vmm-fd-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free", "known-bad-version"],
        story: "1000 handles live, and 24 of 1024 descriptors are left: nearly used up is not used up",
        scene: || handles(1000, [(OpenDescriptors, 1000), (DescriptorLimit, 1024)]),
    },
    Labelled {
        id: "vmm-fd-exhaustion",
        says: Says::Not,
        also: &["phantom-free", "known-bad-version"],
        story: "the same, and the next handle is made although none was given back",
        scene: || {
            let mut scene = handles(1000, [(OpenDescriptors, 1000), (DescriptorLimit, 1024)]);
            scene.trace.create_and_map(0x9000, 0x90_0000_0000, 2 * MIB);
            scene
        },
    },
    Labelled {
        id: "vmm-fd-exhaustion",
        says: Says::Not,
        also: &["phantom-free", "known-bad-version"],
        story: "40 of 1024 descriptors are open",
        scene: || handles(1000, [(OpenDescriptors, 40), (DescriptorLimit, 1024)]),
    },
    Labelled {
        id: "vmm-fd-exhaustion",
        says: Says::Found(Possible),
        also: &["phantom-free", "known-bad-version"],
        story: "nobody counted the descriptors, and 1010 handles live",
        scene: || handles(1010, []),
    },
    Labelled {
        id: "gpu-va-limit",
        says: Says::First(Proven),
        also: &[],
        story: "60 GiB of addresses are reserved and 8 more refused, with vm_size=64 (GiB)",
        scene: || reservations(60, 8 * GIB),
    },
    Labelled {
        id: "gpu-va-limit",
        says: Says::Not,
        also: &[],
        story: "1 GiB is reserved: vm_size=64 is far away",
        scene: || reservations(1, 8 * GIB),
    },
    Labelled {
        id: "gpu-va-limit",
        says: Says::Found(Possible),
        also: &[],
        story: "58 GiB are reserved, and 1 more would fit",
        scene: || reservations(58, GIB),
    },
    Labelled {
        id: "gpu-va-limit",
        says: Says::Not,
        also: &[],
        story: "60 GiB are reserved, and a size that is no multiple of a page is refused",
        scene: || reservations(60, 5 * GIB + 1),
    },
];

/// So many mappings, and no block of any size can be allocated.
fn mappings(count: u64) -> Scene {
    mappings_and_probe(count, Some(0))
}

fn mappings_and_probe(count: u64, largest: Option<u64>) -> Scene {
    mappings_of(count, 65_530, largest)
}

fn mappings_of(count: u64, limit: u64, largest: Option<u64>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    (0..100).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 4 * MIB, 2 * MIB));
    let seq = trace.refuse(2 * MIB);
    mapped(&mut trace, seq, count, limit);
    if let Some(largest) = largest {
        at_failure(&mut trace, seq, [(LargestAllocatable, largest)]);
    }
    Scene { trace }
}

fn host_without_mappings() -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    // The kernel's driver is asked where the runtime gets so far.
    let given = At { api: "hipHostMalloc", kind: Kind::HostPinned, address: 0x70_0000_0000, bytes: 64 * MIB };
    trace.alloc_through(0, &[given, At { api: "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", kind: Kind::Registered, ..given }]);
    let record = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
    let seq = trace.push(Record { status: 2, requested: 2 * MIB, ..record }, &[]);
    let read = [(MemoryMaps, 65_530), (MemoryMapLimit, 65_530), (HostTotal, 64 * GIB), (HostAvailable, 20 * GIB)];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// A request is refused with so many addresses left below the process's limit.
fn addresses(request: u64, left: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, 64 * MIB);
    let seq = trace.refuse(request);
    limited(&mut trace, seq, left);
    Scene { trace }
}

fn limited(trace: &mut TraceBuilder, seq: u64, left: u64) {
    let read = [
        (RuntimeFree, 20 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 4 * GIB),
        (KfdProcessVram, 64 * MIB),
        (KfdOthersVram, 0),
        (AddressSpace, 40 * GIB - left),
        (AddressSpaceLimit, 40 * GIB),
    ];
    at_failure(trace, seq, read);
}

fn mapped(trace: &mut TraceBuilder, seq: u64, count: u64, limit: u64) {
    let read = [
        (RuntimeFree, 20 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 4 * GIB),
        (KfdProcessVram, 2 * GIB / 5),
        (KfdOthersVram, 0),
        (MemoryMaps, count),
        (MemoryMapLimit, limit),
    ];
    at_failure(trace, seq, read);
}

fn handles<const N: usize>(count: u64, descriptors: [(gpuoom_trace::metadata::Quantity, u64); N]) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    (0..count).for_each(|handle| trace.create_and_map(0x1000 + handle, 0x10_0000_0000 + handle * 2 * MIB, 2 * MIB));
    let record = trace.record(Event::Alloc, Kind::Physical, "hipMemCreate");
    let seq = trace.push(Record { status: 2, requested: 2 * MIB, ..record }, &[]);
    at_failure(&mut trace, seq, descriptors);
    let read = [
        (RuntimeFree, 20 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 4 * GIB),
        (KfdProcessVram, 2 * GIB),
        (KfdOthersVram, 0),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// So many GiB of addresses are reserved with vm_size=64, and then a request for more is refused.
fn reservations(gib: u64, asked: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.machine.push(("/sys/module/amdgpu/parameters/vm_size".into(), "64\n".into()));
    let record = trace.record(Event::Reserve, Kind::Reserved, "hipMemAddressReserve");
    trace.push(Record { address: 0x10_0000_0000, requested: gib * GIB, ..record }, &[]);
    let record = trace.record(Event::Reserve, Kind::Reserved, "hipMemAddressReserve");
    trace.push(Record { status: 2, requested: asked, ..record }, &[]);
    Scene { trace }
}
