//! The functions of a trace by number: name, layer, and what their status codes mean.

use gpuoom_trace::metadata::ApiTable;
use gpuoom_trace::record::{Event, Kind, Layer, Record, flag};
use gpuoom_trace::status;

/// Whose status codes a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codes {
    Hip,
    CudaRuntime,
    CudaDriver,
    Hsa,
    Errno,
    Unknown,
}

/// Which numbers a function gives out: pointers, or handles of a driver. Equal numbers of two families mean different things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// Pointers of the process, and handles of the libraries above the kernel.
    #[default]
    Pointers,
    /// Handles of KFD.
    Kfd,
    /// GEM handles, by descriptor.
    Drm,
    /// Objects of NVIDIA's resource manager, by client.
    Nvidia,
    /// Addresses of NVIDIA's unified memory: ranges, and pools of semaphores.
    Uvm,
}

impl Family {
    fn of(name: &str, layer: Option<Layer>) -> Self {
        match layer {
            Some(Layer::Kernel) if name.starts_with("DRM") => Family::Drm,
            Some(Layer::Kernel) if name.starts_with("NV") => Family::Nvidia,
            Some(Layer::Kernel) if name.starts_with("UVM") => Family::Uvm,
            Some(Layer::Kernel) => Family::Kfd,
            _ => Family::Pointers,
        }
    }
}

/// What a function ends of a device or a context, with the memory that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Nothing.
    Nothing,
    /// All that HIP holds of a device. `hipDevicePrimaryCtxReset` is no such call: in every HIP whose sources were read (5.6
    /// to 7, `hip_context.cpp`) it returns at once, and on ROCm 5.2 nothing was seen to be free after it.
    HipDevice,
    /// The primary context of the thread's device, by the CUDA runtime.
    CudaDevice,
    /// The primary context of a device.
    Primary,
    /// One reference to it.
    Reference,
    /// A context.
    Context,
}

impl Ends {
    fn of(name: &str) -> Self {
        let names = [
            ("cuCtxDestroy", Ends::Context),
            ("cuDevicePrimaryCtxRelease", Ends::Reference),
            ("cuDevicePrimaryCtxReset", Ends::Primary),
            ("cudaDeviceReset", Ends::CudaDevice),
            ("cudaThreadExit", Ends::CudaDevice),
            ("hipDeviceReset", Ends::HipDevice),
        ];
        names.into_iter().find(|(start, _)| name.starts_with(start)).map_or(Ends::Nothing, |(_, ends)| ends)
    }
}

/// What a function does that is no allocation, and that rules ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Something else.
    Else,
    /// A stream's capture begins.
    BeginsCapture,
    /// A stream's capture ends.
    EndsCapture,
    /// A pool is trimmed, or one of its attributes set.
    SetsPool,
    /// The program asks how much the memory nodes of its graphs hold.
    ReadsGraphMemory,
    /// A graph is made ready to launch.
    MakesGraph,
    /// A graph that is ready to launch is destroyed.
    EndsGraph,
    /// A graph is destroyed that others are made of.
    DropsGraph,
    /// A module or library is loaded, above HSA.
    LoadsModule,
    /// A module or library is unloaded, above HSA.
    UnloadsModule,
    /// HSA loads a code object.
    LoadsCode,
    /// HSA destroys an executable.
    UnloadsCode,
}

impl Does {
    fn of(name: &str) -> Self {
        let parts = [
            ("StreamBeginCapture", Does::BeginsCapture),
            ("StreamEndCapture", Does::EndsCapture),
            ("MemPoolTrimTo", Does::SetsPool),
            ("MemPoolSetAttribute", Does::SetsPool),
            ("DeviceGraphMemTrim", Does::SetsPool),
            ("DeviceSetGraphMemAttribute", Does::SetsPool),
            ("DeviceGetGraphMemAttribute", Does::ReadsGraphMemory),
            ("GraphInstantiate", Does::MakesGraph),
            ("GraphExecDestroy", Does::EndsGraph),
            ("GraphDestroy", Does::DropsGraph),
            ("ModuleLoad", Does::LoadsModule),
            ("LibraryLoad", Does::LoadsModule),
            ("ModuleUnload", Does::UnloadsModule),
            ("LibraryUnload", Does::UnloadsModule),
            ("hsa_executable_load", Does::LoadsCode),
            ("hsa_executable_destroy", Does::UnloadsCode),
        ];
        parts.into_iter().find(|(part, _)| name.contains(part)).map_or(Does::Else, |(_, does)| does)
    }

    /// Whether it is recorded before the call, so that no status is known.
    pub fn ends_something(self) -> bool {
        matches!(self, Does::EndsGraph | Does::DropsGraph | Does::UnloadsModule | Does::UnloadsCode)
    }
}

/// The mathematical libraries have codes of their own, which this version names only where memory ran out.
const HANDLES: [&str; 5] = ["hipblas", "rocblas_", "cublas", "cudnn", "miopen"];
/// Other functions that take memory of a size that nobody tells: contexts, limits.
const SET_UPS: [&str; 5] =
    ["cuCtxCreate", "cuDevicePrimaryCtxRetain", "hipDeviceSetLimit", "cudaDeviceSetLimit", "cuCtxSetLimit"];

