//! Hooks on `dlsym` and `dlvsym`: programs that take a vendor's functions by name get ours.
//!
//! For all other names the hook is a jump: `dlsym(RTLD_NEXT, ...)` looks at who called it, so an ordinary call from here
//! would make every other preloaded library find itself or us in place of what it wants.

use std::ffi::{CStr, c_char, c_void};

use super::slots;
use crate::base::{config, guard};
use crate::link::{self, names, next, objects};
use crate::table::{self, Library};

/// What the stubs do: 1 in `handled` means that `value` is the answer.
#[repr(C)]
struct Answer {
    value: *const (),
    handled: u64,
}

const NOT_OURS: Answer = Answer { value: std::ptr::null(), handled: 0 };

/// First letters of the names that we may have: c, h, i, m and r, as bits from `c` on. The stub looks for an underscore itself.
const FIRST_LETTERS: u32 = 1 | 1 << (b'h' - b'c') | 1 << (b'i' - b'c') | 1 << (b'm' - b'c') | 1 << (b'r' - b'c');

/// A stub: the handle comes in rdi, the name in rsi, the version (if any) in rdx. All stay as they are for the jump.
macro_rules! look_up_hook {
    ($name:ident, $next:path, $find:path, $version:literal) => {
        /// # Safety
        /// As the C library's function of this name.
        #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "test rsi, rsi",
                "jz 3f",
                "movzx eax, byte ptr [rsi]",
                "cmp eax, 95",
                "je 5f",
                "sub eax, 99",
                "cmp eax, 15",
                "ja 3f",
                "mov r11d, {letters}",
                "bt r11d, eax",
                "jnc 3f",
                "6:",
                "push rdi",
                "push rsi",
                "push rdx",
                $version,
                "mov rdx, [rsp + 24]",
                "call {ours}",
                "test edx, edx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jz 3f",
                "ret",
                // An underscore: `__cuda...`, or a name of C++.
                "5:",
                "movzx eax, byte ptr [rsi + 1]",
                "cmp eax, 95",
                "je 6b",
                "cmp eax, 90",
                "je 6b",
                "3:",
                "mov r11, qword ptr [rip + {next}]",
                "test r11, r11",
                "jz 4f",
                "jmp r11",
                "4:",
                "push rdi",
                "push rsi",
                "push rdx",
                "call {find}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                letters = const FIRST_LETTERS,
                ours = sym ours,
                next = sym $next,
                find = sym $find,
            )
        }

        #[cfg(test)]
        const _: unsafe extern "C" fn() = $name;
    };
}

look_up_hook!(dlsym, next::DLSYM, next::find_dlsym, "xor ecx, ecx");
look_up_hook!(dlvsym, next::DLVSYM, next::find_dlvsym, "mov rcx, rdx");

/// Decides about one look-up of a name that begins like one of ours.
unsafe extern "C" fn ours(handle: *mut c_void, name: *const c_char, caller: usize, version: *const c_char) -> Answer {
    // SAFETY: the program's own name; the stub has tested it for null.
    let Some(hook) = (unsafe { Hook::of(name) }) else { return NOT_OURS };
    let decide = match handle == libc::RTLD_NEXT {
        true => answer_next,
        false => answer,
    };
    guard::cold(NOT_OURS, || guard::without_signals(|| decide(handle, name, caller, version, hook)))
}

/// A function of ours by that name.
#[derive(Clone, Copy)]
enum Hook {
    /// One of a vendor's, by its row.
    Row(u16),
    /// `ioctl`: there is only one.
    Ioctl,
}

impl Hook {
    /// # Safety
    /// `name` is a terminated text.
    unsafe fn of(name: *const c_char) -> Option<Hook> {
        // SAFETY: promised by the caller.
        match unsafe { names::find(name) } {
            Some(api) if table::row(api).has_hook => Some(Hook::Row(api)),
            Some(_) => None,
            // SAFETY: as above.
            None if unsafe { CStr::from_ptr(name) } == c"ioctl" => Some(Hook::Ioctl),
            None => None,
        }
    }
}

