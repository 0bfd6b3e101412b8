// Three devices in one process: the main thread changes between them, another thread stays on its own. The second
// device is filled until it refuses. Run with SIM_DEVICES=3 SIM_CAPACITY=1G.
// The trace must count each device by itself: 2, 3 and 1 allocations, the failure on device 1.
#include <pthread.h>

#include "hip_min.h"

static void allocate(int device, size_t size) {
    void *block;
    MUST(hipSetDevice(device));
    MUST(hipMalloc(&block, size));
}

static void *on_device_two(void *argument) {
    allocate(2, 50 * MiB);
    return argument;
}

int main(void) {
    pthread_t thread;
    void *block;
    allocate(0, 10 * MiB);
    allocate(1, 400 * MiB);
    pthread_create(&thread, NULL, on_device_two, NULL);
    pthread_join(thread, NULL);
    allocate(0, 20 * MiB);
    allocate(1, 400 * MiB);
    allocate(1, 100 * MiB);
    MUST_NOT_FIT(hipMalloc(&block, 400 * MiB));
    printf("last error %d\n", hipGetLastError());
    return 0;
}
