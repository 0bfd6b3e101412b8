// Memory is asked for on named ways: three loads of weights through a helper that is inlined, one cache, and a request that
// does not fit. The report must name the functions with their lines, and sum up what each holds.
#pragma GCC optimize("O2", "omit-frame-pointer", "no-optimize-sibling-calls")
#include "hip_min.h"

#define NOINLINE __attribute__((noinline, noipa))

static inline __attribute__((always_inline)) int take_block(size_t bytes) {
    void *block;
    return hipMalloc(&block, bytes); /* line of take_block */
}

NOINLINE static int load_weights(size_t bytes) {
    return take_block(bytes) + 1; /* line of load_weights */
}

NOINLINE static int grow_cache(size_t bytes) {
    void *block;
    return hipMalloc(&block, bytes) + 1; /* line of grow_cache */
}

NOINLINE static int run_model(void) {
    int sum = 0;
    for (volatile int layer = 0; layer < 3; layer++) sum += load_weights(256 * MiB); /* line of run_model */
    sum += grow_cache(100 * MiB);
    return sum;
}

int main(void) {
    run_model();
    return load_weights(4096 * GiB) == 1;
}
