// Managed memory can't be had; the program sets a limit, which says nothing about that, and prefetches what it did not get.
// The trace must say: dropped, failed_pointer_used.
#include "hip_min.h"

int main(void) {
    enum { HEAP_SIZE = 2 };
    void *block = NULL;
    (void)hipMallocManaged(&block, 4096 * GiB, hipMemAttachGlobal);
    (void)hipDeviceSetLimit(HEAP_SIZE, 16 * MiB);
    (void)hipMemPrefetchAsync(block, 1 * MiB, 0, NULL);
    return 0;
}