/// One function.
#[derive(Clone, Debug)]
pub struct Api {
    /// Exported name.
    pub name: String,
    /// Its interface; `None` where the file does not say.
    pub layer: Option<Layer>,
    /// What of a device or context it ends.
    pub ends: Ends,
    /// What it does that is no allocation.
    pub does: Does,
    /// Whether it retains the primary context of a device.
    pub retains_primary: bool,
    /// Whether it is one of CUDA's functions.
    pub is_cuda: bool,
    /// Whether it sets something up that takes memory of unknown size, if it is not an allocation: a context, a library's
    /// handle, a limit, a queue, an executable.
    sets_up: bool,
    /// What its addresses are.
    pub family: Family,
    out_of_memory_codes: &'static [i32],
    codes: Codes,
}

impl Api {
    fn new(name: &str, layer: Option<Layer>) -> Self {
        let codes = match layer {
            _ if HANDLES.iter().any(|prefix| name.starts_with(prefix)) => Codes::Unknown,
            Some(Layer::Kernel) if !name.starts_with("AMDKFD") && !name.starts_with("DRM") && name != "ioctl" => {
                Codes::Unknown
            }
            Some(Layer::Hsa) => Codes::Hsa,
            Some(Layer::Kernel) => Codes::Errno,
            _ if name.starts_with("hip") => Codes::Hip,
            _ if name.starts_with("cuda") => Codes::CudaRuntime,
            _ if name.starts_with("cu") => Codes::CudaDriver,
            _ => Codes::Unknown,
        };
        let out_of_memory_codes = status::out_of_memory_codes(name, layer);
        let sets_up = match layer {
            Some(Layer::Hsa) => !name.contains("destroy"),
            _ => HANDLES.iter().chain(&SET_UPS).any(|prefix| name.starts_with(prefix)),
        };
        Api {
            ends: Ends::of(name),
            does: Does::of(name),
            retains_primary: name.starts_with("cuDevicePrimaryCtxRetain"),
            is_cuda: matches!(codes, Codes::CudaRuntime | Codes::CudaDriver),
            sets_up,
            family: Family::of(name, layer),
            name: name.to_owned(),
            layer,
            out_of_memory_codes,
            codes,
        }
    }

    /// Whether a record says that this function set something up whose memory has no known size, or failed to. The recorder
    /// watches the same calls (its `creation`); others that load code are recorded before they are made, and say nothing.
    pub fn is_set_up(&self, record: &Record) -> bool {
        let sort =
            matches!((record.event(), record.kind()), (Some(Event::Module), _) | (Some(Event::Reserve), Kind::Queue));
        sort && self.sets_up && !record.has(flag::CORRECTION)
    }

    /// Whether a record of this function is one of the program's out-of-memory returns that a report counts.
    pub fn is_own_out_of_memory(&self, record: &Record) -> bool {
        let asks = matches!(record.event(), Some(Event::Alloc | Event::Pin)) || self.is_set_up(record);
        asks && record.is_programs_own() && record.status != 0 && self.is_out_of_memory(record.status)
    }

    /// Whether it makes the handle of a mathematical library.
    pub fn is_library(&self) -> bool {
        self.layer == Some(Layer::Runtime) && HANDLES.iter().any(|prefix| self.name.starts_with(prefix))
    }

    /// Whether a failing call with this status means that memory ran out.
    pub fn is_out_of_memory(&self, status: i32) -> bool {
        self.out_of_memory_codes.contains(&status)
    }

    /// The vendor's name of a status code, where this version knows it.
    pub fn status_name(&self, status: i32) -> Option<&'static str> {
        let table: &[(i32, &'static str)] = match self.codes {
            Codes::Hip => HIP,
            Codes::CudaRuntime => CUDA_RUNTIME,
            Codes::CudaDriver => CUDA_DRIVER,
            Codes::Hsa => HSA,
            Codes::Errno => return errno_name(status),
            Codes::Unknown if self.is_out_of_memory(status) => return Some("out of memory"),
            Codes::Unknown => &[],
        };
        table.iter().find(|(code, _)| *code == status).map(|(_, name)| *name)
    }
}

fn errno_name(status: i32) -> Option<&'static str> {
    let table =
        [(0, "success"), (1, "EPERM"), (4, "EINTR"), (11, "EAGAIN"), (12, "ENOMEM"), (14, "EFAULT"), (22, "EINVAL")];
    let code = status.checked_abs()?;
    table.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