/// Who asks for what lies behind itself gets that by the jump: only the C library can tell who that is. But where nobody has
/// the name without us, the program, which comes before us, must not find ours.
fn answer_next(_: *mut c_void, name: *const c_char, caller: usize, version: *const c_char, hook: Hook) -> Answer {
    let Hook::Row(api) = hook else { return NOT_OURS };
    if config::get().disabled {
        return NOT_OURS;
    }
    // SAFETY: a terminated name.
    let there = || is_there(api, unsafe { CStr::from_ptr(name) }, caller);
    match (version.is_null(), is_empty(version)) {
        (_, true) => Answer { value: behind_us(name, version), handled: 1 },
        // Ours has no version, so the C library does not take it for one that has.
        (false, _) => NOT_OURS,
        (true, _) if there() => NOT_OURS,
        (true, _) => Answer { value: fail(name), handled: 1 },
    }
}

/// A version that is a text without letters. The C library compares it with that of our functions, which have none, and a
/// null pointer stands for none: it would not come back.
fn is_empty(version: *const c_char) -> bool {
    // SAFETY: null, or the program's terminated text.
    !version.is_null() && unsafe { *version } == 0
}

fn answer(handle: *mut c_void, name: *const c_char, caller: usize, version: *const c_char, hook: Hook) -> Answer {
    if config::get().disabled {
        return NOT_OURS;
    }
    if is_empty(version) {
        return Answer { value: behind_us(name, version), handled: 1 };
    }
    let found = look_up(handle, name, version);
    let is_global = objects::is_ours(found as usize);
    let value = match hook {
        _ if found.is_null() => found,
        Hook::Ioctl if is_global => found,
        Hook::Ioctl => ioctl_hook().unwrap_or(found),
        // The global scope, where our own name comes first: it stands for a real function, or for nothing.
        // SAFETY: a terminated name.
        Hook::Row(api) if is_global => match is_there(api, unsafe { CStr::from_ptr(name) }, caller) {
            true => found,
            false => fail(name),
        },
        Hook::Row(api) => hook_for(api, found),
    };
    Answer { value, handled: 1 }
}

fn look_up(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *const () {
    // SAFETY: the program's own arguments. The caller does not matter: RTLD_NEXT does not come here, and RTLD_DEFAULT
    // finds our own name, which `is_there` then judges with the program's caller.
    unsafe {
        match version.is_null() {
            true => next::dlsym(handle, name).cast_const().cast(),
            false => next::dlvsym(handle, name, version).cast_const().cast(),
        }
    }
}

/// Whether the program would have found such a function without us.
fn is_there(api: u16, name: &CStr, caller: usize) -> bool {
    let library = table::row(api).library;
    let there = library != Library::Kernel && link::find_in_scope(name, caller).is_some();
    // The look-ups left a message that the program could take for its own.
    // SAFETY: reads and clears the thread's message.
    unsafe { libc::dlerror() };
    there
}

/// A look-up in what lies behind us.
fn behind_us(name: *const c_char, version: *const c_char) -> *const () {
    // SAFETY: the program's name and version.
    unsafe { next::dlvsym(libc::RTLD_NEXT, name, version).cast_const().cast() }
}

/// A look-up that fails as the program's would have, with a message for `dlerror`.
fn fail(name: *const c_char) -> *const () {
    // SAFETY: the program's name. Nobody behind us has it, as was just seen.
    unsafe { next::dlsym(libc::RTLD_NEXT, name).cast_const().cast() }
}

/// The pointer that stands for a real function which was found under the name of row `api`.
pub(crate) fn hook_for(api: u16, real: *const ()) -> *const () {
    if objects::is_ours(real as usize) {
        return real;
    }
    let row = table::row(api);
    let entry: *const () = next::global(row.name_c).cast_const().cast();
    if entry.is_null() {
        return real;
    }
    // What everybody in the global scope calls keeps one address: that of the hook.
    if next::after_us(row.name_c).cast_const().cast() == real {
        return entry;
    }
    // SAFETY: reads and clears the thread's message.
    unsafe { libc::dlerror() };
    if row.library.is_gpu_runtime()
        && !objects::is_runtime_code(real as usize)
        && let Some(object) = objects::object_of(real as usize)
    {
        objects::add_runtime_code(&object);
    }
    slots::hand_out(api, entry, real).unwrap_or(real)
}

/// Our hook on `ioctl`, if it is one.
fn ioctl_hook() -> Option<*const ()> {
    let hook = libc::ioctl as *const ();
    objects::is_ours(hook as usize).then_some(hook)
}
