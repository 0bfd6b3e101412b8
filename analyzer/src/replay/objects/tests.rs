use gpuoom_trace::record::{Event, Kind, Record, flag};

use super::Objects;
use crate::replay::tests::{builder, device, held, run};
use crate::testing::{GIB, MIB, TraceBuilder};

#[test]
fn handles_go_with_their_parent_and_with_their_client() {
    let mut objects = Objects::default();
    objects.add(7 << 32 | 20, 3);
    objects.add(7 << 32 | 21, 4);
    objects.add(8 << 32 | 20, 0);
    objects.add(8 << 32 | 21, 5);
    assert_eq!((objects.remove(8 << 32 | 21), objects.remove(8 << 32 | 21)), (Some(5), None));
    assert_eq!(objects.with_children(8 << 32 | 5), [8 << 32 | 5]);
    assert_eq!(objects.with_children(7 << 32 | 3), [7 << 32 | 20, 7 << 32 | 3]);
    assert_eq!(objects.with_children(7 << 32 | 7), [7 << 32 | 20, 7 << 32 | 21, 7 << 32 | 7]);
    assert_eq!(objects.with_children(8 << 32 | 8), [8 << 32 | 20, 8 << 32 | 8]);
    for handle in [7 << 32 | 20, 7 << 32 | 21, 8 << 32 | 20] {
        objects.remove(handle);
    }
    assert!(objects.under.is_empty() && objects.parents.is_empty());
}

/// A program that speaks to NVIDIA's resource manager itself frees a device, and all memory under it is gone.
#[test]
fn with_an_object_of_the_program_go_its_children() {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    for number in 1..4u64 {
        let record = trace.record(Event::Alloc, Kind::Device, "NV_ESC_RM_ALLOC");
        let record = Record { device: 0, requested: MIB, address: 0xC1 << 32 | number, ..record };
        trace.with_numbers(record, &[0xD0 + number % 2, 0x40]);
    }
    let held = |trace: &TraceBuilder| {
        let replay = run(trace);
        replay.accounts.device(0).map(|account| (account.held.blocks, account.calls.frees))
    };
    assert_eq!(held(&trace), Some((3, 0)));
    let free = trace.record(Event::Free, Kind::Device, "NV_ESC_RM_FREE");
    let free = Record { device: 0, address: 0xC1 << 32 | 0xD1, ..free };
    trace.push(free, &[]);
    assert_eq!(held(&trace), Some((1, 2)));
    // The call failed: they are still there.
    trace.push(Record { status: 0x1F, kind_flags: Kind::Device as u8 | flag::CORRECTION, ..free }, &[]);
    assert_eq!(held(&trace), Some((3, 0)));
    let again = trace.record(Event::Free, Kind::Device, "NV_ESC_RM_FREE");
    trace.push(Record { device: 0, address: 0xC1 << 32 | 0xC1, ..again }, &[]);
    assert_eq!(held(&trace), Some((0, 3)));
}

const RM_ALLOC: &str = "NV_ESC_RM_ALLOC";
const RM_DUP: &str = "NV_ESC_RM_DUP_OBJECT";
const RM_FREE: &str = "NV_ESC_RM_FREE";

fn object(trace: &mut TraceBuilder, handle: u64, parent: u64, bytes: u64) {
    let record = trace.record(Event::Alloc, Kind::Device, RM_ALLOC);
    trace.with_numbers(Record { requested: bytes, address: handle, ..record }, &[parent, 0x40]);
}

fn duplicate(trace: &mut TraceBuilder, handle: u64, parent: u64, source: u64) {
    let record = trace.record(Event::Import, Kind::Imported, RM_DUP);
    trace.with_numbers(Record { address: handle, ..record }, &[source, parent]);
}

fn drop_object(trace: &mut TraceBuilder, handle: u64) {
    trace.free_kind(Kind::Device, RM_FREE, handle);
}

const A: u64 = 0xC1 << 32;
const B: u64 = 0xC2 << 32;

