// What each vendor's library calls a status.
#include <stddef.h>

#include "status.h"

static const struct {
    int status;
    const char *names[3];  // by dialect
    const char *text;
} statuses[] = {
    {SIM_SUCCESS, {"hipSuccess", "cudaSuccess", "CUDA_SUCCESS"},
     "no error"},
    {SIM_INVALID_VALUE, {"hipErrorInvalidValue", "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE"},
     "invalid argument"},
    {SIM_OUT_OF_MEMORY, {"hipErrorOutOfMemory", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"},
     "out of memory"},
    {SIM_NOT_INITIALIZED, {"hipErrorNotInitialized", "cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED"},
     "initialization error"},
    {SIM_NO_DEVICE, {"hipErrorNoDevice", "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE"},
     "no GPU is detected"},
    {SIM_INVALID_DEVICE, {"hipErrorInvalidDevice", "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE"},
     "invalid device ordinal"},
    {SIM_INVALID_CONTEXT, {"hipErrorInvalidContext", "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT"},
     "invalid device context"},
    {SIM_INVALID_HANDLE, {"hipErrorInvalidHandle", "cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE"},
     "invalid resource handle"},
    {SIM_NOT_FOUND, {"hipErrorNotFound", "cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND"},
     "named symbol not found"},
    {SIM_NOT_READY, {"hipErrorNotReady", "cudaErrorNotReady", "CUDA_ERROR_NOT_READY"},
     "device not ready"},
    {SIM_CONTEXT_IS_DESTROYED,
     {"hipErrorContextIsDestroyed", "cudaErrorContextIsDestroyed",
      "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
     "context is destroyed"},
    {SIM_ALREADY_REGISTERED,
     {"hipErrorHostMemoryAlreadyRegistered", "cudaErrorHostMemoryAlreadyRegistered",
      "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
     "part or all of the requested memory range is already mapped"},
    {SIM_NOT_REGISTERED,
     {"hipErrorHostMemoryNotRegistered", "cudaErrorHostMemoryNotRegistered",
      "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
     "pointer does not correspond to a registered memory region"},
    {SIM_NOT_SUPPORTED, {"hipErrorNotSupported", "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED"},
     "operation not supported"},
    {SIM_CAPTURE_UNSUPPORTED,
     {"hipErrorStreamCaptureUnsupported", "cudaErrorStreamCaptureUnsupported",
      "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
     "operation not permitted when stream is capturing"},
    {SIM_CAPTURE_INVALIDATED,
     {"hipErrorStreamCaptureInvalidated", "cudaErrorStreamCaptureInvalidated",
      "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
     "operation failed due to a previous error during capture"},
    {SIM_CAPTURE_UNMATCHED,
     {"hipErrorStreamCaptureUnmatched", "cudaErrorStreamCaptureUnmatched",
      "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
     "the capture was not initiated in this stream"},
};

const char *sim_status_name(int status, enum sim_dialect dialect) {
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].status == status) return statuses[i].names[dialect];
    return NULL;
}

const char *sim_status_text(int status) {
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].status == status) return statuses[i].text;
    return NULL;
}
