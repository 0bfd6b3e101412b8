//! NVIDIA's resource manager, on `/dev/nvidiactl` and `/dev/nvidia*`. Numbers and structures: NVIDIA
//! open-gpu-kernel-modules `nv_escape.h`, `nv-ioctl.h`, `nvos.h`. Held against what a tracer outside the process saw on an H200 with
//! driver 580.159.04: `NV_ESC_RM_ALLOC` (48 bytes), `NV_ESC_RM_ALLOC_MEMORY`, `NV_ESC_RM_FREE` and `NV_ESC_RM_DUP_OBJECT`, classes 0x3E,
//! 0x40, 0x71 and 0x50A0 agree one by one. `NV_ESC_RM_VID_HEAP_CONTROL`, the carried form and the 32-byte one did not occur there.
//!
//! Objects are a client (`hRoot`) and a handle within it; both together are the address. A freed object takes its children
//! along: the payload tells the parent, and who reads the trace keeps the tree. The driver's status is in the payload; the
//! request itself succeeds.
//!
//! A duplicate (`NV_ESC_RM_DUP_OBJECT`) is a second handle of the same memory, or of another process's, which is told
//! nowhere: it is recorded as an import with the object that it was made of, and who reads the trace knows whether that is
//! memory of this process. Not followed are references that no request shows: mappings of `/dev/nvidia-uvm` (`uvm.rs`) hold
//! their memory, too, and objects that are passed on through a descriptor (`NV_ESC_RM_EXPORT_OBJECT_TO_FD`).

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use gpuoom_trace::record::{Event, Kind};

use super::payload::Payload;
use super::plan::{How, Plan};
use crate::base::thread;
use crate::call::Described;
use crate::table::kernel::Request;

const RM_ALLOC_MEMORY: u8 = 0x27;
const RM_FREE: u8 = 0x29;
const RM_ALLOC: u8 = 0x2B;
const RM_DUP_OBJECT: u8 = 0x34;
const VID_HEAP_CONTROL: u8 = 0x4A;
/// Carries another request, for those that have no room for their size: {number u32, size u32, pointer u64}.
const TRANSFER: u8 = 0xD3;

/// The numbers that [`plan`] knows.
pub(super) const NUMBERS: [u8; 6] = [RM_ALLOC_MEMORY, RM_FREE, RM_ALLOC, RM_DUP_OBJECT, VID_HEAP_CONTROL, TRANSFER];

/// `cl0080.h`, `cl003e.h`, `cl0040.h`, `cl0071.h`, `cl50a0.h`.
mod class {
    pub(super) const DEVICE: u32 = 0x80;
    pub(super) const SYSTEM: u32 = 0x3E;
    pub(super) const LOCAL: u32 = 0x40;
    pub(super) const OS_DESCRIPTOR: u32 = 0x71;
    pub(super) const VIRTUAL: u32 = 0x50A0;
}

/// `NVOS32_ALLOC_FLAGS_VIRTUAL`: addresses without memory.
const FLAG_VIRTUAL: u32 = 0x0008_0000;

/// What a request with this number is about; `None` where that is nothing that is recorded.
pub(super) fn plan(number: u8, payload: &Payload) -> Option<Plan> {
    match number {
        RM_ALLOC => rm_alloc(payload),
        RM_ALLOC_MEMORY => rm_alloc_memory(payload),
        RM_FREE => {
            let [root, parent, handle] = [payload.u32(0)?, payload.u32(4)?, payload.u32(8)?];
            let what = freed(root, parent, handle);
            payload.u32(12)?;
            Some(Plan { status_at: Some(12), ..Plan::new(Request::NvFree, How::Gives, Kind::Device, what) })
        }
        RM_DUP_OBJECT => duplicate(payload),
        VID_HEAP_CONTROL => heap(payload),
        _ => None,
    }
}

/// The request inside a [`TRANSFER`], and its number.
pub(super) fn unwrap(number: u8, payload: Payload) -> Option<(u8, Payload)> {
    if number != TRANSFER {
        return Some((number, payload));
    }
    let (inner, size, pointer) = (payload.u32(0)?, payload.u32(4)?, payload.u64(8)?);
    let inner = u8::try_from(inner).ok().filter(|inner| NUMBERS.contains(inner) && *inner != TRANSFER)?;
    Some((inner, Payload::read(payload.fd, pointer, size as usize)?))
}

/// An object as the address of a record.
pub(super) fn object(root: u32, handle: u32) -> u64 {
    u64::from(root) << 32 | u64::from(handle)
}

