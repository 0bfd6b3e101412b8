//! Which status of which function says that there was no memory: one table for recorder and analyzer.

use crate::record::Layer;

/// HIP, the CUDA runtime and the CUDA driver: `hipErrorOutOfMemory`, `cudaErrorMemoryAllocation`,
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const RUNTIME: &[i32] = &[2];
/// `HSA_STATUS_ERROR_OUT_OF_RESOURCES`.
const HSA: &[i32] = &[0x1008];
/// `ENOMEM`; wrappers of `ioctl` return it negated.
const KERNEL: &[i32] = &[12, -12];
/// NVIDIA's resource manager: `NV_ERR_INSUFFICIENT_RESOURCES` and `NV_ERR_NO_MEMORY` (`nvstatuscodes.h`).
const NVIDIA_KERNEL: &[i32] = &[0x1A, 0x51];

/// Functions with codes of their own, by the beginning of their name.
const BY_NAME: &[(&str, &[i32])] = &[
    // HIPBLAS_STATUS_ALLOC_FAILED (hipblas-common.h)
    ("hipblas", &[2]),
    // rocblas_status_memory_error (rocblas-types.h)
    ("rocblas_", &[5]),
    // CUBLAS_STATUS_ALLOC_FAILED (cublas_api.h)
    ("cublas", &[3]),
    // CUDNN_STATUS_ALLOC_FAILED up to 8; host and device allocation failed since 9 (cudnn_graph.h)
    ("cudnn", &[2, 4003, 4004]),
    // miopenStatusAllocFailed (miopen.h)
    ("miopen", &[4]),
    ("NV_ESC_", NVIDIA_KERNEL),
    ("UVM_", NVIDIA_KERNEL),
];

/// Whether this function, of this layer, says with this status that there was no memory.
pub fn is_out_of_memory(name: &str, layer: Option<Layer>, status: i32) -> bool {
    out_of_memory_codes(name, layer).contains(&status)
}

/// All status codes of a function that say so.
pub fn out_of_memory_codes(name: &str, layer: Option<Layer>) -> &'static [i32] {
    if let Some((_, codes)) = BY_NAME.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        return codes;
    }
    match layer {
        Some(Layer::Hsa) => HSA,
        Some(Layer::Kernel) => KERNEL,
        Some(Layer::Process) => &[],
        _ => RUNTIME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interface_has_its_own_code_for_no_memory() {
        for (name, layer, status) in [
            ("hipMalloc", Layer::Runtime, 2),
            ("cuMemAlloc_v2", Layer::Driver, 2),
            ("hsa_amd_memory_pool_allocate", Layer::Hsa, 0x1008),
            ("AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", Layer::Kernel, 12),
            ("NV_ESC_RM_ALLOC", Layer::Kernel, 0x51),
            ("cublasCreate_v2", Layer::Runtime, 3),
            ("hipblasCreate", Layer::Runtime, 2),
            ("rocblas_create_handle", Layer::Runtime, 5),
            ("cudnnCreate", Layer::Runtime, 4004),
            ("miopenCreate", Layer::Runtime, 4),
        ] {
            assert!(is_out_of_memory(name, Some(layer), status), "{name}");
            assert!(!is_out_of_memory(name, Some(layer), 1), "{name}");
        }
        assert!(!is_out_of_memory("__cxa_throw", Some(Layer::Process), 2));
        assert!(is_out_of_memory("unknown", None, 2));
    }
}
