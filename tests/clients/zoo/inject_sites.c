// Allocations from three places: one is checked, one is ignored and work goes on, one is in a library function that falls
// back. Prints what each call returned.
#include "hip_min.h"

static void *checked(size_t size) {
    void *block = NULL;
    if (hipMalloc(&block, size) != hipSuccess) {
        fprintf(stderr, "no memory\n");
        exit(2);
    }
    return block;
}

// The bug that the gauntlet is to find: nobody looks at the status.
static void *ignored(size_t size) {
    void *block = NULL;
    hipMalloc(&block, size);
    launch_kernel();
    return block;
}

// Says so, and falls back to half as much, from the same place.
static void *halving(size_t size) {
    void *block = NULL;
    for (int status; size && (status = hipMalloc(&block, size)) != hipSuccess; size /= 2)
        fprintf(stderr, "%zu: %s\n", size, hipGetErrorString(status));
    return block;
}

int main(void) {
    void *blocks[6] = {checked(64 * MiB), ignored(32 * MiB), halving(16 * MiB), ignored(8 * MiB), checked(4 * MiB), NULL};
    MUST(hipDeviceSynchronize());
    for (int i = 0; i < 5; i++) printf("%s\n", blocks[i] ? "some" : "none");
    for (int i = 0; i < 5; i++) MUST(hipFree(blocks[i]));
    return 0;
}
