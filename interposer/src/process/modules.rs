//! The loaded libraries.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gpuoom_trace::metadata::{Module, Modules};

use crate::link::{self, LoadCount};

/// What the file name of a vendor's GPU library contains.
const VENDOR_PARTS: [&str; 24] = [
    "libamdhip64",
    "libhsa-runtime64",
    "libhsakmt",
    "libamd_comgr",
    "libamdocl64",
    "librocblas",
    "libhipblas",
    "libMIOpen",
    "librccl",
    "libhipfft",
    "libhipsparse",
    "librocprofiler",
    "libdrm_amdgpu",
    "libcudart",
    "libcuda.so",
    "libcublas",
    "libcudnn",
    "libnccl",
    "libcufft",
    "libcusparse",
    "libnvidia",
    "libcupti",
    "libvulkan",
    "libOpenCL",
];
/// How often objects had been loaded when they were last listed.
static LISTED_AT: AtomicU64 = AtomicU64::new(u64::MAX);
/// The last list, for the next one; null while somebody works with it.
static LISTED: AtomicPtr<List> = AtomicPtr::new(std::ptr::null_mut());

/// A list of modules, and which objects of the loader's it covers.
#[derive(Default)]
struct List {
    at: LoadCount,
    objects: usize,
    modules: Modules,
}

impl List {
    /// The last list, if all that it names is still loaded; an empty one otherwise. Whoever takes it has it alone.
    fn take(at: LoadCount) -> Box<List> {
        let last = LISTED.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: made by `give_back` from a box, and taken out by the swap.
        let last = (!last.is_null()).then(|| unsafe { Box::from_raw(last) });
        last.filter(|list| list.at.unloads == at.unloads).unwrap_or_default()
    }

    fn give_back(self: Box<List>) {
        let other = LISTED.swap(Box::into_raw(self), Ordering::AcqRel);
        if !other.is_null() {
            // SAFETY: as in `take`.
            drop(unsafe { Box::from_raw(other) });
        }
    }

    /// Adds what was loaded since: to resolve a path and to read a build id costs more than all the rest, so nothing is
    /// looked at twice.
    fn extend(&mut self, at: LoadCount) {
        self.at = at;
        for object in link::loaded_objects_with_build_ids(self.objects) {
            self.objects += 1;
            // The kernel's own page has a name without a path; the program itself has none, and comes first.
            if self.objects == 1 || object.path.contains('/') {
                self.modules.modules.push(describe(object));
            }
        }
    }
}

/// Lists all of them, with the program itself first, because a call site may lie in any, and shows the list.
pub(crate) fn list<T>(show: impl FnOnce(&Modules) -> T) -> T {
    let at = link::load_count();
    LISTED_AT.store(at.loads, Ordering::Relaxed);
    let mut list = List::take(at);
    list.extend(at);
    let shown = show(&list.modules);
    list.give_back();
    shown
}

fn describe(object: link::Object) -> Module {
    Module {
        path: real_path(&object.path),
        vendor: is_vendors(&object.path),
        build_id: object.build_id,
        start: object.start as u64,
        end: object.end as u64,
    }
}

/// Whether objects were loaded since they were last listed.
pub(crate) fn have_changed() -> bool {
    LISTED_AT.load(Ordering::Relaxed) != link::load_count().loads
}

/// Whether any vendor's runtime is loaded.
pub(crate) fn any_runtime() -> bool {
    const RUNTIMES: [&str; 4] = ["libamdhip64", "libhsa-runtime64", "libcudart", "libcuda.so"];
    link::loaded_objects().iter().any(|object| RUNTIMES.iter().any(|part| file_name(&object.path).contains(part)))
}

fn is_vendors(path: &str) -> bool {
    VENDOR_PARTS.iter().any(|part| file_name(path).contains(part))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Links resolved, because the file that a link leads to carries the version (`libamdhip64.so.6.4.60403`).
fn real_path(path: &str) -> String {
    let path = if path.is_empty() { "/proc/self/exe" } else { path };
    std::fs::canonicalize(path).map_or_else(|_| path.to_owned(), |real| real.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_extended_is_the_list_made_anew() {
        let at = link::load_count();
        let mut whole = List::default();
        whole.extend(at);
        let modules = whole.modules.modules.clone();
        assert!(modules.len() > 2 && modules.iter().any(|module| module.build_id.len() == 40));
        for known in 0..whole.objects {
            let mut list = List::default();
            list.extend(at);
            // As if it had been made when so many objects were loaded.
            list.objects = known;
            let kept = modules.iter().filter(|module| {
                let of_known = link::loaded_objects();
                of_known[..known].iter().any(|object| object.start as u64 == module.start)
            });
            list.modules.modules = kept.cloned().collect();
            list.extend(at);
            assert_eq!(list.modules.modules, modules);
        }
    }

    #[test]
    fn a_list_is_not_used_again_once_something_was_unloaded() {
        let at = link::load_count();
        let mut list = Box::<List>::default();
        list.extend(at);
        list.give_back();
        assert_eq!(List::take(LoadCount { unloads: at.unloads + 1, ..at }).objects, 0);
        assert_eq!(List::take(at).objects, 0, "whoever takes it has it alone");
    }
}
