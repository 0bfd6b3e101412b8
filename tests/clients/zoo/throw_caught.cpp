// An allocation fails, the program throws, catches, and goes on with GPU work.
// The trace must say: propagated, exception. Work after an exception is not a drop.
#include <new>

#include "hip_min.h"

static void *allocate(size_t size) {
    void *block;
    if (hipMalloc(&block, size) != hipSuccess) throw std::bad_alloc();
    return block;
}

int main() {
    try {
        allocate(4096 * GiB);
    } catch (const std::bad_alloc &) {
        puts("caught");
    }
    MUST(launch_kernel());
    MUST(hipFree(allocate(18 * MiB)));
    return 0;
}
