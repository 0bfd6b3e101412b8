//! What records mean, seen from the outside: counts, peaks, failures, and a replay that is judged by a naive one.

use std::collections::BTreeMap;

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::outcome::{Because, Outcome};
use gpuoom_trace::record::{Event, Kind, Layer, NO_DEVICE, Record, flag, process};
use proptest::prelude::*;

use super::account::Account;
use super::block::Side;
use super::failures::RefusedBy;
use super::{End, Options, Replay};
use crate::testing::{GIB, MIB, TraceBuilder, replay};

pub(super) fn builder() -> TraceBuilder {
    TraceBuilder::default().device(0, "card", 16 * GIB)
}

pub(super) fn run(builder: &TraceBuilder) -> Replay {
    replay(builder, Options::default())
}

pub(super) fn device(replay: &Replay) -> &Account {
    replay.accounts.devices().find(|(device, _)| *device == 0).unwrap().1
}

pub(super) fn held(replay: &Replay) -> (u64, u128) {
    (device(replay).held.blocks, device(replay).held.requested_bytes)
}

#[test]
fn calls_count_once_whatever_they_called_below() {
    let mut trace = builder();
    let outer = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let inner = trace.record(Event::Alloc, Kind::Device, "hsa_amd_memory_pool_allocate");
    trace.push(Record { parent_distance: 1, address: 0x1000, requested: GIB, ..inner }, &[]);
    trace.push(Record { address: 0x1000, requested: GIB, padded_granules: 4, ..outer }, &[]);
    let replay = run(&trace);
    assert_eq!(held(&replay), (1, u128::from(GIB)));
    assert_eq!(device(&replay).calls.allocations, 1);
    assert_eq!(replay.lower.sums.of(Side::Device, 0)[0].1.bytes, u128::from(GIB));
}

#[test]
fn what_vendor_libraries_do_for_themselves_is_counted_apart() {
    let mut trace = builder();
    let from_runtime = |record: Record| Record { kind_flags: Kind::Device as u8 | flag::FROM_RUNTIME, ..record };
    let got = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { address: 0x1000, requested: GIB, ..from_runtime(got) }, &[]);
    let refused = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { status: 2, requested: GIB, ..from_runtime(refused) }, &[]);
    trace.alloc(0x9000_0000, MIB);
    let replay = run(&trace);
    assert_eq!(held(&replay), (1, u128::from(MIB)));
    assert_eq!((replay.lower.failures, replay.failures.count), (1, 0));
    assert_eq!(replay.lower.sums.of(Side::Device, 0).len(), 1);
    let free = trace.record(Event::Free, Kind::Device, "hipFree");
    trace.push(Record { address: 0x1000, ..from_runtime(free) }, &[]);
    assert!(run(&trace).lower.sums.of(Side::Device, 0).is_empty());
}

#[test]
fn a_free_that_failed_is_undone() {
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    trace.free(0x1000);
    trace.last_call_failed(1);
    trace.free(0x9999);
    trace.last_call_failed(1);
    trace.free(0x7f00_0000_9998);
    trace.free(0);
    let replay = run(&trace);
    assert_eq!(held(&replay), (1, u128::from(GIB)));
    assert_eq!((device(&replay).calls.frees, replay.failed_frees, replay.unmatched_frees), (0, 2, 1));
}

/// HIP answers "success" to a second stream-ordered free of a block: that is no sign of a call that was not recorded.
#[test]
fn a_block_of_a_pool_that_is_freed_twice_was_given() {
    let free_again = |kind: Kind, api: &str, address: u64| {
        let mut trace = builder();
        trace.alloc_kind(kind, "hipMallocAsync", 0x1000, GIB);
        trace.free_kind(kind, "hipFreeAsync", 0x1000);
        trace.free_kind(kind, api, address);
        run(&trace).unmatched_frees
    };
    assert_eq!(free_again(Kind::Pool, "hipFreeAsync", 0x1000), 0);
    assert_eq!(free_again(Kind::Pool, "hipFreeAsync", 0x2000), 1, "that one nobody gave");
}

