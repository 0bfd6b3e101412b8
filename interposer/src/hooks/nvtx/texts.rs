//! What a message of NVTX says: a text, a text of wide letters, or one that was registered before.

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpuoom_trace::payload::MAX_TEXT_BYTES;

use crate::hooks::marks::label;

/// `nvtxEventAttributes_t` up to the end of its message (`nvToolsExt.h`, the same since version 2).
#[repr(C)]
pub(super) struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color: [u32; 2],
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: u64,
}

const _: () = assert!(size_of::<Attributes>() == 48);

/// Values of `message_type`.
const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;

/// Room for a text that has to be made.
pub(super) type Room = [u8; MAX_TEXT_BYTES];

/// The message of an event.
///
/// # Safety
/// As NVTX's functions: null, or a whole structure with terminated texts.
pub(super) unsafe fn message_of(attributes: *const Attributes, room: &mut Room) -> &[u8] {
    // SAFETY: promised by the caller.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return &[] };
    if usize::from(attributes.size) < size_of::<Attributes>() {
        return &[];
    }
    match attributes.message_type {
        // SAFETY: promised by the caller.
        ASCII => unsafe { label(attributes.message as *const c_char) },
        // SAFETY: as above.
        UNICODE => unsafe { narrow(attributes.message as *const u32, room) },
        REGISTERED => registered(attributes.message),
        _ => &[],
    }
}

/// A text of wide letters as UTF-8, as far as there is room.
///
/// # Safety
/// `text` is null or terminated.
pub(super) unsafe fn narrow(text: *const u32, room: &mut Room) -> &[u8] {
    let mut length = 0;
    for place in (0..MAX_TEXT_BYTES).take_while(|_| !text.is_null()) {
        // SAFETY: nothing behind the terminator is read.
        let letter = unsafe { text.add(place).read_unaligned() };
        let letter = char::from_u32(letter).unwrap_or(char::REPLACEMENT_CHARACTER);
        if letter == '\0' || length + letter.len_utf8() > room.len() {
            break;
        }
        length += letter.encode_utf8(&mut room[length..]).len();
    }
    &room[..length]
}

/// Registered texts, one behind the other, each terminated. They stay for good, as NVTX's do until their domain ends; what finds
/// no room has no handle.
struct Texts {
    used: AtomicUsize,
    bytes: UnsafeCell<[u8; ROOM]>,
}

const ROOM: usize = 256 * 1024;
/// Bytes of one of them that are kept.
const MAX_BYTES: usize = 255;

// SAFETY: each byte is written once, by the thread that has claimed it, before anybody else is told where it lies.
unsafe impl Sync for Texts {}

static TEXTS: Texts = Texts { used: AtomicUsize::new(0), bytes: UnsafeCell::new([0; ROOM]) };

/// Keeps a text. Its handle is where it lies; 0: no room.
pub(super) fn register(text: &[u8]) -> u64 {
    let text = &text[..text.len().min(MAX_BYTES)];
    let claim = |used: usize| used.checked_add(text.len() + 1).filter(|end| *end <= ROOM);
    let Ok(start) = TEXTS.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim) else { return 0 };
    // SAFETY: these bytes, and the zero behind them, are this thread's alone.
    unsafe {
        let place = TEXTS.bytes.get().cast::<u8>().add(start);
        place.copy_from_nonoverlapping(text.as_ptr(), text.len());
        place as u64
    }
}

/// The text of a handle; empty for what is none of ours.
fn registered(handle: u64) -> &'static [u8] {
    let first = TEXTS.bytes.get() as u64;
    match handle.checked_sub(first) {
        // SAFETY: a terminated text lies at each handle that was given out, and the program was told of it after it was whole.
        Some(0..) if handle < first + ROOM as u64 => unsafe { label(handle as *const c_char) },
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(message_type: i32, message: u64) -> Attributes {
        let size = size_of::<Attributes>() as u16;
        Attributes {
            version: 3,
            size,
            category: 0,
            color: [0; 2],
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type,
            message,
        }
    }

    fn said(attributes: &Attributes) -> String {
        let mut room = [0; MAX_TEXT_BYTES];
        // SAFETY: whole, with terminated texts.
        String::from_utf8_lossy(unsafe { message_of(attributes, &mut room) }).into_owned()
    }

    #[test]
    fn messages_of_all_sorts() {
        let wide = ['s', 't', 'ä', '\0'].map(|letter| letter as u32);
        assert_eq!(said(&attributes(ASCII, c"step".as_ptr() as u64)), "step");
        assert_eq!(said(&attributes(UNICODE, wide.as_ptr() as u64)), "stä");
        assert_eq!(said(&attributes(REGISTERED, register(b"registered"))), "registered");
        for nothing in [attributes(0, 1), attributes(ASCII, 0), attributes(UNICODE, 0), attributes(REGISTERED, 8)] {
            assert_eq!(said(&nothing), "");
        }
        let old = Attributes { size: 40, ..attributes(ASCII, 1) };
        assert_eq!(said(&old), "", "a structure without a message");
    }

    #[test]
    fn long_texts_are_cut() {
        let wide = [vec!['ä' as u32; 5000], vec![0]].concat();
        assert_eq!(said(&attributes(UNICODE, wide.as_ptr() as u64)).len(), MAX_TEXT_BYTES);
        assert_eq!(said(&attributes(REGISTERED, register(&[b'x'; 1000]))).len(), MAX_BYTES);
    }
}
