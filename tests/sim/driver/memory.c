// Allocation and release, where the driver differs from the device model.
#include "driver.h"

int drv_MemAlloc(void **pointer, size_t size) { return size ? sim_Malloc(pointer, size) : SIM_INVALID_VALUE; }

int drv_MemAllocPitch(void **pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    if (element != 4 && element != 8 && element != 16) return SIM_INVALID_VALUE;
    return width && height ? sim_MallocPitch(pointer, pitch, width, height) : SIM_INVALID_VALUE;
}

int drv_MemAllocManaged(void **pointer, size_t size, unsigned flags) {
    return size ? sim_MallocManaged(pointer, size, flags) : SIM_INVALID_VALUE;
}

// Of an allocation node's memory, or of any other.
static int release(void *pointer, bool in_order) {
    struct graph_memory *memory = drv_graph_memory_find(pointer);
    if (memory) return drv_graph_memory_free(memory);
    return in_order ? sim_FreeAsync(pointer, NULL) : sim_Free(pointer);
}

int drv_MemFree(void *pointer) {
    sigset_t saved;
    sim_lock(&saved);
    bool forbidden = pointer && sim_allocation_forbidden(SIM_KIND_DEVICE);
    sim_unlock(&saved);
    return forbidden ? SIM_CAPTURE_UNSUPPORTED : release(pointer, false);
}

int drv_ArrayDestroy(void *array) { return array ? sim_FreeArray(array) : SIM_INVALID_HANDLE; }

int drv_MipmappedArrayGetLevel(void **array, void *mipmapped) { return drv_same(array, mipmapped); }

int drv_MemHostAlloc(void **pointer, size_t size) {
    return size ? sim_HostMalloc(pointer, size, 0) : SIM_INVALID_VALUE;
}

int drv_MemFreeHost(void *pointer) { return pointer ? sim_HostFree(pointer) : SIM_INVALID_VALUE; }

// Legacy functions. A device pointer has 32 bits there, so that they work with SIM_LOW_ADDRESSES only.

static int narrow(int status, void *wide, unsigned *pointer) {
    if (status == SIM_SUCCESS) *pointer = (unsigned)(uintptr_t)wide;
    return status;
}

int drv_MemAlloc_v1(unsigned *pointer, unsigned size) {
    if (!pointer) return SIM_INVALID_VALUE;
    if (!sim_config()->low_addresses) return SIM_OUT_OF_MEMORY;
    void *wide = NULL;
    int status = drv_MemAlloc(&wide, size);
    return narrow(status, wide, pointer);
}

int drv_MemAllocPitch_v1(unsigned *pointer, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    if (!pointer || !pitch) return SIM_INVALID_VALUE;
    if (!sim_config()->low_addresses) return SIM_OUT_OF_MEMORY;
    void *wide = NULL;
    size_t wide_pitch = 0;
    int status = drv_MemAllocPitch(&wide, &wide_pitch, width, height, element);
    *pitch = (unsigned)wide_pitch;
    return narrow(status, wide, pointer);
}

int drv_MemFree_v1(unsigned pointer) { return drv_MemFree((void *)(uintptr_t)pointer); }

int drv_MemGetInfo_v1(unsigned *free, unsigned *total) {
    size_t wide_free, wide_total;
    int status = sim_MemGetInfo(&wide_free, &wide_total);
    if (free) *free = wide_free > UINT32_MAX ? UINT32_MAX : (unsigned)wide_free;
    if (total) *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned)wide_total;
    return status;
}

int drv_ArrayCreate_v1(void **array, const struct array_shape_v1 *shape) {
    if (!shape) return SIM_INVALID_VALUE;
    return sim_ArrayCreate(array, &(sim_array_shape){shape->width, shape->height, shape->format, shape->channels});
}

int drv_Array3DCreate_v1(void **array, const struct array3d_shape_v1 *shape) {
    if (!shape) return SIM_INVALID_VALUE;
    return sim_Array3DCreate(array, &(sim_array3d_shape){shape->width, shape->height, shape->depth, shape->format,
                                                         shape->channels, shape->flags});
}

// Stream-ordered memory. In a captured stream the call becomes a node, and the memory comes with the graph's launch.

static int capture_allocation(struct stream *stream, void **pointer, size_t size) {
    struct graph_memory *memory = drv_graph_memory_new(stream->device, size);
    if (!memory) return SIM_OUT_OF_MEMORY;
    *pointer = drv_graph_memory_address(memory);
    return drv_capture_add(stream, &(struct work){.type = NODE_ALLOC, .memory = memory});
}

int drv_MemAllocAsync(void **pointer, size_t size, void *stream) {
    if (!pointer || !size) return SIM_INVALID_VALUE;
    struct stream *capturing = drv_capturing_stream(stream);
    return capturing ? capture_allocation(capturing, pointer, size) : sim_MallocAsync(pointer, size, stream);
}

int drv_MemAllocFromPoolAsync(void **pointer, size_t size, void *pool, void *stream) {
    if (!pointer || !size) return SIM_INVALID_VALUE;
    struct stream *capturing = drv_capturing_stream(stream);
    if (capturing) return capture_allocation(capturing, pointer, size);
    return sim_MallocFromPoolAsync(pointer, size, pool, stream);
}

int drv_MemFreeAsync(void *pointer, void *stream) {
    struct stream *capturing = drv_capturing_stream(stream);
    if (!capturing) return release(pointer, true);
    struct graph_memory *memory = drv_graph_memory_find(pointer);
    if (!memory) return SIM_INVALID_VALUE;
    return drv_capture_add(capturing, &(struct work){.type = NODE_FREE, .memory = memory});
}

int drv_MemPoolGetAccess(int *flags, void *pool, const sim_location *location) {
    enum { READ_WRITE = 3 };
    if (!flags || !pool || !location) return SIM_INVALID_VALUE;
    *flags = READ_WRITE;
    return SIM_SUCCESS;
}

int drv_MemGetDefaultMemPool(void **pool, const sim_location *location) {
    return location ? sim_DeviceGetDefaultMemPool(pool, location->id) : SIM_INVALID_VALUE;
}

int drv_MemGetMemPool(void **pool, const sim_location *location) {
    return location ? sim_DeviceGetMemPool(pool, location->id) : SIM_INVALID_VALUE;
}

int drv_MemSetMemPool(const sim_location *location, void *pool) {
    return location ? sim_DeviceSetMemPool(location->id, pool) : SIM_INVALID_VALUE;
}
