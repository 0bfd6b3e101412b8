//! Call stacks: the way to a call, as native return addresses and as Python frames.
//!
//! Runs on the program's threads inside hooks, so nothing here takes a lock that the program may hold, uses the heap, or
//! reads memory that may not be there. A stack that was seen before costs a comparison ([`memo`]); a new one is walked by
//! the call frame information of the objects it passes through ([`walk`], [`rules`], [`cfi`]).

mod cfi;
mod gone;
mod key;
mod memo;
mod memory;
mod objects;
mod python;
mod replaced;
mod rule;
mod rules;
pub(crate) mod sites;
pub(crate) mod unload;
mod walk;
mod work;

use gpuoom_trace::payload::{PythonFrame, stack_flag};

use crate::base::thread::ThreadState;
use crate::base::{config, guard};
use crate::record::Recorder;

use key::{STACK_BIT, mix};
use memory::Reader;
use python::Frames;
pub(crate) use walk::Entry;
use walk::Walk;
use work::Work;

/// Prepares what can't be looked up inside a hook. Called before the program runs.
pub(crate) fn prepare() {
    objects::prepare();
    if is_wanted() {
        memory::prepare();
    }
    // A failed look-up leaves a message that the program could take for its own.
    // SAFETY: reads and clears the thread's message.
    unsafe { libc::dlerror() };
}

/// A new file begins, maybe in a forked child.
pub(crate) fn begin() {
    sites::forget();
    work::free_all();
    unload::begin();
    replaced::forget();
    if config::get().stacks.python {
        python::forget_parent();
        python::look();
    }
}

/// Objects were loaded: called on the recorder's thread.
pub(crate) fn objects_changed() {
    unload::look();
    if objects::is_listed() {
        objects::list_again();
    }
    if config::get().stacks.python {
        python::look();
    }
}

/// Whether numbers of sites stand for whole stacks.
pub(crate) fn is_wanted() -> bool {
    let wanted = config::get().stacks;
    wanted.native || wanted.python
}

/// A signal handler is on the way.
const SIGNAL_BIT: u64 = 1;
/// Python may run code of the program on the way. Not set where the way is whole and nothing of Python's is on it: then there are
/// no Python frames, and nobody has to be asked.
const PYTHON_BIT: u64 = 2;

/// What lies between the program's call and this module is smaller than this.
const MAX_OWN_FRAMES_BYTES: u64 = 1 << 16;

fn key_of(walk: &Walk) -> u64 {
    let key = walk.native().iter().fold(walk.flags.into(), |key, address| mix(key, replaced::word(*address)));
    let is_whole = walk.flags & (stack_flag::NATIVE_WHOLE | stack_flag::NATIVE_GUESSED) == stack_flag::NATIVE_WHOLE;
    let may_run_python = !is_whole || walk.native().iter().any(|address| python::is_code(*address));
    let bits = [(SIGNAL_BIT, walk.has_signal), (PYTHON_BIT, may_run_python)];
    bits.into_iter().fold(key | STACK_BIT, |key, (bit, is_set)| if is_set { key | bit } else { key & !bit })
}

fn key_with(native: u64, frames: &Frames) -> u64 {
    let word = |frame: &PythonFrame| u64::from(frame.code) | u64::from(frame.line) << 32;
    frames.frames().iter().map(word).fold(mix(native, frames.flags.into()), mix) | STACK_BIT
}

/// The number of the site of a call that takes something: its return address and the way there. `has_failed`: it is worth
/// waiting for.
#[inline(never)]
pub(crate) fn site(recorder: &Recorder, entry: &Entry, state: &'static ThreadState, has_failed: bool) -> u32 {
    let here = 0u8;
    let wanted = config::get().stacks;
    let with_python = wanted.python && python::is_loaded();
    // The registers must be of this very call: a handler that came in between has left those of its own, further down.
    let distance = entry.sp.wrapping_sub(&raw const here as u64);
    if distance > MAX_OWN_FRAMES_BYTES || !wanted.native && !with_python {
        return sites::of(recorder, entry.pc as usize, state.thread.get());
    }
    // A handler that interrupts leaves a proof of the stack that is as good.
    let own = memory::own(state, entry.sp);
    let thread = state.thread.get();
    let mut call = Call { recorder, entry, reader: Reader::new(own), thread, is_remembered: false };
    let native = memo::find(entry, &mut call.reader);
    call.is_remembered = native.is_some();
    if with_python {
        return call.site_with_python(native, wanted.native, state, has_failed);
    }
    native.and_then(sites::known).unwrap_or_else(|| call.walked(true, &Frames::UNKNOWN))
}

