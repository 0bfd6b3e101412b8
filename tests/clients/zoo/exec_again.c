// Allocates, then replaces itself by exec with a program (itself) that allocates too: one process id, two programs.
// Both allocations must be found: the second program must not overwrite the first one's trace.
#include <unistd.h>

#include "hip_min.h"

int main(int argc, char **argv) {
    void *block;
    if (argc > 1) {
        MUST(hipMalloc(&block, 96 * MiB));
        puts("second");
        return 0;
    }
    MUST(hipMalloc(&block, 64 * MiB));
    puts("first");
    fflush(stdout);
    execl("/proc/self/exe", argv[0], "second", (char *)NULL);
    return 73;
}
