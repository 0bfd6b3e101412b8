//! Which bytes of the layers are the same, and why lower ones exist.

use gpuoom_trace::record::{Event, Kind, Layer, Record, flag};

use super::Cause;
use crate::replay::account::Account;
use crate::replay::balance::Balance;
use crate::replay::block::Side;
use crate::replay::failures::RefusedBy;
use crate::replay::{Options, Replay};
use crate::testing::{At, GIB, MIB, TraceBuilder, at, replay};

const HSA: &str = "hsa_amd_memory_pool_allocate";
const HSA_FREE: &str = "hsa_amd_memory_pool_free";
const KFD: &str = "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU";
const KFD_FREE: &str = "AMDKFD_IOC_FREE_MEMORY_OF_GPU";

fn builder() -> TraceBuilder {
    TraceBuilder::default().device(0, "card", 16 * GIB)
}

fn run(trace: &TraceBuilder) -> Replay {
    replay(trace, Options::default())
}

fn account(replay: &Replay) -> &Account {
    replay.accounts.device(0).unwrap()
}

/// Each byte once, on device 0.
fn total(replay: &Replay) -> u128 {
    Balance::of(&account(replay).holdings, &replay.lower.sums.of(Side::Device, 0)).total_bytes()
}

/// Layer, cause and bytes of what was given below.
fn below(replay: &Replay) -> Vec<(Layer, Cause, u128)> {
    let rows = replay.lower.sums.of(Side::Device, 0).into_iter();
    rows.map(|(class, sum)| (class.layer, class.cause, sum.bytes)).collect()
}

fn under(layer: Layer, kind: Kind, own: bool) -> Cause {
    Cause::Call { layer, kind, own }
}

fn three(number: u64, bytes: u64) -> [At; 3] {
    let pointer = 0x7f00_0000_0000 + number * 4 * GIB;
    let rounded = bytes.next_multiple_of(2 * MIB);
    [at("hipMalloc", pointer, bytes), at(HSA, pointer, bytes), at(KFD, 0x4321_0000_0000 + number, rounded)]
}

fn three_back(number: u64) -> [At; 3] {
    let [hip, hsa, kfd] = three(number, 0);
    [At { api: "hipFree", ..hip }, At { api: HSA_FREE, ..hsa }, At { api: KFD_FREE, ..kfd }]
}

#[test]
fn three_layers_are_one_allocation() {
    let mut trace = builder();
    trace.alloc_through(0, &three(0, 3 * MIB));
    let replay = run(&trace);
    assert_eq!((account(&replay).held.requested_bytes, total(&replay)), (3 * u128::from(MIB), 4 * u128::from(MIB)));
    let expected = [
        (Layer::Hsa, under(Layer::Runtime, Kind::Device, true), 3 * u128::from(MIB)),
        (Layer::Kernel, under(Layer::Hsa, Kind::Device, false), 4 * u128::from(MIB)),
    ];
    assert_eq!(below(&replay), expected);
    trace.free_through(0, &three_back(0));
    let replay = run(&trace);
    assert_eq!((total(&replay), below(&replay).len()), (0, 0));
    assert_eq!((replay.unmatched_frees, replay.lower.unmatched().count()), (0, 0));
    assert_eq!(account(&replay).lower_at_peak(replay.lower.blocks(Side::Device, 0)).count(), 2);
}

#[test]
fn a_pool_keeps_what_the_program_gives_back() {
    let mut trace = builder();
    let grow = At { api: "hipMallocAsync", kind: Kind::Pool, ..at("", 0x7f00_0000_0000, MIB) };
    trace.alloc_through(0, &[grow, at(HSA, 0x7f00_0000_0000, 32 * MIB)]);
    trace.free_kind(Kind::Pool, "hipFreeAsync", 0x7f00_0000_0000);
    let replay = run(&trace);
    assert_eq!((account(&replay).held.blocks, total(&replay)), (0, 32 * u128::from(MIB)));
    assert_eq!(below(&replay)[0].1, under(Layer::Runtime, Kind::Pool, true));
}

