// The library calls its own exported functions: hipMallocPitch inside hipMemAllocPitch, hipMemGetInfo after a failure.
// Run with SIM_SELF_CALL=1.
// The trace must count one pitched allocation, and the failure is dropped: the library's own reading of the free memory
// is not the program's reaction.
#include "hip_min.h"

int main(void) {
    void *pitched, *too_big;
    size_t pitch;
    MUST(hipMemAllocPitch(&pitched, &pitch, 4000, 1000, 4));
    (void)hipMalloc(&too_big, 4096 * GiB);
    (void)launch_kernel();
    MUST(hipFree(pitched));
    printf("pitch %zu\n", pitch);
    return 0;
}
