//! Call stacks: the way to a call, as native return addresses and as Python frames.
//!
//! Runs on the program's threads inside hooks, so nothing here takes a lock that the program may hold, uses the heap, or
//! reads memory that may not be there. A stack that was seen before costs a comparison ([`memo`]); a new one is walked by
//! the call frame information of the objects it passes through ([`walk`], [`rules`], [`cfi`]).

mod cfi;
mod memo;
mod memory;
mod objects;
mod rule;
mod rules;
mod unload;
mod walk;
mod work;

use crate::record::{Recorder, sites};
use crate::thread::ThreadState;
use crate::{config, guard};

use memory::Reader;
pub(crate) use walk::Entry;
use walk::Walk;
use work::Work;

/// Prepares what can't be looked up inside a hook. Called before the program runs.
pub(crate) fn prepare() {
    if config::get().stacks.native {
        objects::prepare();
        memory::prepare();
    }
}

/// Objects were loaded: called on the recorder's thread.
pub(crate) fn objects_changed() {
    if config::get().stacks.native && objects::is_listed() {
        objects::list_again();
    }
}

/// Keys of stacks have this bit, addresses don't.
const STACK_BIT: u64 = 1 << 63;

fn key_of(walk: &Walk) -> u64 {
    let mut key = u64::from(walk.flags);
    for address in walk.native() {
        key = (key.rotate_left(23) ^ address).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        key ^= key >> 29;
    }
    key | STACK_BIT
}

/// The number of the site of a call that takes something: its return address and the way there.
#[inline(never)]
pub(crate) fn site(recorder: &Recorder, entry: &Entry, state: &mut ThreadState) -> u32 {
    let here = 0u8;
    // The registers must be of this very call: a handler that came in between has left those of its own, further down.
    let distance = entry.sp.wrapping_sub(&raw const here as u64);
    if distance > MAX_OWN_FRAMES_BYTES || !config::get().stacks.native {
        return sites::of(recorder, entry.pc as usize, state.thread);
    }
    let mut reader = Reader::new(memory::own(state, entry.sp));
    if let Some(key) = memo::find(entry, &mut reader)
        && let Some(site) = sites::known(key)
    {
        return site;
    }
    walked(recorder, entry, &mut reader, state.thread)
}

/// What lies between the program's call and this module is smaller than this.
const MAX_OWN_FRAMES_BYTES: u64 = 1 << 16;

#[cold]
#[inline(never)]
fn walked(recorder: &Recorder, entry: &Entry, reader: &mut Reader, thread: u32) -> u32 {
    let in_room = |work: &mut Work| {
        let Work { walk, cfi, payload } = work;
        walk.walk(entry, reader, cfi);
        let key = key_of(walk);
        if walk.is_lasting {
            memo::remember(entry, walk, key);
        }
        let stack = sites::Stack { key, flags: walk.flags, native: walk.native(), python: &[] };
        sites::of_stack(recorder, entry.pc, thread, &stack, payload)
    };
    let site = guard::cold(None, || work::with(in_room));
    site.unwrap_or_else(|| sites::of(recorder, entry.pc as usize, thread))
}

/// A new file begins, maybe in a forked child.
pub(crate) fn forget_parent() {
    work::free_all();
}

#[cfg(test)]
mod tests;
