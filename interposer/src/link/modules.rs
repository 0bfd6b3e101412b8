//! The loaded libraries.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gpuoom_trace::metadata::{Module, Modules};

use super::objects::{self as link, LoadCount};

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
    /// What was looked at before, by first address: the loader's path, and the module.
    described: HashMap<usize, (String, Module)>,
    /// Process whose file has what is `written`.
    pid: u32,
    /// Hashes of the modules that the file has in any list.
    written: HashSet<u64>,
}

impl List {
    /// The last list, without its modules if one of them is not loaded any more. Whoever takes it has it alone.
    fn take(at: LoadCount) -> Box<List> {
        let last = LISTED.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: made by `give_back` from a box, and taken out by the swap.
        let mut list = if last.is_null() { Box::default() } else { unsafe { Box::from_raw(last) } };
        if list.at.unloads != at.unloads {
            (list.objects, list.modules) = (0, Modules::default());
        }
        let pid = std::process::id();
        if list.pid != pid {
            (list.pid, list.written) = (pid, HashSet::new());
        }
        list
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
                let module = self.describe(object);
                self.modules.modules.push(module);
            }
        }
    }

    fn describe(&mut self, object: link::Object) -> Module {
        let is_same = |(path, module): &&(String, Module)| {
            *path == object.path && module.end == object.end as u64 && module.build_id == object.build_id
        };
        if let Some((_, module)) = self.described.get(&object.start).filter(is_same) {
            return module.clone();
        }
        let (start, path) = (object.start, object.path.clone());
        let module = describe(object);
        self.described.insert(start, (path, module.clone()));
        module
    }

    fn has_unwritten(&self) -> bool {
        self.modules.modules.iter().any(|module| !self.written.contains(&hash(module)))
    }

    fn show(&mut self, show: impl FnOnce(&Modules) -> bool) -> bool {
        let shown = show(&self.modules);
        if shown {
            self.written.extend(self.modules.modules.iter().map(hash));
        }
        shown
    }
}

fn hash(module: &Module) -> u64 {
    let mut hasher = DefaultHasher::new();
    module.hash(&mut hasher);
    hasher.finish()
}

/// Lists all of them, with the program itself first, because a call site may lie in any, and shows the list. `show` says
/// whether the file has it now.
pub(crate) fn list(show: impl FnOnce(&Modules) -> bool) -> bool {
    let at = link::load_count();
    LISTED_AT.store(at.loads, Ordering::Relaxed);
    let mut list = List::take(at);
    list.extend(at);
    let shown = list.show(show);
    list.give_back();
    shown
}

/// Shows the list if it has a library that the file does not have.
pub(crate) fn list_unlisted(show: impl FnOnce(&Modules) -> bool) {
    let at = link::load_count();
    let mut list = List::take(at);
    list.extend(at);
    if list.has_unwritten() {
        list.show(show);
    }
    list.give_back();
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
    let path = if path.is_empty() { "/proc/thread-self/exe" } else { path };
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
        let mut again = List::take(LoadCount { unloads: at.unloads + 1, ..at });
        assert_eq!((again.objects, again.modules.modules.len()), (0, 0));
        assert_eq!(List::take(at).described.len(), 0, "whoever takes it has it alone");
        // What is at its place unchanged is not looked at again.
        let paths: Vec<_> = again.described.values_mut().map(|(_, module)| module.path = "known".into()).collect();
        again.extend(at);
        assert!(paths.len() > 2 && again.modules.modules.iter().all(|module| module.path == "known"));
    }

    #[test]
    fn the_file_is_told_what_it_does_not_have() {
        let mut list = List::default();
        list.extend(link::load_count());
        assert!(list.has_unwritten() && !list.show(|_| false) && list.has_unwritten());
        assert!(list.show(|_| true) && !list.has_unwritten());
        list.modules.modules[0].build_id = "another".into();
        assert!(list.has_unwritten());
    }
}
