//! What functions mean, from their names: for traces before 1.6, which do not say it. A function that came later is in no such
//! trace, so nothing is added here. `tests/tests/meanings.rs` holds it against the recorder's rows.

use gpuoom_trace::meaning::{Codes, Does, Ends, Family, Meaning, says};
use gpuoom_trace::record::{Kind, Layer};

/// The mathematical libraries, by the beginning of their functions' names.
const LIBRARIES: [(&str, Codes); 5] = [
    ("hipblas", Codes::HipBlas),
    ("rocblas_", Codes::RocBlas),
    ("cublas", Codes::CuBlas),
    ("cudnn", Codes::CuDnn),
    ("miopen", Codes::MiOpen),
];

/// Other functions that take memory of a size that nobody tells.
const SET_UPS: [&str; 9] = [
    "cuCtxCreate",
    "cuDevicePrimaryCtxRetain",
    "hipDeviceSetLimit",
    "cudaDeviceSetLimit",
    "cuCtxSetLimit",
    "hsa_queue_create",
    "hsa_code_object_reader_create",
    "hsa_executable_load",
    "hsa_executable_freeze",
];

const ENDS: [(&str, Ends); 6] = [
    ("cuCtxDestroy", Ends::Context),
    ("cuDevicePrimaryCtxRelease", Ends::Reference),
    ("cuDevicePrimaryCtxReset", Ends::Primary),
    ("cudaDeviceReset", Ends::CudaDevice),
    ("cudaThreadExit", Ends::CudaDevice),
    ("hipDeviceReset", Ends::HipDevice),
];

const DOES: [(&str, Does); 29] = [
    ("StreamBeginCapture", Does::BeginsCapture),
    ("StreamEndCapture", Does::EndsCapture),
    ("MemPoolTrimTo", Does::SetsPool),
    ("MemPoolSetAttribute", Does::SetsPool),
    ("MemPoolCreate", Does::MakesPool),
    ("GetDefaultMemPool", Does::NamesPool),
    ("GetMemPool", Does::NamesPool),
    ("SetMemPool", Does::ChoosesPool),
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
    ("ErrorString", Does::NamesError),
    ("ErrorName", Does::NamesError),
    ("status_string", Does::NamesError),
    ("PeekAtLastError", Does::PeeksError),
    ("DeviceSynchronize", Does::WaitsForDevice),
    ("CtxSynchronize", Does::WaitsForDevice),
    ("StreamSynchronize", Does::WaitsForStream),
    ("EventSynchronize", Does::WaitsForEvent),
    ("StreamQuery", Does::AsksStream),
];

/// What a function means by its name.
pub fn meaning(name: &str, layer: Option<Layer>) -> Meaning {
    let library = LIBRARIES.iter().find(|(start, _)| name.starts_with(start)).map(|(_, codes)| *codes);
    let sets_up = library.is_some() || SET_UPS.iter().any(|start| name.starts_with(start));
    let flags = [
        (sets_up, says::SETS_UP),
        (library.is_some() && layer == Some(Layer::Runtime), says::LIBRARY_HANDLE),
        (name.starts_with("cuDevicePrimaryCtxRetain"), says::RETAINS_PRIMARY),
    ];
    let does = match name.contains("MemPoolDestroy") {
        true => Does::EndsPool,
        false => DOES.iter().find(|(part, _)| name.contains(part)).map_or(Does::Else, |(_, does)| *does),
    };
    Meaning {
        codes: library.unwrap_or_else(|| codes(name, layer)),
        family: family(name, layer),
        ends: ENDS.iter().find(|(start, _)| name.starts_with(start)).map_or(Ends::Nothing, |(_, ends)| *ends),
        does,
        flags: flags.into_iter().filter(|(so, _)| *so).fold(0, |flags, (_, flag)| flags | flag),
    }
}

/// The kind of memory, as far as a name tells it.
pub fn kind(name: &str) -> Kind {
    match name {
        _ if name.contains("Host") => Kind::HostPinned,
        "hipMalloc" | "hipExtMallocWithFlags" | "cudaMalloc" => Kind::Device,
        "hipMemCreate" | "cuMemCreate" => Kind::Physical,
        _ => Kind::None,
    }
}

fn codes(name: &str, layer: Option<Layer>) -> Codes {
    match layer {
        Some(Layer::Process) => Codes::Nothing,
        Some(Layer::Hsa) => Codes::Hsa,
        Some(Layer::Kernel) if name.starts_with("NV_") || name.starts_with("UVM_") => Codes::NvStatus,
        Some(Layer::Kernel) => Codes::Errno,
        _ if name.starts_with("hip") => Codes::Hip,
        _ if name.starts_with("cuda") => Codes::CudaRuntime,
        _ if name.starts_with("cu") => Codes::CudaDriver,
        _ => Codes::Unknown,
    }
}

fn family(name: &str, layer: Option<Layer>) -> Family {
    match layer {
        Some(Layer::Kernel) if name.starts_with("DRM") => Family::Drm,
        Some(Layer::Kernel) if name.starts_with("NV") => Family::Nvidia,
        Some(Layer::Kernel) if name.starts_with("UVM") => Family::Uvm,
        Some(Layer::Kernel) => Family::Kfd,
        _ => Family::Pointers,
    }
}
