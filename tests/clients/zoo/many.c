// Allocates and frees N times (argument, default 1000), then fails once and asks for the error: a long quiet run.
// Used where the trace cannot be written: whatever happens to it, this program must not notice.
#include "hip_min.h"

int main(int argc, char **argv) {
    size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    void *kept, *block;
    MUST(hipMalloc(&kept, 5 * MiB));
    for (size_t i = 0; i < rounds; i++) {
        MUST(hipMalloc(&block, i % 64 * MiB + 1));
        MUST(hipMemset(block, 0, 1));
        MUST(hipFree(block));
    }
    MUST_NOT_FIT(hipMalloc(&block, 4096 * GiB));
    printf("last error %d\n", hipGetLastError());
    MUST(hipFree(kept));
    puts("done");
    return 0;
}
