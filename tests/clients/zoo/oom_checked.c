// An allocation fails, the program reads the last error and does no GPU work any more.
// The trace must say: propagated, status_checked.
#include "hip_min.h"

int main(void) {
    void *block;
    MUST_NOT_FIT(hipMalloc(&block, 4096 * GiB));
    printf("last error %d\n", hipGetLastError());
    return 0;
}
