//! Python stacks that were seen before, recognised without the interpreter.
//!
//! A thread that has released the interpreter stands still in its frames, so their words can be compared like those of a native
//! stack. Two things make that sound:
//!
//! * *The words are there.* The state and the frames belong to this very thread. Only the end of Python could free them under it,
//!   and Python is ended by the thread that began it (`Py_FinalizeEx`), whose state has the number 1. Others look while Python
//!   would tell of its end first, and wait for them ([`super::end`]).
//! * *The words are the right ones.* The first stacks are read so that nothing can fault, and must agree with the C API; each
//!   new stack must. One that does not, and the words are never looked at again.
//!
//! A code object that has a number is kept for good (`codes.rs`), so its address never stands for another one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::api::{self, Api, Object};
use super::end::{self, Looking};
use super::frames::Frames;
use super::reader;
use super::words::{self, Checked, Direct, Layout, Words};
use crate::stack::key::STACK_BIT;

/// Stacks that are remembered; a power of two.
const STACKS: usize = 1 << 15;
/// Places that are tried from the hashed one on.
const TRIES: usize = 8;
/// So many new stacks must agree before the words are read directly.
const ENOUGH: u32 = 4;
/// The words of this Python are not where they should be.
const WRONG: u32 = u32::MAX;
/// The number of the state that Python began with.
const FIRST_STATE: u64 = 1;

/// New stacks that agreed, or [`WRONG`].
static AGREED: AtomicU32 = AtomicU32::new(0);

struct Entry {
    key: AtomicU64,
    site: AtomicU32,
}

/// A key is written once, after its site; both stay until a new file begins.
static TABLE: [Entry; STACKS] = [const { Entry { key: AtomicU64::new(0), site: AtomicU32::new(0) } }; STACKS];
/// An entry whose site is being written.
const TAKEN: u64 = 1;

/// A stack of this thread that can be compared.
pub(in crate::stack) struct Comparable {
    key: u64,
    state: Object,
    is_first: bool,
    layout: &'static Layout,
}

/// The stack of the calling thread, with the key of its native part; `None` where it can't be compared.
#[inline(always)]
pub(in crate::stack) fn comparable(native: u64) -> Option<Comparable> {
    let api = api::get()?;
    let layout = words::layout(api.minor)?;
    // Relaxed: a count. Whoever reads it a little late reads the checked way once more.
    let agreed = AGREED.load(Ordering::Relaxed);
    if agreed == WRONG || !api.is_up() {
        return None;
    }
    let (state, is_first) = own_state(api)?;
    let _looking = looking(is_first)?;
    let key = match agreed {
        ENOUGH.. => layout.key(state, &Direct, native),
        _ if is_first => layout.key(state, &Checked, native),
        _ => reader::charged(|| layout.key(state, &Checked, native)),
    };
    Some(Comparable { key: key? | STACK_BIT, state, is_first, layout })
}

/// What keeps the frames there while they are looked at: nothing is needed for those of the thread that ends Python. `None` where they may go.
#[inline(always)]
fn looking(is_first: bool) -> Option<Option<Looking>> {
    if is_first { Some(None) } else { end::look().map(Some) }
}

/// The calling thread's state in the interpreter that Python began with, and whether it is the thread that began it.
#[inline(always)]
fn own_state(api: &Api) -> Option<(Object, bool)> {
    // SAFETY: may be called at any time.
    let state = unsafe { (api.this_state)() };
    // SAFETY: the state is this thread's own, so it lives; each function reads one word. Each interpreter counts its states.
    unsafe {
        let is_main = !state.is_null() && (api.interpreter)(state) == (api.main_interpreter)();
        is_main.then(|| (state, (api.state_number)(state) == FIRST_STATE))
    }
}

impl Comparable {
    /// The site of the same stack, if it was seen.
    #[inline(always)]
    pub(in crate::stack) fn site(&self) -> Option<u32> {
        // Acquire: whoever sees the key sees the site.
        let is_it = |entry: &&Entry| entry.key.load(Ordering::Acquire) == self.key;
        self.places().find(is_it).map(|entry| entry.site.load(Ordering::Relaxed))
    }

    /// The C API has answered for this stack, and its site is known: from now on it is recognised, if the words agree.
    #[cold]
    #[inline(never)]
    pub(in crate::stack) fn answered(&self, frames: &Frames, site: u32) {
        if site == 0 || !frames.are_all_named() {
            return;
        }
        let Some(_looking) = looking(self.is_first) else { return };
        let Some(words) = Words::read(self.layout, self.state) else { return };
        if !words.agree(frames) {
            AGREED.store(WRONG, Ordering::Relaxed);
            return;
        }
        // A stack without frames agrees with anything. Relaxed: a count, which threads may raise at once; `WRONG` is more than enough.
        if !frames.places().is_empty() {
            let one_more = |agreed| (agreed < ENOUGH).then_some(agreed + 1);
            _ = AGREED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        }
        self.remember(site);
    }

    fn remember(&self, site: u32) {
        let take = |entry: &&Entry| entry.key.compare_exchange(0, TAKEN, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if let Some(entry) = self.places().find(take) {
            entry.site.store(site, Ordering::Relaxed);
            // Release: see `site`.
            entry.key.store(self.key, Ordering::Release);
        }
    }

    #[inline(always)]
    fn places(&self) -> impl Iterator<Item = &'static Entry> {
        let start = (self.key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 49) as usize;
        (0..TRIES).map(move |step| &TABLE[(start + step) % STACKS])
    }
}

/// A new file begins: its sites are others.
pub(super) fn forget() {
    let used = TABLE.iter().filter(|entry| entry.key.load(Ordering::Relaxed) != 0);
    used.for_each(|entry| entry.key.store(0, Ordering::Relaxed));
}
