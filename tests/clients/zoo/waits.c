// Waits before a failure, of two threads: what was freed by stream-ordered calls may still be pending. cuda_waits.c builds the same
// for CUDA.
#include <pthread.h>

#ifdef CUDA
#include "cuda_min.h"
int cudaThreadSynchronize(void);
int cudaEventCreate(void **event);
int cudaEventSynchronize(void *event);
#define hipMallocAsync cudaMallocAsync
#define hipFreeAsync cudaFreeAsync
#define hipMalloc cudaMalloc
#define hipFree cudaFree
#define hipStreamCreate cudaStreamCreate
#define hipStreamSynchronize cudaStreamSynchronize
#define hipEventCreate cudaEventCreate
#define hipEventSynchronize cudaEventSynchronize
#define hipDeviceSynchronize cudaThreadSynchronize
#else
#include "hip_min.h"
hipError_t hipEventCreate(void **event);
hipError_t hipEventSynchronize(void *event);
#endif

static void *wait_for_device(void *nothing) {
    MUST(hipDeviceSynchronize());
    return nothing;
}

static void free_later(void) {
    void *block;
    MUST(hipMallocAsync(&block, 4 * MiB, NULL));
    MUST(hipFreeAsync(block, NULL));
}

int main(void) {
    void *stream, *event, *block;
    pthread_t thread;
    MUST(hipMalloc(&block, MiB));
    MUST(hipStreamCreate(&stream));
    MUST(hipEventCreate(&event));
    // Nothing is pending yet: these say nothing.
    for (int i = 0; i < 100; i++) MUST(hipDeviceSynchronize());
    MUST(hipStreamSynchronize(stream));
    free_later();
    // Of many waits for one thing only the first does.
    for (int i = 0; i < 100; i++) {
        MUST(hipStreamSynchronize(stream));
        MUST(hipStreamSynchronize(NULL));
        MUST(hipEventSynchronize(event));
    }
    free_later();
    if (pthread_create(&thread, NULL, wait_for_device, NULL) != 0) return 77;
    pthread_join(thread, NULL);
    void *large = NULL;
    if (hipMalloc(&large, 64 * GiB) == 0) return 71;
    MUST(hipFree(block));
    return 0;
}
