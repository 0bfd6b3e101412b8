// Memory: the driver's, in the runtime's shapes.
#include <string.h>

#include "cudart.h"

// Of nothing the runtime answers null; the driver would refuse.
static bool nothing(void **pointer, size_t size) {
    if (size == 0) *pointer = NULL;
    return size == 0;
}

int rt_Malloc(const struct driver *d, void **pointer, size_t size) {
    if (!pointer) return SIM_INVALID_VALUE;
    return nothing(pointer, size) ? SIM_SUCCESS : d->cuMemAlloc(pointer, size);
}

int rt_MallocPitch(const struct driver *d, void **pointer, size_t *pitch, size_t width, size_t height) {
    if (!pointer || !pitch) return SIM_INVALID_VALUE;
    *pitch = 0;
    bool empty = width == 0 || height == 0;
    if (empty) return nothing(pointer, 0) ? SIM_SUCCESS : SIM_INVALID_VALUE;
    return d->cuMemAllocPitch(pointer, pitch, width, height, 4);
}

int rt_Malloc3D(const struct driver *d, struct pitched *pitched, struct extent extent) {
    if (!pitched) return SIM_INVALID_VALUE;
    size_t rows;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) return SIM_OUT_OF_MEMORY;
    void *pointer;
    size_t pitch;
    int status = rt_MallocPitch(d, &pointer, &pitch, extent.width, rows);
    if (status == SIM_SUCCESS) *pitched = (struct pitched){pointer, pitch, extent.width, extent.height};
    return status;
}

int rt_MallocHost(const struct driver *d, void **pointer, size_t size, unsigned flags) {
    if (!pointer) return SIM_INVALID_VALUE;
    return nothing(pointer, size) ? SIM_SUCCESS : d->cuMemHostAlloc(pointer, size, flags);
}

int rt_MallocAsync(const struct driver *d, void **pointer, size_t size, void *pool, void *stream) {
    if (!pointer) return SIM_INVALID_VALUE;
    if (nothing(pointer, size)) return SIM_SUCCESS;
    return pool ? d->cuMemAllocFromPoolAsync(pointer, size, pool, stream) : d->cuMemAllocAsync(pointer, size, stream);
}

// The driver's element format, by kind of number and bits; 0: there is none
static int format_of(const struct channels *channels) {
    static const struct { int kind, bits, format; } formats[] = {
        {0, 8, 0x08}, {0, 16, 0x09}, {0, 32, 0x0a}, {1, 8, 0x01}, {1, 16, 0x02}, {1, 32, 0x03},
        {2, 16, 0x10}, {2, 32, 0x20},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].kind == channels->kind && formats[i].bits == channels->x) return formats[i].format;
    return 0;
}

static bool shape_of(const struct channels *channels, struct extent extent, unsigned flags,
                     struct array3d_shape *shape) {
    if (!channels || !format_of(channels)) return false;
    unsigned count = 1u + !!channels->y + !!channels->z + !!channels->w;
    *shape = (struct array3d_shape){extent.width, extent.height, extent.depth, format_of(channels), count, flags};
    return true;
}

int rt_MallocArray(const struct driver *d, void **array, const struct channels *channels, size_t width, size_t height,
                   unsigned flags) {
    struct array3d_shape shape;
    if (!shape_of(channels, (struct extent){width, height, 0}, flags, &shape)) return SIM_INVALID_VALUE;
    if (flags) return d->cuArray3DCreate(array, &shape);
    return d->cuArrayCreate(array, &(struct array_shape){width, height, shape.format, shape.channels});
}

int rt_Malloc3DArray(const struct driver *d, void **array, const struct channels *channels, struct extent extent,
                     unsigned flags) {
    struct array3d_shape shape;
    return shape_of(channels, extent, flags, &shape) ? d->cuArray3DCreate(array, &shape) : SIM_INVALID_VALUE;
}

int rt_MallocMipmappedArray(const struct driver *d, void **array, const struct channels *channels,
                            struct extent extent, unsigned levels, unsigned flags) {
    struct array3d_shape shape;
    if (!shape_of(channels, extent, flags, &shape)) return SIM_INVALID_VALUE;
    return d->cuMipmappedArrayCreate(array, &shape, levels);
}

