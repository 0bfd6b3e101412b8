// The tour through the CUDA runtime (libcudart.so.12): device, managed, pitched, 3D, array, pinned, registered,
// stream-ordered memory, then a failure whose text is asked for.
// The trace must show every allocation that the card made, each once; the failure is propagated, error_reported.
#define _POSIX_C_SOURCE 200112L
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { size_t width, height, depth; } cudaExtent;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } cudaPitchedPtr;
typedef struct { int x, y, z, w, f; } cudaChannelFormatDesc;

int cudaMalloc(void **pointer, size_t size);
int cudaMallocManaged(void **pointer, size_t size, unsigned flags);
int cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height);
int cudaMalloc3D(cudaPitchedPtr *pitched, cudaExtent extent);
int cudaMallocArray(void **array, const cudaChannelFormatDesc *desc, size_t width, size_t height, unsigned flags);
int cudaMallocHost(void **pointer, size_t size);
int cudaHostRegister(void *pointer, size_t size, unsigned flags);
int cudaHostUnregister(void *pointer);
int cudaMallocAsync(void **pointer, size_t size, void *stream);
int cudaFreeAsync(void *pointer, void *stream);
int cudaMemAdvise(const void *pointer, size_t size, int advice, int device);
int cudaMemPrefetchAsync(const void *pointer, size_t size, int device, void *stream);
int cudaFree(void *pointer);
int cudaFreeArray(void *array);
int cudaFreeHost(void *pointer);
const char *cudaGetErrorString(int status);

#define MUST(call)                                                           \
    do {                                                                     \
        int status = (call);                                                 \
        if (status != 0) {                                                   \
            fprintf(stderr, "%s: status %d\n", #call, status);               \
            exit(70);                                                        \
        }                                                                    \
    } while (0)

static void device_memory(void) {
    cudaChannelFormatDesc floats = {32, 0, 0, 0, 2};
    cudaPitchedPtr cube;
    void *block, *managed, *pitched, *array;
    size_t pitch;
    MUST(cudaMalloc(&block, 35 << 20));
    MUST(cudaMallocManaged(&managed, 6 << 20, 1));
    MUST(cudaMemAdvise(managed, 6 << 20, 1, 0));
    MUST(cudaMemPrefetchAsync(managed, 6 << 20, 0, NULL));
    MUST(cudaMemPrefetchAsync(managed, 6 << 20, -1, NULL));
    MUST(cudaMallocPitch(&pitched, &pitch, 900, 300));
    MUST(cudaMalloc3D(&cube, (cudaExtent){300, 20, 10}));
    MUST(cudaMallocArray(&array, &floats, 320, 200, 0));
    MUST(cudaFree(block));
    MUST(cudaFree(managed));
    MUST(cudaFree(pitched));
    MUST(cudaFree(cube.ptr));
    MUST(cudaFreeArray(array));
}

static void other_memory(void) {
    void *pinned, *own, *ordered;
    if (posix_memalign(&own, 4096, 1 << 18) != 0) exit(79);
    MUST(cudaMallocHost(&pinned, 2 << 20));
    MUST(cudaHostRegister(own, 1 << 18, 0));
    MUST(cudaMallocAsync(&ordered, 8 << 20, NULL));
    MUST(cudaFreeAsync(ordered, NULL));
    MUST(cudaHostUnregister(own));
    MUST(cudaFreeHost(pinned));
    free(own);
}

int main(void) {
    void *too_big;
    device_memory();
    other_memory();
    printf("%s\n", cudaGetErrorString(cudaMalloc(&too_big, (size_t)1 << 42)));
    return 0;
}
