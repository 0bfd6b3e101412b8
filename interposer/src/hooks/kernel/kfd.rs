//! `/dev/kfd`. Numbers and structures: Linux `include/uapi/linux/kfd_ioctl.h`; IPC (0x80): ROCm's kernel, the same file.

use gpuoom_trace::record::{Event, Kind, NO_DEVICE};

use super::payload::Payload;
use super::plan::{How, Plan};
use crate::call::Described;
use crate::devices::gpus;
use crate::table::kernel::Request;

/// The numbers that [`plan`] knows.
pub(super) const NUMBERS: [u8; 11] = [0x02, 0x03, 0x11, 0x16, 0x17, 0x18, 0x19, 0x1D, 0x20, 0x23, 0x80];

/// `KFD_IOC_ALLOC_MEM_FLAGS_*`.
mod flags {
    pub(super) const VRAM: u32 = 1 << 0;
    pub(super) const GTT: u32 = 1 << 1;
    pub(super) const USERPTR: u32 = 1 << 2;
    /// Doorbells and other registers.
    pub(super) const REGISTERS: u32 = 1 << 3 | 1 << 4;
}

/// What a request with this number is about; `None` where that is nothing that is recorded.
pub(super) fn plan(number: u8, payload: &Payload) -> Option<Plan> {
    match number {
        0x02 => create_queue(payload),
        0x03 => destroy_queue(payload),
        0x11 => {
            let what = on_gpu(Described::new(scratch_address(payload.u64(0)?), 0), payload.u32(8)?);
            Some(Plan::new(Request::KfdScratch, How::Takes, Kind::Scratch, what))
        }
        0x16 => alloc(payload),
        0x17 => Some(Plan::new(Request::KfdFree, How::Gives, Kind::Device, of_memory(payload)?)),
        0x18 => map(payload),
        0x19 => {
            let what = Described { numbers: [asked(payload)?, 0], number_count: 1, ..of_memory(payload)? };
            Some(Plan::new(Request::KfdUnmap, How::Gives, Kind::Device, what))
        }
        0x1D => import(Request::KfdImport, payload, [0, 16], |what, after| {
            what.address = memory(after.u64(8));
        }),
        0x20 => svm(payload),
        0x23 => available(payload),
        0x80 => import(Request::KfdIpcImport, payload, [8, 40], |what, after| {
            what.address = memory(after.u64(0));
        }),
        _ => None,
    }
}

/// What the handle at the beginning of a request stands for, if that is memory. Its upper half is the card.
fn of_memory(payload: &Payload) -> Option<Described> {
    let handle = payload.u64(0).filter(|handle| !registers::has(*handle))?;
    Some(on_gpu(Described::new(handle, 0), (handle >> 32) as u32))
}

/// `kfd_ioctl_map_memory_to_gpu_args` and its counterpart: how many cards are meant.
fn asked(payload: &Payload) -> Option<u64> {
    payload.u32(20)?;
    payload.u32(16).map(u64::from)
}

/// Memory becomes visible to cards: to how many it should, and to how many it did. Its page tables take memory that nobody
/// tells, so this can fail where the allocation did not.
fn map(payload: &Payload) -> Option<Plan> {
    let what = Described { numbers: [asked(payload)?, 0], number_count: 2, ..of_memory(payload)? };
    let complete = |what: &mut Described, after: &Payload| what.numbers[1] = after.u32(20).map_or(0, u64::from);
    Some(Plan { complete, ..Plan::new(Request::KfdMap, How::Takes, Kind::Device, what) })
}

/// A handle of memory, whatever it was before.
fn memory(handle: Option<u64>) -> u64 {
    let handle = handle.unwrap_or(0);
    registers::remove(handle);
    handle
}

/// Handles of doorbells and other registers: so that their frees are not taken for frees of memory. A process has one or
/// two per card.
mod registers {
    use std::sync::atomic::{AtomicU64, Ordering};

    static HANDLES: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

    // Relaxed: the number says everything.
    pub(super) fn has(handle: u64) -> bool {
        handle != 0 && HANDLES.iter().any(|known| known.load(Ordering::Relaxed) == handle)
    }

    pub(super) fn add(handle: u64) {
        if !has(handle) {
            let mut free = HANDLES.iter();
            free.any(|place| place.compare_exchange(0, handle, Ordering::Relaxed, Ordering::Relaxed).is_ok());
        }
    }

