//! The hook on `dlclose`: what goes must be in the file while it is there.

/// The hook on the C library, where `RTLD_NEXT` always answers.
#[cfg(not(test))]
mod hooks {
    use std::ffi::{c_int, c_void};

    redhook::hook! {
        unsafe fn dlclose(handle: *mut c_void) -> c_int => close_library {
            crate::stack::unload::prepare();
            // SAFETY: the C library's own function, with the program's own argument.
            let result = unsafe { redhook::real!(dlclose)(handle) };
            crate::stack::unload::look();
            result
        }
    }
}
