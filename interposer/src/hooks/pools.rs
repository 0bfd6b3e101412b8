//! What a program's own allocator may tell: `gpuoom_pool_alloc` and `gpuoom_pool_free`. `include/gpuoom.h` declares them weakly.

use std::ffi::{CStr, c_char};

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, MAX_PAYLOAD_BYTES};

use super::macros::exported;
use crate::base::{config, guard};
use crate::call::{Described, Frame};
use crate::record::state;
use crate::table;

/// Bytes of each name that are kept.
const MAX_NAME_BYTES: usize = 128;

exported! {
    /// A pool of the program's own gives a block out.
    ///
    /// # Safety
    /// The names are null or terminated strings.
    gpuoom_pool_alloc(pool: *const c_char, name: *const c_char, address: u64, size_bytes: usize) {
        // SAFETY: promised by the caller.
        unsafe { publish(table::POOL_ALLOC, Event::Block, [pool, name], address, size_bytes as u64) }
    }
}

exported! {
    /// A pool of the program's own takes a block back.
    ///
    /// # Safety
    /// The name is null or a terminated string.
    gpuoom_pool_free(pool: *const c_char, address: u64) {
        // SAFETY: promised by the caller.
        unsafe { publish(table::POOL_FREE, Event::BlockFree, [pool, std::ptr::null()], address, 0) }
    }
}

/// # Safety
/// The names are null or terminated strings.
unsafe fn publish(api: u16, event: Event, names: [*const c_char; 2], address: u64, size_bytes: u64) {
    if !config::get().framework || state::running().is_none() || address == 0 {
        return;
    }
    guard::cold((), || {
        let Some(frame) = Frame::enter(api) else { return };
        let mut text = [0; 2 * MAX_NAME_BYTES + 1];
        // SAFETY: promised by the caller.
        let length = unsafe { join(names, &mut text) };
        let record = frame.told(event, 0, &Described::new(address, size_bytes));
        let mut out = [0; MAX_PAYLOAD_BYTES];
        frame.recorder().publish_long(&record, payload::pack(&text[..length], &mut out));
        frame.leave();
    });
}

/// The names, with a zero byte between; answers their length.
///
/// # Safety
/// The names are null or terminated strings.
unsafe fn join(names: [*const c_char; 2], text: &mut [u8; 2 * MAX_NAME_BYTES + 1]) -> usize {
    let mut length = 0;
    for (number, name) in names.into_iter().enumerate() {
        length += number;
        if !name.is_null() {
            // SAFETY: promised by the caller.
            let name = unsafe { CStr::from_ptr(name) }.to_bytes();
            let name = &name[..name.len().min(MAX_NAME_BYTES)];
            text[length..length + name.len()].copy_from_slice(name);
            length += name.len();
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(names: [*const c_char; 2]) -> Vec<u8> {
        let mut text = [0; 2 * MAX_NAME_BYTES + 1];
        // SAFETY: null or terminated.
        let length = unsafe { join(names, &mut text) };
        text[..length].to_vec()
    }

    #[test]
    fn names_stand_beside_each_other_and_are_cut() {
        assert_eq!(joined([c"arena".as_ptr(), c"kv".as_ptr()]), b"arena\0kv");
        assert_eq!(joined([c"arena".as_ptr(), std::ptr::null()]), b"arena\0");
        assert_eq!(joined([std::ptr::null(); 2]), b"\0");
        let long = std::ffi::CString::new(vec![b'x'; 1000]).unwrap();
        assert_eq!(joined([long.as_ptr(), long.as_ptr()]).len(), 2 * MAX_NAME_BYTES + 1);
    }
}
