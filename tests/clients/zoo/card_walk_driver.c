// The walk over the CUDA driver.
#include "card_walk.h"
#include "cuda_min.h"

int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceGetCount(int *count);
int cuDevicePrimaryCtxReset_v2(int device);

enum { PLAIN, PITCHED, ARRAY, POOLED, PHYSICAL, PINNED, FROM_POOL, SORTS };
const int walk_sorts = SORTS;

static void *context;

static void begin(void) {
    if (context) return;
    MUST(cuInit(0));
    MUST(cuCtxCreate_v2(&context, 0, 0));
}

// A pool whose memory lies on the device with the highest number, while the thread works on the first.
static void *pool(void) {
    static void *pool;
    int count;
    MUST(cuDeviceGetCount(&count));
    PoolProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, count - 1}};
    if (!pool) MUST(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static size_t granule(void) {
    AllocationProperties properties = {.type = 1, .location = {ON_DEVICE, 0}};
    size_t size;
    MUST(cuMemGetAllocationGranularity(&size, &properties, 0));
    return size;
}

static int take_physical(struct walk_block *block) {
    AllocationProperties properties = {.type = 1, .location = {ON_DEVICE, 0}};
    block->size = (block->size + granule() - 1) / granule() * granule();
    int status = cuMemCreate(&block->handle, block->size, &properties, 0);
    if (status) return status;
    MUST(cuMemAddressReserve(&block->pointer, block->size, 0, NULL, 0));
    MUST(cuMemMap(block->pointer, block->size, 0, block->handle, 0));
    if (block->size / granule() % 2) {
        MUST(cuMemRelease(block->handle));
        block->handle = NULL;
    }
    return 0;
}

static int give_physical(struct walk_block *block) {
    int status = cuMemUnmap(block->pointer, block->size);
    MUST(cuMemAddressFree(block->pointer, block->size));
    if (block->handle) MUST(cuMemRelease(block->handle));
    return status;
}

int walk_take(struct walk_block *block) {
    begin();
    size_t pitch;
    ArrayShape shape = {block->size / 64 + 1, 64, 1, 1};
    switch (block->sort) {
        case PLAIN: return cuMemAlloc_v2(&block->pointer, block->size);
        case PITCHED: return cuMemAllocPitch_v2(&block->pointer, &pitch, block->size / 64 + 1, 64, 4);
        case ARRAY: return cuArrayCreate_v2(&block->pointer, &shape);
        case POOLED: return cuMemAllocAsync(&block->pointer, block->size, NULL);
        case PHYSICAL: return take_physical(block);
        case FROM_POOL: return cuMemAllocFromPoolAsync(&block->pointer, block->size, pool(), NULL);
        default: return cuMemAllocHost_v2(&block->pointer, 4096);
    }
}

int walk_give(struct walk_block *block) {
    int status;
    switch (block->sort) {
        case ARRAY: return cuArrayDestroy(block->pointer);
        case POOLED:
        case FROM_POOL:
            status = cuMemFreeAsync(block->pointer, NULL);
            MUST(cuStreamSynchronize(NULL));
            return status;
        case PHYSICAL: return give_physical(block);
        case PINNED: return cuMemFreeHost(block->pointer);
        default: return cuMemFree_v2(block->pointer);
    }
}

void walk_show(unsigned random) {
    size_t free, total, whole;
    (void)random;
    begin();
    MUST(cuMemGetInfo_v2(&free, &total));
    MUST(cuDeviceTotalMem_v2(&whole, 0));
    printf(" free %zu of %zu, %zu", free, total, whole);
}

static void take(size_t size_mib) {
    void *block;
    MUST(cuMemAlloc_v2(&block, size_mib * MiB));
}

// The primary context of the first device, with so much in it; then another one is current again.
static void fill_primary(size_t size_mib) {
    void *primary, *pooled;
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuCtxSetCurrent(primary));
    take(size_mib);
    MUST(cuMemAllocAsync(&pooled, 5 * MiB, NULL));
    MUST(cuCtxSetCurrent(context));
    walk_show(0);
}

// It goes with the last reference, or when it is reset; pools stay.
static void primary_ends(void) {
    begin();
    MUST(cuCtxSetCurrent(context));
    fill_primary(60);
    fill_primary(70);
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    walk_show(0);
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    walk_show(0);
    printf(" once more %d", cuDevicePrimaryCtxRelease_v2(0));
    walk_show(0);
    fill_primary(80);
    MUST(cuDevicePrimaryCtxReset_v2(0));
    walk_show(0);
    fill_primary(90);
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    walk_show(0);
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    walk_show(0);
}

// What is in a context goes with it.
void walk_end(void) {
    void *other;
    take(100);
    MUST(cuCtxCreate_v2(&other, 0, 0));
    take(50);
    walk_show(0);
    MUST(cuCtxDestroy_v2(other));
    walk_show(0);
    MUST(cuCtxDestroy_v2(context));
    context = NULL;
    walk_show(0);
    primary_ends();
}