#[test]
fn equal_numbers_of_two_layers_and_drivers_mean_different_things() {
    let mut trace = builder();
    trace.alloc_through(0, &[at("hipMalloc", 0x77, MIB), at(HSA, 0x77, MIB), at(KFD, 0x77, 2 * MIB)]);
    let drm = trace.record(Event::Alloc, Kind::Device, "DRM_IOCTL_AMDGPU_GEM_CREATE");
    trace.push(Record { address: 0x77, requested: 5 * MIB, kind_flags: from_runtime(Kind::Device), ..drm }, &[]);
    trace.alloc_kind(Kind::Device, KFD, 0x78, GIB);
    assert_eq!(total(&run(&trace)), u128::from(7 * MIB + GIB));
    trace.free_kind(Kind::Device, KFD_FREE, 0x78);
    trace.free_kind(Kind::Device, "DRM_IOCTL_GEM_CLOSE", 0x77);
    let replay = run(&trace);
    assert_eq!((total(&replay), account(&replay).held.requested_bytes), (2 * u128::from(MIB), u128::from(MIB)));
}

fn from_runtime(kind: Kind) -> u8 {
    kind as u8 | flag::FROM_RUNTIME
}

#[test]
fn a_call_that_calls_its_like_counts_once() {
    let mut trace = builder();
    let pitch = at("hipMemAllocPitch", 0x7f00_0000_0000, MIB);
    let inner = at("hipMallocPitch", 0x7f00_0000_0000, MIB);
    trace.alloc_through(0, &[pitch, inner, at(HSA, 0x7f00_0000_0000, MIB)]);
    let both = [at("hsa_memory_allocate", 0x7e00_0000_0000, MIB), at(HSA, 0x7e00_0000_0000, MIB)];
    trace.alloc_through(flag::FROM_RUNTIME, &both);
    let replay = run(&trace);
    assert_eq!(total(&replay), 2 * u128::from(MIB));
    let causes: Vec<Cause> = below(&replay).iter().map(|(_, cause, _)| *cause).collect();
    assert_eq!(causes, [under(Layer::Runtime, Kind::Device, true), Cause::Itself]);
    let back = [at("hsa_memory_free", 0x7e00_0000_0000, 0), at(HSA_FREE, 0x7e00_0000_0000, 0)];
    trace.free_through(flag::FROM_RUNTIME, &back);
    let replay = run(&trace);
    assert_eq!((total(&replay), replay.lower.unmatched().count()), (u128::from(MIB), 0));
}

#[test]
fn code_queues_and_handles_have_their_causes() {
    let mut trace = builder();
    let load = trace.record(Event::Module, Kind::Code, "hsa_executable_load_agent_code_object");
    let load = Record { kind_flags: from_runtime(Kind::Code), ..load };
    trace.set_up_through(load, &[at(KFD, 1, MIB)]);
    let queue = trace.record(Event::Reserve, Kind::Queue, "hsa_queue_create");
    let queue = Record { address: 0x5000, requested: 4096, kind_flags: from_runtime(Kind::Queue), ..queue };
    trace.set_up_through(queue, &[at(KFD, 2, 2 * MIB)]);
    // A library makes its handle, and allocates in it what the program never asked for.
    let handle = trace.record(Event::Module, Kind::None, "rocblas_create_handle");
    trace.set_up_through(Record { address: 0x6000, ..handle }, &[at("hipMalloc", 0x7f00_0000_0000, 3 * MIB)]);
    // A call that leaves no record encloses this one.
    let inside = trace.record(Event::Alloc, Kind::Device, KFD);
    trace.push(Record { parent_distance: 1, address: 4, requested: 4 * MIB, ..inside }, &[]);
    trace.alloc(0x7e00_0000_0000, GIB);
    let replay = run(&trace);
    let expected = [
        (Layer::Runtime, Cause::SetUp, 3 * u128::from(MIB)),
        (Layer::Kernel, under(Layer::Hsa, Kind::Code, false), u128::from(MIB)),
        (Layer::Kernel, under(Layer::Hsa, Kind::Queue, false), 2 * u128::from(MIB)),
        (Layer::Kernel, Cause::Itself, 4 * u128::from(MIB)),
    ];
    assert_eq!(below(&replay), expected);
    assert_eq!(account(&replay).held.blocks, 1);
}

