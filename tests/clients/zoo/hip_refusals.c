// Blocks; a request that is refused and made up for by a smaller one; a pool that is refused as well, and nobody looks. For a card of
// 8 GiB. On HIP 5.7 and older the pool says that it succeeded, and gives null. With an argument no smaller request is made.
// The trace must say: the first recovered, by a smaller request, or dropped; of the second that the kernel refused it, where the
// kernel's requests are seen.
#include "hip_any.h"

hipError_t hipDeviceGetDefaultMemPool(void **pool, int device);

static __attribute__((noinline)) void *load_weights(void) {
    void *block;
    for (int layer = 0; layer < 8; layer++) MUST(FUNCTION(hipMalloc)(&block, 512 * MiB));
    return block;
}

static __attribute__((noinline)) void take_cache(int falls_back) {
    void *block = NULL;
    MUST_NOT_FIT(FUNCTION(hipMalloc)(&block, 5 * GiB));
    if (falls_back) MUST(FUNCTION(hipMalloc)(&block, 3 * GiB));
}

static __attribute__((noinline)) void take_scratch(hipStream_t stream) {
    void *pool, *block = NULL;
    MUST(FUNCTION(hipDeviceGetDefaultMemPool)(&pool, 0));
    hipError_t status = FUNCTION(hipMallocFromPoolAsync)(&block, 4 * GiB, pool, stream);
    printf("scratch: status %d, %s\n", status, block ? "memory" : "no memory");
}

int main(int count, char **arguments) {
    (void)arguments;
    hipStream_t stream;
    load_hip();
    MUST(FUNCTION(hipStreamCreate)(&stream));
    char *weights = load_weights(), row[4096] = {0};
    take_cache(count == 1);
    take_scratch(stream);
    MUST(FUNCTION(hipMemcpy)(weights, row, sizeof row, hipMemcpyHostToDevice));
    return 0;
}
