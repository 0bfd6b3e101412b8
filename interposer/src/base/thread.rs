//! What the recorder keeps per thread, in initial-exec thread-local storage.
//!
//! A lazily allocated thread-local would call `malloc` inside a hook, and a hook may run inside `malloc`. Stable Rust can't
//! ask for the initial-exec model, so the block is laid out in assembly. The library is loaded at program start, where
//! the static block always has room.

use std::arch::{asm, global_asm};
use std::cell::Cell;

use gpuoom_trace::header::InFlight;
use gpuoom_trace::outcome::Watched;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!("libgpuoom.so is written for Linux on x86-64 with glibc; the analyzer builds elsewhere");

/// Failures of one thread that are watched at the same time; the oldest gives way.
pub(crate) const MAX_OPEN_FAILURES: usize = 8;

/// Functions by which a program looks at the last error, see `watch::last_error`.
pub(crate) const LAST_ERROR_ROWS: usize = 5;

/// Functions of a framework under way on one thread that are followed; further ones inside those are not.
pub(crate) const MAX_SCOPES: usize = 8;

/// Bytes of a thread's name, with the zero at its end.
pub(crate) const NAME_BYTES: usize = 16;

/// A function of a framework that is under way, see `hooks::scopes`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    /// Where its return address lies.
    pub(crate) sp: u64,
    /// The return address.
    pub(crate) pc: u64,
    /// Its row.
    pub(crate) api: u16,
}

/// A failure on request that the runtime does not know of, see `faults::last_error`. All zero: none.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Refused {
    /// What the program was told.
    pub(crate) status: i32,
    /// What the runtime knows as its last error instead.
    pub(crate) stand_in: i32,
    /// The runtime that was asked, plus one.
    pub(crate) library: u8,
}

/// One failure that is being watched, with the attempts to make up for it, see `watch::failure`. All zero is a valid, unused one.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenFailure {
    pub(crate) watched: Watched,
    /// What the program's pointer variable holds after the last of these failures.
    pub(crate) pointer: u64,
    /// Where that variable is, 0 where there is none.
    pub(crate) variable: u64,
    /// Sequence number of the last of their records, plus one; 0: not known.
    pub(crate) record: u64,
    /// What a later call wrote to the same address, 0 where none did.
    pub(crate) overwritten_by: u64,
    /// How many failures this stands for.
    pub(crate) count: u32,
    pub(crate) pointer_known: bool,
}