#[test]
fn physical_memory_counts_until_it_is_released_and_unmapped() {
    let mut trace = builder();
    trace.create_and_map(7, 0x10_0000, GIB);
    trace.map(7, 0x8000_0000, GIB);
    trace.free_kind(Kind::Physical, "hipMemRelease", 7);
    assert_eq!(held(&run(&trace)).0, 1);
    // The number of the handle is given out again while the old memory is still mapped.
    trace.create_and_map(7, 0x2_0000_0000, 2 * GIB);
    assert_eq!(held(&run(&trace)), (2, 3 * u128::from(GIB)));
    trace.unmap(0x10_0000, u64::MAX);
    let replay = run(&trace);
    assert_eq!(held(&replay), (1, 2 * u128::from(GIB)));
    assert_eq!(device(&replay).calls.frees, 1);
    trace.last_call_failed(1);
    let replay = run(&trace);
    assert_eq!(held(&replay), (2, 3 * u128::from(GIB)));
    assert_eq!(replay.mappings(0).count(), 3);
}

#[test]
fn physical_memory_of_the_host_is_on_its_account() {
    let mut trace = builder();
    let create = Record { device: NO_DEVICE, ..trace.record(Event::Alloc, Kind::Physical, "hipMemCreate") };
    trace.with_numbers(Record { address: 7, requested: GIB, ..create }, &[1, 3]);
    trace.map(7, 0x10_0000, GIB);
    trace.free_kind(Kind::Physical, "hipMemRelease", 7);
    let on_host = |replay: &Replay| (replay.accounts.host.held.requested_bytes, replay.accounts.host.calls.frees);
    let replay = run(&trace);
    assert_eq!(on_host(&replay), (u128::from(GIB), 0), "it is mapped still");
    trace.unmap(0x10_0000, GIB);
    let replay = run(&trace);
    assert_eq!((on_host(&replay), replay.unmatched_frees), ((0, 1), 0));
    assert_eq!(replay.accounts.devices().count(), 0, "and no device is made of it");
    trace.last_call_failed(1);
    assert_eq!(on_host(&run(&trace)), (u128::from(GIB), 0));
}

#[test]
fn a_handle_that_was_asked_for_holds_the_memory_too() {
    let mut trace = builder();
    trace.create_and_map(7, 0x10_0000, GIB);
    let retain = trace.record(Event::Import, Kind::Physical, "hipMemRetainAllocationHandle");
    trace.with_numbers(Record { address: 7, ..retain }, &[0x10_0000 + GIB - 1]);
    trace.free_kind(Kind::Physical, "hipMemRelease", 7);
    trace.unmap(0x10_0000, GIB);
    let replay = run(&trace);
    assert_eq!((held(&replay), device(&replay).calls.frees), ((1, u128::from(GIB)), 0));
    trace.map(7, 0x20_0000, GIB);
    trace.free_kind(Kind::Physical, "hipMemRelease", 7);
    assert_eq!(held(&run(&trace)).0, 1);
    // The last handle is gone, the mapping still leads to the memory.
    trace.with_numbers(Record { address: 7, ..retain }, &[0x20_0000]);
    trace.unmap(0x20_0000, GIB);
    assert_eq!(held(&run(&trace)).0, 1);
    trace.free_kind(Kind::Physical, "hipMemRelease", 7);
    let replay = run(&trace);
    assert_eq!((held(&replay).0, replay.unmatched_frees), (0, 0));
}

/// HIP frees the block that an address lies in; CUDA refuses that.
#[test]
fn a_free_inside_a_block_takes_the_block() {
    let mut trace = builder();
    trace.alloc(0x7f00_0000_0000, GIB);
    trace.alloc(0x7f10_0000_0000, MIB);
    trace.free(0x7f00_0000_0000 + MIB);
    let replay = run(&trace);
    assert_eq!((held(&replay), device(&replay).calls.frees), ((1, u128::from(MIB)), 1));
    assert_eq!(replay.unmatched_frees, 0);
    trace.last_call_failed(1);
    let replay = run(&trace);
    assert_eq!((held(&replay).0, device(&replay).calls.frees, replay.unmatched_frees), (2, 0, 0));
    trace.free(0x7f00_0000_0000 + GIB);
    assert_eq!(run(&trace).unmatched_frees, 1, "right behind it");
}

/// HIP 6.4 takes a second release without an error. That is no sign of a call that went past the recorder.
#[test]
fn a_handle_that_is_released_twice_was_given_once() {
    let mut trace = builder();
    trace.create_and_map(7, 0x10_0000, GIB);
    trace.unmap(0x10_0000, GIB);
    (0..2).for_each(|_| _ = trace.free_kind(Kind::Physical, "hipMemRelease", 7));
    let replay = run(&trace);
    assert_eq!((held(&replay).0, device(&replay).calls.frees, replay.unmatched_frees), (0, 1, 0));
    trace.free_kind(Kind::Physical, "hipMemRelease", 8);
    assert_eq!(run(&trace).unmatched_frees, 1);
}

