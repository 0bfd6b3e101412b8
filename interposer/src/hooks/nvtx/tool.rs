//! Whether another tool than the recorder would get the program's ranges.

use std::ffi::{CStr, CString, c_char};

use crate::link::next;

/// A tool that is linked into the program (`nvtxInit.h`, `NVTX_SUPPORT_STATIC_INJECTION_LIBRARY`).
const LINKED_IN: &CStr = c"InitializeInjectionNvtx2_fnptr";
/// The file by which a tool asks NVTX to take it from the CUDA driver (`nvtxInit.h`, load sequence 3), and the folders that have it.
const FILE: &str = "nvidia/nvtx/nvtx-cuda.yaml";
const OF_ALL: &CStr = c"/run/nvidia/nvtx/nvtx-cuda.yaml";
const OF_ROOT: &CStr = c"/run/nvidia/nvtx/user.0/nvtx-cuda.yaml";

/// Whether one is linked in, or waits in the driver. One that the variable names is the caller's to see.
pub(super) fn is_there() -> bool {
    is_linked_in() || is_file(OF_ALL) || is_file(OF_ROOT) || of_user().is_some_and(|path| is_file(&path))
}

fn is_linked_in() -> bool {
    let pointer: *const *const () = next::global(LINKED_IN).cast_const().cast();
    if pointer.is_null() {
        // The look-up left a message that the program could take for its own.
        // SAFETY: reads and clears the thread's message.
        unsafe { libc::dlerror() };
        return false;
    }
    // SAFETY: a variable of this name is a pointer to a function.
    unsafe { !(*pointer).is_null() }
}

fn of_user() -> Option<CString> {
    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *const c_char;
    }
    // SAFETY: a terminated name; what is found is terminated.
    let directory = unsafe {
        let value = secure_getenv(c"XDG_RUNTIME_DIR".as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))?
    };
    let path = format!("{}/{FILE}", directory.to_str().ok()?);
    CString::new(path).ok()
}

fn is_file(path: &CStr) -> bool {
    // SAFETY: a terminated path.
    unsafe { libc::access(path.as_ptr(), libc::F_OK) == 0 }
}
