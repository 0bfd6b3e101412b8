// The CUDA runtime linked in: no symbol of it can be preloaded. Sizes are its own; the driver is asked through
// cuGetProcAddress.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void fill(unsigned char *block, size_t size) {
    size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (at < size) block[at] = 7;
}

int main() {
    const size_t mib = 1 << 20;
    unsigned char *blocks[3], *none = nullptr;
    size_t sum = 0;
    for (int i = 0; i < 3; i++) {
        size_t size = (size_t)(100 + i) * mib;
        if (cudaMalloc(&blocks[i], size) != cudaSuccess) return 1;
        fill<<<(unsigned)(size / 256), 256>>>(blocks[i], size);
        sum += size;
    }
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    std::printf("expect {\"peak_at_least_bytes\": %zu, \"peak_at_most_bytes\": %zu, \"ooms\": 1, \"live_at_end\": 0}\n", sum,
                sum);
    cudaError_t refused = cudaMalloc(&none, (size_t)1 << 50);
    std::printf("refused: %s\n", cudaGetErrorString(refused));
    for (unsigned char *block : blocks) cudaFree(block);
    return 0;
}
