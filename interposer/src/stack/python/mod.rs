//! Python frames of the calling thread, through Python's public C API.
//!
//! Frames may be read by a thread that holds the interpreter. If the calling thread holds it, it reads its own. If not (an
//! extension has released it around the call, as PyTorch and ctypes do), the calling thread stands still inside that call,
//! so its frames do too: a thread of the recorder takes the interpreter and reads them meanwhile ([`reader`]).

mod api;
mod codes;
mod end;
mod frames;
mod reader;
pub(super) mod seen;
mod words;

use crate::base::thread::ThreadState;
use crate::record::Recorder;

use api::Api;
pub(crate) use frames::Frames;

/// Looks for a Python that is loaded by now. Uses the heap and the loader's lock.
pub(super) fn look() {
    api::look();
}

/// A new file begins, maybe in a forked child.
pub(super) fn forget_parent() {
    codes::forget();
    seen::forget();
    end::forget_parent();
    reader::forget_parent();
}

/// Whether a Python was found.
#[inline(always)]
pub(super) fn is_loaded() -> bool {
    api::get().is_some()
}

/// Whether Python runs code of the program by this return address.
pub(super) fn is_code(address: u64) -> bool {
    api::get().is_some_and(|api| api.library.contains(&address))
}

/// How a thread stands to the interpreter.
enum Standing {
    /// No frames of Python's can be read: it is no thread of Python's, or Python is not there (any more).
    Outside,
    /// It holds the interpreter.
    Holds,
    /// It has released the interpreter.
    Released,
}

fn standing(api: &Api, own: api::Object) -> Standing {
    let current = api.current();
    if own.is_null() {
        Standing::Outside
    } else if current == own {
        Standing::Holds
    } else if api.minor >= 12 && !current.is_null() {
        // The current state is this thread's own since then, so it runs in another interpreter.
        Standing::Outside
    } else {
        Standing::Released
    }
}

/// The frames of the calling thread. `urgent`: they are worth waiting for.
pub(super) fn frames(recorder: &Recorder, state: &ThreadState, urgent: bool, out: &mut Frames) {
    let Some(api) = api::get().filter(|api| api.is_up()) else { return };
    // SAFETY: `is_up` was asked just now.
    let own = unsafe { (api.this_state)() };
    let thread = state.thread.get();
    // A hook inside of what follows (a collection that frees something) stops here.
    if state.is_in_python.replace(true) {
        return;
    }
    match standing(api, own) {
        Standing::Outside => {}
        // SAFETY: the thread's own state, which is the current one.
        Standing::Holds => unsafe { frames::read(api, own, recorder, thread, out) },
        Standing::Released => reader::ask(api, own, recorder, thread, urgent, out),
    }
    state.is_in_python.set(false);
}
