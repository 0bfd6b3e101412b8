//! Reads words of a stack that may not be where it seems to be.
//!
//! A thread's own stack is proven to be readable once, from its lowest frame up to where it begins, and read directly from
//! then on: it stays as long as the thread. It is known to be the thread's own because its beginning is (the thread pointer
//! lies right above it, or the C library tells of the first thread's), and because no page between that and the frame is
//! protected, as the guard below each stack is. Any other stack (a fiber's, a signal handler's) may go away at any moment:
//! the kernel copies what is read there.

use std::arch::asm;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::program_memory;
use crate::base::thread::ThreadState;
use crate::link;

const PAGE: u64 = 4096;
/// A stack that is larger is not proven.
const MAX_STACK_BYTES: u64 = 256 << 20;
/// Stretch of addresses in which no second try is made once a proof has failed.
const REFUSED_BYTES: u64 = 1 << 20;

/// Where the first thread's stack begins, 0: not known.
static FIRST_STACK_END: AtomicUsize = AtomicUsize::new(0);

/// Asks the loader where the first thread's stack begins. Called before the program runs.
pub(super) fn prepare() {
    let place = link::next::after_us(c"__libc_stack_end").cast::<usize>();
    if !place.is_null() {
        // SAFETY: a variable of the loader's, set before any code of the program runs.
        FIRST_STACK_END.store(unsafe { *place }, Ordering::Relaxed);
    }
}

fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the x86-64 ABI keeps the thread pointer at its own first word.
    unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags)) };
    pointer
}

/// Addresses of the thread's own stack that are proven, around `sp`; empty where `sp` is not on it.
#[inline(always)]
pub(super) fn own(state: &ThreadState, sp: u64) -> (u64, u64) {
    let (low, high) = (state.stack_low.get(), state.stack_high.get());
    if (low..high).contains(&sp) {
        return (low, high);
    }
    prove(state, sp)
}

#[cold]
#[inline(never)]
fn prove(state: &ThreadState, sp: u64) -> (u64, u64) {
    const NONE: (u64, u64) = (0, 0);
    if sp / REFUSED_BYTES == state.stack_refused.get() {
        return NONE;
    }
    let low = sp & !(PAGE - 1);
    let high = [thread_pointer(), FIRST_STACK_END.load(Ordering::Relaxed) as u64].into_iter().find(|high| sp < *high);
    let Some(high) = high.map(|high| high & !7).filter(|high| high - low <= MAX_STACK_BYTES) else { return NONE };
    // What lies above is proven already, where it is the same stack.
    let is_known = state.stack_high.get() == high && low < state.stack_low.get();
    let end = if is_known { state.stack_low.get() } else { high };
    if !program_memory::are_readable(low, end) {
        state.stack_refused.set(sp / REFUSED_BYTES);
        return NONE;
    }
    // A handler in between these two may see a stretch that is not one: so the end goes first, and nothing lies in what is left.
    state.stack_high.set(0);
    state.stack_low.set(low);
    state.stack_high.set(high);
    (low, high)
}

/// Bytes that are copied at once from a stack that is not the thread's own.
const WINDOW_BYTES: usize = 512;

/// Reads words for one stack.
pub(super) struct Reader {
    own: (u64, u64),
    window_at: u64,
    window_bytes: usize,
    /// Its first `window_bytes` count.
    window: MaybeUninit<[u8; WINDOW_BYTES]>,
}

impl Reader {
    /// A reader for a thread whose own stack is this.
    pub(super) fn new(own: (u64, u64)) -> Reader {
        Reader { own, window_at: 0, window_bytes: 0, window: MaybeUninit::uninit() }
    }

    /// The word at an address, `None` where nothing can be read; words lie at multiples of eight.
    #[inline(always)]
    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        if address & 7 != 0 {
            return None;
        }
        if address >= self.own.0 && address < self.own.1 {
            // SAFETY: proven to be readable, for as long as this thread lives; its end is a multiple of eight.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        self.copied(address)
    }

    #[cold]
    #[inline(never)]
    fn copied(&mut self, address: u64) -> Option<u64> {
        let at = address.wrapping_sub(self.window_at) as usize;
        if at >= self.window_bytes {
            let in_page = (PAGE - address % PAGE) as usize;
            let window = self.window.write([0; WINDOW_BYTES]);
            let length = WINDOW_BYTES.min(in_page);
            let is_there = program_memory::read(address, &mut window[..length]);
            (self.window_at, self.window_bytes) = (address, if is_there { length } else { 0 });
            return window.first_chunk().filter(|_| is_there).map(|word| u64::from_le_bytes(*word));
        }
        // SAFETY: written before any byte of it counted.
        let window = unsafe { self.window.assume_init_ref() };
        window[..self.window_bytes].get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}
