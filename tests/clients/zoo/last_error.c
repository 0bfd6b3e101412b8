// Reads the last error at every turn around a failing allocation. Before ROCm 7 it is the status of the last call, so
// a recorder that calls HIP from inside a hook changes what the program reads here.
// The output must be the same with and without the recorder, with SIM_LAST_ERROR=rocm6 and rocm7.
#include "hip_min.h"

static void show(const char *when) {
    int peeked = hipPeekAtLastError();
    int first = hipGetLastError();
    int second = hipGetLastError();
    printf("%s: peek %d, get %d, get %d\n", when, peeked, first, second);
}

int main(void) {
    void *block, *too_big;
    show("at the start");
    MUST_NOT_FIT(hipMalloc(&too_big, 4096 * GiB));
    show("after a failure");
    MUST_NOT_FIT(hipMalloc(&too_big, 4096 * GiB));
    MUST(hipMalloc(&block, 27 * MiB));
    show("after a failure and a success");
    MUST_NOT_FIT(hipMallocAsync(&too_big, 4096 * GiB, NULL));
    MUST(hipFree(block));
    show("after a failure and a free");
    MUST_NOT_FIT(hipHostMalloc(&too_big, SIZE_MAX, 0));
    MUST(launch_kernel());
    show("after a failure and a launch");
    return 0;
}
