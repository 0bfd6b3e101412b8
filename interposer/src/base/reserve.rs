//! Memory for the recorder where the process can have none.
//!
//! A process at its limit of memory mappings, or of memory, is what people load the recorder for. There a thread that has no heap of
//! the C library's yet gets nothing from `malloc`, not even 48 bytes, and Rust answers that with `abort`: the recorder would
//! end the program that it is to explain. So a small stretch of the library's own data stands in: it is mapped since the start.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{guard, thread};

/// Enough for the readings and facts of some failures; pages that nobody touches take no memory.
const RESERVE_BYTES: usize = 1 << 20;

/// Stretches begin at a multiple of this; what wants more is not served.
const ALIGNMENT: usize = 64;

#[repr(C, align(64))]
struct Stretch(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: the bytes are only reached through pointers that `Reserve::take` hands out, each stretch once.
unsafe impl Sync for Stretch {}

static STRETCH: Stretch = Stretch(UnsafeCell::new([0; RESERVE_BYTES]));

/// What is taken: the first free byte in the upper half, the number of blocks that live in the lower. When none lives any more, all of
/// it is free again.
struct Reserve(AtomicU64);

static RESERVE: Reserve = Reserve(AtomicU64::new(0));

impl Reserve {
    /// The place of a block, counted from the beginning; `None` where there is no room.
    fn take(&self, layout: Layout) -> Option<usize> {
        if layout.align() > ALIGNMENT || layout.size() > RESERVE_BYTES {
            return None;
        }
        let bytes = layout.size().next_multiple_of(ALIGNMENT) as u64;
        let grown = |taken: u64| {
            let (free, live) = (taken >> 32, taken & u64::from(u32::MAX));
            (free + bytes <= RESERVE_BYTES as u64).then_some((free + bytes) << 32 | (live + 1))
        };
        // Acquire: whoever had these bytes before is done with them; its release is in `give_back`.
        let before = self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, grown).ok()?;
        Some((before >> 32) as usize)
    }

    fn give_back(&self) {
        let shrunk = |taken: u64| match taken & u64::from(u32::MAX) {
            0 | 1 => Some(0),
            live => Some(taken & !u64::from(u32::MAX) | (live - 1)),
        };
        // Release: what was written there is done before anybody else has the bytes.
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, shrunk);
    }
}

fn is_of_reserve(pointer: *mut u8) -> bool {
    (pointer as usize).wrapping_sub(STRETCH.0.get() as usize) < RESERVE_BYTES
}

/// A block of the reserve. A thread of the recorder for which there is none stops for good: the program goes on without readings,
/// where an answer of null would end it.
#[cold]
#[inline(never)]
fn from_reserve(layout: Layout) -> *mut u8 {
    match RESERVE.take(layout) {
        // SAFETY: the place lies within the stretch.
        Some(place) => unsafe { STRETCH.0.get().cast::<u8>().add(place) },
        None if thread::current().is_recorders.get() => loop {
            guard::sleep_micros(1_000_000_000);
        },
        None => std::ptr::null_mut(),
    }
}

/// The C library's memory, and the reserve where that has none.
pub(crate) struct WithReserve;

// SAFETY: blocks come from the system's allocator, which keeps the contract, or from the reserve: stretches of its own that do not
// overlap, are aligned to at least what was asked for, and stay where they are until they are given back.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        let pointer = unsafe { System.alloc(layout) };
        if pointer.is_null() { from_reserve(layout) } else { pointer }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            return pointer;
        }
        let pointer = from_reserve(layout);
        if !pointer.is_null() {
            // SAFETY: a block of that size, which nobody else has.
            unsafe { pointer.write_bytes(0, layout.size()) };
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if is_of_reserve(pointer) {
            return RESERVE.give_back();
        }
        // SAFETY: the caller keeps the contract, and the block is the system's.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_of_reserve(pointer) {
            // SAFETY: the caller keeps the contract, and the block is the system's.
            let moved = unsafe { System.realloc(pointer, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller answers for the new size.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: as the caller's own call of it.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both blocks have at least that many bytes, and are not the same; the old one is given back once.
            unsafe {
                pointer.copy_to_nonoverlapping(moved, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
        }
        moved
    }
}

#[global_allocator]
static MEMORY: WithReserve = WithReserve;

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    fn blocks_do_not_overlap_and_all_is_free_when_none_lives() {
        let reserve = Reserve(AtomicU64::new(0));
        assert_eq!([1, 64, 65, 1].map(|size| reserve.take(layout(size))), [Some(0), Some(64), Some(128), Some(256)]);
        (0..3).for_each(|_| reserve.give_back());
        assert_eq!(reserve.take(layout(1)), Some(320));
        (0..2).for_each(|_| reserve.give_back());
        assert_eq!(reserve.take(layout(1)), Some(0));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_the_rest_still_fits() {
        let reserve = Reserve(AtomicU64::new(0));
        assert_eq!(reserve.take(layout(RESERVE_BYTES + 1)), None);
        assert_eq!(reserve.take(Layout::from_size_align(8, 4096).unwrap()), None);
        assert_eq!(reserve.take(layout(RESERVE_BYTES - 64)), Some(0));
        assert_eq!((reserve.take(layout(65)), reserve.take(layout(64))), (None, Some(RESERVE_BYTES - 64)));
    }

    #[test]
    fn a_block_of_the_reserve_grows_moves_and_is_given_back() {
        let pointer = from_reserve(layout(16));
        assert!(is_of_reserve(pointer) && !is_of_reserve(std::ptr::null_mut()));
        // SAFETY: a block of 16 bytes that was just made, grown and given back as the contract asks.
        unsafe {
            pointer.write_bytes(7, 16);
            let grown = MEMORY.realloc(pointer, layout(16), 4096);
            assert!((0..16).all(|place| *grown.add(place) == 7));
            MEMORY.dealloc(grown, layout(4096));
        }
    }
}
