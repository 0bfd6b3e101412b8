// A program of CUDA's driver interface alone, which has no last error: each call returns its own result. An allocation fails,
// and the program goes on.
// The trace must say: dropped, gpu_work_continued; and the report must not send anybody to cudaGetLastError.
#include "cuda_min.h"

int cuMemsetD8_v2(void *pointer, unsigned char value, size_t count);

int main(void) {
    int device;
    void *context, *block, *other;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuCtxCreate_v2(&context, 0, device));
    MUST(cuMemAlloc_v2(&other, 16 * MiB));
    MUST_NOT_FIT(cuMemAlloc_v2(&block, 4096 * GiB));
    MUST(cuMemsetD8_v2(other, 1, 1 * MiB));
    MUST(cuMemFree_v2(other));
    return 0;
}
