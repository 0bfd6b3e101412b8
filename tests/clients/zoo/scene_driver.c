// Plays the script that is its argument (see scene.h) over the CUDA driver alone: no runtime, no last error, no modules.
#include "cuda_min.h"

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra);
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size);
int cuMemcpyDtoH_v2(void *to, const void *from, size_t size);
int cuMemcpyDtoD_v2(void *to, const void *from, size_t size);
int cuDeviceGetDefaultMemPool(void **pool, int device);
int cuMemPoolSetAttribute(void *pool, int attribute, void *value);
int cuMemPoolTrimTo(void *pool, size_t keep);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);

static __thread int has_context;

// Each thread works in the primary context of the device that it has chosen, as the runtime's calls would.
static int gpuSetDevice(int ordinal) {
    void *context;
    has_context = 1;
    int device, status = cuInit(0);
    if (status == SUCCESS) status = cuDeviceGet(&device, ordinal);
    if (status == SUCCESS) status = cuDevicePrimaryCtxRetain(&context, device);
    return status == SUCCESS ? cuCtxSetCurrent(context) : status;
}

static int ready(void) { return has_context ? SUCCESS : gpuSetDevice(0); }

#define AFTER_READY(call) (ready() == SUCCESS ? (call) : 201)

static int gpuMalloc(void **p, size_t size) { return AFTER_READY(cuMemAlloc_v2(p, size)); }
static int gpuMallocManaged(void **p, size_t size, unsigned flags) { return AFTER_READY(cuMemAllocManaged(p, size, flags)); }
static int gpuMallocAsync(void **p, size_t size, void *stream) { return AFTER_READY(cuMemAllocAsync(p, size, stream)); }
static int gpuHostAlloc(void **p, size_t size, unsigned flags) { return AFTER_READY(cuMemHostAlloc(p, size, flags)); }
static int gpuHostRegister(void *p, size_t size, unsigned flags) { return AFTER_READY(cuMemHostRegister_v2(p, size, flags)); }
static int gpuFree(void *p) { return AFTER_READY(cuMemFree_v2(p)); }
static int gpuFreeAsync(void *p, void *stream) { return AFTER_READY(cuMemFreeAsync(p, stream)); }
static int gpuFreeHost(void *p) { return AFTER_READY(cuMemFreeHost(p)); }
static int gpuHostUnregister(void *p) { return AFTER_READY(cuMemHostUnregister(p)); }
static int gpuDeviceSynchronize(void) { return AFTER_READY(cuCtxSynchronize()); }
static int gpuDeviceGetDefaultMemPool(void **pool, int device) { return AFTER_READY(cuDeviceGetDefaultMemPool(pool, device)); }
#define gpuIpcGetMemHandle cuIpcGetMemHandle
static int gpuGetLastError(void) { return OUT_OF_MEMORY; }  // the driver keeps none: a program remembers it itself

static const char *gpuGetErrorString(int status) {
    const char *text = "unknown";
    cuGetErrorString(status, &text);
    return text;
}

static int gpuMemcpy(void *to, const void *from, size_t size, int kind) {
    if (kind == 1) return AFTER_READY(cuMemcpyHtoD_v2(to, from, size));
    if (kind == 2) return AFTER_READY(cuMemcpyDtoH_v2(to, from, size));
    return AFTER_READY(cuMemcpyDtoD_v2(to, from, size));
}

static int gpuLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
    return AFTER_READY(cuLaunchKernel((void *)function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared,
                                      stream, arguments, NULL));
}

#define gpuMemPoolSetAttribute cuMemPoolSetAttribute
#define gpuMemPoolTrimTo cuMemPoolTrimTo
#define gpuStreamBeginCapture cuStreamBeginCapture_v2
#define gpuStreamEndCapture cuStreamEndCapture

#define GPU(name) gpu##name
#define DESTINATION_HOST 2
#define DESTINATION_DEVICE 1
#define WITHOUT_DRIVER
#include "scene.h"
