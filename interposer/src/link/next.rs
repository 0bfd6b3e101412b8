//! The look-up functions of the C library behind our own hooks on them.
//!
//! `dlsym` and `dlvsym` are hooked, so inside this library their names mean the hooks. The real ones (or those of another
//! preloaded library behind us) are found once, through the one thing that can't be hooked: the symbol table of the C
//! library in memory.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::fork_gate::outside_forks;

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub(crate) type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The next `dlsym` and `dlvsym`; null until they are first needed. The stubs jump through them.
pub(crate) static DLSYM: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static DLVSYM: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Version nodes that `dlsym` and `dlvsym` of glibc on x86-64 have had: one before 2.34, both since.
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.2.5", c"GLIBC_2.34"];

/// `dlsym` without our hook. The program's own arguments may be passed.
///
/// # Safety
/// As `dlsym`: a valid handle and a terminated name.
pub(crate) unsafe fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let next = if DLSYM.load(Ordering::Acquire).is_null() { find().0 } else { DLSYM.load(Ordering::Acquire) };
    if next.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: what was found under this name has this signature; the rest is promised by the caller.
    unsafe { std::mem::transmute::<*mut (), Dlsym>(next)(handle, name) }
}

/// `dlvsym` without our hook.
///
/// # Safety
/// As [`dlsym`], with a terminated version.
pub(crate) unsafe fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    let next = if DLVSYM.load(Ordering::Acquire).is_null() { find().1 } else { DLVSYM.load(Ordering::Acquire) };
    if next.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: as in `dlsym`.
    unsafe { std::mem::transmute::<*mut (), Dlvsym>(next)(handle, name, version) }
}

/// The next definition of `name` behind this library in the global scope; null where there is none.
pub(crate) fn after_us(name: &CStr) -> *mut c_void {
    // SAFETY: a terminated name; RTLD_NEXT starts behind the object that makes this call, which is ours.
    unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The first definition of `name` in the global scope: of a hooked name, the hook. Asked for when it is needed, and not
/// stored in the table of functions: there the loader would look up each of the 600 names in every process, also in those
/// that use no GPU.
pub(crate) fn global(name: &CStr) -> *mut c_void {
    // SAFETY: a terminated name.
    unsafe { dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// For the stubs, before anything was found: the next `dlsym`.
pub(crate) extern "C" fn find_dlsym() -> *mut () {
    crate::base::guard::cold(std::ptr::null_mut(), || find().0)
}

/// The same for `dlvsym`.
pub(crate) extern "C" fn find_dlvsym() -> *mut () {
    crate::base::guard::cold(std::ptr::null_mut(), || find().1)
}

/// Finds both. No heap: the first caller may be a replacement of `malloc` that is just being set up.
fn find() -> (*mut (), *mut ()) {
    let mut search = Search { dlsym: 0, dlvsym: 0 };
    // SAFETY: the callback gets back the structure that is passed here, for the time of this call.
    outside_forks(|| unsafe { libc::dl_iterate_phdr(Some(look_into), (&raw mut search).cast()) });
    let (mut dlsym, mut dlvsym) = (search.dlsym as *mut (), search.dlvsym as *mut ());
    if !dlvsym.is_null() {
        // Another preloaded library may have hooks of its own behind ours: then those are next.
        // SAFETY: found under this name in the C library.
        let real = unsafe { std::mem::transmute::<*mut (), Dlvsym>(dlvsym) };
        let next = |name: &CStr| {
            // SAFETY: terminated texts; RTLD_NEXT starts behind our own object.
            let found = VERSIONS.map(|version| unsafe { real(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) });
            found.into_iter().find(|found| !found.is_null())
        };
        dlsym = next(c"dlsym").map_or(dlsym, |found| found.cast());
        dlvsym = next(c"dlvsym").map_or(dlvsym, |found| found.cast());
    }
    // Release: whoever sees the pointer may call through it. Two threads find the same.
    DLSYM.store(dlsym, Ordering::Release);
    DLVSYM.store(dlvsym, Ordering::Release);
    (dlsym, dlvsym)
}

struct Search {
    dlsym: usize,
    dlvsym: usize,
}

unsafe extern "C" fn look_into(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> i32 {
    // SAFETY: the loader passes a valid entry, whose headers and name live during the callback; `search` is `find`'s.
    unsafe {
        let (info, search) = (&*info, &mut *search.cast::<Search>());
        let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // Before 2.34 they are in a library of their own.
        if !file.starts_with(b"libc.so") && !file.starts_with(b"libc-") && !file.starts_with(b"libdl") {
            return 0;
        }
        let Some(table) = super::symbols::Table::of(info) else { return 0 };
        search.dlsym = table.address_of(c"dlsym").unwrap_or(search.dlsym);
        search.dlvsym = table.address_of(c"dlvsym").unwrap_or(search.dlvsym);
        i32::from(search.dlsym != 0 && search.dlvsym != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_functions_are_found_in_memory() {
        let (dlsym, dlvsym) = find();
        assert!(!dlsym.is_null() && !dlvsym.is_null());
        // SAFETY: terminated texts.
        unsafe {
            assert!(!super::dlsym(std::ptr::null_mut(), c"getpid".as_ptr()).is_null());
            let version = c"GLIBC_2.2.5".as_ptr();
            assert!(!super::dlvsym(std::ptr::null_mut(), c"getpid".as_ptr(), version).is_null());
            assert!(super::dlsym(std::ptr::null_mut(), c"no_such_function".as_ptr()).is_null());
        }
    }
}