#[test]
fn memory_lives_until_its_last_handle_is_gone() {
    let mut trace = builder();
    object(&mut trace, A | 1, 0xD1, MIB);
    duplicate(&mut trace, B | 1, 0xD2, A | 1);
    duplicate(&mut trace, B | 2, 0xD3, B | 1);
    assert_eq!(held(&run(&trace)), (1, u128::from(MIB)), "it counts once");
    drop_object(&mut trace, A | 1);
    // The number is used again.
    object(&mut trace, A | 1, 0xD1, 4 * MIB);
    assert_eq!(held(&run(&trace)), (2, 5 * u128::from(MIB)));
    drop_object(&mut trace, B | 0xD2);
    assert_eq!(held(&run(&trace)), (2, 5 * u128::from(MIB)));
    drop_object(&mut trace, B | 0xC2);
    assert_eq!(held(&run(&trace)), (1, 4 * u128::from(MIB)));
    // All its handles may go at once, and the call may fail.
    duplicate(&mut trace, A | 2, 0xD1, A | 1);
    drop_object(&mut trace, A | 0xD1);
    let replay = run(&trace);
    assert_eq!((held(&replay).0, device(&replay).calls.frees), (0, 2));
    trace.last_call_failed(0x1F);
    assert_eq!(held(&run(&trace)), (1, 4 * u128::from(MIB)));
    drop_object(&mut trace, A | 1);
    assert_eq!(held(&run(&trace)), (1, 4 * u128::from(MIB)));
    drop_object(&mut trace, A | 2);
    assert_eq!(held(&run(&trace)).0, 0);
}

#[test]
fn a_handle_of_memory_of_others_is_an_import() {
    let mut trace = builder();
    duplicate(&mut trace, A | 1, 0xD1, 0xFFFF_0000_0007);
    duplicate(&mut trace, A | 2, 0xD1, A | 1);
    let reserve = trace.record(Event::Reserve, Kind::Reserved, RM_ALLOC);
    trace.with_numbers(Record { address: A | 3, requested: GIB, ..reserve }, &[0xD1, 0x50A0]);
    assert_eq!((held(&run(&trace)).0, device(&run(&trace)).reserved_bytes), (0, u128::from(GIB)));
    drop_object(&mut trace, A | 0xD1);
    let replay = run(&trace);
    assert_eq!((device(&replay).reserved_bytes, replay.unmatched_frees, replay.live.count()), (0, 0, 0));
    trace.last_call_failed(0x1F);
    assert_eq!(device(&run(&trace)).reserved_bytes, u128::from(GIB));
}

#[test]
fn ranges_of_unified_memory_are_addresses_and_its_pools_are_memory() {
    let mut trace = builder();
    // The same number as an object of the resource manager.
    object(&mut trace, A | 1, 0xD1, MIB);
    let range = trace.record(Event::Reserve, Kind::Reserved, "UVM_CREATE_EXTERNAL_RANGE");
    trace.push(Record { address: A | 1, requested: GIB, ..range }, &[]);
    let map = trace.record(Event::Map, Kind::Device, "UVM_MAP_EXTERNAL_ALLOCATION");
    trace.with_numbers(Record { address: A | 1, requested: MIB, ..map }, &[A | 1, 0]);
    trace.alloc_kind(Kind::HostPinned, "UVM_ALLOC_SEMAPHORE_POOL", 0x9000, 2 * MIB);
    let replay = run(&trace);
    assert_eq!((held(&replay), replay.accounts.host.held.blocks), ((1, u128::from(MIB)), 1));
    assert_eq!((device(&replay).reserved_bytes, replay.mappings(0).count()), (u128::from(GIB), 0));
    trace.free_kind(Kind::Reserved, "UVM_FREE", A | 1);
    trace.free_kind(Kind::Reserved, "UVM_FREE", 0x9000);
    let replay = run(&trace);
    assert_eq!((held(&replay).0, replay.accounts.host.held.blocks, device(&replay).reserved_bytes), (1, 0, 0));
}