/// A call whose site is looked for.
struct Call<'a> {
    recorder: &'a Recorder,
    entry: &'a Entry,
    reader: Reader,
    thread: u32,
    /// The native part is remembered.
    is_remembered: bool,
}

impl Call<'_> {
    #[inline(never)]
    fn site_with_python(
        &mut self,
        known: Option<u64>,
        with_native: bool,
        state: &'static ThreadState,
        has_failed: bool,
    ) -> u32 {
        let key = known.or_else(|| self.in_room(|call, work| call.walk(work)));
        if key.is_some_and(|key| key & PYTHON_BIT == 0) {
            return self.site_of(key, with_native, &Frames::NONE);
        }
        // What a signal has interrupted may be Python's own memory allocator, in the middle of its work.
        let native = key.filter(|key| key & SIGNAL_BIT == 0);
        let key_words = if with_native { native } else { native.map(|_| replaced::word(self.entry.pc)) };
        let comparable = key_words.and_then(python::seen::comparable);
        if let Some(site) = comparable.as_ref().and_then(python::seen::Comparable::site) {
            return site;
        }
        // Some room, which a known stack does without.
        let mut frames = Frames::UNKNOWN;
        if native.is_some() {
            guard::cold((), || python::frames(self.recorder, state, has_failed, &mut frames));
        }
        if frames.flags == 0 && !with_native {
            return sites::of(self.recorder, self.entry.pc as usize, self.thread);
        }
        let site = self.site_of(key, with_native, &frames);
        let key = key.map(|key| whole_key(key, with_native, self.entry, &frames));
        // Without room for the stack the site is less than it.
        if let Some(comparable) = comparable.filter(|_| key.and_then(sites::known) == Some(site)) {
            guard::cold((), || comparable.answered(&frames, site));
        }
        site
    }

    /// The site of a native stack with these frames.
    #[inline(always)]
    fn site_of(&mut self, native: Option<u64>, with_native: bool, frames: &Frames) -> u32 {
        let key = native.map(|key| whole_key(key, with_native, self.entry, frames));
        key.and_then(sites::known).unwrap_or_else(|| self.walked(with_native, frames))
    }

    /// Walks, and introduces the stack if it is new.
    #[cold]
    #[inline(never)]
    fn walked(&mut self, with_native: bool, frames: &Frames) -> u32 {
        let found = self.in_room(|call, work| {
            let key = whole_key(call.walk(work), with_native, call.entry, frames);
            let native = if with_native { work.walk.native() } else { std::slice::from_ref(&call.entry.pc) };
            let flags = if with_native { work.walk.flags } else { 0 } | frames.flags;
            let stack = sites::Stack { key, flags, native, python: frames.frames() };
            sites::of_stack(call.recorder, call.entry.pc, call.thread, &stack, &mut work.payload)
        });
        found.unwrap_or_else(|| sites::of(self.recorder, self.entry.pc as usize, self.thread))
    }

    fn in_room<T>(&mut self, with: impl FnOnce(&mut Self, &mut Work) -> T) -> Option<T> {
        guard::caught(None, || work::with(|work| with(self, work)))
    }

    /// Walks the native stack and answers its key.
    fn walk(&mut self, work: &mut Work) -> u64 {
        work.walk.walk(self.entry, &mut self.reader, &mut work.cfi);
        let key = key_of(&work.walk);
        if work.walk.is_lasting && !self.is_remembered && memo::comes_again(key) {
            memo::remember(self.entry, &work.walk, key);
            self.is_remembered = true;
        }
        key
    }
}

fn whole_key(native: u64, with_native: bool, entry: &Entry, frames: &Frames) -> u64 {
    let native = if with_native { native } else { replaced::word(entry.pc) };
    if frames.flags == 0 { native } else { key_with(native, frames) }
}

#[cfg(test)]
mod tests;
