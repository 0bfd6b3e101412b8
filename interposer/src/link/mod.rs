//! How the real function behind a hook is found, where it really is.
//!
//! `RTLD_NEXT` answers nothing when the vendor library was loaded with local scope (ctypes, ollama, node add-ons, Triton):
//! then the library that the *caller* depends on is asked, and only then any loaded copy. So a process with two copies of
//! a library calls the one it would have called without us.

pub(crate) mod bypass;
mod callers;
pub(crate) mod fork_gate;
pub(crate) mod modules;
pub(crate) mod names;
pub(crate) mod next;
pub(crate) mod objects;
mod ranges;
mod symbols;

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use gpuoom_trace::record::Event;

use crate::base::{guard, log, thread};
use crate::table::{self, Library};

pub(crate) use objects::{
    MAX_BUILD_ID_BYTES, Object, add_loaded_runtimes, add_runtime_code, for_each_code_object, load_count,
    loaded_objects, object_of, read_build_id,
};

/// The real function per row of the table of functions; null: not looked up yet, or to be looked up per caller. The entry
/// stubs of `hooks` jump through it.
pub(crate) static REAL: [AtomicPtr<()>; table::COUNT] = [const { AtomicPtr::new(std::ptr::null_mut()) }; table::COUNT];

/// Libraries of which more than one copy was found outside the global scope, a bit each: no function of theirs may be
/// cached for all callers.
static SEVERAL_COPIES: AtomicU32 = AtomicU32::new(0);
/// Object that serves each library for all callers: its first address, 0: none yet.
static SERVING: [std::sync::atomic::AtomicUsize; Library::COUNT] =
    [const { std::sync::atomic::AtomicUsize::new(0) }; Library::COUNT];

/// Answers calls of functions that the loaded library does not have: "not supported" (801 in HIP and CUDA alike; an
/// error in all others too).
extern "C" fn not_supported() -> i32 {
    801
}

/// Answers for a function of OpenCL that returns a status: CL_INVALID_OPERATION. Its positive codes are nobody's.
extern "C" fn invalid_operation() -> i32 {
    -59
}

/// Answers for a ROCTX that is not there (the outermost level, or no range), for functions of ggml (no buffer, not done), and
/// for functions of OpenCL that return a handle.
extern "C" fn nothing() -> u64 {
    0
}

/// The real function of row `api` for a call that came from `caller`. Never null.
#[inline(always)]
pub(crate) fn real(api: u16, caller: usize) -> *const () {
    let state = thread::current();
    if state.slot_number.get() == u32::from(api) + 1 {
        // Called through a pointer that was handed out: it knows where it goes.
        state.slot_number.set(0);
        return state.slot_real.get();
    }
    // Acquire: whoever sees the pointer sees the library it points into.
    let real = REAL[usize::from(api)].load(Ordering::Acquire);
    if !real.is_null() { real } else { look_up(api, caller) }
}

#[cold]
#[inline(never)]
fn look_up(api: u16, caller: usize) -> *const () {
    if let Some(known) = callers::get(api, caller) {
        return known;
    }
    // The search uses the heap: a handler that interrupted it and came here itself would wait for its own thread.
    guard::cold(not_supported as *const (), || guard::without_signals(|| search(api, caller)))
}

fn search(api: u16, caller: usize) -> *const () {
    let row = table::row(api);
    let Some(found) = find(row.library, row.name_c, caller) else {
        if row.library == Library::Roctx {
            // A weak reference that would have been null: the program may well come here for each of its ranges.
            callers::set(api, caller, nothing as *const ());
            return nothing as *const ();
        }
        log::warn(format_args!("{} was called, but no loaded library has it", row.name));
        return match row.library {
            Library::Ggml if row.event != Event::Message => nothing as *const (),
            Library::OpenCl if row.event == Event::Module => nothing as *const (),
            Library::OpenCl => invalid_operation as *const (),
            // These must not return.
            Library::Cxx | Library::Ggml => libc::abort as *const (),
            _ => not_supported as *const (),
        };
    };
    remember(api, row.library, caller, &found);
    found.function
}

/// A function and how it was found.
pub(crate) struct Found {
    pub(crate) function: *const (),
    globally: bool,
}

fn remember(api: u16, library: Library, caller: usize, found: &Found) {
    let Some(start) = objects::hold_around(found.function as usize, library.is_gpu_runtime()) else { return };
    let bit = 1 << library as u32;
    let serving = &SERVING[library as usize];
    let first = serving.compare_exchange(0, start, Ordering::AcqRel, Ordering::Acquire);
    let another_copy = first.is_err_and(|serving| serving != start);
    if another_copy && SEVERAL_COPIES.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
        forget(library);
    }
    if found.globally && !another_copy || SEVERAL_COPIES.load(Ordering::Acquire) & bit == 0 && needs_one_for_all(api) {
        REAL[usize::from(api)].store(found.function.cast_mut(), Ordering::Release);
    } else {
        callers::set(api, caller, found.function);
    }
}

