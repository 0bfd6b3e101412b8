// Like caller.c, by way of llama.cpp's function for the cache of keys and values.
#include <stddef.h>

__attribute__((noinline)) int llama_kv_cache_init(int (*allocate)(void **, size_t), void **pointer, size_t size) {
    int status = allocate(pointer, size);
    return status;
}

int scene_allocate(int (*allocate)(void **, size_t), void **pointer, size_t size) {
    int status = llama_kv_cache_init(allocate, pointer, size);
    return status;
}