#[test]
fn an_array_is_as_large_as_the_layer_below_says() {
    let mut trace = builder();
    let array = At { kind: Kind::Array, ..at("hipMallocArray", 0x55, MIB) };
    trace.alloc_through(0, &[array, at(HSA, 0x7f00_0000_0000, 3 * MIB), at(KFD, 9, 4 * MIB)]);
    let replay = run(&trace);
    assert_eq!((account(&replay).held.requested_bytes, total(&replay)), (3 * u128::from(MIB), 4 * u128::from(MIB)));
    assert_eq!(account(&replay).held.granules, 1);
    let mut alone = builder();
    alone.alloc_kind(Kind::Array, "hipMallocArray", 0x55, MIB);
    assert_eq!(account(&run(&alone)).held.requested_bytes, u128::from(MIB));
}

/// A full card: HIP puts the array into host memory and answers success.
#[test]
fn an_array_that_lies_on_the_host_takes_nothing_of_the_card() {
    let mut trace = builder();
    let array = At { kind: Kind::Array, ..at("hipMallocArray", 0x55, 2 * MIB) };
    let on_the_host = At { kind: Kind::HostPinned, ..at(HSA, 0x7f00_0000_0000, 3 * MIB) };
    trace.alloc_through(0, &[array, on_the_host]);
    let replay = run(&trace);
    assert_eq!((account(&replay).held.requested_bytes, account(&replay).held.blocks), (0, 1));
    let mut small = builder();
    let beside = At { kind: Kind::HostPinned, ..at(HSA, 0x7f00_0000_0000, MIB) };
    small.alloc_through(0, &[array, beside]);
    assert_eq!(account(&run(&small)).held.requested_bytes, 2 * u128::from(MIB), "too little to be the array");
}

#[test]
fn managed_pages_count_where_a_lower_layer_gives_them() {
    let mut trace = builder();
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x7f00_0000_0000, GIB);
    let replay = run(&trace);
    assert_eq!((account(&replay).held.requested_bytes, total(&replay)), (u128::from(GIB), 0));
    let managed = At { kind: Kind::Managed, ..at("hipMallocManaged", 0x7e00_0000_0000, GIB) };
    trace.alloc_through(0, &[managed, at(HSA, 0x7e00_0000_0000, GIB)]);
    assert_eq!(total(&run(&trace)), u128::from(GIB));
}

#[test]
fn physical_memory_of_each_layer_lives_until_released_and_unmapped() {
    let mut trace = builder();
    let physical = |api, handle| At { kind: Kind::Physical, ..at(api, handle, GIB) };
    trace.alloc_through(0, &[physical("hipMemCreate", 7), physical("hsa_amd_vmem_handle_create", 700)]);
    let outer = trace.record(Event::Map, Kind::Physical, "hipMemMap");
    let inner = trace.record(Event::Map, Kind::Physical, "hsa_amd_vmem_map");
    let range = |record: Record| Record { address: 0x7f00_0000_0000, requested: GIB, ..record };
    trace.with_numbers(Record { parent_distance: 1, ..range(inner) }, &[700, 0]);
    trace.with_numbers(range(outer), &[7, 0]);
    trace.free_through(0, &[physical("hipMemRelease", 7), physical("hsa_amd_vmem_handle_release", 700)]);
    let replay = run(&trace);
    assert_eq!((total(&replay), below(&replay).len()), (u128::from(GIB), 1));
    let outer = trace.record(Event::Unmap, Kind::Physical, "hipMemUnmap");
    let inner = trace.record(Event::Unmap, Kind::Physical, "hsa_amd_vmem_unmap");
    trace.push(range(outer), &[]);
    trace.push(Record { parent_distance: 1, ..range(inner) }, &[]);
    let replay = run(&trace);
    assert_eq!((total(&replay), below(&replay).len(), replay.lower.unmatched().count()), (0, 0, 0));
}

