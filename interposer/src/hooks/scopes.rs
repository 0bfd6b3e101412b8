//! Inside which functions of a framework a thread asks for memory.
//!
//! A function notes on its thread that it is under way, and nothing more. Only where the thread then asks for memory does the file
//! say so, before the record of that call; so a function that asks for none costs no record, however often it is called.
//!
//! A note has no destructor, because a `longjmp` may pass over it. So who looks at the notes tests each: the function is under way as
//! long as its return address still lies where it lay.

use std::sync::atomic::{AtomicBool, Ordering};

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record};

use super::around::real_of;
use super::ggml;
use crate::base::thread::{self, MAX_SCOPES, NOTHING_SAID, Scope, ThreadState};
use crate::base::{config, guard, program_memory};
use crate::call::Frame;
use crate::table;

/// Bytes of arguments on the stack that are handed on. llama.cpp's largest structure of parameters had some 200 by 2026.
const PASSED_BYTES: usize = 1024;
const PAGE_BYTES: usize = 4096;

/// Whether any such function was entered in this process.
static ANY: AtomicBool = AtomicBool::new(false);

/// What lies on the stack behind the return address.
#[repr(C)]
#[derive(Clone, Copy)]
struct Passed([u64; PASSED_BYTES / 8]);

/// A buffer, with the memory that the runtime gave while it was made.
pub(super) struct Made {
    /// ggml's handle.
    pub(super) buffer: u64,
    /// Its size, as ggml asked for it.
    pub(super) size_bytes: u64,
    /// The first address of the first allocation.
    pub(super) memory: u64,
    /// How many allocations there were.
    pub(super) allocations: u32,
}

/// What a function finds when it is entered, and what is so again when it is left.
#[derive(Clone, Copy)]
struct Entered {
    state: &'static ThreadState,
    caller: usize,
    sp: u64,
    rbp: u64,
    outer: u8,
}

impl Entered {
    /// Notes that the function whose stub was just passed is under way.
    fn new(api: u16) -> Self {
        let state = thread::current();
        let (caller, sp, rbp) = (state.caller.get(), state.entry_sp.get(), state.entry_rbp.get());
        let entered = Entered { state, caller, sp, rbp, outer: state.scope_count.get() };
        if config::get().framework && !state.is_recorders.get() {
            let mut scopes = state.scopes.get();
            if let Some(place) = scopes.get_mut(usize::from(entered.outer)) {
                *place = Scope { sp, pc: caller as u64, api };
                state.scopes.set(scopes);
                state.scope_count.set(entered.outer + 1);
                state.scopes_changed.set(true);
                // Relaxed: whoever has to know it is told on this thread.
                ANY.store(true, Ordering::Relaxed);
            }
        }
        entered
    }

    /// The function returns.
    fn leave(&self) {
        if self.state.scope_count.get() != self.outer {
            self.state.scope_count.set(self.outer);
            self.state.scopes_changed.set(true);
        }
    }

    /// Where the call came from, for a record that is made now: what was called since has left its own place there.
    fn restore(&self) {
        self.state.caller.set(self.caller);
        self.state.entry_sp.set(self.sp);
        self.state.entry_rbp.set(self.rbp);
    }
}

/// A function whose arguments are all in registers.
///
/// # Safety
/// Entered by the stub of this row, with the caller's arguments.
pub(super) unsafe fn in_registers(api: u16, [a, b, c, d, e, f]: [u64; 6]) -> u64 {
    let entered = Entered::new(api);
    let real = real_of(api);
    // SAFETY: a function with up to six integers or pointers as arguments, which are the program's own.
    let answer = unsafe {
        std::mem::transmute::<*const (), unsafe extern "C-unwind" fn(u64, u64, u64, u64, u64, u64) -> u64>(real)(
            a, b, c, d, e, f,
        )
    };
    entered.leave();
    answer
}

/// A function that is handed a structure by value.
///
/// # Safety
/// Entered by the stub of this row, with the caller's arguments.
pub(super) unsafe fn on_stack(api: u16, [a, b, c, d, e, f]: [u64; 6]) -> u64 {
    let entered = Entered::new(api);
    let real = real_of(api);
    // SAFETY: the stub has put down where the return address lies; the caller's arguments are right above it.
    let passed = unsafe { passed(entered.sp + 8) };
    // SAFETY: a function with up to six integers or pointers in registers and no more than so much on the stack; what lies behind that
    // it does not look at.
    let answer = unsafe {
        std::mem::transmute::<*const (), unsafe extern "C-unwind" fn(u64, u64, u64, u64, u64, u64, Passed) -> u64>(real)(
            a, b, c, d, e, f, passed,
        )
    };
    entered.leave();
    answer
}