    pub(super) fn remove(handle: u64) {
        for known in &HANDLES {
            if handle != 0 && known.load(Ordering::Relaxed) == handle {
                known.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// libhsakmt passes what `SH_HIDDEN_PRIVATE_BASE` gets, the address without its lower 16 bits (`fmm.c`). What does not fit that is no
/// address that we know: 0.
fn scratch_address(register: u64) -> u64 {
    if register >> 48 == 0 { register << 16 } else { 0 }
}

fn on_gpu(what: Described, gpu_id: u32) -> Described {
    Described { device: Some(gpus::of_gpu_id(gpu_id)), ..what }
}

/// The handle is the address. Doorbells and other registers are no memory, but are given back like memory. With `AQL_QUEUE_MEM` the size is that of the addresses,
/// twice the storage: the flags tell.
fn alloc(payload: &Payload) -> Option<Plan> {
    let [va, size] = [payload.u64(0)?, payload.u64(8)?];
    let (gpu_id, bits) = (payload.u32(32)?, payload.u32(36)?);
    let (event, kind) = match bits {
        _ if bits & flags::VRAM != 0 => (Event::Alloc, Kind::Device),
        _ if bits & flags::GTT != 0 => (Event::Alloc, Kind::HostPinned),
        _ if bits & flags::USERPTR != 0 => (Event::Pin, Kind::Registered),
        _ if bits & flags::REGISTERS != 0 => {
            let complete = |_: &mut Described, after: &Payload| registers::add(after.u64(16).unwrap_or(0));
            let plan = Plan::new(Request::KfdAlloc, How::Tells, Kind::None, Described::new(0, 0));
            return Some(Plan { complete, ..plan });
        }
        _ => return None,
    };
    let what = Described { numbers: [va, u64::from(bits)], number_count: 2, ..Described::new(0, size) };
    let complete = |what: &mut Described, after: &Payload| what.address = memory(after.u64(16));
    Some(Plan { event, complete, ..Plan::new(Request::KfdAlloc, How::Takes, kind, on_gpu(what, gpu_id)) })
}

/// Memory of somebody else, or this process's own on its way between two drivers: the size is not told.
fn import(
    request: Request,
    payload: &Payload,
    [va_at, gpu_at]: [usize; 2],
    complete: fn(&mut Described, &Payload),
) -> Option<Plan> {
    let what = Described { numbers: [payload.u64(va_at)?, 0], number_count: 1, ..Described::new(0, 0) };
    Some(Plan { complete, ..Plan::new(request, How::Takes, Kind::Imported, on_gpu(what, payload.u32(gpu_at)?)) })
}

/// Attributes of a range: the location that it should move to (1), else the one that it should be at (0). All others say
/// nothing about where memory is.
fn svm(payload: &Payload) -> Option<Plan> {
    const SET: u32 = 0;
    const PREFERRED: u32 = 0;
    const PREFETCH: u32 = 1;
    let [start, size] = [payload.u64(0)?, payload.u64(8)?];
    let (operation, count) = (payload.u32(16)?, payload.u32(20)?);
    if operation != SET {
        return None;
    }
    let attributes = (0..count as usize).map_while(|index| {
        let at = 24 + 8 * index;
        Some((payload.u32(at)?, payload.u32(at + 4)?))
    });
    let (kind_of_location, location) = attributes.filter(|(kind, _)| matches!(*kind, PREFERRED | PREFETCH)).max()?;
    let numbers = [u64::from(kind_of_location), u64::from(location)];
    let what = Described { numbers, number_count: 2, ..Described::new(start, size) };
    Some(Plan::new(Request::KfdSvm, How::Takes, Kind::Managed, on_gpu(what, location)))
}

/// Queue 0 is a valid one, and an address of 0 means that there is nothing: so bit 32 is set.
fn queue_address(queue: u32) -> u64 {
    1 << 32 | u64::from(queue)
}

/// A queue takes no memory by this request; its ring, whose size is told, and its save area were allocated before.
fn create_queue(payload: &Payload) -> Option<Plan> {
    let (ring, ring_bytes, kind) = (payload.u64(0)?, payload.u32(32)?, payload.u32(40)?);
    let numbers = [ring, u64::from(kind)];
    let what = Described { numbers, number_count: 2, ..Described::new(0, u64::from(ring_bytes)) };
    let complete = |what: &mut Described, after: &Payload| what.address = after.u32(52).map_or(0, queue_address);
    payload.u32(52)?;
    let what = on_gpu(what, payload.u32(36)?);
    Some(Plan { complete, ..Plan::new(Request::KfdCreateQueue, How::Takes, Kind::Queue, what) })
}

/// The queue's number alone: which card it is on, its creation told. The thread's device may be another one.
fn destroy_queue(payload: &Payload) -> Option<Plan> {
    let what = Described { device: Some(NO_DEVICE), ..Described::new(queue_address(payload.u32(0)?), 0) };
    Some(Plan::new(Request::KfdDestroyQueue, How::Gives, Kind::Queue, what))
}

/// How much KFD would still give; the answer goes into `requested`.
fn available(payload: &Payload) -> Option<Plan> {
    let what = on_gpu(Described::new(0, 0), payload.u32(8)?);
    let complete = |what: &mut Described, after: &Payload| what.requested = after.u64(0).unwrap_or(0);
    let known = what.device != Some(NO_DEVICE);
    known.then(|| Plan { complete, ..Plan::new(Request::KfdAvailable, How::Asks, Kind::None, what) })
}

#[cfg(test)]
mod tests {
    use super::super::payload::tests::payload;
    use super::*;

    fn alloc_of(bits: u64) -> Option<Plan> {
        plan(0x16, &payload(40, &[(0, 8, 0x7000_0000), (8, 8, 4 << 20), (32, 4, 5), (36, 4, bits)]))
    }

    #[test]
    fn an_allocation_is_what_its_flags_say() {
        for (bits, event, kind) in [
            (0x8000_0001, Event::Alloc, Kind::Device),
            (2, Event::Alloc, Kind::HostPinned),
            (4, Event::Pin, Kind::Registered),
        ] {
            let plan = alloc_of(bits).expect("memory");
            assert_eq!((plan.event, plan.kind, plan.what.requested), (event, kind, 4 << 20));
            assert_eq!(plan.what.numbers, [0x7000_0000, bits]);
        }
        assert!(alloc_of(0).is_none());
    }

    #[test]
    fn doorbells_are_no_memory_and_neither_are_their_frees() {
        let doorbell = alloc_of(8).expect("told");
        assert_eq!(doorbell.how, How::Tells);
        let handle = [(16, 8, 0x7_0000_0009)];
        (doorbell.complete)(&mut { doorbell.what }, &payload(40, &handle));
        let free = || plan(0x17, &payload(8, &[(0, 8, 0x7_0000_0009)]));
        let mapped = |number| plan(number, &payload(24, &[(0, 8, 0x7_0000_0009), (16, 4, 1)]));
        assert!(free().is_none() && free().is_none());
        assert!(mapped(0x18).is_none() && mapped(0x19).is_none());
        let memory = alloc_of(1).expect("memory");
        (memory.complete)(&mut { memory.what }, &payload(40, &handle));
        assert!(free().is_some(), "the number belongs to memory now");
    }

    #[test]
    fn scratch_lies_where_the_register_points() {
        let address =
            |register| plan(0x11, &payload(16, &[(0, 8, register), (8, 4, 5)])).expect("scratch").what.address;
        assert_eq!(address(0x7f12_3456), 0x7f12_3456_0000);
        assert_eq!(address(1 << 48), 0, "no address is so large");
    }

    #[test]
    fn the_end_of_a_queue_does_not_tell_its_card() {
        let what = plan(0x03, &payload(8, &[(0, 4, 7)])).expect("a queue").what;
        assert_eq!((what.address, what.device), (queue_address(7), Some(NO_DEVICE)));
    }

    #[test]
    fn the_handle_comes_from_the_answer() {
        let plan = alloc_of(1).expect("memory");
        let mut what = plan.what;
        (plan.complete)(&mut what, &payload(40, &[(16, 8, 0x5_0000_0001)]));
        assert_eq!(what.address, 0x5_0000_0001);
    }

    #[test]
    fn a_size_that_does_not_cover_the_fields_is_nothing() {
        for number in NUMBERS {
            assert!(plan(number, &payload(3, &[])).is_none(), "{number:#x}");
        }
        assert!(plan(0x16, &payload(39, &[(36, 2, 1)])).is_none());
        assert!(plan(0x02, &payload(52, &[])).is_none());
        assert!(plan(0x18, &payload(23, &[(0, 8, 9)])).is_none());
        assert!(plan(0x19, &payload(23, &[(0, 8, 9)])).is_none());
        assert!(plan(0x1A, &payload(64, &[])).is_none());
    }

    #[test]
    fn a_mapping_tells_for_how_many_cards() {
        let fields = [(0, 8, 0x5_0000_0002), (8, 8, 0x10), (16, 4, 2)];
        let found = plan(0x18, &payload(24, &fields)).expect("a mapping");
        assert_eq!((found.event, found.how, found.what.address), (Event::Map, How::Takes, 0x5_0000_0002));
        let mut what = found.what;
        (found.complete)(&mut what, &payload(24, &[&fields[..], &[(20, 4, 2)]].concat()));
        assert_eq!((what.numbers, what.requested), ([2, 2], 0));
        let found = plan(0x19, &payload(24, &fields)).expect("its end");
        assert_eq!((found.event, found.how, found.what.numbers[0]), (Event::Unmap, How::Gives, 2));
    }

    #[test]
    fn of_svm_attributes_only_locations_count_and_a_prefetch_most() {
        let header = [(0, 8, 0x10_0000), (8, 8, 1 << 20), (20, 4, 3)];
        let preferred = [(24, 4, 5), (32, 4, 0), (36, 4, 9), (40, 4, 7)];
        let found = plan(0x20, &payload(48, &[&header[..], &preferred].concat())).expect("a location");
        assert_eq!((found.what.numbers, found.what.requested), ([0, 9], 1 << 20));
        let both = [(24, 4, 1), (28, 4, 4), (32, 4, 0), (36, 4, 9)];
        let found = plan(0x20, &payload(48, &[&header[..], &both].concat())).expect("a location");
        assert_eq!(found.what.numbers, [1, 4]);
        assert!(plan(0x20, &payload(48, &[&header[..], &[(16, 4, 1)], &both].concat())).is_none(), "only asked");
        assert!(plan(0x20, &payload(24, &header)).is_none(), "fewer attributes than were promised");
        let lies = [(20, 4, 0xFFFF_FFFF), (24, 4, 1), (28, 4, 4)];
        assert_eq!(plan(0x20, &payload(32, &lies)).expect("one").what.numbers, [1, 4]);
    }
}
