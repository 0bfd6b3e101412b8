// A wrapper asks for memory and clears a block that it has, before its caller looks at the answer and asks for less by the same
// way. Run with SIM_CAPACITY=1G.
// The trace must say: dropped, gpu_work_continued, because GPU work came first; and yet no dropped failure is diagnosed.
#include "hip_min.h"

static void *held;

static __attribute__((noinline)) hipError_t ask(void **pointer, size_t size) {
    hipError_t status = hipMalloc(pointer, size);
    MUST(hipMemset(held, 0, 4096));
    return status;
}

int main(void) {
    void *wanted = NULL;
    MUST(hipMalloc(&held, 600 * MiB));
    for (size_t size = 500 * MiB; ask(&wanted, size) != hipSuccess; size -= 100 * MiB) {}
    MUST(launch_kernel());
    return 0;
}
