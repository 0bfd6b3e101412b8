//! Stacks that were seen before.
//!
//! A stack is made from a return address, a stack pointer, maybe rbp, and the words of the stack that were read on the way.
//! If all of these are the same again, so is the stack, for as long as nothing was unloaded. So the way is not gone again:
//! the words are compared, each at its place, which the processor does without waiting for one after the other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use super::memory::Reader;
use super::unload;
use super::walk::{Entry, MAX_WORDS, Walk};

/// Sets of stacks; one set holds those of one call site at one height of the stack. A power of two.
const SETS: usize = 512;
const WAYS: usize = 4;
/// Words of a stack that is remembered; deeper ones are walked each time.
const WORDS: usize = MAX_WORDS;

/// A stack. `version` is odd while it is written, and 0 as long as it never was: a writer that is interrupted, even for
/// good, leaves an entry that nobody believes.
struct Entries {
    version: AtomicU64,
    pc: AtomicU64,
    sp: AtomicU64,
    /// rbp, where the stack depends on it.
    rbp: AtomicU64,
    needs_rbp: AtomicU64,
    unloads: AtomicU64,
    key: AtomicU64,
    count: AtomicU64,
    places: [AtomicU64; WORDS],
    words: [AtomicU64; WORDS],
}

static TABLE: [[Entries; WAYS]; SETS] = [const {
    [const {
        Entries {
            version: AtomicU64::new(0),
            pc: AtomicU64::new(0),
            sp: AtomicU64::new(0),
            rbp: AtomicU64::new(0),
            needs_rbp: AtomicU64::new(0),
            unloads: AtomicU64::new(0),
            key: AtomicU64::new(0),
            count: AtomicU64::new(0),
            places: [const { AtomicU64::new(0) }; WORDS],
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }; WAYS]
}; SETS];
/// Which entry of a full set gives way next.
static NEXT: AtomicUsize = AtomicUsize::new(0);

fn set(entry: &Entry) -> &'static [Entries; WAYS] {
    let mixed = (entry.pc ^ entry.sp.rotate_left(20)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &TABLE[(mixed >> 55) as usize]
}

/// The key of the stack at this call, if it was seen before.
#[inline(always)]
pub(super) fn find(entry: &Entry, reader: &mut Reader) -> Option<u64> {
    set(entry).iter().find_map(|known| known.matches(entry, reader))
}

impl Entries {
    #[inline(always)]
    fn matches(&self, entry: &Entry, reader: &mut Reader) -> Option<u64> {
        // Acquire: what is read below was written before this version.
        let version = self.version.load(Ordering::Acquire);
        let is_of_call = self.sp.load(Ordering::Relaxed) == entry.sp && self.pc.load(Ordering::Relaxed) == entry.pc;
        if version == 0 || version & 1 != 0 || !is_of_call || self.unloads.load(Ordering::Relaxed) != unload::count() {
            return None;
        }
        if self.needs_rbp.load(Ordering::Relaxed) != 0 && self.rbp.load(Ordering::Relaxed) != entry.rbp {
            return None;
        }
        let count = (self.count.load(Ordering::Relaxed) as usize).min(WORDS);
        let known = self.places[..count].iter().zip(&self.words[..count]);
        for (place, word) in known {
            if reader.word(place.load(Ordering::Relaxed))? != word.load(Ordering::Relaxed) {
                return None;
            }
        }
        let key = self.key.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(key)
    }

    fn write(&self, version: u64, entry: &Entry, walk: &Walk, key: u64) -> bool {
        if self.version.compare_exchange(version, version | 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        fence(Ordering::Release);
        for (place, value) in [
            (&self.pc, entry.pc),
            (&self.sp, entry.sp),
            (&self.rbp, entry.rbp),
            (&self.needs_rbp, u64::from(walk.needs_rbp)),
            (&self.unloads, unload::count()),
            (&self.key, key),
            (&self.count, walk.word_count as u64),
        ] {
            place.store(value, Ordering::Relaxed);
        }
        for index in 0..walk.word_count {
            self.places[index].store(walk.places[index], Ordering::Relaxed);
            self.words[index].store(walk.words[index], Ordering::Relaxed);
        }
        self.version.store((version | 1) + 1, Ordering::Release);
        true
    }
}

/// Keys of stacks that were walked lately: what comes once is not worth an entry.
static LATELY: [AtomicU64; 1 << 10] = [const { AtomicU64::new(0) }; 1 << 10];

/// Whether a stack with this key was walked before, as far as that is known.
pub(super) fn comes_again(key: u64) -> bool {
    let place = &LATELY[(key >> 8) as usize % LATELY.len()];
    place.load(Ordering::Relaxed) == key || {
        place.store(key, Ordering::Relaxed);
        false
    }
}

/// Remembers a stack.
pub(super) fn remember(entry: &Entry, walk: &Walk, key: u64) {
    let set = set(entry);
    let version = |of: &Entries| of.version.load(Ordering::Relaxed);
    let is_free = |of: &&Entries| version(of) == 0 || of.unloads.load(Ordering::Relaxed) != unload::count();
    // Relaxed: any of them may give way.
    let chosen = || &set[NEXT.fetch_add(1, Ordering::Relaxed) % WAYS];
    let place = set.iter().find(is_free).unwrap_or_else(chosen);
    let before = version(place);
    if before & 1 == 0 {
        place.write(before, entry, walk, key);
    }
}
