// What both front ends, HIP and CUDA, are made of. Each `sim_X` is the body of `hipX` and `cudaX`.
//
// Handles are opaque pointers, structures have the vendors' layout on x86-64.
#ifndef SIM_H
#define SIM_H

#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "device.h"
#include "status.h"
#include "truth_log.h"

typedef struct { size_t width, height, depth; } sim_extent;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } sim_pitched;
typedef struct { uint32_t x, y, z; } sim_dim3;
typedef struct { size_t x, y, z; } sim_position;
typedef struct { int x, y, z, w, format; } sim_channels;
typedef struct { size_t width, height; int format; unsigned channels; } sim_array_shape;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } sim_array3d_shape;
typedef struct { char bytes[64]; } sim_ipc_handle;
typedef struct {
    void *source_array;
    sim_position source_position;
    sim_pitched source;
    void *target_array;
    sim_position target_position;
    sim_pitched target;
    sim_extent extent;
    int kind;
} sim_copy3d;
typedef struct { int type, id; } sim_location;
typedef struct {
    int type, handle_type;
    sim_location location;
    void *security;
    uint64_t flags;
} sim_allocation_properties;
typedef struct {
    int type, handle_type;
    sim_location location;
    void *security;
    size_t max_size;
    unsigned char reserved[56];
} sim_pool_properties;
typedef struct {
    sim_pool_properties pool;
    const void *access;
    size_t access_count, size;
    void *pointer;  // the answer
} sim_memory_node;

struct external_memory_description { int type; uint64_t handle[2]; uint64_t size; unsigned flags; };
struct external_buffer_description { uint64_t offset, size; unsigned flags; };

// One allocation call, from the lock to the log line. Every begin has its end; between them the lock is held.
struct sim_attempt {
    enum sim_kind kind;
    int device;
    size_t requested;
    sigset_t saved;
};

// memory.c
int sim_attempt_begin(struct sim_attempt *attempt);  // status: whether to go on
// Hands the block out (null: failed, out of memory unless the status says otherwise) and answers the call's status.
int sim_attempt_end(struct sim_attempt *attempt, int status, struct sim_block *block, void **pointer);
int sim_allocate(void **pointer, enum sim_kind kind, size_t size);
int sim_release(void *pointer, enum sim_kind kind);
void sim_pause(void);  // SIM_SLOW_US
int sim_Malloc(void **pointer, size_t size);
int sim_ExtMallocWithFlags(void **pointer, size_t size, unsigned flags);
int sim_MallocManaged(void **pointer, size_t size, unsigned flags);
int sim_Free(void *pointer);
int sim_MemGetInfo(size_t *free, size_t *total);
int sim_MemGetAddressRange(void **base, size_t *size, void *pointer);
int sim_DeviceReset(void);
void sim_release_owned(const void *owner);  // at the end of a CUDA context; wants the lock
bool sim_allocation_forbidden(enum sim_kind kind);  // whether a stream capture does; wants the lock
void sim_report_failure(void);  // each front end: what the vendor's library calls on itself after a failure

// array.c
int sim_MallocPitch(void **pointer, size_t *pitch, size_t width, size_t height);
int sim_Malloc3D(sim_pitched *pitched, sim_extent extent);
int sim_MallocArray(void **array, const sim_channels *channels, size_t width, size_t height, unsigned flags);
int sim_Malloc3DArray(void **array, const sim_channels *channels, sim_extent extent, unsigned flags);
int sim_ArrayCreate(void **array, const sim_array_shape *shape);
int sim_Array3DCreate(void **array, const sim_array3d_shape *shape);
int sim_MallocMipmappedArray(void **array, const sim_channels *channels, sim_extent extent, unsigned levels,
                             unsigned flags);
int sim_MipmappedArrayCreate(void **array, const sim_array3d_shape *shape, unsigned levels);
int sim_FreeArray(void *array);

// host.c
struct sim_block *sim_host_find_containing(uintptr_t address);  // wants the lock
void sim_host_release_owned(const void *owner);                // wants the lock
int sim_HostMalloc(void **pointer, size_t size, unsigned flags);
int sim_HostFree(void *pointer);
int sim_HostRegister(void *pointer, size_t size, unsigned flags);
int sim_HostUnregister(void *pointer);
int sim_HostGetDevicePointer(void **device, void *host, unsigned flags);

// pool.c
int sim_MallocAsync(void **pointer, size_t size, void *stream);
int sim_MallocFromPoolAsync(void **pointer, size_t size, void *pool, void *stream);
int sim_FreeAsync(void *pointer, void *stream);
int sim_pool_take_back(struct sim_block *block);  // wants the lock
void sim_pools_release_idle(void);   // at a synchronisation; wants the lock
void sim_pools_forget(int device);   // at a device reset; wants the lock
int sim_pool_device(void *pool);  // -1: there is no such pool
int sim_MemPoolCreate(void **pool, const sim_pool_properties *properties);
int sim_MemPoolDestroy(void *pool);
int sim_MemPoolTrimTo(void *pool, size_t keep);
int sim_MemPoolSetAttribute(void *pool, int attribute, void *value);
int sim_MemPoolGetAttribute(void *pool, int attribute, void *value);
int sim_DeviceGetDefaultMemPool(void **pool, int device);
int sim_DeviceGetMemPool(void **pool, int device);
int sim_DeviceSetMemPool(int device, void *pool);

