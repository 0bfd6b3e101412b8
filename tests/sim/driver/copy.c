// Copies and fills of the driver's shapes. In a captured stream they become nodes.
#include "driver.h"

int drv_MemPrefetch(const void *address, sim_location location) {
    enum { DEVICE = 1 };
    return sim_MemPrefetch(address, location.type == DEVICE ? location.id : -1);
}

int drv_MemcpyAsync(void *to, const void *from, size_t size, void *stream) {
    struct stream *capturing = drv_capturing_stream(stream);
    if (!capturing) return sim_Memcpy(to, from, size);
    return drv_capture_add(capturing, &(struct work){.type = NODE_COPY, .to = to, .from = from, .size = size});
}

int drv_MemsetAsync(void *to, unsigned value, size_t width, size_t count, void *stream) {
    struct stream *capturing = drv_capturing_stream(stream);
    // The first bytes of the value are the pattern: little-endian.
    if (!capturing) return sim_MemsetPattern(to, &value, width, count);
    return drv_capture_add(capturing,
                           &(struct work){.type = NODE_FILL, .to = to, .value = value, .size = width, .count = count});
}

static const char *address(int memory_type, const void *host, const void *device) {
    return memory_type == MEMORY_HOST ? host : device;
}

// Arrays have no layout here that a copy could follow.
int drv_Memcpy2D(const struct copy2d *copy) {
    if (!copy) return SIM_INVALID_VALUE;
    const struct copy2d_side *from = &copy->from, *to = &copy->to;
    if (from->memory_type == MEMORY_ARRAY || to->memory_type == MEMORY_ARRAY) return SIM_SUCCESS;
    const char *source = address(from->memory_type, from->host, from->device) + from->y * from->pitch + from->x;
    const char *target = address(to->memory_type, to->host, to->device) + to->y * to->pitch + to->x;
    // A pitch of 0 is that of rows without gaps.
    size_t from_pitch = from->pitch ? from->pitch : copy->width, to_pitch = to->pitch ? to->pitch : copy->width;
    return sim_Memcpy2D((void *)target, to_pitch, source, from_pitch, copy->width, copy->height);
}

int drv_Memcpy3D(const struct copy3d *copy) {
    if (!copy) return SIM_INVALID_VALUE;
    const struct copy3d_side *from = &copy->from, *to = &copy->to;
    for (size_t plane = 0; plane < copy->depth; plane++) {
        struct copy2d slice = {
            {from->x, from->y + (from->z + plane) * from->height, from->memory_type, from->host, from->device,
             from->array, from->pitch},
            {to->x, to->y + (to->z + plane) * to->height, to->memory_type, to->host, to->device, to->array, to->pitch},
            copy->width, copy->height,
        };
        int status = drv_Memcpy2D(&slice);
        if (status != SIM_SUCCESS) return status;
    }
    return SIM_SUCCESS;
}

int drv_Memcpy2DAsync(const struct copy2d *copy, void *stream) {
    struct stream *capturing = drv_capturing_stream(stream);
    return capturing ? drv_capture_add(capturing, &(struct work){.type = NODE_COPY}) : drv_Memcpy2D(copy);
}

int drv_Memcpy3DAsync(const struct copy3d *copy, void *stream) {
    struct stream *capturing = drv_capturing_stream(stream);
    return capturing ? drv_capture_add(capturing, &(struct work){.type = NODE_COPY}) : drv_Memcpy3D(copy);
}
