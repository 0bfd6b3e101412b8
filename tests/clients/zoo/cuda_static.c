// A program that has the CUDA runtime in itself (libcudart_static.a), as CuPy and most of NVIDIA's own libraries have:
// none of its functions is a symbol for anybody, and the driver's come from cuGetProcAddress, which alone is asked of
// dlsym.
// The trace must show each of the driver's allocations, as calls of the program; the failure is recovered.
#include "cuda_min.h"

int main(void) {
    static char data[4096] = "through the device";
    void *block, *smaller, *pinned, *ordered;
    MUST(cudaMalloc(&block, 100 * MiB));
    MUST(cudaMallocHost(&pinned, 1 * MiB));
    MUST(cudaMallocAsync(&ordered, 8 * MiB, NULL));
    MUST(cudaMemcpy(block, data, sizeof data, MEMCPY_DEFAULT));
    data[0] = 0;
    MUST(cudaMemcpy(data, block, sizeof data, MEMCPY_DEFAULT));
    printf("%s\n", data);
    MUST_NOT_FIT(cudaMalloc(&smaller, 950 * MiB));
    (void)cudaGetLastError();
    MUST(cudaFree(block));
    MUST(cudaMalloc(&smaller, 950 * MiB));
    MUST(cudaFree(smaller));
    MUST(cudaFreeHost(pinned));
    MUST(cudaFreeAsync(ordered, NULL));
    return 0;
}
