//! Numbers for code objects: which function of which file.
//!
//! A code object that has a number is kept for good, so that its address never comes to stand for another one. There are
//! as many as the table has room for; what comes later has no name.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record};

use super::api::{Api, Object};
use crate::record::Recorder;

/// A power of two.
const CODES: usize = 1 << 12;
/// Places that are tried from the hashed one on.
const TRIES: usize = 16;
/// The lowest bit of an entry: the file says what it is.
const SAID: u64 = 1;

/// Addresses of code objects, with [`SAID`]; the place is the number, less one.
static TABLE: [AtomicU64; CODES] = [const { AtomicU64::new(0) }; CODES];

/// The number of a code object, 0 where there is no room; says in the file what it is, if that was not said.
///
/// # Safety
/// The calling thread holds the interpreter; `code` is a code object.
pub(super) unsafe fn number(api: &Api, code: Object, recorder: &Recorder, thread: u32) -> u32 {
    let address = code as u64;
    let start = (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize;
    for index in (0..TRIES).map(|step| (start + step) % CODES) {
        let known = TABLE[index].load(Ordering::Relaxed);
        let number = index as u32 + 1;
        if known == address | SAID {
            return number;
        }
        if known == 0 && TABLE[index].compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            // SAFETY: promised by the caller.
            unsafe { (api.hold)(code) };
        } else if known != address {
            continue;
        }
        // SAFETY: promised by the caller.
        if unsafe { say(api, code, number, recorder, thread) } {
            TABLE[index].fetch_or(SAID, Ordering::Relaxed);
        }
        return number;
    }
    0
}

/// A new file begins: nothing of what an earlier one said counts in it.
pub(super) fn forget() {
    let used = TABLE.iter().filter(|entry| entry.load(Ordering::Relaxed) != 0);
    used.for_each(|entry| {
        entry.fetch_and(!SAID, Ordering::Relaxed);
    });
}

/// # Safety
/// As [`number`].
#[cold]
unsafe fn say(api: &Api, code: Object, number: u32, recorder: &Recorder, thread: u32) -> bool {
    let mut out = [0; MAX_PAYLOAD_BYTES];
    // `co_qualname` came with 3.11.
    let function = if api.minor >= 11 { c"co_qualname" } else { c"co_name" };
    // SAFETY: promised by the caller; terminated names. The objects are given back after their texts were copied.
    let (payload, line) = unsafe {
        let (file, function) =
            ((api.attribute)(code, c"co_filename".as_ptr()), (api.attribute)(code, function.as_ptr()));
        let payload = payload::code_name(text(api, file), text(api, function), &mut out);
        let line = (api.attribute)(code, c"co_firstlineno".as_ptr());
        let first = if line.is_null() { 0 } else { (api.integer)(line).max(0) as u64 };
        for object in [file, function, line] {
            if !object.is_null() {
                (api.drop)(object);
            }
        }
        (payload, first)
    };
    let at = recorder.clock.now();
    let record = Record { at, thread, site: number, requested: line, ..Record::new(Event::Code, Kind::None) };
    recorder.publish_long(&record, payload).is_some()
}

/// The text of a string, empty where it is none.
///
/// # Safety
/// As [`number`]; the text lives as long as the object.
unsafe fn text<'a>(api: &Api, object: Object) -> &'a [u8] {
    if object.is_null() {
        return &[];
    }
    let mut length = 0;
    // SAFETY: an object and a place for the length; what is no string or has no UTF-8 gives null.
    unsafe {
        let bytes = (api.utf8)(object, &mut length);
        if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes.cast(), length.max(0) as usize) }
    }
}
