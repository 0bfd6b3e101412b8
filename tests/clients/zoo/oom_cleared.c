// An allocation fails, the program reads the last error, which also clears it, and goes on with GPU work. Whether it looked
// at what it read can't be seen.
// The trace must say: unresolved, error_read.
#include "hip_min.h"

int main(void) {
    void *block;
    (void)hipMalloc(&block, 4096 * GiB);
    (void)hipGetLastError();
    MUST(launch_kernel());
    return 0;
}