fn freed(root: u32, parent: u32, handle: u32) -> Described {
    let device = device_of(object(root, parent)).or_else(|| device_of(object(root, handle)));
    Described { numbers: [u64::from(parent), 0], number_count: 1, device, ..Described::new(object(root, handle), 0) }
}

/// Memory of an object class, with [hParent, hClass] as further numbers.
fn memory(request: Request, class: u32, flags: u32, attributes: u32, parent: [u32; 2], size: u64) -> Option<Plan> {
    const LOCATION_PCI: u32 = 1;
    let (event, kind) = match class {
        _ if flags & FLAG_VIRTUAL != 0 => (Event::Reserve, Kind::Reserved),
        class::VIRTUAL => (Event::Reserve, Kind::Reserved),
        class::SYSTEM => (Event::Alloc, Kind::HostPinned),
        class::LOCAL if attributes >> 25 & 3 == LOCATION_PCI => (Event::Alloc, Kind::HostPinned),
        class::LOCAL => (Event::Alloc, Kind::Device),
        class::OS_DESCRIPTOR => (Event::Pin, Kind::Registered),
        _ => return None,
    };
    let [root, handle] = parent;
    let numbers = [u64::from(handle), u64::from(class)];
    let device = device_of(object(root, handle));
    let what = Described { numbers, number_count: 2, device, ..Described::new(0, size) };
    Some(Plan { event, ..Plan::new(request, How::Takes, kind, what) })
}

/// `NVOS64_PARAMETERS` (48 bytes) or `NVOS21_PARAMETERS` (32); both begin alike.
fn rm_alloc(payload: &Payload) -> Option<Plan> {
    let status_at = match payload.size {
        48 => 40,
        32 => 28,
        _ => return None,
    };
    let [root, parent, class] = [payload.u32(0)?, payload.u32(4)?, payload.u32(12)?];
    let parameters = payload.u64(16)?;
    let complete = |what: &mut Described, after: &Payload| {
        what.address = object(after.u32(0).unwrap_or(0), after.u32(8).unwrap_or(0));
        let granted = after.u64(16).and_then(|parameters| Payload::read(after.fd, parameters, 72)?.u64(64));
        what.requested = granted.unwrap_or(what.requested);
    };
    let plan = match class {
        class::DEVICE => return device(root, parameters, status_at),
        class::SYSTEM | class::LOCAL | class::VIRTUAL => {
            // NV_MEMORY_ALLOCATION_PARAMS; the driver rounds the size and says so in the same place.
            let parameters = Payload::read(payload.fd, parameters, 72)?;
            let [flags, attributes] = [parameters.u32(8)?, parameters.u32(24)?];
            let plan = memory(Request::NvAlloc, class, flags, attributes, [root, parent], parameters.u64(64)?)?;
            Plan { complete, ..plan }
        }
        class::OS_DESCRIPTOR => {
            // NV_OS_DESC_MEMORY_ALLOCATION_PARAMS: the size less one at 24.
            let parameters = Payload::read(payload.fd, parameters, 32)?;
            let size = parameters.u64(24)?.wrapping_add(1);
            Plan { complete: named_at_8, ..memory(Request::NvAlloc, class, 0, 0, [root, parent], size)? }
        }
        _ => return None,
    };
    Some(Plan { status_at: Some(status_at), ..plan })
}

fn named_at_8(what: &mut Described, after: &Payload) {
    what.address = object(after.u32(0).unwrap_or(0), after.u32(8).unwrap_or(0));
}

/// `nv_ioctl_nvos02_parameters_with_fd`: system memory and pinned pages, the size less one at 32.
fn rm_alloc_memory(payload: &Payload) -> Option<Plan> {
    let [root, parent, class] = [payload.u32(0)?, payload.u32(4)?, payload.u32(12)?];
    let size = payload.u64(32)?.wrapping_add(1);
    payload.u32(40)?;
    let plan = memory(Request::NvAlloc, class, 0, 0, [root, parent], size)?;
    Some(Plan { complete: named_at_8, status_at: Some(40), ..plan })
}

/// `NVOS55_PARAMETERS`: an object of any client becomes one of this client, below a parent of its own.
fn duplicate(payload: &Payload) -> Option<Plan> {
    const STATUS_AT: usize = 24;
    let [root, parent] = [payload.u32(0)?, payload.u32(4)?];
    let source = object(payload.u32(12)?, payload.u32(16)?);
    payload.u32(STATUS_AT)?;
    let device = device_of(object(root, parent));
    let numbers = [source, u64::from(parent)];
    let what = Described { numbers, number_count: 2, device, ..Described::new(0, 0) };
    let plan = Plan::new(Request::NvDup, How::Takes, Kind::Imported, what);
    Some(Plan { complete: named_at_8, status_at: Some(STATUS_AT), ..plan })
}

