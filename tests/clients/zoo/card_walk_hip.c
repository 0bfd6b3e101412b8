// The walk over HIP.
#include "card_walk.h"
#include "hip_min.h"

hipError_t hipDeviceTotalMem(size_t *bytes, int device);
hipError_t hipGetDevicePropertiesR0600(void *properties, int device);
hipError_t hipGetDeviceProperties(void *properties, int device);
hipError_t hipExtGetLastError(void);
hipError_t hipDeviceGetAttribute(int *value, int attribute, int device);
hipError_t hipDeviceGetLimit(size_t *value, int limit);
hipError_t hipDevicePrimaryCtxReset(int device);

enum { PLAIN, PITCHED, VOLUME, ARRAY, POOLED, PHYSICAL, PINNED, FROM_POOL, ON_LAST, PHYSICAL_ON_LAST, SORTS };
enum { TOTAL_AS_ATTRIBUTE = 84, HEAP_LIMIT = 2 };
const int walk_sorts = SORTS;

static size_t granule(void) {
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    size_t size;
    MUST(hipMemGetAllocationGranularity(&size, &properties, 0));
    return size;
}

// The device with the highest number; with one device it is the only one.
static int last(void) {
    int count;
    MUST(hipGetDeviceCount(&count));
    return count - 1;
}

// A pool whose memory lies on the last device, while the thread works on the first.
static void *pool(void) {
    static void *pool;
    hipMemPoolProps properties = {.allocType = 1, .location = {1, last()}};
    if (!pool) MUST(hipMemPoolCreate(&pool, &properties));
    return pool;
}

// Mapped, and its handle given back at once: then it lives until it is unmapped.
static int take_physical(struct walk_block *block, int device) {
    hipMemAllocationProp properties = {.type = 1, .location = {1, device}};
    block->size = (block->size + granule() - 1) / granule() * granule();
    int status = hipMemCreate(&block->handle, block->size, &properties, 0);
    if (status) return status;
    MUST(hipMemAddressReserve(&block->pointer, block->size, 0, NULL, 0));
    MUST(hipMemMap(block->pointer, block->size, 0, block->handle, 0));
    if (block->size / granule() % 2) {
        MUST(hipMemRelease(block->handle));
        block->handle = NULL;
    }
    return 0;
}

static int give_physical(struct walk_block *block) {
    int status = hipMemUnmap(block->pointer, block->size);
    MUST(hipMemAddressFree(block->pointer, block->size));
    if (block->handle) MUST(hipMemRelease(block->handle));
    return status;
}

int walk_take(struct walk_block *block) {
    size_t pitch;
    hipPitchedPtr pitched = {0};
    hipChannelFormatDesc bytes = {8, 0, 0, 0, 1};
    int status;
    switch (block->sort) {
        case PLAIN: return hipMalloc(&block->pointer, block->size);
        case PITCHED: return hipMallocPitch(&block->pointer, &pitch, block->size / 64 + 1, 64);
        case VOLUME:
            status = hipMalloc3D(&pitched, (hipExtent){block->size / 64 + 1, 8, 8});
            block->pointer = pitched.ptr;
            return status;
        case ARRAY: return hipMallocArray(&block->pointer, &bytes, block->size / 64 + 1, 64, 0);
        case POOLED: return hipMallocAsync(&block->pointer, block->size, NULL);
        case PHYSICAL: return take_physical(block, 0);
        case PHYSICAL_ON_LAST: return take_physical(block, last());
        case FROM_POOL: return hipMallocFromPoolAsync(&block->pointer, block->size, pool(), NULL);
        case ON_LAST:
            MUST(hipSetDevice(last()));
            status = hipMalloc(&block->pointer, block->size);
            // What failed is the last error until the next call, on some versions also beyond it.
            hipSetDevice(0);
            return status;
        default: return hipHostMalloc(&block->pointer, 4096, 0);
    }
}

int walk_give(struct walk_block *block) {
    int status;
    switch (block->sort) {
        case ARRAY: return hipFreeArray(block->pointer);
        case POOLED:
        case FROM_POOL:
            status = hipFreeAsync(block->pointer, NULL);
            MUST(hipStreamSynchronize(NULL));
            return status;
        case PHYSICAL:
        case PHYSICAL_ON_LAST: return give_physical(block);
        case PINNED: return hipHostFree(block->pointer);
        default: return hipFree(block->pointer);
    }
}

void walk_show(unsigned random) {
    size_t free, total, whole, before_6, since_6, heap;
    int attribute;
    unsigned char properties[4096] = {0};
    // The order of what is asked changes with the walk: up to ROCm 6 each call is the last one.
    if (random & 1) printf(" peek %d", hipPeekAtLastError());
    if (random & 2) printf(" get %d", hipGetLastError());
    if (random & 4) printf(" ext %d", hipExtGetLastError());
    if (random & 8) printf(" peek %d get %d get %d", hipPeekAtLastError(), hipGetLastError(), hipGetLastError());
    if (random & 16) printf(" bad call %d", hipDeviceTotalMem(NULL, 0));
    MUST(hipMemGetInfo(&free, &total));
    printf(" peek %d", hipPeekAtLastError());
    MUST(hipDeviceTotalMem(&whole, 0));
    MUST(hipDeviceGetAttribute(&attribute, TOTAL_AS_ATTRIBUTE, 0));
    MUST(hipDeviceGetLimit(&heap, HEAP_LIMIT));
    MUST(hipGetDevicePropertiesR0600(properties, 0));
    memcpy(&since_6, properties + 288, sizeof since_6);
    MUST(hipGetDeviceProperties(properties, 0));
    memcpy(&before_6, properties + 256, sizeof before_6);
    printf(" free %zu of %zu, %zu, %zu, %zu, %d, %zu", free, total, whole, before_6, since_6, attribute, heap);
    if (last() == 0) return;
    MUST(hipSetDevice(last()));
    MUST(hipMemGetInfo(&free, &total));
    MUST(hipSetDevice(0));
    printf(", last %zu of %zu", free, total);
}

// A reset takes all of its device and nothing of the other; that of the primary context takes nothing.
void walk_end(void) {
    struct walk_block blocks[] = {{.sort = PLAIN, .size = 100 * MiB},     {.sort = FROM_POOL, .size = 60 * MiB},
                                  {.sort = PHYSICAL, .size = 40 * MiB},   {.sort = PHYSICAL_ON_LAST, .size = 42 * MiB},
                                  {.sort = ON_LAST, .size = 30 * MiB}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) MUST(walk_take(&blocks[i]));
    walk_show(2);
    MUST(hipDevicePrimaryCtxReset(0));
    walk_show(2);
    MUST(hipDeviceReset());
    walk_show(2);
    MUST(hipSetDevice(last()));
    MUST(hipDeviceReset());
    MUST(hipSetDevice(0));
    walk_show(2);
}
