//! What the recorded rows share: how a call is recorded around the real one, and what it is about.

use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, flag};

use crate::record::{Described, Frame};
use crate::{link, readings, thread, watch};

pub(super) use super::contexts::{context, context_destroyed, context_popped, context_pushed, context_selected};

/// An out-parameter for a pointer or handle.
pub(super) type Out = *mut u64;
/// A pointer that is only passed on or compared.
pub(super) type Pointer = u64;

/// A call in one of the functions below.
pub(super) struct Call {
    /// The call under way, `None` when it is only forwarded.
    pub(super) frame: Option<Frame>,
    /// What it means.
    pub(super) event: Event,
    /// The sort of memory.
    pub(super) kind: Kind,
}

/// The real function for the hook that was just entered.
#[inline(always)]
pub(super) fn real_of(api: u16) -> *const () {
    // SAFETY: this thread's own state.
    link::real(api, unsafe { (*thread::current()).caller })
}

/// Allocations: recorded after the call, because only then the address is known, and because another thread can't get the
/// same address before this one frees it.
#[inline(always)]
pub(super) fn allocation(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else { return real() };
    frame.note_under_way(describe(false).requested);
    let status = real();
    let status = if status == 0 { 0 } else { readings::again_if_probed(&frame, status, &real) };
    let mut what = describe(status == 0);
    let out = what.address;
    if status != 0 && call.event != Event::Pin {
        what.address = 0;
    }
    let record = frame.record(call.event, call.kind, status, &what, true);
    let seq = frame.publish(&record, &what);
    frame.clear_under_way();
    if frame.is_programs_own() {
        if status == 0 {
            watch::allocated(&frame, &record);
        } else {
            watch::failed(&frame, &record, seq, out);
        }
    }
    frame.leave();
    status
}

/// Frees, unmaps and unpins: recorded before the call, because another thread may get the address as soon as it is free.
/// A free that then fails is corrected by a second record.
#[inline(always)]
pub(super) fn release(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else { return real() };
    let what = describe(true);
    let record = frame.record(call.event, call.kind, 0, &what, false);
    frame.publish(&record, &what);
    let status = real();
    if status != 0 {
        let corrected = Record { status, kind_flags: record.kind_flags | flag::CORRECTION, ..record };
        frame.publish(&corrected, &what);
    }
    frame.leave();
    status
}

/// Calls that name something and take no memory (a pool, an address range, a mapping).
#[inline(always)]
pub(super) fn naming(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else { return real() };
    let status = real();
    let mut what = describe(status == 0);
    if status != 0 && (call.event == Event::Reserve || call.kind == Kind::Imported) {
        // Only the place for the answer is known; where the program itself gives the address, that stays.
        what.address = 0;
    }
    frame.publish(&frame.record(call.event, call.kind, status, &what, true), &what);
    frame.leave();
    status
}

/// Calls that set something up whose memory nobody counts (a library's handle, a context): the status is what matters.
#[inline(always)]
pub(super) fn creation(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else { return real() };
    frame.note_under_way(0);
    let status = real();
    let mut what = Described { requested: 0, ..describe(status == 0) };
    let out = what.address;
    if status != 0 {
        what.address = 0;
    }
    let record = frame.record(call.event, call.kind, status, &what, true);
    let seq = frame.publish(&record, &what);
    frame.clear_under_way();
    if frame.is_programs_own() {
        // How much it takes is not known: only its own success, or another's of its sort, makes up for its failure.
        let record = Record { requested: u64::MAX, ..record };
        if status == 0 {
            watch::allocated(&frame, &record);
        } else {
            watch::failed(&frame, &record, seq, out);
        }
    }
    frame.leave();
    status
}

/// The choice of a device for the thread: remembered, and recorded only after a failure.
#[inline(always)]
pub(super) fn selection(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let status = real();
    let Some(frame) = call.frame else { return status };
    let what = describe(true);
    if let (0, Some(device)) = (status, what.device) {
        // SAFETY: this thread's own state.
        unsafe { (*thread::current()).device = device };
    }
    if watch::is_watched() {
        frame.publish(&frame.record(call.event, call.kind, status, &what, true), &what);
    }
    frame.leave();
    status
}

/// Stream capture: while it lasts, an allocation by anybody would break it, so nothing is probed.
#[inline(always)]
pub(super) fn capture(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let status = real();
    if call.frame.is_some_and(|frame| frame.is_programs_own()) && status == 0 {
        readings::capture_changed(describe(true).requested != 0);
    }
    if let Some(frame) = call.frame {
        frame.leave();
    }
    status
}

