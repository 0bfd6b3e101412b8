// Every allocator of a CUDA runtime (libcudart.so.13) that takes its memory from the driver (libcuda.so.1), one
// failure, and a reset of the device.
// Each allocation shows twice, in the runtime and inside of it in the driver, and is counted once.
#define _POSIX_C_SOURCE 200112L
#include "cuda_min.h"

static void device_memory(void) {
    cudaChannelFormatDesc floats = {32, 0, 0, 0, 2};
    cudaPitchedPtr cube;
    void *block, *managed, *pitched, *array, *solid;
    size_t pitch;
    MUST(cudaMalloc(&block, 35 * MiB));
    MUST(cudaMallocManaged(&managed, 6 * MiB, ATTACH_GLOBAL));
    MUST(cudaMallocPitch(&pitched, &pitch, 900, 300));
    MUST(cudaMalloc3D(&cube, (cudaExtent){300, 20, 10}));
    MUST(cudaMallocArray(&array, &floats, 320, 200, 0));
    MUST(cudaMalloc3DArray(&solid, &floats, (cudaExtent){32, 16, 8}, 0));
    MUST(cudaFree(block));
    MUST(cudaFree(managed));
    MUST(cudaFree(pitched));
    MUST(cudaFree(cube.ptr));
    MUST(cudaFreeArray(array));
    MUST(cudaFreeArray(solid));
}

static void host_memory(void) {
    void *pinned, *portable, *own;
    if (posix_memalign(&own, 4096, 256 * KiB) != 0) exit(79);
    MUST(cudaMallocHost(&pinned, 2 * MiB));
    MUST(cudaHostAlloc(&portable, 3 * MiB, 1));
    MUST(cudaHostRegister(own, 256 * KiB, 0));
    MUST(cudaHostUnregister(own));
    MUST(cudaFreeHost(pinned));
    MUST(cudaFreeHost(portable));
    free(own);
}

static void pools(void) {
    PoolProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};
    void *ordered, *pool, *pooled;
    MUST(cudaMallocAsync(&ordered, 8 * MiB, NULL));
    MUST(cudaMemPoolCreate(&pool, &properties));
    MUST(cudaMallocFromPoolAsync(&pooled, 5 * MiB, pool, NULL));
    MUST(cudaFreeAsync(ordered, NULL));
    MUST(cudaFreeAsync(pooled, NULL));
    MUST(cudaMemPoolDestroy(pool));
    MUST(cudaStreamSynchronize(NULL));
}

int main(void) {
    void *nothing, *too_big, *lost, *kept;
    MUST(cudaMalloc(&nothing, 0));  // no memory, and nothing below
    device_memory();
    host_memory();
    pools();
    MUST_NOT_FIT(cudaMalloc(&too_big, (size_t)1 << 42));
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    MUST(cudaMalloc(&lost, 24 * MiB));
    MUST(cudaDeviceReset());
    MUST(cudaMalloc(&kept, 10 * MiB));
    return 0;
}
