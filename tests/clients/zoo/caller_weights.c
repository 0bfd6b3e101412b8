// Like caller.c, by way of llama.cpp's function for the weights.
#include <stddef.h>

__attribute__((noinline)) int llama_model_load(int (*allocate)(void **, size_t), void **pointer, size_t size) {
    int status = allocate(pointer, size);
    return status;
}

int scene_allocate(int (*allocate)(void **, size_t), void **pointer, size_t size) {
    int status = llama_model_load(allocate, pointer, size);
    return status;
}
