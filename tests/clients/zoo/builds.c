// A program of which there are two builds. In the second, the cache takes twice as much, and the weights are loaded by
// lines that have moved: the first is a change, the second is none.
#include "hip_min.h"

#ifdef SECOND
// Lines
// that
// move
// everything
// below.
static volatile int moved;
#endif

__attribute__((noinline)) static void *load_weights(size_t size) {
    void *block;
#ifdef SECOND
    moved = 1;
    if (size == 0) return 0;
#endif
    MUST(hipMalloc(&block, size));
    return block;
}

__attribute__((noinline)) static void *make_cache(void) {
    void *block;
#ifdef SECOND
    MUST(hipMalloc(&block, 128 * MiB));
#else
    MUST(hipMalloc(&block, 64 * MiB));
#endif
    return block;
}

int main(void) {
    void *blocks[4];
    for (int i = 0; i < 3; i++) blocks[i] = load_weights((size_t)(i + 1) * 100 * MiB);
    blocks[3] = make_cache();
    for (int i = 0; i < 4; i++) MUST(hipFree(blocks[i]));
    return 0;
}