const HIP: &[(i32, &str)] = &[
    (0, "hipSuccess"),
    (1, "hipErrorInvalidValue"),
    (2, "hipErrorOutOfMemory"),
    (3, "hipErrorNotInitialized"),
    (4, "hipErrorDeinitialized"),
    (17, "hipErrorInvalidDevicePointer"),
    (98, "hipErrorInvalidDeviceFunction"),
    (100, "hipErrorNoDevice"),
    (101, "hipErrorInvalidDevice"),
    (200, "hipErrorInvalidImage"),
    (201, "hipErrorInvalidContext"),
    (209, "hipErrorNoBinaryForGpu"),
    (400, "hipErrorInvalidHandle"),
    (600, "hipErrorNotReady"),
    (700, "hipErrorIllegalAddress"),
    (701, "hipErrorLaunchOutOfResources"),
    (709, "hipErrorContextIsDestroyed"),
    (712, "hipErrorHostMemoryAlreadyRegistered"),
    (713, "hipErrorHostMemoryNotRegistered"),
    (719, "hipErrorLaunchFailure"),
    (801, "hipErrorNotSupported"),
    (900, "hipErrorStreamCaptureUnsupported"),
    (999, "hipErrorUnknown"),
    (1052, "hipErrorRuntimeMemory"),
];

const CUDA_RUNTIME: &[(i32, &str)] = &[
    (0, "cudaSuccess"),
    (1, "cudaErrorInvalidValue"),
    (2, "cudaErrorMemoryAllocation"),
    (3, "cudaErrorInitializationError"),
    (4, "cudaErrorCudartUnloading"),
    (17, "cudaErrorInvalidDevicePointer"),
    (98, "cudaErrorInvalidDeviceFunction"),
    (100, "cudaErrorNoDevice"),
    (101, "cudaErrorInvalidDevice"),
    (209, "cudaErrorNoKernelImageForDevice"),
    (400, "cudaErrorInvalidResourceHandle"),
    (600, "cudaErrorNotReady"),
    (700, "cudaErrorIllegalAddress"),
    (701, "cudaErrorLaunchOutOfResources"),
    (712, "cudaErrorHostMemoryAlreadyRegistered"),
    (713, "cudaErrorHostMemoryNotRegistered"),
    (719, "cudaErrorLaunchFailure"),
    (801, "cudaErrorNotSupported"),
    (900, "cudaErrorStreamCaptureUnsupported"),
    (999, "cudaErrorUnknown"),
];

const CUDA_DRIVER: &[(i32, &str)] = &[
    (0, "CUDA_SUCCESS"),
    (1, "CUDA_ERROR_INVALID_VALUE"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY"),
    (3, "CUDA_ERROR_NOT_INITIALIZED"),
    (100, "CUDA_ERROR_NO_DEVICE"),
    (101, "CUDA_ERROR_INVALID_DEVICE"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (999, "CUDA_ERROR_UNKNOWN"),
];

const HSA: &[(i32, &str)] = &[
    (0, "HSA_STATUS_SUCCESS"),
    (0x1000, "HSA_STATUS_ERROR"),
    (0x1001, "HSA_STATUS_ERROR_INVALID_ARGUMENT"),
    (0x1003, "HSA_STATUS_ERROR_INVALID_ALLOCATION"),
    (0x1008, "HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    (0x100B, "HSA_STATUS_ERROR_NOT_INITIALIZED"),
];

/// All functions of a trace.
#[derive(Clone, Debug)]
pub struct Apis {
    rows: Vec<Api>,
    unknown: Api,
    /// The families by themselves: looked up for every free.
    families: Vec<Family>,
}

impl Apis {
    /// The table of a trace.
    pub fn new(table: &ApiTable) -> Self {
        let rows: Vec<Api> = table.rows.iter().map(|row| Api::new(&row.name, Layer::from_number(row.layer))).collect();
        let families = rows.iter().map(|api| api.family).collect();
        Apis { rows, unknown: Api::new("(unnamed function)", None), families }
    }

    /// What the addresses of the function with this number are.
    #[inline]
    pub fn family(&self, api: u16) -> Family {
        self.families.get(usize::from(api)).copied().unwrap_or_default()
    }

    /// The function with this number; a nameless one where the file has no such row.
    #[inline]
    pub fn get(&self, api: u16) -> &Api {
        self.rows.get(usize::from(api)).unwrap_or(&self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layer_has_its_own_code_for_no_memory() {
        for (name, layer, status, name_of_status) in [
            ("hipMalloc", Layer::Runtime, 2, "hipErrorOutOfMemory"),
            ("cudaMalloc", Layer::Runtime, 2, "cudaErrorMemoryAllocation"),
            ("cuMemAlloc_v2", Layer::Driver, 2, "CUDA_ERROR_OUT_OF_MEMORY"),
            ("hsa_amd_memory_lock", Layer::Hsa, 0x1008, "HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
            ("ioctl", Layer::Kernel, -12, "ENOMEM"),
            ("ioctl", Layer::Kernel, 12, "ENOMEM"),
        ] {
            let api = Api::new(name, Some(layer));
            assert!(api.is_out_of_memory(status), "{name}");
            assert!(!api.is_out_of_memory(1), "{name}");
            assert_eq!(api.status_name(status), Some(name_of_status));
            assert_eq!(api.status_name(i32::MIN), None);
        }
    }

    #[test]
    fn a_number_without_a_row_has_a_name_too() {
        let apis = Apis::new(&ApiTable::default());
        assert_eq!(apis.get(9).layer, None);
        assert!(apis.get(9).is_out_of_memory(2));
    }
}
