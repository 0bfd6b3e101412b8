// Like caller.c, by way of ggml's function for compute buffers.
#include <stddef.h>

__attribute__((noinline)) int ggml_backend_sched_reserve(int (*allocate)(void **, size_t), void **pointer, size_t size) {
    int status = allocate(pointer, size);
    return status;
}

int scene_allocate(int (*allocate)(void **, size_t), void **pointer, size_t size) {
    int status = ggml_backend_sched_reserve(allocate, pointer, size);
    return status;
}
