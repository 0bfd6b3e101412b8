// The tour through the CUDA driver (libcuda.so.1), without the runtime: device, legacy 32-bit, pitched, managed, array,
// pinned, registered, stream-ordered, VMM memory, and another context. Last, a failure whose text is asked for. Wants a
// device whose addresses fit in 32 bits.
// The trace must show each allocation that the card made, each once; mapped memory lives until it is released and
// unmapped; the failure is propagated, error_reported.
#define _POSIX_C_SOURCE 200112L
#include "cuda_min.h"

static size_t used(void) {
    size_t free, total;
    MUST(cuMemGetInfo_v2(&free, &total));
    return total - free;
}

static void device_memory(void) {
    void *block, *managed, *pitched;
    unsigned legacy;
    size_t pitch;
    MUST(cuMemAlloc_v2(&block, 35 * MiB));
    MUST(cuMemAlloc(&legacy, 3 * MiB));
    MUST(cuMemAllocManaged(&managed, 6 * MiB, ATTACH_GLOBAL));
    MUST(cuMemAllocPitch_v2(&pitched, &pitch, 900, 300, 4));
    MUST(cuMemFree_v2(block));
    MUST(cuMemFree(legacy));
    MUST(cuMemFree_v2(managed));
    MUST(cuMemFree_v2(pitched));
}

static void arrays(void) {
    enum { FLOAT = 0x20 };
    ArrayShape flat = {320, 200, FLOAT, 1};
    Array3DShape solid = {64, 32, 16, FLOAT, 2, 0};
    void *array, *array3d, *mipmapped;
    MUST(cuArrayCreate_v2(&array, &flat));
    MUST(cuArray3DCreate_v2(&array3d, &solid));
    MUST(cuMipmappedArrayCreate(&mipmapped, &solid, 3));
    MUST(cuArrayDestroy(array));
    MUST(cuArrayDestroy(array3d));
    MUST(cuMipmappedArrayDestroy(mipmapped));
}

// What the first drivers had, with 32-bit sizes.
static void legacy_memory(void) {
    struct { unsigned width, height; int format; unsigned channels; } flat = {640, 480, 0x20, 1};
    struct { unsigned width, height, depth; int format; unsigned channels, flags; } solid = {32, 16, 8, 0x08, 4, 0};
    unsigned pitched, pitch;
    void *array, *array3d;
    MUST(cuMemAllocPitch(&pitched, &pitch, 700, 500, 4));
    MUST(cuArrayCreate(&array, &flat));
    MUST(cuArray3DCreate(&array3d, &solid));
    printf("pitch %u\n", pitch);
    MUST(cuMemFree(pitched));
    MUST(cuArrayDestroy(array));
    MUST(cuArrayDestroy(array3d));
}

static void host_memory(void) {
    void *pinned, *legacy, *portable, *own;
    if (posix_memalign(&own, 4096, 256 * KiB) != 0) exit(79);
    MUST(cuMemAllocHost_v2(&pinned, 2 * MiB));
    MUST(cuMemAllocHost(&legacy, 1 << 16));
    MUST(cuMemHostAlloc(&portable, 3 * MiB, 1));
    MUST(cuMemHostRegister_v2(own, 256 * KiB, 0));
    MUST(cuMemHostUnregister(own));
    MUST(cuMemFreeHost(pinned));
    MUST(cuMemFreeHost(legacy));
    MUST(cuMemFreeHost(portable));
    free(own);
}

static void pools(void) {
    PoolProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};
    void *ordered, *twin, *pool, *pooled;
    MUST(cuMemAllocAsync(&ordered, 8 * MiB, NULL));
    MUST(cuMemAllocAsync_ptsz(&twin, 12 * MiB, NULL));
    MUST(cuMemPoolCreate(&pool, &properties));
    MUST(cuMemAllocFromPoolAsync(&pooled, 5 * MiB, pool, NULL));
    MUST(cuMemFreeAsync(ordered, NULL));
    MUST(cuMemFreeAsync_ptsz(twin, NULL));
    MUST(cuMemFreeAsync(pooled, NULL));
    MUST(cuMemPoolDestroy(pool));
    MUST(cuStreamSynchronize(NULL));
}

// As llama.cpp does it: the handle is given up at once, and the map keeps the memory.
static void mapped_memory(void) {
    AllocationProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};
    AccessDescription access = {{ON_DEVICE, 0}, READ_WRITE};
    void *range, *handle;
    size_t before = used();
    MUST(cuMemAddressReserve(&range, 32 * GiB, 0, NULL, 0));
    MUST(cuMemCreate(&handle, 20 * MiB, &properties, 0));
    MUST(cuMemMap(range, 20 * MiB, 0, handle, 0));
    MUST(cuMemRelease(handle));
    MUST(cuMemSetAccess(range, 20 * MiB, &access, 1));
    printf("released: %zu in use\n", used() - before);
    MUST(cuMemUnmap(range, 20 * MiB));
    printf("unmapped: %zu in use\n", used() - before);
    MUST(cuMemAddressFree(range, 32 * GiB));
}

static void another_context(void) {
    void *context, *inside, *popped;
    size_t before = used();
    MUST(cuCtxCreate_v2(&context, 0, 0));
    MUST(cuMemAlloc_v2(&inside, 40 * MiB));
    printf("context: %zu in use\n", used() - before);
    MUST(cuMemFree_v2(inside));
    MUST(cuCtxPopCurrent_v2(&popped));
    MUST(cuCtxDestroy_v2(context));
}

int main(void) {
    void *context, *too_big;
    const char *text;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    device_memory();
    arrays();
    legacy_memory();
    host_memory();
    pools();
    mapped_memory();
    another_context();
    int status = cuMemAlloc_v2(&too_big, (size_t)1 << 42);
    MUST(cuGetErrorString(status, &text));
    printf("%s\n", text);
    return 0;
}
