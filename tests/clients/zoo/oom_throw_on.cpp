// An allocation fails, the program throws and catches an exception, and goes on with GPU work; with an argument it first
// allocates something else, from another place, soon afterwards.
// The trace must say: propagated, exception. Work after an exception is no drop, and a block for something else no fall-back.
#include <new>

#include "hip_min.h"

static __attribute__((noinline)) void *take(size_t size) {
    void *block;
    if (hipMalloc(&block, size) != hipSuccess) throw std::bad_alloc();
    return block;
}

int main(int argc, char **argv) {
    (void)argv;
    try {
        take(4096 * GiB);
    } catch (const std::bad_alloc &) {
        puts("caught");
    }
    static void *other;
    if (argc > 1) MUST(hipMalloc(&other, 64 * GiB >> 10));
    MUST(launch_kernel());
    return 0;
}
