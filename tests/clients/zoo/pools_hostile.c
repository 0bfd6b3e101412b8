// Pools of a program's own that tell what can't be so, and of memory that is on no card: what the report must not count.
#include "../../../interposer/include/gpuoom.h"
#include "hip_min.h"

#include <stdlib.h>

// Takes back what it never gave, gives one address twice, one block over another, and more than lies there.
static void contradicts(char *base) {
    GPUOOM_POOL_FREE("liar", base + 5);
    GPUOOM_POOL_ALLOC("liar", "first", base, MiB);
    GPUOOM_POOL_ALLOC("liar", "second", base, 2 * MiB);
    GPUOOM_POOL_ALLOC("liar", "third", base + MiB, MiB);
    GPUOOM_POOL_ALLOC("liar", "fourth", base + 8 * MiB, 16 * MiB);
}

int main(void) {
    char *honest, *base, *pinned, *freed, *heap = malloc(MiB);
    MUST(hipMalloc((void **)&honest, 32 * MiB));
    GPUOOM_POOL_ALLOC("honest", "weights", honest, 8 * MiB);
    GPUOOM_POOL_ALLOC("honest", "kv cache", honest + 8 * MiB, 4 * MiB);
    MUST(hipMalloc((void **)&base, 16 * MiB));
    contradicts(base);
    MUST(hipHostMalloc((void **)&pinned, 4 * MiB, 0));
    GPUOOM_POOL_ALLOC("elsewhere", "staging", pinned, 4 * MiB);
    GPUOOM_POOL_ALLOC("elsewhere", "scratch", heap, MiB);
    MUST(hipMalloc((void **)&freed, 8 * MiB));
    GPUOOM_POOL_ALLOC("elsewhere", "late", freed, 2 * MiB);
    GPUOOM_POOL_ALLOC("elsewhere", "left", freed + 2 * MiB, 3 * MiB);
    MUST(hipFree(freed));
    GPUOOM_POOL_FREE("elsewhere", freed);
    return 0;
}
