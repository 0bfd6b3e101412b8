//! The families of libraries whose functions are hooked.

/// A family of libraries that export the same functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Library {
    /// `libamdhip64`
    Hip = 0,
    /// libcudart
    CudaRuntime = 1,
    /// libhsa-runtime64
    Hsa = 2,
    /// The C++ runtime.
    Cxx = 3,
    /// libcuda
    CudaDriver = 4,
    /// The mathematical libraries: one family, because only the creation of their handles is hooked.
    Handles = 5,
    /// No library: the kernel, through `ioctl`.
    Kernel = 6,
    /// PyTorch's libc10
    Torch = 7,
    /// libggml and its parts, in older builds libllama
    Ggml = 8,
    /// ROCTX: libroctx64 and librocprofiler-sdk-roctx
    Roctx = 9,
    /// No library: NVTX is part of each object that uses it.
    Nvtx = 10,
    /// OpenCL: its loader
    OpenCl = 11,
}

impl Library {
    /// How many there are.
    pub(crate) const COUNT: usize = 12;

    /// What the path of such a library contains. PyTorch bundles bare names, others hash them: never a versioned name.
    pub(crate) fn path_parts(self) -> &'static [&'static str] {
        match self {
            Library::Hip => &["libamdhip64"],
            Library::CudaRuntime => &["libcudart"],
            Library::Hsa => &["libhsa-runtime64"],
            Library::Cxx => &["libstdc++", "libc++abi"],
            Library::CudaDriver => &["libcuda.so"],
            Library::Handles => &["libhipblas.so", "librocblas", "libcublas.so", "libcudnn", "libMIOpen"],
            Library::Kernel => &[],
            Library::Torch => &["libc10.so"],
            Library::Ggml => &["libggml", "libllama"],
            Library::Roctx => &["libroctx64", "librocprofiler-sdk-roctx"],
            Library::Nvtx => &[],
            Library::OpenCl => &["libOpenCL.so"],
        }
    }

    /// Whether what this library calls, it calls as part of the runtime.
    pub(crate) fn is_gpu_runtime(self) -> bool {
        matches!(self, Library::Hip | Library::CudaRuntime | Library::CudaDriver | Library::Hsa)
    }
}
