// The CUDA runtime and the driver share a card: the runtime's primary context, one of the program's own, and resets. After each
// step it prints what is free. On a virtual card that must be what it is on a real one of that size.
#include "cuda_min.h"

int cudaPeekAtLastError(void);
int cuCtxPushCurrent_v2(void *context);

static void show(const char *step) {
    size_t free, total;
    MUST(cudaMemGetInfo(&free, &total));
    printf("%s: free %zu of %zu\n", step, free, total);
}

static void take(size_t size_mib) {
    void *block;
    MUST(cudaMalloc(&block, size_mib * MiB));
}

int main(void) {
    void *own, *primary;
    MUST(cudaSetDevice(0));
    take(200);
    show("in the primary context");
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    show("released, but the runtime has it");
    MUST(cuCtxCreate_v2(&own, 0, 0));
    take(100);
    show("in a context of our own");
    MUST(cudaDeviceReset());
    show("reset there");
    MUST(cuCtxPopCurrent_v2(NULL));
    MUST(cudaSetDevice(0));
    MUST(cudaDeviceReset());
    show("reset in the primary context");
    take(150);
    MUST(cuCtxPushCurrent_v2(own));
    show("used again");
    // The runtime's own reference: whoever gives that back has all of it gone.
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    show("the last reference released");
    MUST(cuCtxDestroy_v2(own));
    printf("own destroyed\n");
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuCtxSetCurrent(primary));
    int refused = 0;
    for (int i = 0; i < 8; i++) {
        void *block;
        int status = cudaMalloc(&block, 300 * MiB);
        printf("take %d: %d, last error %d\n", i, status, cudaPeekAtLastError());
        refused += status != 0;
    }
    show("at the end");
    return refused ? 3 : 4;
}
