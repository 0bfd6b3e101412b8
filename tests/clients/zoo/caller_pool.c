// Like caller.c, by way of the pool of ggml's backend that has no virtual memory.
#include <stddef.h>

__attribute__((noinline)) int ggml_cuda_pool_malloc(int (*allocate)(void **, size_t), void **pointer, size_t size) {
    int status = allocate(pointer, size);
    return status;
}

int scene_allocate(int (*allocate)(void **, size_t), void **pointer, size_t size) {
    int status = ggml_cuda_pool_malloc(allocate, pointer, size);
    return status;
}
