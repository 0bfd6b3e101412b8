// An allocation fails and the process ends with status 1, having asked the library nothing.
// The trace must say: propagated, process_exited, and exit status 1.
#include "hip_min.h"

int main(void) {
    void *block;
    MUST_NOT_FIT(hipMalloc(&block, 4096 * GiB));
    return 1;
}
