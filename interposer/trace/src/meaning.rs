//! What a function of the recorder's tables means, as the tables say it and a trace of 1.6 carries it
//! ([`crate::metadata::ApiMeanings`]). Nothing here knows a function's name.

use crate::record::numbered;

numbered! {
    /// Whose status codes a function returns.
    Codes {
        /// Nobody's that is known.
        Unknown = 0 "unknown",
        /// `hipError_t`.
        Hip = 1 "HIP",
        /// `cudaError_t`.
        CudaRuntime = 2 "the CUDA runtime",
        /// `CUresult`.
        CudaDriver = 3 "the CUDA driver",
        /// `hsa_status_t`.
        Hsa = 4 "HSA",
        /// `errno`, as a positive or a negative number.
        Errno = 5 "errno",
        /// `NV_STATUS` of NVIDIA's kernel modules.
        NvStatus = 6 "NVIDIA's kernel modules",
        /// `hipblasStatus_t`.
        HipBlas = 7 "hipBLAS",
        /// `rocblas_status`.
        RocBlas = 8 "rocBLAS",
        /// `cublasStatus_t`.
        CuBlas = 9 "cuBLAS",
        /// `cudnnStatus_t`.
        CuDnn = 10 "cuDNN",
        /// `miopenStatus_t`.
        MiOpen = 11 "MIOpen",
        /// The function returns no status that tells of memory.
        Nothing = 12 "nothing",
        /// 1 where an allocator above the runtime had no memory for a block; the recorder's own number.
        Framework = 13 "an allocator above the runtime",
        /// The codes of `cl.h`.
        OpenCl = 14 "OpenCL",
    }
}

impl Codes {
    /// All codes that say that there was no memory, the usual one first.
    pub const fn out_of_memory(self) -> &'static [i32] {
        match self {
            // hipErrorOutOfMemory, cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY. Of an interface that is not known the
            // same is assumed, as readers of older traces always did.
            Codes::Hip | Codes::CudaRuntime | Codes::CudaDriver | Codes::Unknown => &[2],
            // HSA_STATUS_ERROR_OUT_OF_RESOURCES
            Codes::Hsa => &[0x1008],
            // ENOMEM; wrappers of `ioctl` return it negated.
            Codes::Errno => &[12, -12],
            // NV_ERR_INSUFFICIENT_RESOURCES and NV_ERR_NO_MEMORY (nvstatuscodes.h)
            Codes::NvStatus => &[0x1A, 0x51],
            // HIPBLAS_STATUS_ALLOC_FAILED (hipblas-common.h)
            Codes::HipBlas => &[2],
            // rocblas_status_memory_error (rocblas-types.h)
            Codes::RocBlas => &[5],
            // CUBLAS_STATUS_ALLOC_FAILED (cublas_api.h)
            Codes::CuBlas => &[3],
            // CUDNN_STATUS_ALLOC_FAILED up to 8; host and device allocation failed since 9 (cudnn_graph.h)
            Codes::CuDnn => &[2, 4003, 4004],
            // miopenStatusAllocFailed (miopen.h)
            Codes::MiOpen => &[4],
            Codes::Framework => &[1],
            // CL_MEM_OBJECT_ALLOCATION_FAILURE and CL_OUT_OF_HOST_MEMORY (cl.h). CL_OUT_OF_RESOURCES (-5) is none of them: drivers
            // answer so for a kernel that failed, too, and where memory was the reason, a call below says so.
            Codes::OpenCl => &[-4, -6],
            Codes::Nothing => &[],
        }
    }
}

numbered! {
    /// Which numbers a function gives out: pointers, or handles of a driver. Equal numbers of two families mean different
    /// things.
    Family {
        /// Pointers of the process, and handles of the libraries above the kernel.
        Pointers = 0 "pointers",
        /// Handles of KFD.
        Kfd = 1 "KFD handles",
        /// GEM handles, by descriptor.
        Drm = 2 "GEM handles",
        /// Objects of NVIDIA's resource manager, by client.
        Nvidia = 3 "NVIDIA RM objects",
        /// Addresses of NVIDIA's unified memory: ranges, and pools of semaphores.
        Uvm = 4 "UVM addresses",
    }
}

impl Default for Family {
    /// What a number is that no driver's file gave out.
    fn default() -> Self {
        Family::Pointers
    }
}

numbered! {
    /// What a function ends of a device or a context, with the memory that goes with it.
    Ends {
        /// Nothing.
        Nothing = 0 "nothing",
        /// All that HIP holds of a device. `hipDevicePrimaryCtxReset` does not do that: in every HIP whose sources were read
        /// (5.6 to 7, `hip_context.cpp`) it returns at once, and on ROCm 5.2 nothing was seen to be free after it.
        HipDevice = 1 "a device of HIP",
        /// The primary context of the thread's device, by the CUDA runtime.
        CudaDevice = 2 "the primary context of the thread's device",
        /// The primary context of a device.
        Primary = 3 "a primary context",
        /// One reference to it.
        Reference = 4 "a reference to a primary context",
        /// A context.
        Context = 5 "a context",
    }
}

