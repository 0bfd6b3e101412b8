// An allocation fails, the program prints the error's text and goes on without it, as llama.cpp does for pinned memory.
// The trace must say: propagated, error_reported.
#include "hip_min.h"

int main(void) {
    void *block;
    hipError_t status = hipMalloc(&block, 4096 * GiB);
    fprintf(stderr, "allocation failed: %s\n", hipGetErrorString(status));
    MUST(launch_kernel());
    return 0;
}
