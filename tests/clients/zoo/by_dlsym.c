// Takes hipMalloc and hipFree by dlsym on the library's handle: a preloaded symbol is bypassed that way.
// The trace must show either every one of these calls (the recorder hooks dlsym) or none at all; never a part.
#include <dlfcn.h>

#include "hip_min.h"

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return 72;
    hipError_t (*allocate)(void **, size_t) = (hipError_t(*)(void **, size_t))dlsym(library, "hipMalloc");
    hipError_t (*release)(void *) = (hipError_t(*)(void *))dlsym(library, "hipFree");
    if (!allocate || !release) return 72;
    for (size_t i = 1; i <= 5; i++) {
        void *block;
        MUST(allocate(&block, i * MiB));
        MUST(release(block));
    }
    puts("done");
    return 0;
}
