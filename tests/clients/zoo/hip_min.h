// The HIP functions that the programs of the zoo use: our own declarations, so that no ROCm header is needed.
#ifndef HIP_MIN_H
#define HIP_MIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KiB ((size_t)1 << 10)
#define MiB ((size_t)1 << 20)
#define GiB ((size_t)1 << 30)

enum { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2 };
enum { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2, hipMemcpyDeviceToDevice = 3 };
enum { hipMemAttachGlobal = 1 };

typedef int hipError_t;
typedef void *hipStream_t;
typedef struct { uint32_t x, y, z; } dim3;
typedef struct { size_t width, height, depth; } hipExtent;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } hipPitchedPtr;
typedef struct { int x, y, z, w, f; } hipChannelFormatDesc;
typedef struct { int type, id; } hipMemLocation;
typedef struct {
    int type, requestedHandleType;
    hipMemLocation location;
    void *win32HandleMetaData;
    uint64_t allocFlags;
} hipMemAllocationProp;
typedef struct {
    int allocType, handleTypes;
    hipMemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned char reserved[56];
} hipMemPoolProps;
typedef struct { hipMemLocation location; int flags; } hipMemAccessDesc;
typedef struct {
    hipMemPoolProps poolProps;
    const hipMemAccessDesc *accessDescs;
    size_t accessDescCount, bytesize;
    void *dptr;
} hipMemAllocNodeParams;

hipError_t hipMalloc(void **pointer, size_t size);
hipError_t hipMallocManaged(void **pointer, size_t size, unsigned flags);
hipError_t hipMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height);
hipError_t hipMemAllocPitch(void **pointer, size_t *pitch, size_t width, size_t height, unsigned element);
hipError_t hipMalloc3D(hipPitchedPtr *pitched, hipExtent extent);
hipError_t hipMallocArray(void **array, const hipChannelFormatDesc *desc, size_t width, size_t height, unsigned flags);
hipError_t hipMalloc3DArray(void **array, const hipChannelFormatDesc *desc, hipExtent extent, unsigned flags);
hipError_t hipFree(void *pointer);
hipError_t hipFreeArray(void *array);

hipError_t hipHostMalloc(void **pointer, size_t size, unsigned flags);
hipError_t hipHostFree(void *pointer);
hipError_t hipHostRegister(void *pointer, size_t size, unsigned flags);
hipError_t hipHostUnregister(void *pointer);

hipError_t hipMallocAsync(void **pointer, size_t size, hipStream_t stream);
hipError_t hipMallocFromPoolAsync(void **pointer, size_t size, void *pool, hipStream_t stream);
hipError_t hipFreeAsync(void *pointer, hipStream_t stream);
hipError_t hipMemPoolCreate(void **pool, const hipMemPoolProps *properties);
hipError_t hipMemPoolDestroy(void *pool);

hipError_t hipMemGetAllocationGranularity(size_t *granularity, const hipMemAllocationProp *properties, int option);
hipError_t hipMemAddressReserve(void **pointer, size_t size, size_t alignment, void *hint, unsigned long long flags);
hipError_t hipMemAddressFree(void *pointer, size_t size);
hipError_t hipMemCreate(void **handle, size_t size, const hipMemAllocationProp *properties, unsigned long long flags);
hipError_t hipMemRelease(void *handle);
hipError_t hipMemMap(void *pointer, size_t size, size_t offset, void *handle, unsigned long long flags);
hipError_t hipMemUnmap(void *pointer, size_t size);
hipError_t hipMemSetAccess(void *pointer, size_t size, const hipMemAccessDesc *descriptors, size_t count);

hipError_t hipMemRetainAllocationHandle(void **handle, void *pointer);

hipError_t hipMemAdvise(const void *pointer, size_t size, int advice, int device);
hipError_t hipMemPrefetchAsync(const void *pointer, size_t size, int device, hipStream_t stream);
hipError_t hipDeviceSetLimit(int limit, size_t value);
hipError_t hipGetDevice(int *device);
hipError_t hipGraphCreate(void **graph, unsigned flags);
hipError_t hipGraphDestroy(void *graph);
hipError_t hipGraphAddMemAllocNode(void **node, void *graph, void *const *after, size_t count,
                                   hipMemAllocNodeParams *parameters);
hipError_t hipStreamBeginCapture(hipStream_t stream, int mode);
hipError_t hipStreamEndCapture(hipStream_t stream, void **graph);
hipError_t hipGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
hipError_t hipGraphLaunch(void *executable, hipStream_t stream);
hipError_t hipGraphAddMemFreeNode(void **node, void *graph, void *const *after, size_t count, void *pointer);
hipError_t hipDrvGraphAddMemFreeNode(void **node, void *graph, void *const *after, size_t count, void *pointer);
hipError_t hipDeviceGraphMemTrim(int device);
hipError_t hipGraphicsMapResources(int count, void **resources, hipStream_t stream);
hipError_t hipGraphicsResourceGetMappedPointer(void **pointer, size_t *size, void *resource);
hipError_t hipGraphicsUnmapResources(int count, void **resources, hipStream_t stream);

hipError_t hipMemcpy(void *to, const void *from, size_t size, int kind);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, int kind, hipStream_t stream);
hipError_t hipMemset(void *to, int value, size_t size);
hipError_t hipMemsetAsync(void *to, int value, size_t size, hipStream_t stream);
hipError_t hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream);
hipError_t hipDeviceSynchronize(void);
hipError_t hipStreamCreate(hipStream_t *stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamDestroy(hipStream_t stream);

hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);
const char *hipGetErrorName(hipError_t error);
const char *hipGetErrorString(hipError_t error);

hipError_t hipGetDeviceCount(int *count);
hipError_t hipSetDevice(int device);
hipError_t hipMemGetInfo(size_t *free, size_t *total);
hipError_t hipDeviceReset(void);

// A call that the program's design says must succeed. The status is printed as a number: asking for its name would be
// a reaction to an error, which is what these programs are about.
#define MUST(call)                                                      \
    do {                                                                \
        hipError_t must_status = (call);                                \
        if (must_status != hipSuccess) {                                \
            fprintf(stderr, "%s: status %d\n", #call, must_status);     \
            exit(70);                                                   \
        }                                                               \
    } while (0)

// The opposite: a request above the whole card, which must be refused.
#define MUST_NOT_FIT(call)                                              \
    do {                                                                \
        if ((call) != hipErrorOutOfMemory) {                            \
            fprintf(stderr, "%s: not out of memory\n", #call);          \
            exit(71);                                                   \
        }                                                               \
    } while (0)

// Some GPU work.
static inline hipError_t launch_kernel(void) {
    static char kernel;
    dim3 one = {1, 1, 1};
    return hipLaunchKernel(&kernel, one, one, NULL, 0, NULL);
}

#ifdef __cplusplus
}
#endif

#endif
