// A stream's pool keeps a block that was given back, and a plain allocation of another size finds no memory, nor does it a second time:
// unless something else makes HIP give up what the pool keeps.
#include "../zoo/hip_min.h"

hipError_t hipDeviceGetDefaultMemPool(void **pool, int device);
hipError_t hipMemPoolSetAttribute(void *pool, int attribute, void *value);

int main(void) {
    enum { RELEASE_THRESHOLD = 4 };
    void *pool, *block, *other;
    uint64_t all = UINT64_MAX;
    hipStream_t stream;
    MUST(hipDeviceGetDefaultMemPool(&pool, 0));
    MUST(hipMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &all));
    MUST(hipStreamCreate(&stream));
    MUST(hipMallocAsync(&block, 6 * GiB, stream));
    MUST(hipFreeAsync(block, stream));
    MUST(hipStreamSynchronize(stream));
    hipError_t error = hipMalloc(&other, 4 * GiB);
    printf("%s\n", hipGetErrorString(error));
    error = hipMalloc(&other, 4 * GiB);
    printf("%s\n", hipGetErrorString(error));
    return error != 0;
}
