// The twins for the per-thread default stream: as symbols of the runtime, and as what the look-up gives for the name
// without a suffix when it is asked for that stream. (The driver's symbols are in cuda_driver_tour.c.)
// The trace must show each allocation once, and name the driver's twins as the device did the work.
#include "cuda_min.h"

enum { PER_THREAD_STREAM = 2, VERSION = 12000 };

static void by_symbol(void) {
    PoolProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};
    void *ordered, *pool, *pooled;
    char byte = 1;
    MUST(cudaMallocAsync_ptsz(&ordered, 8 * MiB, NULL));
    MUST(cudaMemPoolCreate(&pool, &properties));
    MUST(cudaMallocFromPoolAsync_ptsz(&pooled, 5 * MiB, pool, NULL));
    MUST(cudaMemcpy_ptds(ordered, &byte, 1, MEMCPY_DEFAULT));
    MUST(cudaFreeAsync_ptsz(ordered, NULL));
    MUST(cudaFreeAsync_ptsz(pooled, NULL));
    MUST(cudaStreamSynchronize_ptsz(NULL));
    MUST(cudaMemPoolDestroy(pool));
}

typedef int (*allocate)(void **, size_t, void *);
typedef int (*give_back)(void *, void *);

static void use(void *alloc, void *free, size_t size) {
    void *pointer;
    MUST(((allocate)alloc)(&pointer, size, NULL));
    MUST(((give_back)free)(pointer, NULL));
}

static void by_look_up(void) {
    void *alloc, *twin, *same_twin, *free, *free_twin;
    int found;
    MUST(cudaGetDriverEntryPointByVersion("cuMemAllocAsync", &alloc, VERSION, 0, &found));
    MUST(cudaGetDriverEntryPointByVersion("cuMemAllocAsync", &twin, VERSION, PER_THREAD_STREAM, &found));
    MUST(cudaGetDriverEntryPoint_ptsz("cuMemAllocAsync", &same_twin, 0, &found));
    MUST(cudaGetDriverEntryPointByVersion("cuMemFreeAsync", &free, VERSION, 0, &found));
    MUST(cudaGetDriverEntryPointByVersion("cuMemFreeAsync", &free_twin, VERSION, PER_THREAD_STREAM, &found));
    printf("%s, %s\n", alloc == twin ? "one function" : "two functions", twin == same_twin ? "one twin" : "two twins");
    use(alloc, free, 3 * MiB);
    use(twin, free_twin, 7 * MiB);
}

int main(void) {
    by_symbol();
    by_look_up();
    return 0;
}
