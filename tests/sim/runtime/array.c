// Pitched memory and arrays: device memory whose size the library computes.
#include "sim.h"

enum { PITCH_ALIGNMENT = 256 };

static size_t product(size_t a, size_t b) {
    size_t result;
    return __builtin_mul_overflow(a, b, &result) ? SIZE_MAX : result;
}

static size_t at_least_one(size_t n) { return n ? n : 1; }

int sim_MallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
    if (!pitch) return SIM_INVALID_VALUE;
    size_t row = sim_round_up(width, PITCH_ALIGNMENT);
    int status = sim_allocate(pointer, SIM_KIND_DEVICE, product(row, height));
    if (status == SIM_SUCCESS) *pitch = row;
    return status;
}

int sim_Malloc3D(sim_pitched *pitched, sim_extent extent) {
    if (!pitched) return SIM_INVALID_VALUE;
    size_t pitch = 0;
    int status = sim_MallocPitch(&pitched->ptr, &pitch, extent.width, product(extent.height, extent.depth));
    if (status != SIM_SUCCESS) return status;
    pitched->pitch = pitch;
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    return SIM_SUCCESS;
}

// The handle is the address: nobody but this library looks behind it.
static int create_array(void **array, size_t element, sim_extent extent) {
    size_t plane = product(at_least_one(extent.width), at_least_one(extent.height));
    size_t texels = product(plane, at_least_one(extent.depth));
    return sim_allocate(array, SIM_KIND_ARRAY, product(element, texels));
}

static size_t element_of_channels(const sim_channels *channels) {
    int bits = channels->x + channels->y + channels->z + channels->w;
    return bits > 0 ? (size_t)bits / 8 : 0;
}

static size_t element_of_format(int format, unsigned channels) {
    enum { U16 = 0x02, U32 = 0x03, S16 = 0x09, S32 = 0x0a, HALF = 0x10, FLOAT = 0x20 };
    switch (format) {
        case U32: case S32: case FLOAT: return 4 * (size_t)channels;
        case U16: case S16: case HALF: return 2 * (size_t)channels;
        default: return channels;
    }
}

int sim_MallocArray(void **array, const sim_channels *channels, size_t width, size_t height, unsigned flags) {
    return sim_Malloc3DArray(array, channels, (sim_extent){width, height, 0}, flags);
}

int sim_Malloc3DArray(void **array, const sim_channels *channels, sim_extent extent, unsigned flags) {
    (void)flags;
    return channels ? create_array(array, element_of_channels(channels), extent) : SIM_INVALID_VALUE;
}

int sim_ArrayCreate(void **array, const sim_array_shape *shape) {
    if (!shape) return SIM_INVALID_VALUE;
    sim_extent extent = {shape->width, shape->height, 0};
    return create_array(array, element_of_format(shape->format, shape->channels), extent);
}

int sim_Array3DCreate(void **array, const sim_array3d_shape *shape) {
    if (!shape) return SIM_INVALID_VALUE;
    sim_extent extent = {shape->width, shape->height, shape->depth};
    return create_array(array, element_of_format(shape->format, shape->channels), extent);
}

// All levels in one piece, each half as long in every direction as the one before.
static int create_mipmapped(void **array, size_t element, sim_extent extent, unsigned levels) {
    size_t texels = 0;
    for (unsigned level = 0; level < levels; level++) {
        size_t plane = product(at_least_one(extent.width >> level), at_least_one(extent.height >> level));
        if (__builtin_add_overflow(texels, product(plane, at_least_one(extent.depth >> level)), &texels))
            texels = SIZE_MAX;
    }
    return create_array(array, element, (sim_extent){texels, 0, 0});
}

int sim_MallocMipmappedArray(void **array, const sim_channels *channels, sim_extent extent, unsigned levels,
                             unsigned flags) {
    (void)flags;
    return channels ? create_mipmapped(array, element_of_channels(channels), extent, levels) : SIM_INVALID_VALUE;
}

int sim_MipmappedArrayCreate(void **array, const sim_array3d_shape *shape, unsigned levels) {
    if (!shape) return SIM_INVALID_VALUE;
    sim_extent extent = {shape->width, shape->height, shape->depth};
    return create_mipmapped(array, element_of_format(shape->format, shape->channels), extent, levels);
}

int sim_FreeArray(void *array) { return sim_release(array, SIM_KIND_ARRAY); }
