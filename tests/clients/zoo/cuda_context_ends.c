// Contexts end, and what was allocated in them is gone without a free: destroyed, released for the last time, reset by the
// driver and by the runtime. Pools and physical memory stay. Wants two devices. The argument says after which step to stop.
#include <pthread.h>

#include "cuda_min.h"

int cuCtxPushCurrent_v2(void *context);
int cuDevicePrimaryCtxReset_v2(int device);

static void *primary[2], *first, *second;

static void allocate(size_t size_mib) {
    void *pointer;
    MUST(cuMemAlloc_v2(&pointer, size_mib * MiB));
}

// One of each kind, so that it shows what stays.
static void allocate_all_kinds(void) {
    static char own[64 * KiB] __attribute__((aligned(4096)));
    AllocationProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};
    void *pointer;
    size_t pitch;
    allocate(10);
    MUST(cuMemAllocManaged(&pointer, 12 * MiB, ATTACH_GLOBAL));
    MUST(cuMemAllocPitch_v2(&pointer, &pitch, MiB, 2, 4));
    MUST(cuMemHostAlloc(&pointer, 3 * MiB, 0));
    MUST(cuMemHostRegister_v2(own, sizeof own, 0));
    MUST(cuMemAllocAsync(&pointer, 14 * MiB, NULL));
    MUST(cuMemCreate(&pointer, 16 * MiB, &properties, 0));
}

// Another thread works in the first context, which is not its own.
static void *help(void *context) {
    MUST(cuCtxSetCurrent(context));
    allocate(18);
    return NULL;
}

// A thread with another one's number, perhaps: it has chosen no context, and the runtime takes the primary one.
static void *use_runtime(void *pointer) {
    MUST(cudaSetDevice(1));
    MUST(cudaMalloc(pointer, 20 * MiB));
    return NULL;
}

static void in_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0) exit(77);
    pthread_join(thread, NULL);
}

static void make(void) {
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&primary[0], 0));
    MUST(cuCtxSetCurrent(primary[0]));
    allocate(22);
    MUST(cuCtxCreate_v2(&first, 0, 0));
    allocate_all_kinds();
    MUST(cuCtxPushCurrent_v2(primary[0]));
    allocate(24);
    MUST(cuCtxCreate_v2(&second, 0, 1));
    allocate(26);
    MUST(cuCtxPopCurrent_v2(NULL));
    in_thread(help, first);
}

static void destroy_refused(void) { printf("refused: %d\n", cuCtxDestroy_v2(primary[0])); }

static void destroy_another(void) { MUST(cuCtxDestroy_v2(first)); }

static void destroy_of_other_device(void) {
    MUST(cuCtxDestroy_v2(second));
    allocate(28);
}

// Only the last release ends it.
static void release(void) {
    void *again;
    MUST(cuDevicePrimaryCtxRetain(&again, 0));
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    allocate(30);
}

static void release_last(void) { MUST(cuDevicePrimaryCtxRelease_v2(0)); }

static void retain_and_reset(void) {
    MUST(cuDevicePrimaryCtxRetain(&primary[0], 0));
    MUST(cuCtxSetCurrent(primary[0]));
    allocate(32);
    MUST(cuDevicePrimaryCtxReset_v2(0));
}

static void by_runtime(void) {
    void *pointer;
    in_thread(use_runtime, &pointer);
    MUST(cudaSetDevice(1));
    MUST(cudaMalloc(&pointer, 34 * MiB));
    MUST(cudaMallocHost(&pointer, 5 * MiB));
    MUST(cudaMallocAsync(&pointer, 36 * MiB, NULL));
}

// What the runtime resets is its own context, not the one that the program made.
static void reset_in_own_context(void) {
    MUST(cuCtxCreate_v2(&first, 0, 1));
    allocate(38);
    MUST(cudaDeviceReset());
}

static void reset_by_runtime(void) {
    void *pointer;
    MUST(cudaSetDevice(1));
    MUST(cudaDeviceReset());
    MUST(cudaSetDevice(1));  // what lies below on the stack is a context that was destroyed
    MUST(cudaMalloc(&pointer, 40 * MiB));
}

int main(int count, char **arguments) {
    static void (*const steps[])(void) = {
        make, destroy_refused, destroy_another, destroy_of_other_device, release, release_last, retain_and_reset,
        by_runtime, reset_in_own_context, reset_by_runtime,
    };
    size_t stop = count > 1 ? strtoul(arguments[1], NULL, 10) : sizeof steps / sizeof *steps;
    for (size_t i = 0; i < stop && i < sizeof steps / sizeof *steps; i++) steps[i]();
    return 0;
}
