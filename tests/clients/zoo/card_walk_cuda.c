// The walk over the CUDA runtime.
#include "card_walk.h"
#include "cuda_min.h"

int cudaPeekAtLastError(void);
int cudaGetDeviceProperties(void *properties, int device);

enum { PLAIN, PITCHED, VOLUME, ARRAY, POOLED, PINNED, SORTS };
const int walk_sorts = SORTS;

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
        default: return cudaMallocHost(&block->pointer, 4096);
    }
}

int walk_give(struct walk_block *block) {
    int status;
    switch (block->sort) {
        case ARRAY: return cudaFreeArray(block->pointer);
        case POOLED:
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
}

void walk_end(void) {
    void *block;
    MUST(cudaMalloc(&block, 100 * MiB));
    MUST(cudaDeviceReset());
    walk_show(2);
}
