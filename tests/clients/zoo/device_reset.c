// Resets the device while it holds three allocations: they are gone without a free.
// The trace must count nothing of them at the end, only the allocation made after the reset.
#include "hip_min.h"

int main(void) {
    void *block;
    for (size_t i = 1; i <= 3; i++) MUST(hipMalloc(&block, i * 20 * MiB));
    MUST(hipDeviceReset());
    MUST(hipMalloc(&block, 25 * MiB));
    puts("done");
    return 0;
}
