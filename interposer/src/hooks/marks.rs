//! The functions that a program may call itself.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, NO_DEVICE, Record};

use crate::base::{guard, thread};
use crate::record::state;
use crate::record::{Clock, Recorder};
use crate::table;

/// Labels that are kept until the first GPU call makes a trace, and their longest text.
const EARLY_MARKS: usize = 32;
const EARLY_TEXT_BYTES: usize = 96;

/// A label from before the trace: a process without GPU calls must leave no file.
struct EarlyMark {
    whole: AtomicBool,
    content: UnsafeCell<(u64, u32, [u8; EARLY_TEXT_BYTES])>,
}

// SAFETY: an entry is written by the one thread that counted it, and read once `whole` says so.
unsafe impl Sync for EarlyMark {}

static EARLY: [EarlyMark; EARLY_MARKS] =
    [const { EarlyMark { whole: AtomicBool::new(false), content: UnsafeCell::new((0, 0, [0; EARLY_TEXT_BYTES])) } };
        EARLY_MARKS];
static EARLY_COUNT: AtomicUsize = AtomicUsize::new(0);

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
        // SAFETY: promised by the caller.
        let text = unsafe { CStr::from_ptr(label) }.to_bytes();
        match state::running() {
            Some(recorder) => publish(recorder, recorder.clock.now(), thread::kernel_thread_id(), text),
            None => keep(text),
        }
    });
}

fn publish(recorder: &Recorder, at: u64, thread: u32, text: &[u8]) {
    let mut out = [0; MAX_PAYLOAD_BYTES];
    let record = Record { at, thread, api: table::MARK, device: NO_DEVICE, ..Record::new(Event::Mark, Kind::None) };
    recorder.publish_long(&record, payload::pack(text, &mut out));
}

fn keep(text: &[u8]) {
    let Some(mark) = EARLY.get(EARLY_COUNT.fetch_add(1, Ordering::Relaxed)) else { return };
    let length = text.len().min(EARLY_TEXT_BYTES);
    let mut kept = [0; EARLY_TEXT_BYTES];
    kept[..length].copy_from_slice(&text[..length]);
    // SAFETY: the count gave this entry to this thread alone.
    unsafe { *mark.content.get() = (Clock::choose().now(), thread::kernel_thread_id(), kept) };
    // Release: the content is there when `whole` says so.
    mark.whole.store(true, Ordering::Release);
}

/// Writes the labels that came before the trace was made.
pub(crate) fn publish_early(recorder: &Recorder) {
    for mark in EARLY.iter().filter(|mark| mark.whole.swap(false, Ordering::Acquire)) {
        // SAFETY: whole, and taken by this thread alone through the swap.
        let (at, thread, text) = unsafe { *mark.content.get() };
        let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        publish(recorder, at, thread, &text[..length]);
    }
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