/// Reads a value that the vendor's function reads or writes too; 0 for a null pointer.
///
/// # Safety
/// `pointer` is null or points at a readable value, as the vendor's function demands.
#[inline(always)]
pub(super) unsafe fn read<T: Copy + Default>(pointer: *const T) -> T {
    if pointer.is_null() {
        return T::default();
    }
    // SAFETY: promised by the caller; unaligned, because nobody checks a stranger's pointers.
    unsafe { pointer.read_unaligned() }
}

/// A field of a structure that the program passed, at an offset in bytes; 0 for a null pointer.
///
/// # Safety
/// `base` is null or points at a structure that has a `T` at `offset`.
#[inline(always)]
pub(super) unsafe fn field<T: Copy + Default>(base: *const u8, offset: usize) -> T {
    if base.is_null() {
        return T::default();
    }
    // SAFETY: promised by the caller.
    unsafe { read(base.add(offset).cast()) }
}

/// A block of the first CUDA drivers: 32-bit pointer and size.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn small_block(done: bool, out: *mut u32, size_bytes: u32) -> Described {
    // SAFETY: promised by the caller.
    let address = if done { u64::from(unsafe { read(out) }) } else { out as u64 };
    Described::new(address, u64::from(size_bytes))
}

/// A plain block: its size in bytes and, once it exists, its pointer behind `out`. Before that the address is `out`
/// itself, which must not be followed: nobody has checked it yet.
///
/// # Safety
/// `out` is null or valid, as the vendor's function demands, when `done`.
#[inline(always)]
pub(super) unsafe fn block(done: bool, out: Out, size_bytes: usize) -> Described {
    // SAFETY: promised by the caller.
    Described::new(if done { unsafe { read(out) } } else { out as u64 }, size_bytes as u64)
}

/// `hipIpcMemHandle_t` and `cudaIpcMemHandle_t`: 64 bytes by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IpcHandle([u64; 8]);

/// A pitched block: once it exists, the runtime's pitch counts and not the asked width.
///
/// # Safety
/// As [`block`], for both pointers.
#[inline(always)]
pub(super) unsafe fn pitched(done: bool, out: Out, pitch: *const usize, width: usize, rows: usize) -> Described {
    // SAFETY: promised by the caller.
    unsafe { block(done, out, if done { read(pitch) } else { width }.saturating_mul(rows)) }
}

/// `hipExtent` and `cudaExtent`: 24 bytes by value, so they lie on the stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// In bytes or elements.
    pub(super) width: usize,
    /// Rows.
    pub(super) height: usize,
    /// Layers.
    pub(super) depth: usize,
}

/// `hipPitchedPtr` and `cudaPitchedPtr` begin with the pointer and the pitch.
///
/// # Safety
/// As [`block`].
#[inline(always)]
pub(super) unsafe fn volume(done: bool, out: *mut u8, extent: Extent) -> Described {
    // SAFETY: promised by the caller: the structure has 32 bytes (hip_runtime_api.h, driver_types.h).
    let pitch = if done { unsafe { field::<usize>(out, 8) } } else { extent.width };
    let size = pitch.saturating_mul(extent.height.max(1)).saturating_mul(extent.depth.max(1));
    // SAFETY: as above; the pointer is the first field.
    unsafe { block(done, out.cast(), size) }
}

/// Bytes of an array of `elements` whose channel description has the bits of x, y, z and w as its first four integers.
/// The runtime's tiling is not known up here: this is what was asked for.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn array(done: bool, out: Out, channels: *const u8, extent: Extent, levels: u32) -> Described {
    // SAFETY: promised by the caller: 20 bytes (driver_types.h).
    let bits: i32 = (0..4).map(|channel| unsafe { field::<i32>(channels, channel * 4) }.clamp(0, 64)).sum();
    let element_bytes = (bits as usize / 8).max(1);
    // SAFETY: as above.
    unsafe { block(done, out, array_bytes(extent, element_bytes, levels)) }
}

fn array_bytes(extent: Extent, element_bytes: usize, levels: u32) -> usize {
    let level = |shift: u32| {
        let side = |size: usize| (size >> shift.min(63)).max(1);
        let rows = side(extent.height).saturating_mul(side(extent.depth));
        side(extent.width).saturating_mul(rows).saturating_mul(element_bytes)
    };
    (0..levels.clamp(1, 32)).fold(0, |sum: usize, shift| sum.saturating_add(level(shift)))
}

