// Asks for absurd sizes, up to SIZE_MAX, of every kind: all are refused. One ordinary allocation follows.
// The trace must keep the sizes as asked, and rounding them up must not wrap around to something small.
#include "hip_min.h"

int main(void) {
    size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2 + 1, (size_t)1 << 60};
    void *block;
    size_t pitch;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) MUST_NOT_FIT(hipMalloc(&block, sizes[i]));
    MUST_NOT_FIT(hipMallocManaged(&block, SIZE_MAX, hipMemAttachGlobal));
    MUST_NOT_FIT(hipMallocPitch(&block, &pitch, SIZE_MAX / 2, 16));
    MUST_NOT_FIT(hipHostMalloc(&block, SIZE_MAX - 4096, 0));
    MUST_NOT_FIT(hipMallocAsync(&block, SIZE_MAX, NULL));
    printf("last error %d\n", hipGetLastError());
    MUST(hipMalloc(&block, 28 * MiB));
    MUST(hipFree(block));
    return 0;
}
