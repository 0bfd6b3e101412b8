// Changes its root to the current, empty directory after the first allocation: no path means anything any more.
// The trace must hold the allocations from before and after.
#define _DEFAULT_SOURCE
#include <unistd.h>

#include "hip_min.h"

int main(void) {
    void *first, *block;
    MUST(hipMalloc(&first, 22 * MiB));
    if (chroot(".") != 0) return 77;
    for (size_t i = 0; i < 200; i++) {
        MUST(hipMalloc(&block, 23 * MiB));
        MUST(hipFree(block));
    }
    MUST(hipFree(first));
    puts("done");
    return 0;
}
