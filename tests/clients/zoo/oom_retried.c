// An allocation fails; the program frees its cache, synchronises, asks again and gets the memory: what PyTorch's
// allocator does. Run with SIM_CAPACITY=1G.
// The trace must say: recovered, retry_succeeded. The work that follows changes nothing.
#include "hip_min.h"

int main(void) {
    void *cache, *block;
    MUST(hipMalloc(&cache, 600 * MiB));
    MUST_NOT_FIT(hipMalloc(&block, 700 * MiB));
    MUST(hipDeviceSynchronize());
    MUST(hipFree(cache));
    MUST(hipMalloc(&block, 700 * MiB));
    MUST(launch_kernel());
    MUST(hipFree(block));
    return 0;
}
