// Which device an allocation is on is a matter of the thread's current context: chosen, pushed, popped, made, destroyed,
// and chosen by the runtime's cudaSetDevice. Wants two devices.
// GPU 0 must have 20, 40, 60 and 80 MiB; GPU 1 10, 30, 50 and 70 MiB.
#include <pthread.h>

#include "cuda_min.h"

int cuCtxPushCurrent_v2(void *context);

static void allocate(size_t size_mib) {
    void *pointer;
    MUST(cuMemAlloc_v2(&pointer, size_mib * MiB));
}

// A new thread has no context.
static void *other_thread(void *context) {
    MUST(cuCtxSetCurrent(context));
    allocate(60);
    MUST(cudaSetDevice(1));
    allocate(70);
    MUST(cudaSetDevice(0));
    void *pointer;
    MUST(cudaMalloc(&pointer, 80 * MiB));
    return NULL;
}

int main(void) {
    void *primary[2], *third, *pointer;
    pthread_t thread;
    MUST(cuInit(0));
    for (int i = 0; i < 2; i++) MUST(cuDevicePrimaryCtxRetain(&primary[i], i));
    MUST(cuCtxSetCurrent(primary[1]));
    allocate(10);
    MUST(cuCtxPushCurrent_v2(primary[0]));
    allocate(20);
    MUST(cuCtxPopCurrent_v2(NULL));
    allocate(30);
    MUST(cuCtxCreate_v2(&third, 0, 0));
    MUST(cuMemAlloc_v2(&pointer, 40 * MiB));
    MUST(cuMemFree_v2(pointer));
    MUST(cuCtxDestroy_v2(third));
    allocate(50);
    if (pthread_create(&thread, NULL, other_thread, primary[0]) != 0) return 77;
    pthread_join(thread, NULL);
    return 0;
}
