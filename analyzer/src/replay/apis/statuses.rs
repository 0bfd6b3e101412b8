//! The vendors' names of status codes.

use gpuoom_trace::meaning::Codes;

/// The name of a status code, where this version knows it.
pub(super) fn name(codes: Codes, status: i32) -> Option<&'static str> {
    let table: &[(i32, &'static str)] = match codes {
        Codes::Hip => HIP,
        Codes::CudaRuntime => CUDA_RUNTIME,
        Codes::CudaDriver => CUDA_DRIVER,
        Codes::Hsa => HSA,
        Codes::OpenCl => OPENCL,
        Codes::Errno => return errno_name(status),
        // The mathematical libraries and NVIDIA's modules have codes of their own, which are named only where memory ran out.
        _ => &[],
    };
    table.iter().find(|(code, _)| *code == status).map(|(_, name)| *name)
}

fn errno_name(status: i32) -> Option<&'static str> {
    let table =
        [(0, "success"), (1, "EPERM"), (4, "EINTR"), (11, "EAGAIN"), (12, "ENOMEM"), (14, "EFAULT"), (22, "EINVAL")];
    let code = status.checked_abs()?;
    table.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// `cl.h`. A null without a status is told by the recorder's own 1.
const OPENCL: &[(i32, &str)] = &[
    (1, "a null"),
    (0, "CL_SUCCESS"),
    (-2, "CL_DEVICE_NOT_AVAILABLE"),
    (-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    (-5, "CL_OUT_OF_RESOURCES"),
    (-6, "CL_OUT_OF_HOST_MEMORY"),
    (-11, "CL_BUILD_PROGRAM_FAILURE"),
    (-12, "CL_MAP_FAILURE"),
    (-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"),
    (-38, "CL_INVALID_MEM_OBJECT"),
    (-61, "CL_INVALID_BUFFER_SIZE"),
];

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
    (201, "CUDA_ERROR_INVALID_CONTEXT"),
    (304, "CUDA_ERROR_OPERATING_SYSTEM"),
    (400, "CUDA_ERROR_INVALID_HANDLE"),
    (500, "CUDA_ERROR_NOT_FOUND"),
    (600, "CUDA_ERROR_NOT_READY"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
    (712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"),
    (713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"),
    (719, "CUDA_ERROR_LAUNCH_FAILED"),
    // What PyTorch gets for memory that other nodes could open, where the system has no such thing.
    (800, "CUDA_ERROR_NOT_PERMITTED"),
    (801, "CUDA_ERROR_NOT_SUPPORTED"),
    (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
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
