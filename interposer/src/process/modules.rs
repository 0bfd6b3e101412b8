//! The loaded libraries that matter for GPU memory.

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
/// What the file name of a framework contains.
const FRAMEWORK_PARTS: [&str; 9] =
    ["libtorch", "libc10", "libggml", "libllama", "xla_", "libonnxruntime", "libtensorflow", "libgpuoom", "libtriton"];

/// Lists them, with the program itself first.
pub(crate) fn collect() -> Modules {
    let objects = link::loaded_objects();
    let wanted = objects.into_iter().enumerate().filter_map(|(position, object)| {
        let file_name = object.path.rsplit('/').next().unwrap_or_default();
        let contains = |parts: &[&str]| parts.iter().any(|part| file_name.contains(part));
        let vendor = contains(&VENDOR_PARTS);
        (position == 0 || vendor || contains(&FRAMEWORK_PARTS)).then(|| Module {
            path: real_path(&object.path),
            build_id: object.build_id,
            start: object.start as u64,
            end: object.end as u64,
            vendor,
        })
    });
    Modules { modules: wanted.collect() }
}

/// Links resolved, because the file that a link leads to carries the version (`libamdhip64.so.6.4.60403`).
fn real_path(path: &str) -> String {
    let path = if path.is_empty() { "/proc/self/exe" } else { path };
    std::fs::canonicalize(path).map_or_else(|_| path.to_owned(), |real| real.to_string_lossy().into_owned())
}