#[test]
fn what_is_no_memory_of_this_process_counts_nowhere() {
    let mut trace = builder();
    trace.alloc_kind(Kind::Physical, "hipMemCreate", 4, GIB);
    // An attribute that has the number of a handle.
    let advise = trace.record(Event::Map, Kind::Managed, "hipMemAdvise");
    trace.with_numbers(Record { address: 0x1000, requested: MIB, ..advise }, &[4, 1]);
    // A handle of KFD that has it, and becomes visible to a card and is hidden again.
    let visible = trace.record(Event::Map, Kind::Device, "AMDKFD_IOC_MAP_MEMORY_TO_GPU");
    trace.with_numbers(Record { address: 4, ..visible }, &[4, 4]);
    let physical = trace.record(Event::Map, Kind::Physical, "AMDKFD_IOC_MAP_MEMORY_TO_GPU");
    trace.with_numbers(Record { address: 0x20_0000, requested: MIB, ..physical }, &[4, 0]);
    let hidden = trace.record(Event::Unmap, Kind::Device, "AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU");
    trace.with_numbers(Record { address: 4, duration: 0, ..hidden }, &[1]);
    trace.last_call_failed(22);
    let queue = trace.record(Event::Reserve, Kind::Queue, "hsa_queue_create");
    trace.push(Record { address: 0x2000, requested: MIB, ..queue }, &[]);
    trace.free_kind(Kind::Queue, "hsa_queue_destroy", 0x2000);
    let import = trace.record(Event::Import, Kind::Imported, "hipMemImportFromShareableHandle");
    trace.push(Record { address: 0x8000, ..import }, &[]);
    trace.free_kind(Kind::Physical, "hipMemRelease", 0x8000);
    let buffer = trace.record(Event::Map, Kind::Imported, "hipExternalMemoryGetMappedBuffer");
    trace.with_numbers(Record { address: 0x9000, requested: MIB, ..buffer }, &[0x77, 0]);
    trace.free(0x9000);
    let node = trace.record(Event::Reserve, Kind::Pool, "hipGraphAddMemAllocNode");
    trace.push(Record { address: 0xA000, requested: MIB, ..node }, &[]);
    trace.free_kind(Kind::Pool, "hipGraphAddMemFreeNode", 0xA000);
    let replay = run(&trace);
    assert_eq!(held(&replay), (1, u128::from(GIB)));
    assert_eq!((replay.mappings(0).count(), replay.unmatched_frees), (0, 0));
    assert_eq!(device(&replay).reserved_bytes, 0);
}

#[test]
fn kinds_go_to_their_accounts() {
    let mut trace = builder();
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x1000, MIB);
    trace.alloc_kind(Kind::Array, "hipMallocArray", 0x1000, MIB);
    trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x2000, MIB);
    trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x3000, MIB);
    let pin = trace.record(Event::Pin, Kind::Registered, "hipHostRegister");
    trace.push(Record { address: 0x3000, requested: MIB, ..pin }, &[]);
    let reserve = trace.record(Event::Reserve, Kind::Reserved, "hipMemAddressReserve");
    trace.push(Record { address: 0x7000, requested: 32 * GIB, ..reserve }, &[]);
    let import = trace.record(Event::Import, Kind::Imported, "hipIpcOpenMemHandle");
    trace.push(Record { address: 0x8000, requested: GIB, ..import }, &[]);
    let replay = run(&trace);
    assert_eq!(held(&replay), (3, 3 * u128::from(MIB)));
    assert_eq!(replay.accounts.host.held.blocks, 2);
    assert_eq!(device(&replay).reserved_bytes, 32 * u128::from(GIB));
    assert_eq!(device(&replay).imported_bytes, u128::from(GIB));
}

#[test]
fn a_free_of_an_address_range_is_no_sign_of_a_call_that_was_not_recorded() {
    let mut trace = builder();
    let reserve = trace.record(Event::Reserve, Kind::Reserved, "hipMemAddressReserve");
    trace.push(Record { address: 0x7000, requested: GIB, ..reserve }, &[]);
    trace.free(0x7000);
    assert_eq!(run(&trace).unmatched_frees, 0);
    trace.free(0x9000);
    assert_eq!(run(&trace).unmatched_frees, 1);
}

