// Pools of a program's own tell of their blocks, by the header that ships with the recorder. Without the recorder the functions
// are not there, and the program is the same.
#include "../../../interposer/include/gpuoom.h"
#include "hip_min.h"

static void weights(char *base) {
    for (int layer = 0; layer < 4; layer++) GPUOOM_POOL_ALLOC("arena", "weights", base + layer * 8 * MiB, 8 * MiB);
}

static void cache(char *base) {
    GPUOOM_POOL_ALLOC("arena", "kv cache", base, 16 * MiB);
    GPUOOM_POOL_FREE("arena", base);
    GPUOOM_POOL_ALLOC("scratch", NULL, base, MiB);
}

int main(void) {
    // Before the first GPU call there is no trace: this is not told.
    GPUOOM_POOL_ALLOC("early", "x", (void *)0x1000, 1);
    char *base;
    MUST(hipMalloc((void **)&base, 64 * MiB));
    weights(base);
    cache(base + 32 * MiB);
    GPUOOM_POOL_ALLOC(NULL, NULL, base + 60 * MiB, 1);
    GPUOOM_POOL_ALLOC("arena", "nowhere", NULL, 1);
    GPUOOM_MARK("told");
    return 0;
}
