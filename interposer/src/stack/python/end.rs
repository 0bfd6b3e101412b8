//! The end of Python: before it, the frames of any thread may be looked at by that thread without the interpreter.
//!
//! A thread stands still in its frames, and nobody frees its state but itself and `Py_FinalizeEx`, which frees those of threads that
//! still run. Before that it calls what `atexit` holds. One of those is the recorder's: it bars the way, and waits for whoever is
//! looking. Should the program empty that list, the object goes that stands in it, and bars the way as well.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::api::{Api, Method, Object};
use crate::base::guard;

/// Values of [`WAY`].
mod way {
    /// Nobody would tell of the end.
    pub(super) const UNWATCHED: u32 = 0;
    /// Frames may be looked at.
    pub(super) const OPEN: u32 = 1;
    /// Python is ending, or nobody can tell any more.
    pub(super) const BARRED: u32 = 2;
}

static WAY: AtomicU32 = AtomicU32::new(way::UNWATCHED);
/// Threads that look at their frames.
static LOOKING: AtomicU32 = AtomicU32::new(0);
/// Makes the integer that the callback answers.
static NUMBER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// How long the end of Python waits for them, in steps of 50 microseconds: a second. They need less than one, unless they are not run;
/// one that a signal handler has left by `longjmp` never ends.
const MOST_STEPS: u32 = 20_000;
/// `METH_NOARGS`
const NO_ARGUMENTS: c_int = 4;

static METHOD: Method =
    Method { name: c"gpuoom_end".as_ptr(), function: ends, flags: NO_ARGUMENTS, doc: std::ptr::null() };

/// A thread looks at its frames as long as this lives.
pub(super) struct Looking(());

impl Drop for Looking {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: what was read was read before.
        LOOKING.fetch_sub(1, Ordering::Release);
    }
}

/// The calling thread wants to look at its own frames; `None` where they may be freed meanwhile.
#[inline(always)]
pub(super) fn look() -> Option<Looking> {
    if WAY.load(Ordering::Relaxed) != way::OPEN {
        return None;
    }
    // SeqCst, here and in `bar`: either this thread sees that the way is barred, or the one that bars it sees this thread.
    LOOKING.fetch_add(1, Ordering::SeqCst);
    let looking = Looking(());
    (WAY.load(Ordering::SeqCst) == way::OPEN).then_some(looking)
}

/// In a forked child only the thread that forked is left, which was not looking.
pub(super) fn forget_parent() {
    LOOKING.store(0, Ordering::Relaxed);
}

/// Has `atexit` call the recorder, once.
///
/// # Safety
/// The calling thread holds the interpreter, and has no error of its own to keep.
pub(super) unsafe fn watch(api: &Api) {
    if WAY.load(Ordering::Relaxed) != way::UNWATCHED {
        return;
    }
    // SAFETY: promised by the caller.
    match unsafe { registered(api) } {
        // Whoever bars the way does so for good.
        Some(true) => _ = WAY.compare_exchange(way::UNWATCHED, way::OPEN, Ordering::SeqCst, Ordering::Relaxed),
        Some(false) => WAY.store(way::BARRED, Ordering::SeqCst),
        None => {}
    }
}

/// Whether `atexit` has taken the recorder's function; `None` where the program has not loaded that module yet.
///
/// # Safety
/// As [`watch`].
unsafe fn registered(api: &Api) -> Option<bool> {
    let functions = (api.modules, api.item, api.capsule, api.function, api.call, api.number, api.clear_error);
    let (Some(modules), Some(item), Some(capsule), Some(function), Some(call), Some(number), Some(clear)) = functions
    else {
        return Some(false);
    };
    NUMBER.store(number as *mut c_void, Ordering::Relaxed);
    // SAFETY: promised by the caller. `modules` is borrowed; all others are references of ours, which are given back. The name of a
    // capsule is constant, and what it holds only must not be null.
    unsafe {
        let module = item(modules(), c"atexit".as_ptr());
        if module.is_null() {
            clear();
            return None;
        }
        let register = (api.attribute)(module, c"register".as_ptr());
        let token = capsule((&raw const WAY).cast_mut().cast(), c"gpuoom".as_ptr(), goes);
        let ours = if token.is_null() { token } else { function(&raw const METHOD, token, std::ptr::null_mut()) };
        let is_there = !register.is_null() && !ours.is_null();
        let taken = if is_there { call(register, ours, std::ptr::null_mut::<c_void>()) } else { std::ptr::null_mut() };
        if taken.is_null() {
            clear();
        }
        for object in [module, register, token, ours, taken].into_iter().filter(|object| !object.is_null()) {
            (api.drop)(object);
        }
        Some(!taken.is_null() && WAY.load(Ordering::SeqCst) == way::UNWATCHED)
    }
}

/// Python calls what `atexit` holds.
unsafe extern "C" fn ends(_self: Object, _arguments: Object) -> Object {
    bar();
    let number = NUMBER.load(Ordering::Relaxed);
    // SAFETY: `registered` has stored the function that makes an integer, and Python holds the interpreter here.
    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(std::ffi::c_long) -> Object>(number)(0) }
}

/// The capsule goes, and with it what `atexit` held of the recorder.
unsafe extern "C" fn goes(_capsule: Object) {
    bar();
}

/// Nobody begins to look any more, and nobody looks.
fn bar() {
    WAY.store(way::BARRED, Ordering::SeqCst);
    for _ in 0..MOST_STEPS {
        // SeqCst: see `look`.
        if LOOKING.load(Ordering::SeqCst) == 0 {
            return;
        }
        guard::sleep_micros(50);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the way is one for the process.
    #[test]
    fn whoever_bars_the_way_waits_for_those_that_look() {
        assert!(look().is_none(), "nobody would tell of the end");
        WAY.store(way::OPEN, Ordering::SeqCst);
        let looking = look().expect("the way is open");
        let end = std::thread::spawn(bar);
        while look().is_some() {
            std::thread::yield_now();
        }
        assert!(!end.is_finished(), "somebody is looking");
        drop(looking);
        end.join().unwrap();
        assert_eq!(LOOKING.load(Ordering::SeqCst), 0);
        assert!(look().is_none());
        WAY.store(way::UNWATCHED, Ordering::SeqCst);
    }
}
