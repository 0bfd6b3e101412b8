// The walk over the CUDA runtime.
#include "card_walk.h"
#include "cuda_min.h"

int cudaPeekAtLastError(void);
int cudaGetDeviceProperties(void *properties, int device);
int cudaGetDeviceCount(int *count);

enum { PLAIN, PITCHED, VOLUME, ARRAY, POOLED, PINNED, FROM_POOL, ON_LAST, SORTS };
const int walk_sorts = SORTS;

// The device with the highest number; with one device it is the only one.
static int last(void) {
    int count;
    MUST(cudaGetDeviceCount(&count));
    return count - 1;
}

// A pool whose memory lies on the last device, while the thread works on the first.
static void *pool(void) {
    static void *pool;
    PoolProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, last()}};
    if (!pool) MUST(cudaMemPoolCreate(&pool, &properties));
    return pool;
}

int walk_take(struct walk_block *block) {
    size_t pitch;
    cudaPitchedPtr pitched = {0};
    cudaChannelFormatDesc bytes = {8, 0, 0, 0, 1};
    int status;
    switch (block->sort) {
        case PLAIN: return cudaMalloc(&block->pointer, block->size);
        case PITCHED: return cudaMallocPitch(&block->pointer, &pitch, block->size / 64 + 1, 64);
        case VOLUME:
            status = cudaMalloc3D(&pitched, (cudaExtent){block->size / 64 + 1, 8, 8});
            block->pointer = pitched.ptr;
            return status;
        case ARRAY: return cudaMallocArray(&block->pointer, &bytes, block->size / 64 + 1, 64, 0);
        case POOLED: return cudaMallocAsync(&block->pointer, block->size, NULL);
        case FROM_POOL: return cudaMallocFromPoolAsync(&block->pointer, block->size, pool(), NULL);
        case ON_LAST:
            MUST(cudaSetDevice(last()));
            status = cudaMalloc(&block->pointer, block->size);
            MUST(cudaSetDevice(0));
            return status;
        default: return cudaMallocHost(&block->pointer, 4096);
    }
}

int walk_give(struct walk_block *block) {
    int status;
    switch (block->sort) {
        case ARRAY: return cudaFreeArray(block->pointer);
        case POOLED:
        case FROM_POOL:
            status = cudaFreeAsync(block->pointer, NULL);
            MUST(cudaStreamSynchronize(NULL));
            return status;
        case PINNED: return cudaFreeHost(block->pointer);
        default: return cudaFree(block->pointer);
    }
}

void walk_show(unsigned random) {
    size_t free, total, whole;
    unsigned char properties[4096] = {0};
    if (random & 1) printf(" peek %d", cudaPeekAtLastError());
    if (random & 16) printf(" bad call %d", cudaGetDeviceProperties(NULL, 0));
    if (random & 2) printf(" get %d", cudaGetLastError());
    if (random & 8) printf(" peek %d get %d get %d", cudaPeekAtLastError(), cudaGetLastError(), cudaGetLastError());
    MUST(cudaMemGetInfo(&free, &total));
    printf(" peek %d", cudaPeekAtLastError());
    MUST(cudaGetDeviceProperties(properties, 0));
    memcpy(&whole, properties + 288, sizeof whole);
    printf(" free %zu of %zu, %zu", free, total, whole);
    if (last() == 0) return;
    MUST(cudaSetDevice(last()));
    MUST(cudaMemGetInfo(&free, &total));
    MUST(cudaSetDevice(0));
    printf(", last %zu of %zu", free, total);
}

// A reset takes what was allocated on its device, and leaves the pools and the other device.
void walk_end(void) {
    struct walk_block blocks[] = {{.sort = PLAIN, .size = 100 * MiB}, {.sort = FROM_POOL, .size = 60 * MiB},
                                  {.sort = POOLED, .size = 40 * MiB}, {.sort = ON_LAST, .size = 30 * MiB}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) MUST(walk_take(&blocks[i]));
    walk_show(2);
    MUST(cudaDeviceReset());
    walk_show(2);
    MUST(cudaSetDevice(last()));
    MUST(cudaDeviceReset());
    MUST(cudaSetDevice(0));
    walk_show(2);
}
