// Leaves without the usual ceremonies: argument _exit, quick_exit or _Exit, always with status 4.
// The trace must hold the allocation, and must not name another way out than this one.
#include <string.h>
#include <unistd.h>

#include "hip_min.h"

int main(int argc, char **argv) {
    void *block;
    const char *way = argc > 1 ? argv[1] : "";
    MUST(hipMalloc(&block, 21 * MiB));
    if (strcmp(way, "quick_exit") == 0) quick_exit(4);
    if (strcmp(way, "_Exit") == 0) _Exit(4);
    _exit(4);
}
