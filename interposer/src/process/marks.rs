//! The functions that a program may call itself.

use std::ffi::{CStr, c_char, c_int};

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record};

use crate::record::Frame;
use crate::{apis, guard, state};

/// Puts a label on the timeline. Safe to call whether or not anything is recorded.
///
/// # Safety
/// `label` is null or a terminated string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn gpuoom_mark(label: *const c_char) {
    guard::cold((), || {
        if label.is_null() {
            return;
        }
        let Some(frame) = Frame::enter(apis::MARK) else { return };
        // SAFETY: promised by the caller.
        let text = unsafe { CStr::from_ptr(label) };
        let what = crate::record::Described::new(0, 0);
        let record = Record { device: 0xFF, ..frame.record(Event::Mark, Kind::None, 0, &what, false) };
        let mut out = [0; MAX_PAYLOAD_BYTES];
        frame.recorder().publish_long(&record, payload::pack(text.to_bytes(), &mut out));
        frame.leave();
    });
}

/// Returns 0 once all events recorded so far are in the file's chunks, -1 when that could not be done (they are in its ring
/// all the same).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn gpuoom_flush() -> c_int {
    guard::cold(-1, || match state::running() {
        Some(recorder) => c_int::from(!recorder.drain(64, 1_000_000)).wrapping_neg(),
        None => 0,
    })
}