/// One thread's state. All zero at the start of a thread.
///
/// Every field is a cell: a signal handler may run a hook on the same thread between any two instructions, while the hook that it
/// interrupted has a reference of its own. Shared references to cells may be there twice; exclusive ones must not. A cell is read
/// and written whole, so each side sees a value that the other has stored; where more than one field must agree, the hook
/// that interrupts puts back what it found (`depth`, `enclosing`) or decides nothing by it.
#[repr(C, align(64))]
pub(crate) struct ThreadState {
    /// Return address of the hook being entered; the entry stubs write it, so it must stay the first field.
    pub(crate) caller: Cell<usize>,
    /// The real function of a hook that is called through a handed-out pointer; valid with the next field. The stubs of
    /// `link::slots` write both, so they must stay where they are.
    pub(crate) slot_real: Cell<*const ()>,
    /// Row of that hook + 1, 0: none.
    pub(crate) slot_number: Cell<u32>,
    /// Process that the fields below belong to; differs after a fork.
    pub(crate) pid: Cell<u32>,
    /// Stack pointer and rbp at the entry of that hook; the stubs write them, so they must stay where they are.
    pub(crate) entry_sp: Cell<u64>,
    /// See `entry_sp`.
    pub(crate) entry_rbp: Cell<u64>,
    /// Addresses of this thread's own stack that were proven to be readable, see `stack::memory`.
    pub(crate) stack_low: Cell<u64>,
    /// See `stack_low`.
    pub(crate) stack_high: Cell<u64>,
    /// Stretch of addresses in which that proof has failed.
    pub(crate) stack_refused: Cell<u64>,
    /// Kernel thread id.
    pub(crate) thread: Cell<u32>,
    /// Ordinal of the latest call.
    pub(crate) call: Cell<u32>,
    /// Ordinal of the innermost call under way, valid while `depth > 0`.
    pub(crate) enclosing: Cell<u32>,
    /// Recorded calls under way.
    pub(crate) depth: Cell<u32>,
    /// Device that the program chose for this thread.
    pub(crate) device: Cell<u8>,
    /// Set on the recorder's own thread: its calls are forwarded and not recorded, but for what `is_probing` says.
    pub(crate) is_recorders: Cell<bool>,
    /// The recorder probes the runtime on this thread of its own: what that gives back of the program's is recorded.
    pub(crate) is_probing: Cell<bool>,
    /// Set on a thread of the recorder that has a table of descriptors of its own.
    pub(crate) has_own_descriptors: Cell<bool>,
    /// The frames of Python are being read for this thread.
    pub(crate) is_in_python: Cell<bool>,
    /// Entries of `failures` in use.
    pub(crate) open_failures: Cell<u8>,
    /// Requests of this thread that were refused for want of memory.
    pub(crate) refusals: Cell<u32>,
    /// Ordinal of the latest call that was refused inside another one, 0: none.
    pub(crate) refused_inside: Cell<u32>,
    /// Lines of a log that were kept since the last failure.
    pub(crate) lines_said: Cell<u8>,
    /// Current CUDA context: its place among the remembered ones + 1, 0: not known.
    pub(crate) context: Cell<u8>,
    /// The current context may be another than the file says.
    pub(crate) context_changed: Cell<bool>,
    /// Devices of the contexts below the current one, a byte each, the nearest in the lowest.
    pub(crate) devices_below: Cell<u64>,
    /// The same of the contexts' places.
    pub(crate) contexts_below: Cell<u64>,
    /// The context that the file says this thread's allocations belong to; [`NOTHING_SAID`] before it says anything.
    pub(crate) context_said: Cell<u64>,
    /// Stack address of the outermost call under way.
    pub(crate) outermost_stack: Cell<usize>,
    /// This thread's entry in the table of calls under way.
    pub(crate) in_flight: Cell<*mut InFlight>,
    /// A failure on request that the runtime does not know of, see `faults::last_error`.
    pub(crate) refused: Cell<Refused>,
    /// The real function of a query that is answered in the runtime's place; valid from the stub's jump to the answer's
    /// first instructions.
    pub(crate) answered_real: Cell<*const ()>,
    /// What a look at the last error goes to, by its row; valid from the stub's jump to the first instructions of what stands for it.
    pub(crate) last_error: Cell<[*const (); LAST_ERROR_ROWS]>,
    /// Functions of a framework under way, outermost first, see `hooks::scopes`.
    pub(crate) scopes: Cell<[Scope; MAX_SCOPES]>,
    /// How many of them count.
    pub(crate) scope_count: Cell<u8>,
    /// They may be others than the file says.
    pub(crate) scopes_changed: Cell<bool>,
    /// Allocations in the innermost function that makes a buffer.
    pub(crate) allocations: Cell<u32>,
    /// What the first of them gave.
    pub(crate) memory: Cell<u64>,
    /// The functions that the file says this thread is in, a byte each; [`NOTHING_SAID`] before it says anything.
    pub(crate) scopes_said: Cell<u64>,
    /// What the file says that this thread is called; all zero before it says anything.
    pub(crate) name_said: Cell<[u8; NAME_BYTES]>,
    /// Failed allocations whose outcome is not decided.
    pub(crate) failures: Cell<[OpenFailure; MAX_OPEN_FAILURES]>,
}

/// Nothing was said yet about a thread's context or functions: what the file says may be of another thread that had its number.
pub(crate) const NOTHING_SAID: u64 = u64::MAX;

const _: () = {
    assert!(std::mem::size_of::<ThreadState>() <= 1408);
    assert!(std::mem::offset_of!(ThreadState, caller) == 0);
    assert!(std::mem::offset_of!(ThreadState, slot_real) == 8);
    assert!(std::mem::offset_of!(ThreadState, slot_number) == 16);
    assert!(std::mem::offset_of!(ThreadState, entry_sp) == 24);
    assert!(std::mem::offset_of!(ThreadState, entry_rbp) == 32);
};

global_asm!(
    ".pushsection .tbss.gpuoom_thread,\"awT\",@nobits",
    ".balign 64",
    ".globl gpuoom_thread",
    ".hidden gpuoom_thread",
    ".type gpuoom_thread,@object",
    ".size gpuoom_thread,1408",
    "gpuoom_thread:",
    ".zero 1408",
    ".popsection",
);

/// The calling thread's state.
#[inline(always)]
pub(crate) fn current() -> &'static ThreadState {
    let state: *const ThreadState;
    // SAFETY: the initial-exec sequence of the x86-64 ABI: thread pointer plus the offset that the loader put into the
    // global offset table. It reads two words and changes nothing but flags.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
            out(reg) state,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: the block is there, aligned and zeroed, as long as its thread; all zero is a valid value of each field. Cells can't
    // be shared between threads, so the reference never leaves this one, whatever its lifetime says. Nobody makes an
    // exclusive reference; the stubs write their fields before any code that reads them is entered.
    unsafe { &*state }
}

/// Kernel id of the calling thread, by system call.
pub(crate) fn kernel_thread_id() -> u32 {
    // SAFETY: takes no pointers and can't fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}
