// Blocks; a request that is refused and made up for by a smaller one; a pool that is refused as well, and nobody looks. For a card of
// 8 GiB. On HIP 5.7 and older the pool says that it succeeded, and gives null.
// The trace must say: the first recovered, by a smaller request; of the second that the kernel refused it.
#include "hip_any.h"

hipError_t hipDeviceGetDefaultMemPool(void **pool, int device);

static __attribute__((noinline)) void load_weights(void) {
    void *block;
    for (int layer = 0; layer < 8; layer++) MUST(FUNCTION(hipMalloc)(&block, 512 * MiB));
}

static __attribute__((noinline)) void *take_cache(void) {
    void *block = NULL;
    MUST_NOT_FIT(FUNCTION(hipMalloc)(&block, 5 * GiB));
    MUST(FUNCTION(hipMalloc)(&block, 3 * GiB));
    return block;
}

static __attribute__((noinline)) void take_scratch(hipStream_t stream) {
    void *pool, *block = NULL;
    MUST(FUNCTION(hipDeviceGetDefaultMemPool)(&pool, 0));
    hipError_t status = FUNCTION(hipMallocFromPoolAsync)(&block, 2 * GiB, pool, stream);
    printf("scratch: status %d, %s\n", status, block ? "memory" : "no memory");
}

int main(void) {
    hipStream_t stream;
    load_hip();
    MUST(FUNCTION(hipStreamCreate)(&stream));
    load_weights();
    char *cache = take_cache(), row[4096] = {0};
    take_scratch(stream);
    MUST(FUNCTION(hipMemcpy)(cache, row, sizeof row, hipMemcpyHostToDevice));
    return 0;
}
