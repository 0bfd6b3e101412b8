// Pools whose memory is not the card's: one of host memory, one of managed memory, and an ordinary one. The first two hold more than the
// card has, until one that is asked of the card does not fit.
#include "hip_min.h"

enum { PINNED = 1, MANAGED = 2, ON_DEVICE_LOCATION = 1, ON_HOST = 2 };

static void *pool_of(int sort, int place) {
    hipMemPoolProps properties = {.allocType = sort, .location = {place, 0}};
    void *pool;
    MUST(hipMemPoolCreate(&pool, &properties));
    return pool;
}

int main(void) {
    void *host = pool_of(PINNED, ON_HOST), *managed = pool_of(MANAGED, ON_DEVICE_LOCATION);
    void *ordinary = pool_of(PINNED, ON_DEVICE_LOCATION);
    void *blocks[9], *own, *refused;
    for (int i = 0; i < 4; i++) MUST(hipMallocFromPoolAsync(&blocks[i], 768 * MiB, host, NULL));
    for (int i = 4; i < 9; i++) MUST(hipMallocFromPoolAsync(&blocks[i], 512 * MiB, managed, NULL));
    MUST(hipMallocFromPoolAsync(&own, 64 * MiB, ordinary, NULL));
    MUST_NOT_FIT(hipMalloc(&refused, 2048 * MiB));
    for (int i = 0; i < 9; i++) MUST(hipFreeAsync(blocks[i], NULL));
    MUST(hipFreeAsync(own, NULL));
    MUST(hipDeviceSynchronize());
    puts("done");
    return 0;
}