/// HIP's answer to `hipHostUnregister` of memory that was never registered is to give it back.
#[test]
fn what_was_never_registered_is_freed_by_its_unregistering() {
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", 0x2000, MIB);
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x3000, MIB);
    let unpin = |trace: &mut TraceBuilder, address: u64| {
        let record = trace.record(Event::Unpin, Kind::Registered, "hipHostUnregister");
        trace.push(Record { address, duration: 0, ..record }, &[])
    };
    for address in [0x1000, 0x2000] {
        unpin(&mut trace, address);
    }
    // CUDA refuses it.
    unpin(&mut trace, 0x3000);
    trace.last_call_failed(713);
    let replay = run(&trace);
    assert_eq!((held(&replay), replay.accounts.host.held.blocks), ((1, u128::from(MIB)), 0));
    assert_eq!((replay.unmatched_frees, device(&replay).calls.frees), (0, 1));
}

#[test]
fn a_pool_knows_its_device() {
    let mut trace = builder();
    let pool = trace.record(Event::Reserve, Kind::Pool, "hipMemPoolCreate");
    trace.push(Record { address: 0x55, device: 1, ..pool }, &[]);
    let alloc = trace.record(Event::Alloc, Kind::Pool, "hipMallocFromPoolAsync");
    trace.with_numbers(Record { address: 0x1000, requested: MIB, ..alloc }, &[0x55]);
    let replay = run(&trace);
    let devices: Vec<_> =
        replay.accounts.devices().filter(|(_, account)| account.held.blocks == 1).map(|(device, _)| device).collect();
    assert_eq!(devices, [1]);
}

/// {sort of allocation, type of location}: pinned memory of the host, and managed memory.
#[test]
fn a_pool_of_other_memory_is_not_the_cards_whoever_asks_for_it_afterwards() {
    for (sort, location, on_host) in [(1, 2, true), (2, 1, false)] {
        let mut trace = builder();
        let pool = trace.record(Event::Reserve, Kind::Pool, "hipMemPoolCreate");
        trace.with_numbers(Record { address: 0x55, ..pool }, &[sort, location]);
        let asked = trace.record(Event::Reserve, Kind::Pool, "hipMemGetMemPool");
        trace.push(Record { address: 0x55, ..asked }, &[]);
        let alloc = trace.record(Event::Alloc, Kind::Pool, "hipMallocFromPoolAsync");
        trace.with_numbers(Record { address: 0x1000, requested: MIB, ..alloc }, &[0x55]);
        let replay = run(&trace);
        let account = if on_host { &replay.accounts.host } else { device(&replay) };
        assert_eq!(account.held.blocks, 1, "{sort}, {location}");
        assert_eq!(account.holdings.bytes_of(Kind::Managed), if on_host { 0 } else { u128::from(MIB) });
    }
}

#[test]
fn a_correction_that_names_another_function_takes_no_count_below_zero() {
    let mut trace = builder();
    trace.free_kind(Kind::Device, "hipFreeAsync", 0x9000);
    trace.last_call_failed(1);
    let free = trace.record(Event::Free, Kind::Device, "hipFree");
    let free = Record { address: 0x8000, call: 77, ..free };
    trace.push(free, &[]);
    let other = trace.record(Event::Free, Kind::Device, "hipFreeAsync");
    trace.push(Record { api: other.api, ..free }, &[]);
    trace.last_call_failed(1);
    trace.push(free, &[]);
    trace.push(Record { api: other.api, status: 1, kind_flags: free.kind_flags | flag::CORRECTION, ..free }, &[]);
    assert_eq!(run(&trace).unmatched_frees, 1, "of the two frees that the corrections do not name as they were");
}

/// Two threads free one block by mistake. The record of one comes first, and the call of the other; the first one's then fails.
#[test]
fn of_two_frees_of_one_block_the_one_that_succeeded_took_it() {
    let free = |trace: &mut TraceBuilder, thread: u32| {
        let record = trace.record_on(thread, Event::Free, Kind::Device, "hipFree");
        trace.push(Record { address: 0x1000, ..record }, &[]);
        record
    };
    let fails = |trace: &mut TraceBuilder, record: Record| {
        let flags = record.kind_flags | flag::CORRECTION;
        trace.push(Record { address: 0x1000, status: 1, kind_flags: flags, ..record }, &[]);
    };
    let ends = |reuses: bool| {
        let mut trace = builder();
        trace.alloc(0x1000, GIB);
        let first = free(&mut trace, 1);
        free(&mut trace, 2);
        if reuses {
            trace.alloc(0x1000, 2 * GIB);
        }
        fails(&mut trace, first);
        let replay = run(&trace);
        (held(&replay), device(&replay).calls.frees, replay.unmatched_frees, replay.failed_frees)
    };
    assert_eq!(ends(false), ((0, 0), 1, 0, 1));
    assert_eq!(ends(true), ((1, u128::from(2 * GIB)), 1, 0, 1));

    // Without the other free the block lives on.
    let mut trace = builder();
    free(&mut trace, 2);
    trace.alloc(0x1000, GIB);
    let first = free(&mut trace, 1);
    fails(&mut trace, first);
    let replay = run(&trace);
    assert_eq!((held(&replay).0, replay.unmatched_frees), (1, 1), "an earlier free of nothing took nothing");

    // Nor does one by the wrong function, which fails.
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    trace.free_kind(Kind::Registered, "hipHostUnregister", 0x1000);
    trace.last_call_failed(1);
    trace.free(0x1000);
    trace.last_call_failed(1);
    assert_eq!(held(&run(&trace)).0, 1);
}

