//! What a call is about, read from its arguments and results: what the rows of several tables share.

use gpuoom_trace::record::NO_DEVICE;

use crate::base::{captures, program_memory};
use crate::call::Described;

/// An out-parameter for a pointer or handle.
pub(super) type Out = *mut u64;
/// A pointer that is only passed on or compared.
pub(super) type Pointer = u64;

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

/// Bytes of an array with all its levels.
pub(super) fn array_bytes(extent: Extent, element_bytes: usize, levels: u32) -> usize {
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
    // SAFETY: as above.
    unsafe { block(done, out, array_bytes(extent, element_bytes(format, channels), levels)) }
}

/// Bytes of an array's element. `CU_AD_FORMAT_*`: 0x01/0x08 one byte, 0x02/0x09/0x10 two, 0x03/0x0a/0x20 four.
pub(super) fn element_bytes(format: u32, channels: u32) -> usize {
    let format_bytes = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    };
    format_bytes * channels.clamp(1, 4) as usize
}

/// Physical memory: the device stands in `hipMemAllocationProp` / `CUmemAllocationProp` as location {type, id} at 8.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn physical(done: bool, out: Out, size_bytes: usize, properties: *const u8) -> Described {
    // SAFETY: promised by the caller: 32 bytes.
    unsafe {
        let (sort, place) = (field(properties, 0), field(properties, 8));
        Described { device: location(properties), ..placed(block(done, out, size_bytes), sort, place) }
    }
}

/// A pool from `hipMemPoolProps` / `cudaMemPoolProps`: sort of allocation at 0, location {type, id} at 8.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn pool(done: bool, out: Out, properties: *const u8) -> Described {
    // SAFETY: promised by the caller: 88 bytes.
    unsafe {
        let (sort, place) = (field(properties, 0), field(properties, 8));
        Described { device: location(properties), ..placed(block(done, out, 0), sort, place) }
    }
}

/// Says where the memory of a pool or of a handle lies, where that is not pinned memory of a device: {sort of allocation, type of
/// location}.
fn placed(memory: Described, sort: u32, place: u32) -> Described {
    /// `hipMemAllocationTypePinned`, `hipMemLocationTypeDevice`, and the same in CUDA.
    const USUAL: (u32, u32) = (1, 1);
    if (sort, place) == USUAL {
        return memory;
    }
    Described { numbers: [u64::from(sort), u64::from(place)], number_count: 2, ..memory }
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

/// A pool of this sort of allocation at a `cudaMemLocation` {type, id}.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn pool_at(done: bool, out: Out, location: *const u8, sort: u32) -> Described {
    // SAFETY: promised by the caller: 8 bytes.
    unsafe {
        let pool = placed(block(done, out, 0), sort, field(location, 0));
        Described { device: Some(of_location(location)), ..pool }
    }
}

/// The device of a location {type, id}.
///
/// # Safety
/// `location` is null or has 8 bytes.
pub(super) unsafe fn of_location(location: *const u8) -> u8 {
    // SAFETY: promised by the caller. Type 1 is a device.
    let (kind, id) = unsafe { (field::<i32>(location, 0), field::<i32>(location, 4)) };
    if kind == 1 { device_number(id) } else { NO_DEVICE }
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

/// A block that is ordered on a stream.
#[inline(always)]
pub(super) fn ordered(block: Described, stream: Pointer) -> Described {
    Described { is_captured: captures::has(stream), ..block }
}

/// A memory node of a graph: `hipMemAllocNodeParams` / `cudaMemAllocNodeParams` begin with the properties of a pool and have
/// the size at 104 and the address, once there is one, at 112. Memory is obtained when the graph runs, and nobody says so:
/// the address is only named here, and its size is not counted.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn graph_memory(done: bool, parameters: *const u8) -> Described {
    // SAFETY: promised by the caller: 120 bytes.
    unsafe {
        let address = if done { field(parameters, 112) } else { 0 };
        Described { device: location(parameters), ..Described::new(address, field(parameters, 104)) }
    }
}

/// A node of any sort: `hipGraphNodeParams`, `cudaGraphNodeParams` and `CUgraphNodeParams` begin with the type and have the
/// type's own parameters at 16, which of an allocation are those of [`graph_memory`]. No bytes: another type.
///
/// The calling convention of `cudaGraphAddNode` changed with CUDA 13: what was the number of dependencies became an array, and
/// number and parameters moved on by one place. `places` are the two in question. So nothing is followed without a look whether
/// it can be read.
pub(super) fn graph_node(done: bool, places: [Pointer; 2]) -> Described {
    /// `cudaGraphNodeTypeMemAlloc`, and the same in HIP and in the driver.
    const ALLOCATES: u32 = 10;
    /// Bytes up to the end of the allocation's address.
    const READ: usize = 136;
    /// No pointer is this small, and no node depends on so many others.
    const SMALLEST_POINTER: u64 = 1 << 16;
    let parameters = if places[0] < SMALLEST_POINTER { places[1] } else { places[0] };
    let mut bytes = [0; READ];
    let known = parameters >= SMALLEST_POINTER && program_memory::read(parameters, &mut bytes);
    if !known || u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) != ALLOCATES {
        return given(0);
    }
    // SAFETY: our own copy, which holds all 120 bytes.
    unsafe { graph_memory(done, bytes.as_ptr().add(16)) }
}

/// A handle that was asked for by an address where its memory is mapped, which adds a reference.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn retained(done: bool, out: Out, mapped: Pointer) -> Described {
    // SAFETY: promised by the caller.
    unsafe { Described { numbers: [mapped, 0], number_count: 1, ..block(done, out, 0) } }
}

