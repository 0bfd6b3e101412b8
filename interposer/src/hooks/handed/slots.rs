//! Hooks for one copy of a library: pointers that we hand out in place of those that a look-up found.
//!
//! A hook that was called by its name asks who called it, to find the copy that the caller would have got. One that was
//! called through a pointer must go where that pointer went. So each such pointer is a stub of its own that carries the
//! real function along.

use std::arch::global_asm;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::table;

/// Pointers that can be handed out. Each is a function of one copy of one library.
const SLOTS: usize = 4096;
/// Bytes of the code of one stub.
const STUB_BYTES: usize = 16;

/// A watched function.
const WATCHED: u32 = 1;
/// One that waits for the device.
const WAITS: u32 = 2;

/// What a stub carries.
#[repr(C, align(32))]
struct Slot {
    real: AtomicPtr<()>,
    /// The hook; for watched functions the way that records.
    entry: AtomicPtr<()>,
    /// Row + 1; 0: not in use.
    number: AtomicU32,
    /// 0: recorded, [`WATCHED`] or [`WAITS`].
    sort: AtomicU32,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        real: AtomicPtr::new(std::ptr::null_mut()),
        entry: AtomicPtr::new(std::ptr::null_mut()),
        number: AtomicU32::new(0),
        sort: AtomicU32::new(0),
    }
}; SLOTS];
/// Slots that were claimed.
static CLAIMED: AtomicUsize = AtomicUsize::new(0);

// The stubs, and what they share. r10, r11 and rax are free at the call of a function with a fixed number of arguments.
// A recorded function: its real one goes into the thread's block, with the row's number last, which makes it valid; the
// hook takes it from there. A watched one: jumps right through, unless something is watched.
global_asm!(
    ".pushsection .text.gpuoom_slots,\"ax\",@progbits",
    ".balign 16",
    ".hidden gpuoom_slot_stubs",
    ".globl gpuoom_slot_stubs",
    "gpuoom_slot_stubs:",
    ".set gpuoom_slot, 0",
    ".rept {slots}",
    ".balign 16",
    "mov r11d, gpuoom_slot",
    "jmp 2f",
    ".set gpuoom_slot, gpuoom_slot + 1",
    ".endr",
    ".balign 16",
    "2:",
    "shl r11, 5",
    "lea r10, [rip + {table}]",
    "add r11, r10",
    "cmp dword ptr [r11 + 20], 0",
    "jne 3f",
    "4:",
    "mov r10, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
    "mov rax, qword ptr [r11]",
    "mov qword ptr fs:[r10 + 8], rax",
    "mov eax, dword ptr [r11 + 16]",
    "mov dword ptr fs:[r10 + 16], eax",
    "jmp qword ptr [r11 + 8]",
    "3:",
    "cmp dword ptr [r11 + 20], {waits_sort}",
    "je 6f",
    "cmp dword ptr [rip + {watching}], 0",
    "jne 5f",
    "jmp qword ptr [r11]",
    "6:",
    "cmp dword ptr [rip + {waits}], 0",
    "jne 5f",
    "jmp qword ptr [r11]",
    "5:",
    // rax counts vector registers where a function is variadic; a watched one may be.
    "push rax",
    "mov r10, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
    "mov rax, qword ptr [r11]",
    "mov qword ptr fs:[r10 + 8], rax",
    "mov eax, dword ptr [r11 + 16]",
    "mov dword ptr fs:[r10 + 16], eax",
    "lea r11d, [rax - 1]",
    "pop rax",
    "jmp {slow}",
    ".popsection",
    slots = const SLOTS,
    table = sym TABLE,
    watching = sym crate::base::watching::WATCHING,
    waits = sym crate::base::watching::WAITS,
    waits_sort = const WAITS,
    slow = sym crate::watch::slow_path,
);

unsafe extern "C" {
    static gpuoom_slot_stubs: [u8; SLOTS * STUB_BYTES];
}

fn stub(index: usize) -> *const () {
    // SAFETY: only the address is taken.
    unsafe { (&raw const gpuoom_slot_stubs).cast::<u8>().add(index * STUB_BYTES).cast() }
}

/// A pointer that calls `entry`, the hook of row `api`, and then `real`; `None` when all are in use. The same for the same
/// `real`.
pub(super) fn hand_out(api: u16, entry: *const (), real: *const ()) -> Option<*const ()> {
    let number = u32::from(api) + 1;
    let used = CLAIMED.load(Ordering::Acquire).min(SLOTS);
    let is_it = |slot: &Slot| {
        slot.number.load(Ordering::Acquire) == number && slot.real.load(Ordering::Relaxed) == real.cast_mut()
    };
    if let Some(known) = TABLE[..used].iter().position(is_it) {
        return Some(stub(known));
    }
    let index = CLAIMED.fetch_add(1, Ordering::AcqRel);
    if index >= SLOTS {
        CLAIMED.store(SLOTS, Ordering::Release);
        return None;
    }
    let (slot, row) = (&TABLE[index], table::row(api));
    slot.real.store(real.cast_mut(), Ordering::Relaxed);
    slot.entry.store(entry.cast_mut(), Ordering::Relaxed);
    let sort = match row.is_tail_called {
        true if row.meaning.does.waits() => WAITS,
        true => WATCHED,
        false => 0,
    };
    slot.sort.store(sort, Ordering::Relaxed);
    // Release: whoever sees the number sees the rest; the program sees the stub only after this.
    slot.number.store(number, Ordering::Release);
    Some(stub(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_one_pointer() {
        assert_eq!(std::mem::size_of::<Slot>(), 32, "the stubs shift by five");
        let (one, other) = (0x1000 as *const (), 0x2000 as *const ());
        let hook = 0x3000 as *const ();
        let first = hand_out(3, hook, one);
        assert!(first.is_some());
        assert_eq!(hand_out(3, hook, one), first);
        assert_ne!(hand_out(3, hook, other), first);
        assert_ne!(hand_out(4, hook, one), first);
    }
}