/// Physical memory that is released while it is mapped is not free yet: it counts when the reset ends it.
#[test]
fn a_reset_ends_what_nobody_had_released() {
    let mut trace = builder();
    trace.create_and_map(7, 0x10_0000, GIB);
    trace.free_kind(Kind::Physical, "hipMemRelease", 7);
    trace.alloc(0x1000, GIB);
    trace.after(Event::Device, "hipSetDevice", 0, 0);
    trace.after(Event::Device, "hipDeviceReset", 0, 0);
    let replay = run(&trace);
    let calls = device(&replay).calls;
    assert_eq!(held(&replay), (0, 0));
    assert_eq!((calls.allocations, calls.frees, calls.reset), (2, 0, 2));
}

/// What is allocated less what is freed is what is left, in whatever order memory is unmapped and its handle released.
#[test]
fn physical_memory_counts_as_freed_when_both_handle_and_mapping_are_gone() {
    let frees = |steps: &[fn(&mut TraceBuilder)]| {
        let mut trace = builder();
        trace.create_and_map(7, 0x10_0000, GIB);
        steps.iter().for_each(|step| step(&mut trace));
        let replay = run(&trace);
        (device(&replay).calls.frees, held(&replay).1)
    };
    let release: fn(&mut TraceBuilder) = |trace| _ = trace.free_kind(Kind::Physical, "hipMemRelease", 7);
    let unmap: fn(&mut TraceBuilder) = |trace| trace.unmap(0x10_0000, GIB);
    let fails: fn(&mut TraceBuilder) = |trace| _ = trace.last_call_failed(1);
    let there = u128::from(GIB);
    assert_eq!((frees(&[release]), frees(&[unmap])), ((0, there), (0, there)));
    assert_eq!((frees(&[release, unmap]), frees(&[unmap, release])), ((1, 0), (1, 0)));
    assert_eq!((frees(&[release, unmap, fails]), frees(&[unmap, release, fails])), ((0, there), (0, there)));
}

#[test]
fn a_reset_takes_everything_of_its_device() {
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    trace.create_and_map(7, 0x10_0000, GIB);
    let other = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { device: 1, address: 0x2000, requested: GIB, ..other }, &[]);
    trace.after(Event::Device, "hipSetDevice", 0, 0);
    assert_eq!(held(&run(&trace)).0, 2);
    trace.after(Event::Device, "hipDeviceReset", 0, 0);
    let replay = run(&trace);
    assert_eq!(held(&replay), (0, 0));
    assert_eq!(device(&replay).calls.reset, 2);
    assert_eq!(device(&replay).blocks_at_peak(replay.blocks(0)).len(), 2);
    assert_eq!(replay.blocks(1).count(), 1);
}

#[test]
fn a_reset_that_fails_takes_nothing() {
    let mut trace = builder();
    trace.alloc(0x1000, GIB);
    trace.create_and_map(7, 0x10_0000, GIB);
    trace.create_and_map(8, 0x20_0000, GIB);
    // Released, and held by its mapping alone.
    trace.free_kind(Kind::Physical, "hipMemRelease", 8);
    let before = run(&trace);
    let reset = trace.record(Event::Device, Kind::None, "hipDeviceReset");
    trace.push(reset, &[]);
    assert_eq!(held(&run(&trace)), (0, 0));
    let mut went_well = trace.clone();
    went_well.push(Record { kind_flags: flag::CORRECTION, ..reset }, &[]);
    assert_eq!(held(&run(&went_well)), (0, 0), "a correction that says success changes nothing");
    trace.last_call_failed(1);
    let replay = run(&trace);
    assert_eq!(held(&replay), held(&before));
    assert_eq!((device(&replay).calls.reset, replay.unmatched_frees), (0, 0));
    assert_eq!(replay.mappings(0).count(), 2);
    // Handles and mappings mean what they meant before.
    trace.free(0x1000);
    trace.unmap(0x20_0000, GIB);
    trace.unmap(0x10_0000, GIB);
    assert_eq!(held(&run(&trace)).0, 1, "the handle still holds the first piece");
    trace.free_kind(Kind::Physical, "hipMemRelease", 7);
    let replay = run(&trace);
    assert_eq!((held(&replay), replay.unmatched_frees), ((0, 0), 0));
}

