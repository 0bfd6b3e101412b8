// An allocation fails; the program frees its cache, synchronises, asks again and gets the memory: what PyTorch's
// allocator does. With "late" it asks again only after more than a second, from another line for the same variable. Run with
// SIM_CAPACITY=1G.
// The trace must say: recovered, retry_succeeded. The work that follows changes nothing.
#include <string.h>
#include <unistd.h>

#include "hip_min.h"

int main(int argc, char **argv) {
    void *cache, *block;
    MUST(hipMalloc(&cache, 600 * MiB));
    MUST_NOT_FIT(hipMalloc(&block, 700 * MiB));
    MUST(hipDeviceSynchronize());
    if (argc > 1 && strcmp(argv[1], "late") == 0) usleep(1500000);
    MUST(hipFree(cache));
    MUST(hipMalloc(&block, 700 * MiB));
    MUST(launch_kernel());
    MUST(hipFree(block));
    return 0;
}
