// One of each kind: managed, pitched, 3D, arrays, pinned, registered, stream-ordered, pool, virtual memory management.
// Also what is named and is no memory of the program: advice, memory nodes of a graph, a resource of graphics, a limit.
// The trace must show every allocation that the card made, each once, and nothing live at the end.
#define _POSIX_C_SOURCE 200112L
#include "hip_min.h"

static void linear(void) {
    void *managed, *pitched;
    hipPitchedPtr cube;
    size_t pitch;
    enum { CPU = -1, READ_MOSTLY = 1 };
    MUST(hipMallocManaged(&managed, 9 * MiB, hipMemAttachGlobal));
    MUST(hipMemAdvise(managed, 9 * MiB, READ_MOSTLY, 0));
    MUST(hipMemPrefetchAsync(managed, 8 * MiB, 0, NULL));
    MUST(hipMemPrefetchAsync(managed, 8 * MiB, CPU, NULL));
    MUST(hipMallocPitch(&pitched, &pitch, 1000, 333));
    MUST(hipMalloc3D(&cube, (hipExtent){500, 20, 30}));
    MUST(hipFree(managed));
    MUST(hipFree(pitched));
    MUST(hipFree(cube.ptr));
    MUST(hipMemAllocPitch(&pitched, &pitch, 2000, 77, 4));
    MUST(hipFree(pitched));
}

static void arrays(void) {
    hipChannelFormatDesc floats = {32, 0, 0, 0, 2};
    void *flat, *deep;
    MUST(hipMallocArray(&flat, &floats, 640, 480, 0));
    MUST(hipMalloc3DArray(&deep, &floats, (hipExtent){64, 64, 16}, 0));
    MUST(hipFreeArray(flat));
    MUST(hipFreeArray(deep));
}

static void host(void) {
    void *pinned, *own;
    if (posix_memalign(&own, 4096, 256 * KiB) != 0) exit(79);
    MUST(hipHostMalloc(&pinned, 3 * MiB, 0));
    MUST(hipHostRegister(own, 256 * KiB, 0));
    MUST(hipHostUnregister(own));
    MUST(hipHostFree(pinned));
    free(own);
}

static void stream_ordered(void) {
    hipStream_t stream;
    hipMemPoolProps properties = {.allocType = 1, .location = {1, 0}};
    void *pool, *ordered, *pooled, *again;
    MUST(hipStreamCreate(&stream));
    MUST(hipMallocAsync(&ordered, 11 * MiB, stream));
    MUST(hipMemPoolCreate(&pool, &properties));
    MUST(hipMallocFromPoolAsync(&pooled, 12 * MiB, pool, stream));
    MUST(hipFreeAsync(ordered, stream));
    // Out of what the pool has kept: the same address, no new memory.
    MUST(hipMallocAsync(&again, 11 * MiB, stream));
    MUST(hipFreeAsync(again, stream));
    MUST(hipFree(pooled));
    MUST(hipStreamSynchronize(stream));
    MUST(hipMemPoolDestroy(pool));
    MUST(hipStreamDestroy(stream));
}

static void virtual_memory(void) {
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    hipMemAccessDesc access = {{1, 0}, 3};
    size_t granule;
    void *range, *handle;
    MUST(hipMemGetAllocationGranularity(&granule, &properties, 0));
    MUST(hipMemAddressReserve(&range, 64 * granule, 0, NULL, 0));
    MUST(hipMemCreate(&handle, 4 * granule, &properties, 0));
    MUST(hipMemMap(range, 4 * granule, 0, handle, 0));
    MUST(hipMemSetAccess(range, 4 * granule, &access, 1));
    MUST(hipMemset(range, 7, granule));
    MUST(hipMemUnmap(range, 4 * granule));
    MUST(hipMemRelease(handle));
    MUST(hipMemAddressFree(range, 64 * granule));
}

static void graph(void) {
    hipMemAllocNodeParams parameters = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = 13 * MiB};
    void *graph, *node, *first;
    MUST(hipGraphCreate(&graph, 0));
    MUST(hipGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
    first = parameters.dptr;
    MUST(hipGraphAddMemAllocNode(&node, graph, &node, 1, &parameters));
    MUST(hipGraphAddMemFreeNode(&node, graph, &node, 1, first));
    MUST(hipDrvGraphAddMemFreeNode(&node, graph, &node, 1, parameters.dptr));
    MUST(hipGraphDestroy(graph));
    MUST(hipDeviceGraphMemTrim(0));
}

static void of_others(void) {
    enum { HEAP_SIZE = 2 };
    void *resource = &resource, *pointer;
    size_t size;
    MUST(hipGraphicsMapResources(1, &resource, NULL));
    MUST(hipGraphicsResourceGetMappedPointer(&pointer, &size, resource));
    MUST(hipGraphicsUnmapResources(1, &resource, NULL));
    MUST(hipDeviceSetLimit(HEAP_SIZE, 16 * MiB));
}

int main(void) {
    size_t free, total;
    linear();
    arrays();
    host();
    stream_ordered();
    virtual_memory();
    graph();
    of_others();
    MUST(hipMemGetInfo(&free, &total));
    printf("%zu of %zu in use\n", total - free, total);
    return 0;
}
