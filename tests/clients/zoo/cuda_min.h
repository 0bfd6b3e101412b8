// The CUDA runtime and driver functions that the programs of the zoo use: our own declarations, so that no NVIDIA
// header is needed. Device pointers and handles of the driver are passed as pointers: the calling convention is the
// same.
#ifndef CUDA_MIN_H
#define CUDA_MIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define KiB ((size_t)1 << 10)
#define MiB ((size_t)1 << 20)
#define GiB ((size_t)1 << 30)

enum { SUCCESS = 0, OUT_OF_MEMORY = 2 };  // of runtime and driver alike
enum { ON_DEVICE = 1, PINNED_MEMORY = 1, READ_WRITE = 3, ATTACH_GLOBAL = 1, MEMCPY_DEFAULT = 4 };

typedef struct { uint32_t x, y, z; } dim3;
typedef struct { size_t width, height, depth; } cudaExtent;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } cudaPitchedPtr;
typedef struct { int x, y, z, w, f; } cudaChannelFormatDesc;
typedef struct { int type, id; } Location;
typedef struct {
    int type, handle_types;
    Location location;
    void *metadata;
    uint64_t flags;
} AllocationProperties;
typedef struct {
    int type, handle_types;
    Location location;
    void *security;
    size_t max_size;
    unsigned char reserved[56];
} PoolProperties;
typedef struct { Location location; int flags; } AccessDescription;
typedef struct { size_t width, height; int format; unsigned channels; } ArrayShape;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } Array3DShape;

// Runtime
int cudaMalloc(void **pointer, size_t size);
int cudaMallocManaged(void **pointer, size_t size, unsigned flags);
int cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height);
int cudaMalloc3D(cudaPitchedPtr *pitched, cudaExtent extent);
int cudaMallocArray(void **array, const cudaChannelFormatDesc *channels, size_t width, size_t height, unsigned flags);
int cudaMalloc3DArray(void **array, const cudaChannelFormatDesc *channels, cudaExtent extent, unsigned flags);
int cudaFree(void *pointer);
int cudaFreeArray(void *array);
int cudaMallocHost(void **pointer, size_t size);
int cudaHostAlloc(void **pointer, size_t size, unsigned flags);
int cudaFreeHost(void *pointer);
int cudaHostRegister(void *pointer, size_t size, unsigned flags);
int cudaHostUnregister(void *pointer);
int cudaMallocAsync(void **pointer, size_t size, void *stream);
int cudaMallocAsync_ptsz(void **pointer, size_t size, void *stream);
int cudaMallocFromPoolAsync(void **pointer, size_t size, void *pool, void *stream);
int cudaMallocFromPoolAsync_ptsz(void **pointer, size_t size, void *pool, void *stream);
int cudaFreeAsync(void *pointer, void *stream);
int cudaFreeAsync_ptsz(void *pointer, void *stream);
int cudaMemPoolCreate(void **pool, const PoolProperties *properties);
int cudaMemPoolDestroy(void *pool);
int cudaMemGetInfo(size_t *free, size_t *total);
int cudaMemcpy(void *to, const void *from, size_t size, int kind);
int cudaMemcpy_ptds(void *to, const void *from, size_t size, int kind);
int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream);
int cudaStreamCreate(void **stream);
int cudaStreamDestroy(void *stream);
int cudaStreamSynchronize(void *stream);
int cudaStreamSynchronize_ptsz(void *stream);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);
int cudaSetDevice(int device);
int cudaGetLastError(void);
const char *cudaGetErrorString(int status);
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *found);
int cudaGetDriverEntryPoint_ptsz(const char *name, void **function, unsigned long long flags, int *found);
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                     int *found);

// Driver
int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuCtxDestroy_v2(void *context);
int cuCtxSetCurrent(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(void **pointer, size_t size);
int cuMemAlloc(unsigned *pointer, unsigned size);
int cuMemAllocPitch(unsigned *pointer, unsigned *pitch, unsigned width, unsigned height, unsigned element);
int cuArrayCreate(void **array, const void *shape);
int cuArray3DCreate(void **array, const void *shape);
int cuMemAllocPitch_v2(void **pointer, size_t *pitch, size_t width, size_t height, unsigned element);
int cuMemAllocManaged(void **pointer, size_t size, unsigned flags);
int cuMemFree_v2(void *pointer);
int cuMemFree(unsigned pointer);
int cuMemAllocHost_v2(void **pointer, size_t size);
int cuMemAllocHost(void **pointer, unsigned size);
int cuMemHostAlloc(void **pointer, size_t size, unsigned flags);
int cuMemFreeHost(void *pointer);
int cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags);
int cuMemHostUnregister(void *pointer);
int cuArrayCreate_v2(void **array, const ArrayShape *shape);
int cuArray3DCreate_v2(void **array, const Array3DShape *shape);
int cuArrayDestroy(void *array);
int cuMipmappedArrayCreate(void **array, const Array3DShape *shape, unsigned levels);
int cuMipmappedArrayDestroy(void *array);
int cuMemAllocAsync(void **pointer, size_t size, void *stream);
int cuMemAllocAsync_ptsz(void **pointer, size_t size, void *stream);
int cuMemAllocFromPoolAsync(void **pointer, size_t size, void *pool, void *stream);
int cuMemFreeAsync(void *pointer, void *stream);
int cuMemFreeAsync_ptsz(void *pointer, void *stream);
int cuMemPoolCreate(void **pool, const PoolProperties *properties);
int cuMemPoolDestroy(void *pool);
int cuMemGetAllocationGranularity(size_t *granularity, const AllocationProperties *properties, int option);
int cuMemAddressReserve(void **pointer, size_t size, size_t alignment, void *hint, unsigned long long flags);
int cuMemAddressFree(void *pointer, size_t size);
int cuMemCreate(void **handle, size_t size, const AllocationProperties *properties, unsigned long long flags);
int cuMemRelease(void *handle);
int cuMemMap(void *pointer, size_t size, size_t offset, void *handle, unsigned long long flags);
int cuMemUnmap(void *pointer, size_t size);
int cuMemSetAccess(void *pointer, size_t size, const AccessDescription *descriptions, size_t count);
int cuMemGetInfo_v2(size_t *free, size_t *total);
int cuStreamSynchronize(void *stream);
int cuGetErrorString(int status, const char **text);

// A call that the program's design says must succeed. The status is printed as a number: asking for its name would be
// a reaction to an error.
#define MUST(call)                                                      \
    do {                                                                \
        int must_status = (call);                                       \
        if (must_status != SUCCESS) {                                   \
            fprintf(stderr, "%s: status %d\n", #call, must_status);     \
            exit(70);                                                   \
        }                                                               \
    } while (0)

// The opposite: a request above the whole card, which must be refused.
#define MUST_NOT_FIT(call)                                              \
    do {                                                                \
        if ((call) != OUT_OF_MEMORY) {                                  \
            fprintf(stderr, "%s: not out of memory\n", #call);          \
            exit(71);                                                   \
        }                                                               \
    } while (0)

#endif
