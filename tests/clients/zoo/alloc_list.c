// Allocates what its arguments list, COUNTxBYTES each, holds all of it at once and gives it back: the rounding vectors
// are allocated for real. Nothing of it is touched.
#include "hip_min.h"

int main(int argc, char **argv) {
    enum { MOST = 4096 };
    static void *blocks[MOST];
    size_t held = 0;
    for (int i = 1; i < argc; i++) {
        size_t count, bytes;
        if (sscanf(argv[i], "%zux%zu", &count, &bytes) != 2 || held + count > MOST) return 64;
        while (count--) MUST(hipMalloc(&blocks[held++], bytes));
    }
    printf("%zu held\n", held);
    while (held) MUST(hipFree(blocks[--held]));
    return 0;
}