/// `HIP_ARRAY_DESCRIPTOR` (width, height, format, channels) and the 3D one (width, height, depth, format, channels).
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn driver_array(done: bool, out: Out, descriptor: *const u8, is_3d: bool, levels: u32) -> Described {
    let after = if is_3d { 24 } else { 16 };
    // SAFETY: promised by the caller: 24 or 40 bytes (driver_types.h).
    let (extent, format, channels) = unsafe {
        let extent = Extent {
            width: field(descriptor, 0),
            height: field(descriptor, 8),
            depth: if is_3d { field(descriptor, 16) } else { 0 },
        };
        (extent, field::<u32>(descriptor, after), field::<u32>(descriptor, after + 4))
    };
    // CU_AD_FORMAT_*: 0x01/0x08 one byte, 0x02/0x09/0x10 two, 0x03/0x0a/0x20 four.
    let format_bytes = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    };
    let element_bytes = format_bytes * channels.clamp(1, 4) as usize;
    // SAFETY: as above.
    unsafe { block(done, out, array_bytes(extent, element_bytes, levels)) }
}

/// Physical memory: the device stands in `hipMemAllocationProp` / `CUmemAllocationProp` as location {type, id} at 8.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn physical(done: bool, out: Out, size_bytes: usize, properties: *const u8) -> Described {
    // SAFETY: promised by the caller: 32 bytes.
    unsafe { Described { device: location(properties), ..block(done, out, size_bytes) } }
}

/// A pool from `hipMemPoolProps` / `cudaMemPoolProps`, location {type, id} at 8.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn pool(done: bool, out: Out, properties: *const u8) -> Described {
    // SAFETY: promised by the caller: 88 bytes.
    unsafe { Described { device: location(properties), ..block(done, out, 0) } }
}

/// # Safety
/// `properties` is null or has a location at offset 8.
unsafe fn location(properties: *const u8) -> Option<u8> {
    // SAFETY: promised by the caller. Type 1 is a device.
    let (kind, id) = unsafe { (field::<i32>(properties, 8), field::<i32>(properties, 12)) };
    Some(if kind == 1 { device_number(id) } else { NO_DEVICE })
}

/// A device index as records hold it.
pub(super) fn device_number(device: i32) -> u8 {
    u8::try_from(device).unwrap_or(NO_DEVICE)
}

/// Something that belongs to a device given by number.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn of_device(done: bool, out: Out, device: i32) -> Described {
    // SAFETY: promised by the caller.
    unsafe { Described { device: Some(device_number(device)), ..block(done, out, 0) } }
}

/// A pool of the device in a `cudaMemLocation` {type, id}.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn pool_at(done: bool, out: Out, location: *const u8) -> Described {
    // SAFETY: promised by the caller: 8 bytes. Type 1 is a device.
    let (kind, id) = unsafe { (field::<i32>(location, 0), field::<i32>(location, 4)) };
    let device = if kind == 1 { device_number(id) } else { NO_DEVICE };
    // SAFETY: as above.
    unsafe { Described { device: Some(device), ..block(done, out, 0) } }
}

/// A pool that becomes the device's.
pub(super) fn pool_of(device: i32, pool: Pointer) -> Described {
    Described { device: Some(device_number(device)), ..given(pool) }
}

/// External memory, its size at 24 of `hipExternalMemoryHandleDesc` / `cudaExternalMemoryHandleDesc`.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn external(done: bool, out: Out, descriptor: *const u8) -> Described {
    // SAFETY: promised by the caller: 104 bytes.
    unsafe { block(done, out, field::<usize>(descriptor, 24)) }
}

/// A buffer mapped from external memory: {offset, size} at the start of its description.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn external_buffer(done: bool, out: Out, memory: u64, descriptor: *const u8) -> Described {
    // SAFETY: promised by the caller: 88 bytes.
    let (offset, size) = unsafe { (field::<u64>(descriptor, 0), field::<usize>(descriptor, 8)) };
    // SAFETY: as above.
    unsafe { Described { numbers: [memory, offset], number_count: 2, ..block(done, out, size) } }
}

/// A block from a pool; the pool travels along, because it decides the device.
///
/// # Safety
/// As [`block`].
#[inline(always)]
pub(super) unsafe fn from_pool(done: bool, out: Out, size_bytes: usize, pool: Pointer) -> Described {
    // SAFETY: promised by the caller.
    unsafe { Described { numbers: [pool, 0], number_count: 1, ..block(done, out, size_bytes) } }
}

/// A mapping of `handle` at `address`.
pub(super) fn mapping(address: Pointer, size_bytes: usize, offset: usize, handle: u64) -> Described {
    Described { numbers: [handle, offset as u64], number_count: 2, ..Described::new(address, size_bytes as u64) }
}

/// A pointer or handle that is given back.
#[inline(always)]
pub(super) fn given(address: Pointer) -> Described {
    Described::new(address, 0)
}