/// A limit of the device, such as that of its own heap.
pub(super) fn limit(which: u32, value: usize) -> Described {
    Described { numbers: [u64::from(which), value as u64], number_count: 2, ..given(0) }
}

/// Managed memory that is to go to a device, or to the host ([`NO_DEVICE`]).
pub(super) fn sent(pointer: Pointer, size_bytes: usize, device: u8) -> Described {
    Described { device: Some(device), ..Described::new(pointer, size_bytes as u64) }
}

/// Advice about managed memory: {advice, device}.
pub(super) fn advised(pointer: Pointer, size_bytes: usize, advice: u32, device: u8) -> Described {
    Described { numbers: [u64::from(advice), u64::from(device)], number_count: 2, ..sent(pointer, size_bytes, device) }
}

/// The device of a `hipMemLocation` / `cudaMemLocation` {type, id} that is passed by value, in one register.
pub(super) fn place(location: u64) -> u8 {
    // Type 1 is a device.
    if location as u32 == 1 { device_number((location >> 32) as i32) } else { NO_DEVICE }
}

/// The resource of another interface: the first of those that are mapped, and how many they are.
///
/// # Safety
/// `resources` is null or points at `count` handles when `done`.
pub(super) unsafe fn resources(done: bool, count: i32, resources: *const u64) -> Described {
    // SAFETY: promised by the caller.
    let first = if done && count > 0 { unsafe { read(resources) } } else { 0 };
    Described { numbers: [u64::try_from(count).unwrap_or(0), 0], number_count: 1, ..given(first) }
}

/// The memory of a mapped resource; the runtime says how large it is.
///
/// # Safety
/// As [`block`], for both pointers.
pub(super) unsafe fn resource_memory(done: bool, out: Out, size: *const usize, resource: Pointer) -> Described {
    // SAFETY: promised by the caller.
    unsafe {
        let what = block(done, out, if done { read(size) } else { 0 });
        Described { numbers: [resource, 0], number_count: 2, ..what }
    }
}

/// A mipmapped array in external memory: its offset stands at the start of its description, its size is the runtime's affair.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn external_array(done: bool, out: Out, memory: u64, descriptor: *const u8) -> Described {
    // SAFETY: promised by the caller: 64 bytes.
    unsafe { Described { numbers: [memory, field(descriptor, 0)], number_count: 2, ..block(done, out, 0) } }
}

/// A mapping of `handle` at `address`.
pub(super) fn mapping(address: Pointer, size_bytes: usize, offset: usize, handle: u64) -> Described {
    Described { numbers: [handle, offset as u64], number_count: 2, ..Described::new(address, size_bytes as u64) }
}

/// The end of a stream's capture; the graph that it made travels along.
///
/// # Safety
/// `graph` is null or valid when `done`.
pub(super) unsafe fn captured(done: bool, stream: Pointer, graph: *const u64) -> Described {
    // SAFETY: promised by the caller.
    let graph = if done { unsafe { read(graph) } } else { 0 };
    Described { numbers: [graph, 0], number_count: u8::from(done), ..given(stream) }
}

/// A graph that can be launched; the graph that it was made of travels along.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn instantiated(done: bool, out: Out, graph: Pointer) -> Described {
    // SAFETY: promised by the caller.
    unsafe { Described { numbers: [graph, 0], number_count: 1, ..block(done, out, 0) } }
}

/// A pool that is to give back what is free in it, but for so many bytes.
pub(super) fn trimmed(pool: Pointer, keep_bytes: usize) -> Described {
    Described { numbers: [keep_bytes as u64, 0], number_count: 1, ..given(pool) }
}

/// An attribute of a pool: {attribute, value}. The first three are switches of 32 bits, the others bytes of 64 bits
/// (`cudaMemPoolAttr` in driver_types.h, `CUmemPool_attribute` in cuda.h, `hipMemPoolAttr` in hip_runtime_api.h).
///
/// # Safety
/// `value` is null or valid, as the vendor's function demands, when `done`.
pub(super) unsafe fn attribute(done: bool, pool: Pointer, which: u32, value: *const u8) -> Described {
    let value = match which {
        _ if !done => 0,
        // SAFETY: promised by the caller.
        1..=3 => u64::from(unsafe { field::<u32>(value, 0) }),
        // SAFETY: as above.
        _ => unsafe { field::<u64>(value, 0) },
    };
    Described { numbers: [u64::from(which), value], number_count: 2, ..given(pool) }
}

/// Where the program reads an attribute of a pool or of a device's graph memory: {attribute, value}, as [`attribute`] has it;
/// graph attributes are all bytes of 64 bits (`cudaGraphMemAttributeType`).
///
/// # Safety
/// As [`attribute`].
pub(super) unsafe fn graph_attribute(done: bool, device: i32, which: u32, value: *const u8) -> Described {
    // SAFETY: promised by the caller.
    let value = if done { unsafe { field::<u64>(value, 0) } } else { 0 };
    Described { numbers: [u64::from(which), value], number_count: 2, ..pool_of(device, 0) }
}

/// A pointer or handle that is given back.
#[inline(always)]
pub(super) fn given(address: Pointer) -> Described {
    Described::new(address, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_one_register_tells_the_device() {
        // Types: 0 invalid, 1 device, 2 host, 3 host by number.
        assert_eq!([1, 1 | 3 << 32].map(place), [0, 3]);
        assert_eq!([2, 2 | 1 << 32, 3 | 1 << 32, 0].map(place), [NO_DEVICE; 4]);
        assert_eq!(place(1 | 0xFFFF_FFFF << 32), NO_DEVICE, "-1 is the processor");
    }
}
