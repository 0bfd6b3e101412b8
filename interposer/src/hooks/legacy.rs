//! The calling conventions of the first CUDA drivers: 32-bit pointers and sizes (`cuda.h`, the `_v1` types). Drivers still
//! export them under the plain names.

use super::describe::{Extent, Pointer, of_location};
use super::describe::{Out, array_bytes, block, element_bytes, field, read};
use crate::call::Described;

/// A block.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn small_block(done: bool, out: *mut u32, size_bytes: u32) -> Described {
    // SAFETY: promised by the caller.
    let address = if done { u64::from(unsafe { read(out) }) } else { out as u64 };
    Described::new(address, u64::from(size_bytes))
}

/// A pitched block.
///
/// # Safety
/// As [`block`], for both pointers.
pub(super) unsafe fn small_pitched(done: bool, out: *mut u32, pitch: *const u32, width: u32, rows: u32) -> Described {
    // SAFETY: promised by the caller.
    let row_bytes = if done { unsafe { read(pitch) } } else { width };
    // SAFETY: as above.
    let what = unsafe { small_block(done, out, 0) };
    Described { requested: u64::from(row_bytes).saturating_mul(u64::from(rows)), ..what }
}

/// An array: width, height and, of a 3D one, depth, then format and channels, four bytes each.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn small_array(done: bool, out: Out, descriptor: *const u8, is_3d: bool) -> Described {
    let sides = if is_3d { 3 } else { 2 };
    // SAFETY: promised by the caller: 16 or 24 bytes (CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR_v1).
    let number = |index: usize| unsafe { field::<u32>(descriptor, index * 4) };
    let side = |index: usize| number(index) as usize;
    let extent = Extent { width: side(0), height: side(1), depth: if is_3d { side(2) } else { 0 } };
    let bytes = array_bytes(extent, element_bytes(number(sides), number(sides + 1)), 1);
    // SAFETY: as above.
    unsafe { block(done, out, bytes) }
}

/// A pool that becomes the one of a location {type, id}.
///
/// # Safety
/// `location` is null or has 8 bytes, as the vendor's function demands.
pub(super) unsafe fn pool_for(location: *const u8, pool: Pointer) -> Described {
    // SAFETY: promised by the caller.
    Described { device: Some(unsafe { of_location(location) }), ..super::describe::given(pool) }
}
