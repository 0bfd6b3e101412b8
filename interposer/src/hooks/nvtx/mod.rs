//! NVTX: ranges and marks that a program tells NVIDIA's profilers.
//!
//! NVTX is code in each object that uses it. At its first call each copy looks for a tool: a library that the variable
//! `NVTX_INJECTION64_PATH` names, whose `InitializeInjectionNvtx2` puts functions into a table (`nvtxDetail/nvtxInit.h`). So the
//! recorder answers `getenv` for that one name with its own path. The environment stays as it is: no child inherits anything.
//! Where a profiler is there, it is left alone and nothing is recorded here.

mod calls;
mod texts;
mod tool;

use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::base::{config, guard};
use crate::link::{next, objects};

const VARIABLE: &CStr = c"NVTX_INJECTION64_PATH";

/// The next `getenv`; null until the constructor has run. The stub jumps through it.
static GETENV: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Finds the real `getenv`.
pub(crate) fn prepare() {
    GETENV.store(next::after_us(c"getenv").cast(), Ordering::Release);
}

/// A look at four letters, then a jump.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(export_name = "getenv"))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn getenv() {
    std::arch::naked_asm!(
        "test rdi, rdi",
        "jz 3f",
        "cmp byte ptr [rdi], 78",
        "jne 3f",
        "cmp byte ptr [rdi + 1], 86",
        "jne 3f",
        "cmp byte ptr [rdi + 2], 84",
        "jne 3f",
        "cmp byte ptr [rdi + 3], 88",
        "jne 3f",
        "jmp {ours}",
        "3:",
        "mov r11, qword ptr [rip + {real}]",
        "test r11, r11",
        "jz 4f",
        "jmp r11",
        "4:",
        "jmp {walk}",
        ours = sym ours,
        real = sym GETENV,
        walk = sym walk,
    )
}

/// Before the constructor: a look-up might allocate, and the caller may be what allocates. The C library's function does no more.
unsafe extern "C" fn walk(name: *const c_char) -> *mut c_char {
    unsafe extern "C" {
        static environ: *const *mut c_char;
    }
    // SAFETY: the program's terminated name; the environment ends with null, and each text in it is terminated.
    unsafe {
        let length = libc::strlen(name);
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            if libc::strncmp(*entry, name, length) == 0 && *(*entry).add(length) == b'=' as c_char {
                return (*entry).add(length + 1);
            }
            entry = entry.add(1);
        }
    }
    std::ptr::null_mut()
}

/// The variable, and of the one that names a tool the recorder's path if it names none.
unsafe extern "C" fn ours(name: *const c_char) -> *mut c_char {
    let real = GETENV.load(Ordering::Acquire);
    // SAFETY: the C library's function or one that does the same, with the program's name.
    let value = unsafe {
        if real.is_null() {
            walk(name)
        } else {
            std::mem::transmute::<*mut (), unsafe extern "C" fn(*const c_char) -> *mut c_char>(real)(name)
        }
    };
    // SAFETY: a terminated name.
    if !value.is_null() || unsafe { CStr::from_ptr(name) } != VARIABLE {
        return value;
    }
    guard::cold(value, || match config::get().disabled || tool::is_there() {
        true => value,
        false => own_path().map_or(value, |path| path.as_ptr().cast_mut()),
    })
}

/// The path under which the loader knows this library: with it, `dlopen` finds what is loaded and opens nothing.
fn own_path() -> Option<&'static CStr> {
    static PATH: OnceLock<Option<CString>> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let own = objects::object_of(own_path as *const () as usize)?;
        CString::new(own.path).ok().filter(|path| !path.is_empty())
    });
    path.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &CStr) -> Option<String> {
        // SAFETY: a terminated name.
        let value = unsafe { walk(name.as_ptr()) };
        // SAFETY: what is found is terminated.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    #[test]
    fn the_environment_is_walked_like_the_c_library_does() {
        assert_eq!(value(c"PATH"), std::env::var("PATH").ok());
        assert_eq!(value(c"PAT"), None);
        assert_eq!(value(c"PATH="), None);
        assert_eq!(value(c"NO_SUCH_VARIABLE"), None);
    }
}
