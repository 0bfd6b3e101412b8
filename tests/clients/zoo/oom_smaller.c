// An allocation fails, a smaller one succeeds, and the program works with that without looking at the error. Run with
// SIM_CAPACITY=1G.
// The trace must not say recovered: what was asked for was never had. It is dropped, gpu_work_continued.
#include "hip_min.h"

int main(void) {
    void *block;
    (void)hipMalloc(&block, 2048 * MiB);
    MUST(hipMalloc(&block, 512 * MiB));
    MUST(launch_kernel());
    MUST(hipFree(block));
    return 0;
}
