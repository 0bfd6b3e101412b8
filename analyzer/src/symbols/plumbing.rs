//! Code that passes a request for memory on and does not want it for itself: allocators, dispatchers, runtimes. Who
//! allocated is the first frame outside of it.

use super::file_name;
use super::frame::{Frame, FrameKind};

/// One row: frames whose library and function begin so. An empty word fits all.
struct Row {
    library: &'static str,
    function: &'static str,
}

const fn library(library: &'static str) -> Row {
    Row { library, function: "" }
}

const fn function(function: &'static str) -> Row {
    Row { library: "", function }
}

/// Libraries and functions that only pass on.
const PLUMBING: &[Row] = &[
    // The recorder and the C and C++ libraries.
    library("libgpuoom.so"),
    library("libc.so"),
    library("libpthread.so"),
    library("libstdc++.so"),
    library("libc++.so"),
    library("ld-linux"),
    function("std::"),
    function("__gnu_cxx::"),
    function("operator new"),
    function("_start"),
    // Rust's own libraries.
    function("core::"),
    function("alloc::"),
    function("<core::"),
    function("<alloc::"),
    function("__rust_"),
    // The vendors' runtimes and mathematical libraries.
    library("libamdhip64"),
    library("libhsa-runtime64"),
    library("libhsakmt"),
    library("libhiprtc"),
    library("librocblas"),
    library("libhipblas"),
    library("librocsolver"),
    library("librocsparse"),
    library("libhipsparse"),
    library("librocfft"),
    library("libhipfft"),
    library("libMIOpen"),
    library("librccl"),
    library("libcuda.so"),
    library("libcudart"),
    library("libcublas"),
    library("libcudnn"),
    library("libcufft"),
    library("libcusolver"),
    library("libcusparse"),
    library("libnccl"),
    library("libnvrtc"),
    // OpenCL, Vulkan and OpenGL: loaders, drivers, and the library between them and the kernel.
    library("libOpenCL"),
    library("libamdocl"),
    library("libRusticlOpenCL"),
    library("libvulkan"),
    library("amdvlk"),
    library("libEGL"),
    library("libGL"),
    library("libgallium"),
    library("libdrm"),
    library("libnvidia-"),
    // Templates over them.
    function("thrust::"),
    function("cub::"),
    function("hipcub::"),
    function("rocprim::"),
    function("rmm::"),
    // PyTorch: the caching allocators and the way from an operator to its kernel.
    library("libc10"),
    library("libtorch_python"),
    function("c10::"),
    function("at::_ops::"),
    function("at::detail::"),
    function("at::meta::"),
    function("at::(anonymous namespace)::"),
    function("at::empty"),
    function("at::native::empty"),
    function("at::native::resize"),
    function("at::native::maybe_resize"),
    function("at::TensorIteratorBase::"),
    function("at::redispatch::"),
    function("torch::autograd::VariableType::"),
    function("torch::ADInplaceOrView::"),
    function("torch::autograd::make_variable"),
    function("torch::autograd::Engine::"),
    function("torch::autograd::Node::"),
    // XLA's allocators.
    function("tsl::BFCAllocator"),
    function("stream_executor::"),
    // ggml: the helpers between a model and the card's allocator.
    function("ggml_backend_buft_alloc_buffer"),
    function("ggml_backend_cuda_buffer_type_alloc_buffer"),
    function("ggml_backend_cuda_split_buffer"),
    function("ggml_backend_cuda_host_buffer_type_alloc_buffer"),
    function("ggml_backend_alloc_ctx_tensors"),
    function("ggml_backend_sched_reserve"),
    function("ggml_cuda_device_malloc"),
    function("ggml_cuda_host_malloc"),
    function("ggml_cuda_pool_"),
    function("ggml_vbuffer_alloc"),
    function("ggml_gallocr_"),
    function("alloc_tensor_range"),
];

/// What calls a function on behalf of somebody else, for whom it stands on the way: ctypes and its libffi, cffi, and the layers that
/// make functions of C++ callable from Python.
const TRAMPOLINES: &[Row] = &[
    library("libffi.so"),
    library("libffi-"),
    library("_ctypes."),
    library("_cffi_backend."),
    function("ffi_call"),
    function("pybind11::"),
    function("nanobind::"),
];

/// The interpreter of Python: what it runs are the frames of Python.
const INTERPRETER: &[Row] = &[
    library("libpython"),
    library("python"),
    function("_PyEval_"),
    function("PyEval_"),
    function("PyObject_"),
    function("_PyObject_"),
];

/// Files of Python that only pass on, by a part of their path.
const PYTHON_PLUMBING: [&str; 8] = [
    "<frozen ",
    "/importlib/",
    "/runpy.py",
    "/threading.py",
    "/contextlib.py",
    "/functools.py",
    "/concurrent/futures/",
    "/multiprocessing/",
];

fn fits(rows: &[Row], frame: &Frame) -> bool {
    let library = frame.module.as_deref().unwrap_or_default();
    let function = frame.short().unwrap_or_default();
    rows.iter().any(|row| library.starts_with(row.library) && function.starts_with(row.function))
}

/// Whether a frame only passes a request for memory on.
pub fn is_plumbing(frame: &Frame) -> bool {
    match frame.kind {
        FrameKind::Native => fits(PLUMBING, frame) || is_trampoline(frame) || is_interpreter(frame),
        FrameKind::Python => {
            let file = frame.file.as_deref().unwrap_or_default();
            let is_in_torch = frame.package_path.as_deref().is_some_and(|path| path.starts_with("torch/"));
            is_in_torch || is_of_standard_library(file) || PYTHON_PLUMBING.iter().any(|part| file.contains(part))
        }
    }
}

