//! Numbers for call sites: which place in which library made a call, and the way there.
//!
//! A record has room for a number, not for an address. The first record of a site is preceded by one that says which
//! address and which stack its number stands for, so the table is as safe in the file as the events are.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::payload::{self, PythonFrame};
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record};

use super::replaced;
use crate::record::Recorder;

/// Sites of a process that have numbers: those that come later are recorded without. A power of two.
const SITES: usize = 1 << 17;
/// Places that are tried from the hashed one on.
const TRIES: usize = 8;

/// Return addresses, or keys of stacks, which have their highest bit set; the place in the table is the number, less one.
static TABLE: [AtomicU64; SITES] = [const { AtomicU64::new(0) }; SITES];

/// The number of a call site, and whether it is new; 0 where the table has no room.
#[inline(always)]
fn number(caller: u64) -> (u32, bool) {
    let start = (caller.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 47) as usize;
    // Relaxed: the number alone matters; that its record may come a little later is part of the format.
    if caller != 0 && TABLE[start].load(Ordering::Relaxed) == caller {
        return (start as u32 + 1, false);
    }
    place(caller, start)
}

#[cold]
#[inline(never)]
fn place(caller: u64, start: usize) -> (u32, bool) {
    if caller == 0 {
        return (0, false);
    }
    for index in (0..TRIES).map(|step| (start + step) % SITES) {
        match TABLE[index].compare_exchange(0, caller, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return (index as u32 + 1, true),
            Err(known) if known == caller => return (index as u32 + 1, false),
            Err(_) => {}
        }
    }
    (0, false)
}

/// The number of the site that a call returns to; says in the file what it means if it is new.
#[inline(always)]
pub(crate) fn of(recorder: &Recorder, caller: usize, thread: u32) -> u32 {
    let (site, is_new) = number(replaced::word(caller as u64));
    if is_new {
        introduce(recorder, site, thread, &[caller as u64], &[]);
    }
    site
}

/// The number of a stack that has one.
#[inline(always)]
pub(crate) fn known(key: u64) -> Option<u32> {
    let start = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 47) as usize;
    let is_it = |index: &usize| TABLE[*index].load(Ordering::Relaxed) == key;
    (0..TRIES).map(|step| (start + step) % SITES).find(is_it).map(|index| index as u32 + 1)
}

/// A stack that may be new.
pub(crate) struct Stack<'a> {
    /// Key of the whole.
    pub(crate) key: u64,
    /// Bits of `payload::stack_flag`.
    pub(crate) flags: u8,
    /// Return addresses; the first is that of the call.
    pub(crate) native: &'a [u64],
    /// Python frames.
    pub(crate) python: &'a [PythonFrame],
}

/// The number of a stack; says in the file what it means if it is new. Where the table is full, the return address alone
/// has to do. `out` is room for the stack as the file has it.
pub(crate) fn of_stack(
    recorder: &Recorder,
    caller: u64,
    thread: u32,
    stack: &Stack<'_>,
    out: &mut [u8; MAX_PAYLOAD_BYTES],
) -> u32 {
    let (site, is_new) = number(stack.key);
    if site == 0 {
        return of(recorder, caller as usize, thread);
    }
    if is_new {
        let payload = payload::stack(stack.flags, stack.native, stack.python, out);
        introduce(recorder, site, thread, stack.native, payload);
    }
    site
}

#[cold]
#[inline(never)]
fn introduce(recorder: &Recorder, site: u32, thread: u32, native: &[u64], payload: &[u8]) {
    let address = native.first().copied().unwrap_or(0);
    replaced::say(recorder, thread, native);
    let at = recorder.clock.now();
    let record = Record { at, thread, site, address, ..Record::new(Event::Site, Kind::None) };
    let published =
        if payload.is_empty() { recorder.publish(&record) } else { recorder.publish_long(&record, payload) };
    if published.is_none() {
        // Lost: let the next call from there try again.
        TABLE[site as usize - 1].store(0, Ordering::Relaxed);
    }
}

/// A new file begins: nothing of what an earlier one said counts in it. Pages that were never written stay so.
pub(super) fn forget() {
    let used = TABLE.iter().filter(|entry| entry.load(Ordering::Relaxed) != 0);
    used.for_each(|entry| entry.store(0, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_keeps_its_number_and_is_new_once() {
        let (first, is_new) = number(0x1234_5678);
        assert!(is_new && first != 0);
        assert_eq!(number(0x1234_5678), (first, false));
        assert_ne!(number(0x1234_5679).0, first);
        assert_eq!(number(0), (0, false));
    }
}