#[test]
fn the_lowest_failing_layer_refused() {
    let mut trace = builder();
    let outer = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let hsa = trace.record(Event::Alloc, Kind::Device, "hsa_amd_memory_pool_allocate");
    let kernel = trace.record(Event::Alloc, Kind::Device, "ioctl");
    trace.push(Record { parent_distance: 1, status: -12, ..kernel }, &[]);
    trace.push(Record { parent_distance: 1, status: 0x1008, ..hsa }, &[]);
    trace.push(Record { status: 2, requested: GIB, ..outer }, &[]);
    trace.refuse(GIB);
    let injected = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { status: 2, kind_flags: Kind::Device as u8 | flag::INJECTED, ..injected }, &[]);
    let by: Vec<_> = run(&trace).failures.listed.iter().map(|oom| oom.refused_by).collect();
    let layer = |layer| RefusedBy::Layer(Some(layer));
    assert_eq!(by, [layer(Layer::Kernel), layer(Layer::Runtime), RefusedBy::Injected]);
}

#[test]
fn each_thread_answers_for_its_own_failures() {
    let mut trace = builder();
    let first = trace.refuse_on(1, GIB);
    trace.refuse_on(2, GIB);
    trace.refuse_on(3, GIB);
    let query = trace.record_on(1, Event::ErrorQuery, Kind::None, "hipGetErrorString");
    trace.push(Record { status: 2, kind_flags: flag::ERROR_TEXT, ..query }, &[]);
    let work = trace.record_on(2, Event::GpuWork, Kind::None, "hipLaunchKernel");
    trace.push(work, &[]);
    trace.read_at_failure(first, &[(Quantity::RuntimeFree as u16, 5 * GIB)]);
    trace.end(process::EXITS, 1);
    let replay = run(&trace);
    let outcomes: Vec<_> =
        replay.failures.listed.iter().map(|oom| (oom.outcome, oom.because, oom.evidence.len())).collect();
    assert_eq!(
        outcomes,
        [
            (Outcome::Propagated, Because::ErrorReported, 2),
            (Outcome::Dropped, Because::GpuWorkContinued, 2),
            (Outcome::Propagated, Because::ProcessExited, 1),
        ]
    );
    assert_eq!(replay.failures.listed[0].read.runtime_free_bytes, Some(5 * GIB));
    assert_eq!(replay.end, End::Exited(1));
}

#[test]
fn the_header_knows_an_end_that_nobody_recorded() {
    for (kind, code, because) in [
        (gpuoom_trace::header::end::SIGNALED, libc::SIGABRT, Because::ProcessExited),
        (gpuoom_trace::header::end::SIGNALED, libc::SIGKILL, Because::TraceEnded),
        (gpuoom_trace::header::end::EXITED, 0, Because::TraceEnded),
        (gpuoom_trace::header::end::UNKNOWN, 9, Because::TraceEnded),
    ] {
        let mut trace = builder();
        trace.header.end_kind = kind;
        trace.header.end_code = code;
        trace.refuse(GIB);
        assert_eq!(run(&trace).failures.listed[0].because, because, "{kind} {code}");
    }
}

/// One null and two failures: it is of the one that the record names, and else of neither.
#[test]
fn a_null_is_of_one_failure() {
    let because = |numbers: fn([u64; 2]) -> Vec<u64>| {
        let mut trace = builder();
        trace.site = 7;
        let first = trace.refuse(GIB);
        // Too late to be an attempt to make up for the first one.
        trace.now_ns += 20_000_000_000;
        trace.site = 9;
        let second = trace.refuse(64 * GIB);
        trace.used_pointer("hipMemset", &numbers([first, second]));
        run(&trace).failures.listed.iter().map(|oom| oom.because).collect::<Vec<_>>()
    };
    let [work, used] = [Because::GpuWorkContinued, Because::FailedPointerUsed];
    assert_eq!(because(|[first, _]| vec![0, 1, first + 1, 1, 1]), [used, work]);
    assert_eq!(because(|[_, second]| vec![0, 1, second + 1, 1, 1]), [work, used]);
    assert_eq!(because(|_| vec![0, 2, 0, 0, 2]), [work, work]);
    // Before it was written down.
    assert_eq!(because(|_| vec![0]), [work, work]);
}

