// Resets the device while it holds four allocations: they are gone without a free. Before that the reset of the primary
// context takes nothing, as with the real HIP.
// The trace must count nothing of them at the end, only the allocation made after the reset.
#include "hip_min.h"

hipError_t hipDevicePrimaryCtxReset(int device);

int main(void) {
    void *block;
    for (size_t i = 1; i <= 3; i++) MUST(hipMalloc(&block, i * 20 * MiB));
    MUST(hipDevicePrimaryCtxReset(0));
    MUST(hipMalloc(&block, 10 * MiB));
    MUST(hipDeviceReset());
    printf("free %d\n", hipFree(block));
    MUST(hipMalloc(&block, 25 * MiB));
    return 0;
}
