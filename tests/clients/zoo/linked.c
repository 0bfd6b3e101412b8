// The ordinary case: a program linked to libamdhip64 allocates, copies, launches and gives everything back.
// The trace must show four allocations with their sizes and addresses, four frees, and a clean end.
#include "hip_min.h"

int main(void) {
    void *weights, *cache, *scratch, *staging;
    MUST(hipMalloc(&weights, 300 * MiB));
    MUST(hipMalloc(&cache, 5 * MiB + 1));
    MUST(hipMalloc(&scratch, 1));
    MUST(hipHostMalloc(&staging, 64 * KiB, 0));
    MUST(hipMemcpy(cache, staging, 64 * KiB, hipMemcpyHostToDevice));
    MUST(launch_kernel());
    MUST(hipDeviceSynchronize());
    MUST(hipFree(scratch));
    MUST(hipFree(weights));
    MUST(hipFree(cache));
    MUST(hipHostFree(staging));
    puts("done");
    return 0;
}