#[test]
fn a_pointer_that_lives_is_no_failed_pointer() {
    const BLOCK: u64 = 0x7000_0000;
    let because = |prepare: fn(&mut TraceBuilder), use_it: fn(&mut TraceBuilder)| {
        let mut trace = builder();
        prepare(&mut trace);
        trace.refuse(GIB);
        use_it(&mut trace);
        run(&trace).failures.listed[0].because
    };
    let nothing: fn(&mut TraceBuilder) = |_| ();
    let lives: fn(&mut TraceBuilder) = |trace| _ = trace.alloc(BLOCK, GIB);
    let garbage: fn(&mut TraceBuilder) = |trace| _ = trace.used_pointer("hipMemset", &[0x7ead_0000_beef_0000]);
    let within: fn(&mut TraceBuilder) = |trace| _ = trace.used_pointer("hipMemset", &[BLOCK + 4096]);
    let null: fn(&mut TraceBuilder) = |trace| _ = trace.used_pointer("hipMemset", &[0]);
    // As recorders before format 1.6 left it: the first argument, and no word on which pointer was meant.
    let old: fn(&mut TraceBuilder) = |trace| {
        let record = trace.record(Event::GpuWork, Kind::None, "hipMemset");
        trace.push(Record { kind_flags: flag::FAILED_POINTER, address: BLOCK, ..record }, &[]);
    };
    for (prepare, use_it, expected) in [
        (nothing, null, Because::FailedPointerUsed),
        (lives, null, Because::FailedPointerUsed),
        (nothing, garbage, Because::FailedPointerUsed),
        (lives, within, Because::GpuWorkContinued),
        (lives, old, Because::GpuWorkContinued),
        // Memory of the device that no recorded call gave, as a variable in a module.
        (nothing, within, Because::GpuWorkContinued),
    ] {
        assert_eq!(because(prepare, use_it), expected);
    }
}

#[test]
fn attempts_have_one_story() {
    let mut trace = builder();
    for number in 0..100 {
        trace.refuse((GIB << 20) >> (number / 4));
        trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
    }
    trace.alloc(0x1000, 4 * MIB);
    let replay = run(&trace);
    assert!(replay.failures.listed.iter().all(|oom| oom.outcome == Outcome::Recovered && oom.story == 0));
    assert_eq!(replay.failures.listed[0].because, Because::FellBack);
}

#[test]
fn many_failures_in_a_row_all_get_their_outcome() {
    let mut trace = builder();
    for _ in 0..3000 {
        trace.refuse(GIB);
        trace.after(Event::ErrorQuery, "hipGetLastError", 2, 0);
        trace.after(Event::ErrorQuery, "hipGetErrorString", 2, flag::ERROR_TEXT);
    }
    trace.refuse(GIB);
    trace.after(Event::GpuWork, "hipMemcpy", 0, 0);
    let replay = run(&trace);
    let dropped = replay.failures.listed.iter().filter(|oom| oom.outcome == Outcome::Dropped).count();
    assert_eq!((replay.failures.listed.len(), dropped), (3001, 1));
}

#[test]
fn a_card_whose_size_comes_late_is_modelled_from_then_on() {
    let mut trace = TraceBuilder::default();
    for number in 0..4 {
        trace.alloc(0x1000_0000 * (number + 1), 256 * MIB);
    }
    assert!(device(&run(&trace)).arena.is_none());
    let start = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    let total = gpuoom_trace::metadata::Reading { quantity: Quantity::RuntimeTotal as u16, device: 0, value: GIB };
    trace.reading(start, &[total]);
    trace.free(0x2000_0000);
    trace.alloc(0x9000_0000, 512 * MIB);
    let replay = run(&trace);
    assert_eq!(device(&replay).arena.as_ref().unwrap().free_space().total_granules, 1);
    assert_eq!(replay.blocks(0).filter(|block| block.place == super::arena::NO_PLACE).count(), 1);
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Alloc { slot: u8, size_bytes: u64 },
    Free { slot: u8 },
    FailedFree { slot: u8 },
    Refuse { size_bytes: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    let size = prop_oneof![4 => 1..2 * GIB, 1 => Just(256 * MIB), 1 => Just(u64::MAX)];
    prop_oneof![
        6 => (any::<u8>(), size).prop_map(|(slot, size_bytes)| Action::Alloc { slot, size_bytes }),
        4 => any::<u8>().prop_map(|slot| Action::Free { slot }),
        1 => any::<u8>().prop_map(|slot| Action::FailedFree { slot }),
        1 => any::<u64>().prop_map(|size_bytes| Action::Refuse { size_bytes }),
    ]
}

/// The live set after each action, recomputed the slow way.
struct Naive {
    live: BTreeMap<u64, u64>,
    peak: (u128, BTreeMap<u64, u64>),
}

impl Naive {
    fn sum(&self) -> u128 {
        self.live.values().map(|size| u128::from(*size)).sum()
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Alloc { slot, size_bytes } => drop(self.live.insert(address(slot), size_bytes)),
            Action::Free { slot } => drop(self.live.remove(&address(slot))),
            Action::FailedFree { .. } | Action::Refuse { .. } => {}
        }
        if self.sum() > self.peak.0 {
            self.peak = (self.sum(), self.live.clone());
        }
    }
}