/// A copy of what lies on the stack from here on, up to where a stack may end.
///
/// # Safety
/// Arguments of a call under way begin here.
unsafe fn passed(address: u64) -> Passed {
    let mut passed = Passed([0; PASSED_BYTES / 8]);
    let in_page = PAGE_BYTES - address as usize % PAGE_BYTES;
    // The next page may be none of the stack's; then no argument lies there.
    let has_more = in_page < PASSED_BYTES && program_memory::word(address + in_page as u64).is_some();
    let length = if has_more { PASSED_BYTES } else { in_page.min(PASSED_BYTES) };
    // SAFETY: the page of the first argument is there, and so is the next where more is read.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, passed.0.as_mut_ptr().cast(), length) };
    passed
}

/// The function that makes a buffer: of a type, with so many bytes.
///
/// # Safety
/// Entered by the stub of this row, with the caller's arguments.
pub(super) unsafe fn buffer(api: u16, [kind, size_bytes, ..]: [u64; 6]) -> u64 {
    let entered = Entered::new(api);
    let real = real_of(api);
    // Buffers may be made of others; what was given for one of those is that one's.
    let outer = (entered.state.memory.replace(0), entered.state.allocations.replace(0));
    // SAFETY: the function's own signature (`ggml-backend.h`), and the program's own arguments.
    let buffer = unsafe {
        std::mem::transmute::<*const (), unsafe extern "C-unwind" fn(u64, u64) -> u64>(real)(kind, size_bytes)
    };
    let (memory, allocations) = (entered.state.memory.replace(outer.0), entered.state.allocations.replace(outer.1));
    entered.leave();
    if buffer != 0 && allocations > 0 {
        entered.restore();
        guard::cold((), || ggml::made(api, &Made { buffer, size_bytes, memory, allocations }));
    }
    buffer
}

/// Before the record of a call that asked for memory: says inside which functions that was, if the file does not know. `given`: the
/// address of what was given, 0: nothing.
#[inline(always)]
pub(super) fn asked(frame: &Frame, given: u64) {
    let state = thread::current();
    if state.scopes_changed.get() || state.scope_count.get() != 0 {
        note(frame, state, given);
    }
}

#[cold]
#[inline(never)]
fn note(frame: &Frame, state: &ThreadState, given: u64) {
    if !frame.is_programs_own() {
        return;
    }
    drop_abandoned(frame, state);
    if given != 0 && state.scope_count.get() != 0 {
        if state.allocations.get() == 0 {
            state.memory.set(given);
        }
        state.allocations.set(state.allocations.get().saturating_add(1));
    }
    if state.scopes_changed.get() {
        say(frame, state);
    }
}

/// Forgets functions that were left without a return.
fn drop_abandoned(frame: &Frame, state: &ThreadState) {
    let count = usize::from(state.scope_count.get());
    let scopes = state.scopes.get();
    let is_there = |scope: &Scope| scope.sp > frame.entry_sp() && program_memory::word(scope.sp) == Some(scope.pc);
    let left = scopes[..count.min(MAX_SCOPES)].iter().take_while(|scope| is_there(scope)).count();
    if left != count {
        state.scope_count.set(left as u8);
        state.scopes_changed.set(true);
    }
}

/// Says in the file inside which functions the thread's calls are from now on, if they are others than before.
fn say(frame: &Frame, state: &ThreadState) {
    let scopes = state.scopes.get();
    let inside = &scopes[..usize::from(state.scope_count.get()).min(MAX_SCOPES)];
    // A byte for each, counted from the first row of ggml's table.
    let word = inside.iter().fold(0u64, |word, scope| word << 8 | u64::from(scope.api - table::GGML as u16 + 1));
    let said = state.scopes_said.get();
    let is_news = said != word && (word != 0 || said != NOTHING_SAID || ANY.load(Ordering::Relaxed));
    if is_news {
        let record =
            Record { at: frame.began_at(), thread: state.thread.get(), ..Record::new(Event::Scope, Kind::None) };
        let rows: [u64; MAX_SCOPES] = std::array::from_fn(|place| u64::from(scopes[place].api));
        let mut out = [0; MAX_PAYLOAD_BYTES];
        // Where it is lost, the next call tries again.
        if frame.recorder().publish_long(&record, payload::numbers(&rows[..inside.len()], &mut out)).is_none() {
            return;
        }
        state.scopes_said.set(word);
    }
    state.scopes_changed.set(false);
}