static bool bad_direction(int kind) { return kind < 0 || kind > 4; }

int rt_Memcpy(const struct driver *d, void *to, const void *from, size_t size, int kind) {
    if (bad_direction(kind)) return INVALID_DIRECTION;
    return size ? d->cuMemcpy(to, from, size) : SIM_SUCCESS;
}

int rt_MemcpyAsync(const struct driver *d, void *to, const void *from, size_t size, int kind, void *stream) {
    if (bad_direction(kind)) return INVALID_DIRECTION;
    return size ? d->cuMemcpyAsync(to, from, size, stream) : SIM_SUCCESS;
}

// One address space: the driver finds out by itself where memory is.
enum { ARRAY = 3, UNIFIED = 4 };

static struct copy2d copy2d_of(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                               size_t height) {
    return (struct copy2d){{.memory_type = UNIFIED, .device = from, .pitch = from_pitch},
                           {.memory_type = UNIFIED, .device = to, .pitch = to_pitch}, width, height};
}

int rt_Memcpy2D(const struct driver *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                size_t height, int kind) {
    if (bad_direction(kind)) return INVALID_DIRECTION;
    struct copy2d copy = copy2d_of(to, to_pitch, from, from_pitch, width, height);
    return d->cuMemcpy2DUnaligned(&copy);
}

int rt_Memcpy2DAsync(const struct driver *d, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                     size_t width, size_t height, int kind, void *stream) {
    if (bad_direction(kind)) return INVALID_DIRECTION;
    struct copy2d copy = copy2d_of(to, to_pitch, from, from_pitch, width, height);
    return d->cuMemcpy2DAsync(&copy, stream);
}

static struct copy3d_side side_of(void *array, struct position position, const struct pitched *pitched) {
    return (struct copy3d_side){.x = position.x, .y = position.y, .z = position.z,
                                .memory_type = array ? ARRAY : UNIFIED, .device = pitched->pointer, .array = array,
                                .pitch = pitched->pitch, .height = pitched->height};
}

static struct copy3d copy3d_of(const struct runtime_copy3d *copy) {
    return (struct copy3d){side_of(copy->from_array, copy->from_position, &copy->from),
                           side_of(copy->to_array, copy->to_position, &copy->to), copy->extent.width,
                           copy->extent.height, copy->extent.depth};
}

int rt_Memcpy3D(const struct driver *d, const struct runtime_copy3d *copy) {
    if (!copy) return SIM_INVALID_VALUE;
    struct copy3d same = copy3d_of(copy);
    return d->cuMemcpy3D(&same);
}

int rt_Memcpy3DAsync(const struct driver *d, const struct runtime_copy3d *copy, void *stream) {
    if (!copy) return SIM_INVALID_VALUE;
    struct copy3d same = copy3d_of(copy);
    return d->cuMemcpy3DAsync(&same, stream);
}

int rt_PointerGetAttributes(const struct driver *d, struct pointer_attributes *attributes, const void *pointer) {
    enum { UNREGISTERED, HOST, DEVICE, MANAGED };
    if (!attributes) return SIM_INVALID_VALUE;
    int memory_type = 0, is_managed = 0, device = 0;
    void *device_pointer = NULL, *host_pointer = NULL;
    int questions[] = {2, 8, 9, 3, 4};  // memory type, managed, device, device pointer, host pointer
    void *answers[] = {&memory_type, &is_managed, &device, &device_pointer, &host_pointer};
    int status = d->cuPointerGetAttributes(5, questions, answers, pointer);
    if (status != SIM_SUCCESS) return status;
    int type = memory_type == 0 ? UNREGISTERED : is_managed ? MANAGED : memory_type == 1 ? HOST : DEVICE;
    *attributes = (struct pointer_attributes){type, device, device_pointer, host_pointer, {0}};
    // Of memory that CUDA does not know, the host's address is the one that was asked about.
    if (type == UNREGISTERED) attributes->host_pointer = (void *)pointer;
    return SIM_SUCCESS;
}
