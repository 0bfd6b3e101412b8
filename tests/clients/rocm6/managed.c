// Managed memory beside memory that the program itself pins.
#include "../zoo/hip_min.h"

int main(void) {
    void *managed, *pinned, *block;
    MUST(hipMallocManaged(&managed, 300 * MiB, 1));
    MUST(hipHostMalloc(&pinned, 128 * MiB, 0));
    MUST(hipMalloc(&block, 64 * MiB));
    return 0;
}