#[test]
fn a_free_below_that_failed_is_undone() {
    let mut trace = builder();
    trace.alloc_through(0, &three(0, 2 * MIB));
    trace.free_through(0, &three_back(0));
    trace.last_call_failed(16);
    let replay = run(&trace);
    assert_eq!((account(&replay).held.blocks, total(&replay)), (0, 2 * u128::from(MIB)));
    assert_eq!(replay.failed_frees, 0);
}

#[test]
fn frees_of_what_nobody_gave_are_counted_by_function() {
    let mut trace = builder();
    trace.alloc_through(0, &three(0, 2 * MIB));
    trace.free_through(0, &[at("hipFree", 0x7f00_0000_0000, 0), at(HSA_FREE, 0xDEAD_0000, 0)]);
    trace.free_through(0, &[at("hipFree", 0, 0), at(HSA_FREE, 0xBEEF_0000, 0)]);
    trace.last_call_failed(0x1001);
    let replay = run(&trace);
    let unmatched: Vec<_> =
        replay.lower.unmatched().map(|(api, count)| (replay.apis.get(api).name.clone(), count)).collect();
    assert_eq!(unmatched, [(HSA_FREE.to_owned(), 1)]);
}

#[test]
fn the_program_may_mix_two_interfaces() {
    let mut trace = builder();
    trace.alloc_through(0, &[at("cudaMalloc", 0x1000, MIB), at("cuMemAlloc_v2", 0x1000, MIB)]);
    trace.free_kind(Kind::Device, "cuMemFree_v2", 0x1000);
    trace.alloc_kind(Kind::Device, "cuMemAlloc_v2", 0x2000, MIB);
    trace.free_through(0, &[at("cudaFree", 0x2000, 0), at("cuMemFree_v2", 0x2000, 0)]);
    let replay = run(&trace);
    assert_eq!((account(&replay).held.blocks, total(&replay)), (0, 0));
    assert_eq!((replay.unmatched_frees, replay.lower.unmatched().count()), (0, 0));
}

#[test]
fn a_reset_ends_what_runtime_and_driver_gave() {
    let mut trace = builder();
    trace.alloc_through(0, &[at("cudaMalloc", 0x1000, MIB), at("cuMemAlloc_v2", 0x1000, MIB)]);
    trace.after(Event::Device, "cudaDeviceReset", 0, 0);
    assert_eq!(total(&run(&trace)), 0);
}

#[test]
fn with_an_object_of_the_resource_manager_go_its_children() {
    let mut trace = builder();
    for number in 1..4u64 {
        let record = trace.record(Event::Alloc, Kind::Device, "NV_ESC_RM_ALLOC");
        let record = Record { kind_flags: from_runtime(Kind::Device), requested: MIB, ..record };
        trace.with_numbers(Record { address: 0xC1 << 32 | number, ..record }, &[0xD0 + number % 2, 0x40]);
    }
    assert_eq!(total(&run(&trace)), 3 * u128::from(MIB));
    let free = trace.record(Event::Free, Kind::Device, "NV_ESC_RM_FREE");
    let free = Record { kind_flags: from_runtime(Kind::Device), ..free };
    trace.push(Record { address: 0xC1 << 32 | 0xD1, ..free }, &[]);
    assert_eq!(total(&run(&trace)), u128::from(MIB));
    trace.push(Record { address: 0xC1 << 32 | 0xC1, ..free }, &[]);
    assert_eq!(total(&run(&trace)), 0);
}

