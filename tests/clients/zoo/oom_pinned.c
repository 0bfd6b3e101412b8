// Pinned host memory is refused, and the program goes on with pageable memory without reading the error. Run with
// SIM_FAIL_AT=2.
// The trace must show the failure at hipHostMalloc: dropped, gpu_work_continued.
#include "hip_min.h"

int main(void) {
    static char pageable[4096];
    void *block, *staging;
    MUST(hipMalloc(&block, 16 * MiB));
    MUST_NOT_FIT(hipHostMalloc(&staging, 32 * MiB, 0));
    MUST(hipMemcpy(block, pageable, sizeof pageable, hipMemcpyHostToDevice));
    MUST(hipFree(block));
    return 0;
}