// vmm.c
void sim_vmm_forget(int device);     // at a device reset; wants the lock
struct sim_block *sim_vmm_find_containing(uintptr_t address, uintptr_t *base, size_t *size);  // wants the lock
int sim_MemRetainAllocationHandle(void **handle, void *pointer);
int sim_MemGetAllocationPropertiesFromHandle(sim_allocation_properties *properties, void *handle);
int sim_vmm_import(void **handle, int device, size_t size);  // memory that somebody else holds
int sim_MemGetAllocationGranularity(size_t *size, const sim_allocation_properties *properties, int option);
int sim_MemAddressReserve(void **pointer, size_t size, size_t alignment, void *hint, unsigned long long flags);
int sim_MemAddressFree(void *pointer, size_t size);
int sim_MemCreate(void **handle, size_t size, const sim_allocation_properties *properties, unsigned long long flags);
int sim_MemRelease(void *handle);
int sim_MemMap(void *pointer, size_t size, size_t offset, void *handle, unsigned long long flags);
int sim_MemUnmap(void *pointer, size_t size);
int sim_MemSetAccess(void *pointer, size_t size, const void *descriptors, size_t count);

// foreign.c
int sim_export_memory(int *file, void *pointer);  // as an object of the kernel
int sim_map_file(void **pointer, size_t *size, int file);  // what such an object stands for
struct sim_block *sim_foreign_find_containing(uintptr_t address);  // wants the lock
int sim_MemExportToShareableHandle(void *out, void *handle, int type);
int sim_MemImportFromShareableHandle(void **handle, void *os_handle, int type);
int sim_IpcGetMemHandle(sim_ipc_handle *handle, void *pointer);
int sim_MemPoolExportToShareableHandle(void *out, void *pool, int type);
int sim_MemPoolExportPointer(void *data, void *pointer);
int sim_IpcOpenMemHandle(void **pointer, const sim_ipc_handle *handle);
int sim_IpcCloseMemHandle(void *pointer);
int sim_ImportExternalMemory(void **memory, const struct external_memory_description *description);
int sim_ExternalMemoryGetMappedBuffer(void **pointer, void *memory, const struct external_buffer_description *buffer);
int sim_DestroyExternalMemory(void *memory);

// graph_memory.c
int sim_GraphAddMemAllocNode(void **node, sim_memory_node *parameters);
int sim_GraphAddMemFreeNode(void **node, void *pointer);
int sim_OrderMalloc(void **pointer, size_t size, void *stream);
int sim_OrderMallocFromPool(void **pointer, size_t size, void *pool, void *stream);
int sim_OrderFree(void *pointer, void *stream);
typedef struct {
    int type, reserved[3];
    union { sim_memory_node memory; void *freed; };
} sim_any_node;
int sim_GraphAddNode(void **node, sim_any_node *parameters);

// hip_context.c
int sim_CtxCreate(void **context, int device);
int sim_CtxRetain(void **context, int device);
int sim_CtxPush(void *context);
int sim_CtxPop(void **context);
int sim_CtxSet(void *context);
int sim_CtxGet(void **context);
int sim_CtxDestroy(void *context);

// graphics.c
int sim_GraphicsResourceGetMappedPointer(void **pointer, size_t *size, void *resource);

// copy.c
int sim_Memcpy(void *to, const void *from, size_t size);
int sim_MemPrefetch(const void *address, int device);  // below 0: to the host
int sim_Memcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height);
int sim_Memcpy3D(const sim_copy3d *copy);
int sim_Memset(void *to, int value, size_t size);
int sim_MemsetPattern(void *to, const void *pattern, size_t width, size_t count);
int sim_Memset2D(void *to, size_t pitch, int value, size_t width, size_t height);

// work.c
int sim_done(void);  // the body of what needs no work
int sim_unsupported(void);
int sim_Launch(const void *function);
int sim_DeviceSynchronize(void);
int sim_StreamSynchronize(void);
int sim_handle_create(void **handle);
int sim_module_load(void **handle);
int sim_handle_use(void *handle);
int sim_object_create(void **handle);  // one of its own: modules, executable graphs
int sim_object_destroy(void *handle);
int sim_EventElapsedTime(float *milliseconds, void *start, void *stop);

// capture.c
bool sim_is_captured(void *stream);
int sim_StreamBeginCapture(void *stream, int mode);
int sim_StreamEndCapture(void *stream, void **graph);
int sim_StreamIsCapturing(void *stream, int *state);

// info.c
int sim_GetDeviceCount(int *count);
int sim_SetDevice(int device);
int sim_GetDevice(int *device);
int sim_DeviceGet(int *device, int ordinal);
int sim_version(int *version);
int sim_properties(void *properties, size_t total_offset, int device);
int sim_DeviceGetAttribute(int *value, int attribute, int device);
int sim_DeviceGetName(char *name, int length, int device);
int sim_DeviceTotalMem(size_t *bytes, int device);
int sim_DeviceGetLimit(size_t *value, int limit);
int sim_DeviceGetPCIBusId(char *text, int length, int device);

#endif
