// A CUDA runtime that is no more than NVIDIA's is: a layer over the driver. It reaches the driver as NVIDIA's does, and
// all memory is the driver's. Only the fat binaries that a program registers are kept here.
#ifndef CUDART_H
#define CUDART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

// Which runtime this is: 13, unless what it is linked with says another (tests/sim/vendor).
extern int sim_cudart_major;
#define RUNTIME_VERSION (sim_cudart_major * 1000 + 20)

// Statuses of the runtime only
enum { INVALID_DIRECTION = 21, INSUFFICIENT_DRIVER = 35, INVALID_DEVICE_FUNCTION = 98, INVALID_SYMBOL = 13 };

// Layouts of the runtime's and the driver's structures on x86-64

struct dim3 { unsigned x, y, z; };
struct location { int type, id; };
struct ipc_handle { char bytes[64]; };
struct extent { size_t width, height, depth; };
struct position { size_t x, y, z; };
struct pitched { void *pointer; size_t pitch, width, height; };
struct channels { int x, y, z, w, kind; };
struct array_shape { size_t width, height; int format; unsigned channels; };
struct array3d_shape { size_t width, height, depth; int format; unsigned channels, flags; };
struct copy2d_side {
    size_t x, y;
    int memory_type;
    const void *host, *device, *array;
    size_t pitch;
};
struct copy2d { struct copy2d_side from, to; size_t width, height; };
struct copy3d_side {
    size_t x, y, z, level;
    int memory_type;
    const void *host, *device, *array, *reserved;
    size_t pitch, height;
};
struct copy3d { struct copy3d_side from, to; size_t width, height, depth; };
struct runtime_copy3d {
    void *from_array;
    struct position from_position;
    struct pitched from;
    void *to_array;
    struct position to_position;
    struct pitched to;
    struct extent extent;
    int kind;
};
struct launch_configuration {
    struct dim3 grid, block;
    size_t shared;
    void *stream, *attributes;
    unsigned count;
};
struct function_attributes {
    size_t shared, constant, local;
    int max_threads, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared, carveout, rest[23];
};
struct pointer_attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
};
_Static_assert(sizeof(struct function_attributes) == 144, "the runtime's layout");
_Static_assert(sizeof(struct pointer_attributes) == 88, "the runtime's layout");
_Static_assert(sizeof(struct launch_configuration) == 56, "the runtime's layout");

// load.c: the driver's functions
struct driver {
#define CALL(name, version, parameters) int(*name) parameters;
#include "driver_calls.h"
#undef CALL
};
// The two sets differ in which default stream their functions mean.
enum stream_api { LEGACY, PER_THREAD };
enum need { NEEDS_NOTHING, NEEDS_DRIVER, NEEDS_CONTEXT };

// Begin and end of each exported function: `*status` says whether to go on, the end keeps the last error.
const struct driver *rt_begin(enum stream_api api, enum need need, int *status);
int rt_end(int status);
const struct driver *rt_driver(void);  // as loaded; null functions where the driver is too old

// context.c
int rt_use_context(const struct driver *d);  // makes the chosen device's primary context current where none is
int rt_SetDevice(const struct driver *d, int device);
int rt_GetDevice(const struct driver *d, int *device);
int rt_DeviceReset(const struct driver *d);
int rt_EnablePeerAccess(const struct driver *d, int peer);
int rt_DisablePeerAccess(const struct driver *d, int peer);
int rt_GetDeviceProperties(const struct driver *d, void *properties, int device);
int rt_GetDriverEntryPoint(const struct driver *d, enum stream_api api, const char *name, void **function,
                           unsigned version, unsigned long long flags, int *found);

// memory.c
int rt_Malloc(const struct driver *d, void **pointer, size_t size);
int rt_MallocPitch(const struct driver *d, void **pointer, size_t *pitch, size_t width, size_t height);
int rt_Malloc3D(const struct driver *d, struct pitched *pitched, struct extent extent);
int rt_MallocHost(const struct driver *d, void **pointer, size_t size, unsigned flags);
int rt_MallocArray(const struct driver *d, void **array, const struct channels *channels, size_t width, size_t height,
                   unsigned flags);
int rt_Malloc3DArray(const struct driver *d, void **array, const struct channels *channels, struct extent extent,
                     unsigned flags);
int rt_MallocMipmappedArray(const struct driver *d, void **array, const struct channels *channels,
                            struct extent extent, unsigned levels, unsigned flags);
int rt_MallocAsync(const struct driver *d, void **pointer, size_t size, void *pool, void *stream);
int rt_Memcpy(const struct driver *d, void *to, const void *from, size_t size, int kind);
int rt_MemcpyAsync(const struct driver *d, void *to, const void *from, size_t size, int kind, void *stream);
int rt_Memcpy2D(const struct driver *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                size_t height, int kind);
int rt_Memcpy2DAsync(const struct driver *d, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                     size_t width, size_t height, int kind, void *stream);
int rt_Memcpy3D(const struct driver *d, const struct runtime_copy3d *copy);
int rt_Memcpy3DAsync(const struct driver *d, const struct runtime_copy3d *copy, void *stream);
int rt_PointerGetAttributes(const struct driver *d, struct pointer_attributes *attributes, const void *pointer);

// binaries.c: the kernels and variables of the program
void *rt_kernel(const struct driver *d, const void *symbol);  // the driver's kernel; the symbol itself where it is one
void *rt_variable(const void *symbol, size_t *size);          // null: not registered

// launch.c
int rt_GetKernel(const struct driver *d, void **kernel, const void *symbol);
int rt_Launch(const struct driver *d, const void *function, struct dim3 grid, struct dim3 block, void **arguments,
              size_t shared, void *stream);
int rt_LaunchCooperative(const struct driver *d, const void *function, struct dim3 grid, struct dim3 block,
                         void **arguments, size_t shared, void *stream);
int rt_LaunchEx(const struct driver *d, const struct launch_configuration *configuration, const void *function,
                void **arguments);
int rt_FuncGetAttributes(const struct driver *d, struct function_attributes *attributes, const void *function);
int rt_FuncSetAttribute(const struct driver *d, const void *function, int attribute, int value);
int rt_FuncSetCacheConfig(const struct driver *d, const void *function, int value);
int rt_FuncGetName(const struct driver *d, const char **name, const void *function);
int rt_Occupancy(const struct driver *d, int *blocks, const void *function, int block, size_t shared);
int rt_GetSymbolAddress(void **address, const void *symbol);
int rt_GetSymbolSize(size_t *size, const void *symbol);
int rt_MemcpyToSymbol(const struct driver *d, const void *symbol, const void *from, size_t size, size_t offset,
                      void *stream, bool in_stream);
int rt_MemcpyFromSymbol(const struct driver *d, void *to, const void *symbol, size_t size, size_t offset, void *stream,
                        bool in_stream);
int rt_ConditionalHandle(const struct driver *d, unsigned long long *handle, void *graph, unsigned value,
                         unsigned flags);

#endif