/// Whether a file of Python is of the standard library: it lies in `lib/python3.12`, and not where packages are installed.
fn is_of_standard_library(file: &str) -> bool {
    let Some((_, rest)) = file.split_once("/lib/python3.").or_else(|| file.split_once("/lib64/python3.")) else {
        return false;
    };
    let within = rest.split_once('/').filter(|(minor, _)| minor.trim_end_matches('t').parse::<u32>().is_ok());
    within.is_some_and(|(_, path)| !path.starts_with("site-packages/") && !path.starts_with("dist-packages/"))
}

/// Whether a frame is of the functions by which Python begins a process: nobody in that process called them.
pub fn begins_a_process(frame: &Frame) -> bool {
    frame.kind == FrameKind::Python && frame.file.as_deref().is_some_and(|file| file.contains("/multiprocessing/"))
}

/// Whether a frame is of PyTorch's allocators (`libc10.so`, `libc10_cuda.so`, `libc10_hip.so`).
pub fn is_torch_allocator(frame: &Frame) -> bool {
    frame.kind == FrameKind::Native && frame.module.as_deref().is_some_and(|name| name.starts_with("libc10"))
}

/// Whether a library as a whole only passes requests on.
pub fn only_passes_on(path: &str) -> bool {
    let mut rows = PLUMBING.iter().chain(TRAMPOLINES).chain(INTERPRETER).filter(|row| row.function.is_empty());
    rows.any(|row| file_name(path).starts_with(row.library))
}

/// Whether a library as a whole calls functions on behalf of others.
pub fn is_trampoline_library(path: &str) -> bool {
    let mut rows = TRAMPOLINES.iter().filter(|row| row.function.is_empty());
    rows.any(|row| file_name(path).starts_with(row.library))
}

/// Whether a frame calls a function on behalf of another.
pub fn is_trampoline(frame: &Frame) -> bool {
    frame.kind == FrameKind::Native && fits(TRAMPOLINES, frame)
}

/// Whether a frame is the interpreter of Python at work.
pub fn is_interpreter(frame: &Frame) -> bool {
    frame.kind == FrameKind::Native && fits(INTERPRETER, frame)
}

/// The frame that allocated: of a program in Python the first Python frame outside of plumbing, else the first native one.
/// Where everything is plumbing, the innermost frame that is no trampoline.
pub fn who(frames: &[Frame]) -> Option<&Frame> {
    let of = |kind: FrameKind| frames.iter().find(|frame| frame.kind == kind && !is_plumbing(frame));
    of(FrameKind::Python).or_else(|| of(FrameKind::Native)).or_else(|| innermost(frames))
}

/// The innermost frame that stands for itself.
pub fn innermost(frames: &[Frame]) -> Option<&Frame> {
    let whole = || frames.iter().filter(|frame| !frame.inlined);
    whole().find(|frame| !is_trampoline(frame)).or_else(|| whole().next()).or(frames.first())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_called_torch_is_not_pytorch() {
        let python = |file| is_plumbing(&Frame::python(file, "main", 1));
        assert!(python("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"));
        assert!(!python("/home/me/torch/train.py") && !python("/site-packages/torchvision/models/resnet.py"));
    }

    /// `copy.deepcopy` copies a model for whoever called it.
    #[test]
    fn the_standard_library_of_python_asks_for_nothing() {
        let python = |file: &str| is_plumbing(&Frame::python(file, "deepcopy", 143));
        assert!(python("/usr/lib/python3.12/copy.py") && python("/usr/lib64/python3.9/json/decoder.py"));
        assert!(python("/home/me/.pyenv/versions/3.14.0t/lib/python3.14t/copy.py"));
        assert!(!python("/venv/lib/python3.12/site-packages/diffusers/copy.py") && !python("/home/me/copy.py"));
        assert!(!python("/usr/lib/python3/dist-packages/x.py") && !python("/home/me/lib/python3.d/copy.py"));
        let way = [
            Frame::python("/usr/lib/python3.12/copy.py", "deepcopy", 143),
            Frame::python("/home/me/train.py", "main", 7),
        ];
        assert_eq!(who(&way).and_then(|frame| frame.line), Some(7));
        assert_eq!(who(&way[..1]).and_then(|frame| frame.line), Some(143), "nobody else is known");
    }

    /// ctypes calls through libffi: neither asked for the memory.
    #[test]
    fn a_trampoline_asks_for_nothing() {
        let native = |module: &str| Frame { module: Some(module.to_owned()), ..Frame::native(0x10) };
        let ctypes = [native("libffi.so.8"), native("_ctypes.cpython-312-x86_64-linux-gnu.so")];
        let named = |frames: &[Frame]| who(frames).unwrap().module.clone().or(who(frames).unwrap().file.clone());
        let interpreter = [&ctypes[..], &[native("python3.12")]].concat();
        assert_eq!(named(&interpreter).as_deref(), Some("python3.12"));
        let program = [&ctypes[..], &[native("python3.12"), Frame::python("/home/me/train.py", "load", 3)]].concat();
        assert_eq!(named(&program).as_deref(), Some("/home/me/train.py"));
        assert_eq!(named(&ctypes).as_deref(), Some("libffi.so.8"), "nobody else is known");
        let bound = Frame { function: Some("pybind11::cpp_function::dispatcher(_object*)".into()), ..native("ext.so") };
        assert!(is_plumbing(&bound) && !is_plumbing(&native("libffiction.so.1")), "a name that only begins so");
    }

    #[test]
    fn libraries_pass_on_as_a_whole() {
        assert!(only_passes_on("/opt/rocm/lib/libamdhip64.so.6") && only_passes_on("libc.so.6"));
        assert!(!only_passes_on("/usr/lib/libllama.so") && !only_passes_on("/usr/lib/libcuda_app.so"));
    }
}
