// Takes hipMalloc and hipFree by dlsym and dlvsym on the library's handle: a preloaded symbol is bypassed that way.
// Names that the library lacks must stay unknown. The trace must show every one of these calls.
#define _GNU_SOURCE
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
    hipError_t (*versioned)(void **, size_t) = (hipError_t(*)(void **, size_t))dlvsym(library, "hipMalloc", "hip_4.2");
    if (!versioned || dlvsym(library, "hipMalloc", "hip_9.9")) return 72;
    void *block;
    MUST(versioned(&block, 7 * MiB));
    MUST(release(block));
    if (dlsym(library, "hipNoSuchFunction") || dlsym(library, "cuMemAlloc_v2") || !dlerror()) return 72;
    // The same function has one address, and none of these look-ups leaves a message behind.
    printf("same: %d, message: %d\n", dlsym(library, "hipFree") == (void *)release, dlerror() != NULL);
    puts("done");
    return 0;
}