fn address(slot: u8) -> u64 {
    0x7f00_0000_0000 + (u64::from(slot) << 32)
}

fn build(actions: &[Action]) -> TraceBuilder {
    let mut trace = builder();
    trace.slots_per_chunk = 64;
    for action in actions {
        match *action {
            Action::Alloc { slot, size_bytes } => drop(trace.alloc(address(slot), size_bytes)),
            Action::Free { slot } => drop(trace.free(address(slot))),
            Action::FailedFree { slot } => {
                trace.free(address(slot));
                trace.last_call_failed(1);
            }
            Action::Refuse { size_bytes } => drop(trace.refuse(size_bytes)),
        }
    }
    trace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_replay_agrees_with_a_naive_one(actions in prop::collection::vec(action(), 1..200)) {
        let mut naive = Naive { live: BTreeMap::new(), peak: (0, BTreeMap::new()) };
        actions.iter().for_each(|action| naive.act(*action));
        let replay = run(&build(&actions));
        let Some((_, account)) = replay.accounts.devices().next() else { return Ok(()) };
        prop_assert_eq!(account.held.requested_bytes, naive.sum());
        prop_assert_eq!(account.held.blocks, naive.live.len() as u64);
        prop_assert_eq!(account.peak.held.requested_bytes, naive.peak.0);
        let blocks = account.blocks_at_peak(replay.blocks(0));
        let at_peak: BTreeMap<u64, u64> = blocks.iter().map(|block| (block.address, block.requested_bytes)).collect();
        prop_assert_eq!(blocks.len(), at_peak.len());
        prop_assert_eq!(at_peak, naive.peak.1);
        let calls = account.calls;
        prop_assert_eq!(calls.allocations, calls.frees + calls.replaced + calls.registered_again + account.held.blocks);
    }

    #[test]
    fn live_blocks_never_overlap_in_the_model(actions in prop::collection::vec(action(), 1..200)) {
        let replay = run(&build(&actions));
        let Some((_, account)) = replay.accounts.devices().next() else { return Ok(()) };
        for blocks in [replay.blocks(0).copied().collect(), account.blocks_at_peak(replay.blocks(0))] {
            let mut places: Vec<(u32, u32)> = blocks
                .iter()
                .filter(|block| block.place != super::arena::NO_PLACE)
                .map(|block| (block.place, block.granules))
                .collect();
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        }
        let arena = account.arena.as_ref().unwrap();
        let placed: u64 = replay.blocks(0).filter(|block| block.place != super::arena::NO_PLACE).map(|block| u64::from(block.granules)).sum();
        prop_assert_eq!(arena.free_space().total_granules + placed, arena.granules());
    }

    #[test]
    fn how_records_are_cut_into_chunks_changes_nothing(actions in prop::collection::vec(action(), 1..60), slots in 33usize..200) {
        let mut trace = build(&actions);
        let whole = crate::testing::json(&crate::testing::summary(&trace));
        trace.slots_per_chunk = slots;
        prop_assert_eq!(&crate::testing::json(&crate::testing::summary(&trace)), &whole);
        trace.in_ring = true;
        prop_assert_eq!(&crate::testing::json(&crate::testing::summary(&trace)), &whole);
    }
}

#[test]
fn a_signal_behind_the_last_record_is_how_the_process_ended() {
    let mut trace = builder();
    trace.refuse(GIB);
    trace.end(process::EXITS, 0);
    assert_eq!(run(&trace).end, End::Exited(0));
    trace.header.end_kind = gpuoom_trace::header::end::SIGNALED;
    trace.header.end_code = libc::SIGSEGV;
    assert_eq!(run(&trace).end, End::Signaled(libc::SIGSEGV));
}