#[test]
fn memory_of_others_is_not_this_process_s() {
    let mut trace = builder();
    let outer = trace.record(Event::Import, Kind::Imported, "hipIpcOpenMemHandle");
    let inner = trace.record(Event::Import, Kind::Imported, "AMDKFD_IOC_IMPORT_DMABUF");
    trace.push(Record { parent_distance: 1, address: 5, requested: GIB, ..inner }, &[]);
    trace.push(Record { address: 0x7f00_0000_0000, ..outer }, &[]);
    trace.free_through(
        0,
        &[At { kind: Kind::Imported, ..at("hipIpcCloseMemHandle", 0x7f00_0000_0000, 0) }, at(KFD_FREE, 5, 0)],
    );
    let replay = run(&trace);
    assert_eq!((total(&replay), replay.lower.unmatched().count()), (0, 0));
}

#[test]
fn who_refused_is_known_where_the_layers_below_were_seen() {
    let mut trace = builder();
    trace.refuse(GIB);
    trace.alloc_through(0, &three(0, 2 * MIB));
    trace.refuse(GIB);
    let replay = run(&trace);
    let saw: Vec<bool> = replay.failures.listed.iter().map(|oom| oom.saw_below).collect();
    assert_eq!(saw, [false, true]);
    assert!(replay.failures.listed.iter().all(|oom| oom.refused_by == RefusedBy::Layer(Some(Layer::Runtime))));
}

#[test]
fn memory_below_lives_until_its_last_handle_is_gone() {
    let (a, b) = (0xC1u64 << 32, 0xC2u64 << 32);
    let mut trace = builder();
    let object = |trace: &mut TraceBuilder, event, kind, api, address, bytes, numbers: &[u64]| {
        let record = trace.record(event, kind, api);
        let record = Record { kind_flags: from_runtime(kind), requested: bytes, address, ..record };
        trace.with_numbers(record, numbers);
    };
    let drop = |trace: &mut TraceBuilder, address| {
        object(trace, Event::Free, Kind::Device, "NV_ESC_RM_FREE", address, 0, &[]);
    };
    let duplicate = |trace: &mut TraceBuilder, address, parent, source| {
        object(trace, Event::Import, Kind::Imported, "NV_ESC_RM_DUP_OBJECT", address, 0, &[source, parent]);
    };
    object(&mut trace, Event::Alloc, Kind::Device, "NV_ESC_RM_ALLOC", a | 1, MIB, &[0xD1, 0x40]);
    duplicate(&mut trace, b | 1, 0xD2, a | 1);
    duplicate(&mut trace, a | 2, 0xD1, b | 1);
    duplicate(&mut trace, b | 9, 0xD2, 0xFFFF << 32 | 1);
    assert_eq!(total(&run(&trace)), u128::from(MIB));
    drop(&mut trace, a | 0xD1);
    assert_eq!(total(&run(&trace)), u128::from(MIB));
    trace.last_call_failed(0x1F);
    drop(&mut trace, b | 0xC2);
    assert_eq!(total(&run(&trace)), u128::from(MIB), "its names in the other client are still there");
    drop(&mut trace, a | 1);
    assert_eq!(total(&run(&trace)), u128::from(MIB));
    drop(&mut trace, a | 2);
    let replay = run(&trace);
    assert_eq!((total(&replay), replay.lower.unmatched().count()), (0, 0));
    assert_eq!(replay.lower.taken_alone().len(), 1, "a name takes nothing");
}

#[test]
fn a_pool_of_semaphores_goes_with_its_range() {
    let mut trace = builder();
    for event in [Event::Alloc, Event::Free] {
        let kind = if event == Event::Alloc { Kind::HostPinned } else { Kind::Reserved };
        let api = if event == Event::Alloc { "UVM_ALLOC_SEMAPHORE_POOL" } else { "UVM_FREE" };
        let record = trace.record(event, kind, api);
        let record = Record { kind_flags: from_runtime(kind), requested: MIB, address: 0x9000, ..record };
        trace.push(record, &[]);
        let rows = run(&trace).lower.sums.of(Side::Host, 0).len();
        assert_eq!(rows, usize::from(event == Event::Alloc));
    }
}
