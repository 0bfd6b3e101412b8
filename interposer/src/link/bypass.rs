//! Libraries whose references lead past our hooks, seen in their relocations.
//!
//! `RTLD_DEEPBIND` puts a library's own dependencies before everything preloaded, so its calls never come here. What its
//! references were bound to stands in its relocated tables; nothing is changed there, it is only read.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use gpuoom_trace::metadata::Bypass;
use gpuoom_trace::record::Event;

use super::fork_gate::outside_forks;
use super::symbols::{Reference, Table};
use super::{is_copy_of, names, next, objects};
use crate::table;

/// Objects that were there before the program ran. Only `dlopen` takes `RTLD_DEEPBIND`, so they are not looked at: they are
/// the first of the loader's list for good, and often the largest.
static FIRST_LOADED: AtomicUsize = AtomicUsize::new(0);

/// Counts the objects that the program was started with. Called before it runs.
pub(crate) fn note_first_loaded() {
    FIRST_LOADED.store(objects::count(), Ordering::Relaxed);
}

/// The library that has `ioctl` before us in the order of the global scope: it sees a driver's requests first, and passes them on or does
/// not. It names no caller, because it stands before us for all of them. Uses the heap.
pub(crate) fn in_front() -> Option<Bypass> {
    let first = next::global(c"ioctl") as usize;
    let target = if first == 0 || objects::is_ours(first) { None } else { objects::object_of(first) }?;
    Some(Bypass { caller: String::new(), function: "ioctl".into(), target: target.path, functions: 1 })
}

/// A walk through the loader's list.
#[derive(Default)]
struct Walk {
    /// Objects that it has come by.
    passed: usize,
    suspects: Vec<Suspect>,
}

/// A reference of ours that does not lead to us.
struct Suspect {
    caller: usize,
    target: usize,
    api: u16,
}

/// The libraries that call a vendor's library past the hooks, in load order. Uses the heap.
pub(crate) fn find() -> Vec<Bypass> {
    let mut walk = Walk::default();
    // SAFETY: the callback gets back the structure that is passed here, for the time of this call.
    outside_forks(|| unsafe { libc::dl_iterate_phdr(Some(look_into), (&raw mut walk).cast()) });
    let mut bypasses: Vec<Bypass> = Vec::new();
    for suspect in walk.suspects {
        // Another preloaded library may stand before us: its hooks call on, and we see that.
        let target = objects::object_of(suspect.target);
        let Some(target) = target.filter(|object| is_copy_of(object, table::row(suspect.api).library)) else {
            continue;
        };
        let Some(caller) = objects::object_of(suspect.caller) else { continue };
        // A vendor's library may call itself without a detour.
        if caller == target {
            continue;
        }
        let row = table::row(suspect.api);
        match bypasses.iter_mut().find(|known| known.caller == caller.path && known.target == target.path) {
            Some(known) => {
                known.functions += 1;
                // One that takes memory says more than others.
                if row.event == Event::Alloc {
                    known.function = row.name.into();
                }
            }
            None => bypasses.push(Bypass {
                caller: caller.path,
                function: row.name.into(),
                target: target.path,
                functions: 1,
            }),
        }
    }
    bypasses
}

unsafe extern "C" fn look_into(info: *mut libc::dl_phdr_info, _: usize, walk: *mut c_void) -> i32 {
    // SAFETY: the loader passes a valid entry whose headers live during the callback; `walk` is `find`'s structure.
    let (info, walk) = unsafe { (&*info, &mut *walk.cast::<Walk>()) };
    walk.passed += 1;
    if walk.passed <= FIRST_LOADED.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: as above; the loader's lock keeps the object loaded.
    let Some(table) = (unsafe { Table::of(info) }) else { return 0 };
    // A large library has some hundred imports and tens of thousands of references, most of them to itself.
    // SAFETY: as above.
    if unsafe { table.imports(|name| row_of(name).is_some()) } == Some(false) {
        return 0;
    }
    // SAFETY: as above.
    unsafe {
        table.for_each_reference(|Reference { name, target, place }| {
            if let Some(api) = row_of(name)
                && target != 0
                && !objects::is_ours(target)
                && !objects::is_ours(place)
            {
                walk.suspects.push(Suspect { caller: place, target, api });
            }
        });
    }
    0
}

/// The row that a symbol's name belongs to. Most names of C++ programs are long and begin differently.
fn row_of(name: *const c_char) -> Option<u16> {
    // SAFETY: a name in a loaded object's table of texts is terminated.
    let first = unsafe { *name } as u8;
    if !matches!(first, b'c' | b'h' | b'm' | b'r') {
        return None;
    }
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) };
    names::row_of(name).filter(|api| table::row(*api).has_hook)
}