/// Stubs that only jump are fast with one pointer for all callers; hooks that are functions ask per caller while the library
/// is in local scope, so that a second copy is noticed at the first call from anywhere new. Exceptions are slow anyway, and
/// one that is thrown by another copy of the C++ runtime than it is caught by leaves both with a wrong count.
fn needs_one_for_all(api: u16) -> bool {
    let row = table::row(api);
    row.is_tail_called && row.library.is_gpu_runtime()
}

fn forget(library: Library) {
    for (api, row) in table::rows().enumerate() {
        if row.library == library {
            REAL[api].store(std::ptr::null_mut(), Ordering::Release);
        }
    }
}

/// Looks for `name`: next in the global scope, then in the scope of the calling object, then in any loaded copy.
pub(crate) fn find(library: Library, name: &CStr, caller: usize) -> Option<Found> {
    let found = find_in_scope(name, caller)
        .or_else(|| find_anywhere(library, name).map(|function| Found { function, globally: false }));
    if found.as_ref().is_none_or(|found| !found.globally) {
        // The failed look-ups above left a message that the program could take for its own.
        // SAFETY: reads and clears the thread's message.
        unsafe { libc::dlerror() };
    }
    found
}

/// What a reference of the calling object would have bound to without us.
pub(crate) fn find_in_scope(name: &CStr, caller: usize) -> Option<Found> {
    let next = next::after_us(name);
    if !next.is_null() {
        return Some(Found { function: next.cast(), globally: true });
    }
    find_near(name, caller).map(|function| Found { function, globally: false })
}

fn find_near(name: &CStr, caller: usize) -> Option<*const ()> {
    object_of(caller)?.symbol(name)
}

fn find_anywhere(library: Library, name: &CStr) -> Option<*const ()> {
    let copies = loaded_objects().into_iter().filter(|object| is_copy_of(object, library));
    copies.filter_map(|object| object.symbol(name)).next()
}

/// Whether a copy of that library is loaded.
pub(crate) fn is_loaded(library: Library) -> bool {
    loaded_objects().iter().any(|object| is_copy_of(object, library))
}

/// Major version of a loaded library by its file name (`libcudart.so.13`), 0 where that tells none. For cold calls: the
/// loader's list is walked until a version is found.
#[cold]
pub(crate) fn major_version(library: Library) -> u32 {
    static KNOWN: [AtomicU32; Library::COUNT] = [const { AtomicU32::new(0) }; Library::COUNT];
    let known = &KNOWN[library as usize];
    // Relaxed: one number, the same whoever finds it.
    let version = known.load(Ordering::Relaxed);
    if version != 0 {
        return version;
    }
    let copies = || loaded_objects().into_iter().filter(|object| is_copy_of(object, library));
    let found = guard::cold(0, || {
        guard::without_signals(|| copies().find_map(|object| major_version_in(&object.path)).unwrap_or(0))
    });
    known.store(found, Ordering::Relaxed);
    found
}

fn major_version_in(path: &str) -> Option<u32> {
    path.rsplit_once(".so.")?.1.split('.').next()?.parse().ok()
}

fn is_copy_of(object: &Object, library: Library) -> bool {
    let file_name = object.path.rsplit('/').next().unwrap_or_default();
    library.path_parts().iter().any(|part| file_name.contains(part))
}

/// Whether an address lies in the library that a real function was found in.
pub(crate) fn is_beside(address: usize, real: usize) -> bool {
    objects::is_beside(address, real)
}

/// Whether an address is what the global scope has under one of these names.
pub(crate) fn is_named(address: usize, names: &[&CStr]) -> bool {
    let found = guard::without_signals(|| names.iter().any(|name| next::global(name) as usize == address));
    // A name that nobody has leaves a message that the program could take for its own.
    // SAFETY: reads and clears the thread's message.
    unsafe { libc::dlerror() };
    found
}

/// Whether an address lies in a vendor's runtime: what it calls, it calls for itself.
#[inline(always)]
pub(crate) fn is_runtime_code(address: usize) -> bool {
    objects::is_runtime_code(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_tells_the_major_version() {
        for (path, version) in [
            ("/usr/lib/libcudart.so.13", Some(13)),
            ("/site/libcudart-d0da41ae.so.11.0", Some(11)),
            ("/usr/lib/libamdhip64.so.5.2.21153", Some(5)),
            ("/site/libamdhip64.so", None),
            ("/x.so.d/libcudart.so", None),
        ] {
            assert_eq!(major_version_in(path), version, "{path}");
        }
    }
}