/// `NVOS32_PARAMETERS`: a function and a structure for it.
fn heap(payload: &Payload) -> Option<Plan> {
    const STATUS_AT: usize = 20;
    let [root, parent, function] = [payload.u32(0)?, payload.u32(4)?, payload.u32(8)?];
    let handle = payload.u32(44)?;
    // Where the attributes and the size stand: sizes, tiled surfaces, ranges.
    let [attributes_at, size_at] = match function {
        2 => [56, 88],
        6 => [64, 88],
        14 => [56, 80],
        3 => {
            let what = freed(root, parent, handle);
            let plan = Plan::new(Request::NvHeap, How::Gives, Kind::Device, what);
            return Some(Plan { event: Event::Free, status_at: Some(STATUS_AT), ..plan });
        }
        _ => return None,
    };
    let [flags, attributes] = [payload.u32(52)?, payload.u32(attributes_at)?];
    // The class is not told here; the location is in the attributes.
    let plan = memory(Request::NvHeap, class::LOCAL, flags, attributes, [root, parent], payload.u64(size_at)?)?;
    let complete = |what: &mut Described, after: &Payload| {
        what.address = object(after.u32(0).unwrap_or(0), after.u32(44).unwrap_or(0));
        let size_at = if after.u32(8) == Some(14) { 80 } else { 88 };
        what.requested = after.u64(size_at).unwrap_or(what.requested);
    };
    Some(Plan { complete, status_at: Some(STATUS_AT), ..plan })
}

/// Device objects that are remembered: a process has one per card and client.
const DEVICES: usize = 64;
static OBJECTS: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];
static INSTANCES: [AtomicU8; DEVICES] = [const { AtomicU8::new(0) }; DEVICES];

/// A device object: `NV0080_ALLOC_PARAMETERS` begins with the number of the card as the driver counts.
fn device(root: u32, parameters: u64, status_at: usize) -> Option<Plan> {
    let instance = Payload::read(0, parameters, 4)?.u32(0)?;
    let what = Described { numbers: [u64::from(root), 0], ..Described::new(0, u64::from(instance)) };
    let complete = |what: &mut Described, after: &Payload| {
        named_at_8(what, after);
        remember(what.address, what.requested as u8);
    };
    let plan = Plan::new(Request::NvAlloc, How::Tells, Kind::None, what);
    Some(Plan { complete, status_at: Some(status_at), ..plan })
}