numbered! {
    /// What a function does that is no allocation, and that rules ask about.
    Does {
        /// Something else.
        Else = 0 "something else",
        /// A stream's capture begins.
        BeginsCapture = 1 "begins a capture",
        /// A stream's capture ends.
        EndsCapture = 2 "ends a capture",
        /// A pool is trimmed, or one of its attributes set.
        SetsPool = 3 "sets a pool",
        /// The program asks how much the memory nodes of its graphs hold.
        ReadsGraphMemory = 4 "reads the memory of graphs",
        /// A graph is made ready to launch.
        MakesGraph = 5 "makes an executable graph",
        /// A graph that is ready to launch is destroyed.
        EndsGraph = 6 "destroys an executable graph",
        /// A graph is destroyed that others are made of.
        DropsGraph = 7 "destroys a graph",
        /// A module or library is loaded, above HSA.
        LoadsModule = 8 "loads a module",
        /// A module or library is unloaded, above HSA.
        UnloadsModule = 9 "unloads a module",
        /// HSA loads a code object.
        LoadsCode = 10 "loads a code object",
        /// HSA destroys an executable.
        UnloadsCode = 11 "destroys an executable",
        /// The name or the text of a status is asked for.
        NamesError = 12 "names an error",
        /// The program waits for all work of a device or a context.
        WaitsForDevice = 13 "waits for a device",
        /// The program waits for all work of a stream.
        WaitsForStream = 14 "waits for a stream",
        /// The program waits for what an event was recorded behind.
        WaitsForEvent = 15 "waits for an event",
        /// The program asks whether a stream's work is done, and does not wait.
        AsksStream = 16 "asks whether a stream is done",
        /// A pool is destroyed.
        EndsPool = 17 "destroys a pool",
        /// A pool is made.
        MakesPool = 18 "makes a pool",
        /// The program asks which pool a device has, by itself or at the moment.
        NamesPool = 19 "asks for a device's pool",
        /// From now on a device's plain stream-ordered calls are of this pool.
        ChoosesPool = 20 "gives a device its pool",
        /// The last error is looked at, and kept.
        PeeksError = 21 "looks at the last error and keeps it",
        /// PyTorch's caching allocator gave a block out, took one back, or had none.
        TellsOfTensor = 22 "tells of a block of PyTorch's caching allocator",
        /// A pool of the program's own did, and named itself.
        TellsOfPool = 23 "tells of a block of a pool that names itself",
        /// ggml made a buffer, freed one, or said what one is for.
        TellsOfBuffer = 24 "tells of a buffer of ggml",
        /// ggml makes buffers for tensors of which it knows nothing but their sizes.
        MakesTensors = 25 "makes buffers for tensors",
        /// ggml makes room for what a graph computes.
        PlansGraph = 26 "makes room for a graph",
        /// A model is loaded.
        LoadsModel = 27 "loads a model",
        /// What a model works with is made: its cache, and room for its graphs.
        MakesContext = 28 "makes a model's context",
        /// A model works on tokens.
        Computes = 29 "computes with a model",
        /// A line of a log is written: a format and its arguments.
        Logs = 30 "writes a line of a log",
    }
}

impl Does {
    /// Whether it is recorded before the call, so that no status is known.
    pub fn ends_something(self) -> bool {
        matches!(self, Does::EndsGraph | Does::DropsGraph | Does::UnloadsModule | Does::UnloadsCode)
    }

    /// Whether the thread goes on only when the device has done something.
    pub fn waits(self) -> bool {
        matches!(self, Does::WaitsForDevice | Does::WaitsForStream | Does::WaitsForEvent)
    }
}

/// The bits of [`Meaning::flags`].
pub mod says {
    /// It sets something up that takes memory of unknown size, if it is not an allocation: a context, a library's handle, a
    /// limit, a queue, an executable.
    pub const SETS_UP: u8 = 1;
    /// It makes the handle of a mathematical library.
    pub const LIBRARY_HANDLE: u8 = 2;
    /// It retains the primary context of a device.
    pub const RETAINS_PRIMARY: u8 = 4;
}

/// What one function means. A row of a table takes most of it from its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Whose status codes it returns.
    pub codes: Codes,
    /// What its addresses are.
    pub family: Family,
    /// What of a device or context it ends.
    pub ends: Ends,
    /// What it does that is no allocation.
    pub does: Does,
    /// Bits of [`says`].
    pub flags: u8,
}

impl Meaning {
    /// A function of which only codes and addresses are to be said.
    pub const fn new(codes: Codes, family: Family) -> Self {
        Meaning { codes, family, ends: Ends::Nothing, does: Does::Else, flags: 0 }
    }

    /// The same with status codes of its own.
    pub const fn codes(self, codes: Codes) -> Self {
        Meaning { codes, ..self }
    }

    /// The same, ending something.
    pub const fn ends(self, ends: Ends) -> Self {
        Meaning { ends, ..self }
    }

    /// The same, doing something.
    pub const fn does(self, does: Does) -> Self {
        Meaning { does, ..self }
    }

    /// The same with one more of the bits of [`says`].
    pub const fn says(self, flag: u8) -> Self {
        Meaning { flags: self.flags | flag, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_values_agree() {
        for codes in Codes::ALL {
            assert_eq!(Codes::from_number(*codes as u8), Some(*codes));
            assert_eq!(codes.out_of_memory().is_empty(), *codes == Codes::Nothing);
            assert!(!codes.out_of_memory().contains(&0), "{codes:?}");
        }
        assert!(Does::ALL.iter().all(|does| Does::from_number(*does as u8) == Some(*does)));
        assert!(Ends::ALL.iter().all(|ends| Ends::from_number(*ends as u8) == Some(*ends)));
        assert!(Family::ALL.iter().all(|family| Family::from_number(*family as u8) == Some(*family)));
    }

    #[test]
    fn a_row_adds_to_what_its_table_says() {
        let table = Meaning::new(Codes::CudaDriver, Family::Pointers);
        let row = table.ends(Ends::Context).says(says::SETS_UP).says(says::RETAINS_PRIMARY);
        assert_eq!((row.codes, row.ends, row.flags), (Codes::CudaDriver, Ends::Context, 5));
        assert_eq!(table.codes(Codes::CuDnn).codes.out_of_memory(), [2, 4003, 4004]);
    }
}
