// An allocation fails, a smaller one takes its place, and the program works with that. Run with
// SIM_CAPACITY=1G.
// The trace must say: recovered, fell_back.
#include "hip_min.h"

int main(void) {
    void *block;
    (void)hipMalloc(&block, 2048 * MiB);
    MUST(hipMalloc(&block, 512 * MiB));
    MUST(launch_kernel());
    MUST(hipFree(block));
    return 0;
}
