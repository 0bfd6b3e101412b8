//! The loaded libraries.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::metadata::{Module, Modules};

use crate::link;

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

/// All of them, with the program itself first: a call site may lie in any.
pub(crate) fn collect() -> Modules {
    LISTED_AT.store(link::load_count(), Ordering::Relaxed);
    let objects = link::loaded_objects_with_build_ids();
    let of_files = objects.into_iter().enumerate().filter(|(position, object)| {
        // The kernel's own page has a name without a path.
        *position == 0 || object.path.contains('/')
    });
    let describe = |(_, object): (usize, link::Object)| Module {
        path: real_path(&object.path),
        vendor: is_vendors(&object.path),
        build_id: object.build_id,
        start: object.start as u64,
        end: object.end as u64,
    };
    Modules { modules: of_files.map(describe).collect() }
}

/// Whether objects were loaded since they were last listed.
pub(crate) fn have_changed() -> bool {
    LISTED_AT.load(Ordering::Relaxed) != link::load_count()
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
