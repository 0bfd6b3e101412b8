// Asks for hipMalloc@hip_4.2 and hipMallocAsync@hip_5.1 by version, as a program linked to the real library does.
// The trace must show both allocations: an unversioned definition has to satisfy a versioned reference.
#include "hip_min.h"

__asm__(".symver malloc_of_4_2, hipMalloc@hip_4.2");
__asm__(".symver malloc_async_of_5_1, hipMallocAsync@hip_5.1");
hipError_t malloc_of_4_2(void **pointer, size_t size);
hipError_t malloc_async_of_5_1(void **pointer, size_t size, hipStream_t stream);

int main(void) {
    void *block, *ordered;
    MUST(malloc_of_4_2(&block, 42 * MiB));
    MUST(malloc_async_of_5_1(&ordered, 51 * MiB, NULL));
    MUST(hipFreeAsync(ordered, NULL));
    MUST(hipFree(block));
    puts("done");
    return 0;
}
