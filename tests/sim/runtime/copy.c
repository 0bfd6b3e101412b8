// Copies and fills: they really move bytes, at once and in order.
#include <string.h>

#include "sim.h"

static size_t limited(size_t size) {
    size_t limit = sim_config()->copy_bytes;
    return size < limit ? size : limit;
}

static void touch(const void *address) {
    if (!sim_config()->card.managed_when_touched) return;
    sigset_t saved;
    sim_lock(&saved);
    sim_device_touch((uintptr_t)address);
    sim_unlock(&saved);
}

int sim_MemPrefetch(const void *address, int device) {
    if (device >= 0) touch(address);
    return SIM_SUCCESS;
}

int sim_Memcpy(void *to, const void *from, size_t size) {
    if (size == 0) return SIM_SUCCESS;
    if (!to || !from) return SIM_INVALID_VALUE;
    touch(to);
    memmove(to, from, limited(size));
    return SIM_SUCCESS;
}

int sim_Memcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height) {
    if (width == 0 || height == 0) return SIM_SUCCESS;
    if (!to || !from || width > to_pitch || width > from_pitch) return SIM_INVALID_VALUE;
    touch(to);
    for (size_t row = 0; row < height; row++)
        memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, limited(width));
    return SIM_SUCCESS;
}

// Arrays have no layout here that a copy could follow: only pitched memory moves.
int sim_Memcpy3D(const sim_copy3d *copy) {
    if (!copy) return SIM_INVALID_VALUE;
    if (copy->source_array || copy->target_array) return SIM_SUCCESS;
    const sim_pitched *from = &copy->source, *to = &copy->target;
    if (!from->ptr || !to->ptr) return SIM_INVALID_VALUE;
    for (size_t plane = 0; plane < copy->extent.depth; plane++) {
        int status = sim_Memcpy2D((char *)to->ptr + plane * to->pitch * to->ysize, to->pitch,
                                  (const char *)from->ptr + plane * from->pitch * from->ysize, from->pitch,
                                  copy->extent.width, copy->extent.height);
        if (status != SIM_SUCCESS) return status;
    }
    return SIM_SUCCESS;
}

int sim_Memset(void *to, int value, size_t size) {
    if (size == 0) return SIM_SUCCESS;
    if (!to) return SIM_INVALID_VALUE;
    touch(to);
    memset(to, value, limited(size));
    return SIM_SUCCESS;
}

int sim_MemsetPattern(void *to, const void *pattern, size_t width, size_t count) {
    if (count == 0) return SIM_SUCCESS;
    if (!to) return SIM_INVALID_VALUE;
    touch(to);
    for (size_t i = 0; i < limited(count); i++) memcpy((char *)to + i * width, pattern, width);
    return SIM_SUCCESS;
}

int sim_Memset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
    if (width == 0 || height == 0) return SIM_SUCCESS;
    if (!to || width > pitch) return SIM_INVALID_VALUE;
    touch(to);
    for (size_t row = 0; row < height; row++) memset((char *)to + row * pitch, value, limited(width));
    return SIM_SUCCESS;
}
