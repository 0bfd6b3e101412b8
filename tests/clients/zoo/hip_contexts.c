// HIP's contexts: making one chooses no device, pushing or setting one does, and popping one changes nothing. Resetting a
// primary context takes no memory away. Run with SIM_DEVICES=3.
// The trace must have each block on the device that gave it: 10, 40 and 60 MiB on the first, 20 and 30 on the second, 50 on
// the third.
#include <pthread.h>

#include "hip_min.h"

hipError_t hipCtxCreate(void **context, unsigned flags, int device);
hipError_t hipCtxDestroy(void *context);
hipError_t hipCtxPushCurrent(void *context);
hipError_t hipCtxPopCurrent(void **context);
hipError_t hipCtxSetCurrent(void *context);
hipError_t hipCtxGetCurrent(void **context);
hipError_t hipDevicePrimaryCtxRetain(void **context, int device);
hipError_t hipDevicePrimaryCtxReset(int device);

static void allocate(size_t size) {
    void *block;
    int device = -1;
    MUST(hipMalloc(&block, size));
    MUST(hipGetDevice(&device));
    printf("%zu MiB on %d\n", size / MiB, device);
}

static void *on_third(void *context) {
    MUST(hipDevicePrimaryCtxRetain(&context, 2));
    MUST(hipCtxSetCurrent(context));
    allocate(50 * MiB);
    return NULL;
}

int main(void) {
    void *context[3], *first;
    pthread_t thread;
    MUST(hipCtxGetCurrent(&first));
    for (int i = 0; i < 3; i++) MUST(hipCtxCreate(&context[i], 0, i));
    allocate(10 * MiB);
    MUST(hipCtxPushCurrent(context[1]));
    allocate(20 * MiB);
    MUST(hipCtxPopCurrent(&context[1]));
    allocate(30 * MiB);
    MUST(hipCtxPushCurrent(first));
    allocate(40 * MiB);
    pthread_create(&thread, NULL, on_third, NULL);
    pthread_join(thread, NULL);
    printf("no context: %d %d\n", hipCtxPushCurrent(&thread), hipCtxSetCurrent(NULL));
    MUST(hipDevicePrimaryCtxReset(0));
    allocate(60 * MiB);
    MUST(hipCtxDestroy(context[2]));
    return 0;
}