fn remember(object: u64, instance: u8) {
    for (known, number) in OBJECTS.iter().zip(&INSTANCES) {
        let claimed = known.compare_exchange(0, object, Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_ok() || claimed == Err(object) {
            number.store(instance, Ordering::Release);
            return;
        }
    }
}

/// The card of a device object. Inside a recorded call the thread's device is better: it counts as the program does.
fn device_of(object: u64) -> Option<u8> {
    if object == 0 || thread::current().depth.get() != 0 {
        return None;
    }
    let index = OBJECTS.iter().position(|known| known.load(Ordering::Acquire) == object)?;
    Some(INSTANCES[index].load(Ordering::Acquire))
}

#[cfg(test)]
mod tests {
    use super::super::payload::tests::payload;
    use super::*;

    fn alloc(class: u64, parameters: &[u8], size: usize) -> Option<Plan> {
        let pointer = parameters.as_ptr() as u64;
        plan(0x2B, &payload(size, &[(0, 4, 0xC1), (4, 4, 0xD1), (12, 4, class), (16, 8, pointer)]))
    }

    fn parameters(flags: u32, attributes: u32, size: u64) -> [u8; 128] {
        let mut bytes = [0; 128];
        bytes[8..12].copy_from_slice(&flags.to_le_bytes());
        bytes[24..28].copy_from_slice(&attributes.to_le_bytes());
        bytes[64..72].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    #[test]
    fn both_forms_of_an_allocation_are_read() {
        let wanted = parameters(0, 0, 2 << 20);
        for (size, status_at) in [(48, 40), (32, 28)] {
            let plan = alloc(0x40, &wanted, size).expect("memory");
            assert_eq!((plan.kind, plan.what.requested, plan.status_at), (Kind::Device, 2 << 20, Some(status_at)));
            assert_eq!(plan.what.numbers, [0xD1, 0x40]);
        }
        assert!(alloc(0x40, &wanted, 40).is_none(), "no such form");
        assert!(alloc(0x40, &[], 48).is_none(), "no parameters");
        assert!(alloc(0x2080, &wanted, 48).is_none(), "no memory");
    }

    #[test]
    fn class_flags_and_location_tell_the_kind() {
        let kind =
            |class, flags, attributes| alloc(class, &parameters(flags, attributes, 4096), 48).expect("some").kind;
        assert_eq!(kind(0x3E, 0, 0), Kind::HostPinned);
        assert_eq!(kind(0x40, 0, 1 << 25), Kind::HostPinned);
        assert_eq!(kind(0x40, FLAG_VIRTUAL, 0), Kind::Reserved);
        assert_eq!(kind(0x50A0, 0, 0), Kind::Reserved);
        let mut pinned = [0u8; 40];
        pinned[24..32].copy_from_slice(&0xFFFu64.to_le_bytes());
        let plan = alloc(0x71, &pinned, 48).expect("pinned pages");
        assert_eq!((plan.event, plan.kind, plan.what.requested), (Event::Pin, Kind::Registered, 4096));
    }

    #[test]
    fn a_carried_request_is_unwrapped_once() {
        let inner = [0u8; 16];
        let carry = |number: u64, pointer: u64| payload(16, &[(0, 4, number), (4, 4, 16), (8, 8, pointer)]);
        let (number, found) = unwrap(TRANSFER, carry(0x29, inner.as_ptr() as u64)).expect("a request");
        assert_eq!((number, found.size), (0x29, 16));
        assert!(unwrap(TRANSFER, carry(0xD3, inner.as_ptr() as u64)).is_none());
        assert!(unwrap(TRANSFER, carry(0x1_0029, inner.as_ptr() as u64)).is_none());
        assert!(unwrap(TRANSFER, carry(0x29, 8)).is_none());
    }

    #[test]
    fn the_heap_has_sizes_in_several_places() {
        for (function, size_at) in [(2, 88), (6, 88), (14, 80)] {
            let fields = [(0, 4, 0xC1), (4, 4, 0xD1), (8, 4, function), (size_at, 8, 1 << 20)];
            let plan = plan(0x4A, &payload(184, &fields)).expect("memory");
            assert_eq!((plan.kind, plan.what.requested), (Kind::Device, 1 << 20));
            let mut what = plan.what;
            (plan.complete)(&mut what, &payload(184, &[&fields[..3], &[(44, 4, 5), (size_at, 8, 2 << 20)]].concat()));
            assert_eq!((what.address, what.requested), (0xC1_0000_0005, 2 << 20));
        }
        let free = plan(0x4A, &payload(184, &[(0, 4, 0xC1), (8, 4, 3), (44, 4, 5)])).expect("a free");
        assert_eq!((free.event, free.how, free.what.address), (Event::Free, How::Gives, 0xC1_0000_0005));
        assert!(plan(0x4A, &payload(184, &[(8, 4, 5)])).is_none());
        assert!(plan(0x4A, &payload(90, &[(8, 4, 2)])).is_none());
    }

    #[test]
    fn a_duplicate_says_what_it_was_made_of() {
        let fields = [(0, 4, 0xC2), (4, 4, 0xD1), (12, 4, 0xC1), (16, 4, 9)];
        let plan = plan(0x34, &payload(28, &fields)).expect("an import");
        assert_eq!((plan.event, plan.kind, plan.status_at), (Event::Import, Kind::Imported, Some(24)));
        assert_eq!(plan.what.numbers, [0xC1_0000_0009, 0xD1]);
        let mut what = plan.what;
        (plan.complete)(&mut what, &payload(28, &[&fields[..], &[(8, 4, 7)]].concat()));
        assert_eq!((what.address, what.requested), (0xC2_0000_0007, 0));
        assert!(super::plan(0x34, &payload(27, &fields)).is_none());
    }

    #[test]
    fn a_device_object_leads_to_its_card() {
        let card = 1u32.to_le_bytes();
        let told = alloc(0x80, &card, 48).expect("a device");
        assert_eq!(told.how, How::Tells);
        let mut what = told.what;
        (told.complete)(&mut what, &payload(48, &[(0, 4, 0xC1), (8, 4, 0xD7)]));
        assert_eq!((device_of(0xC1_0000_00D7), device_of(0xC1_0000_00D8)), (Some(1), None));
    }
}
