// Three functions that a compiler puts into main: the report must say what each of them took, and not give all of it to one.
#pragma GCC optimize("O2", "no-optimize-sibling-calls")
#include "hip_min.h"

#define INLINE static inline __attribute__((always_inline))

INLINE int load_weights(void) {
    void *block;
    return hipMalloc(&block, 300 * MiB); /* line of load_weights */
}

INLINE int make_cache(void) {
    void *block;
    return hipMalloc(&block, 100 * MiB); /* line of make_cache */
}

INLINE int two_buffers(void) {
    void *block;
    if (hipMalloc(&block, 20 * MiB)) return 1;
    return hipMalloc(&block, 30 * MiB);
}

int main(void) {
    return load_weights() + make_cache() + two_buffers();
}
