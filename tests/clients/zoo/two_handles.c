// Two copies of the library, their functions taken by dlsym from each handle. Each call must reach the copy whose pointer
// was used: a free that reaches the other copy answers 1. Watched calls too (hipGetLastError is per copy).
#include <dlfcn.h>

#include "hip_min.h"

struct copy {
    hipError_t (*allocate)(void **, size_t);
    hipError_t (*release)(void *);
    hipError_t (*last)(void);
};

static int load(const char *path, struct copy *copy) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return 0;
    copy->allocate = (hipError_t(*)(void **, size_t))dlsym(handle, "hipMalloc");
    copy->release = (hipError_t(*)(void *))dlsym(handle, "hipFree");
    copy->last = (hipError_t(*)(void))dlsym(handle, "hipGetLastError");
    return copy->allocate && copy->release && copy->last;
}

int main(int argc, char **argv) {
    struct copy a, b;
    if (argc < 3 || !load(argv[1], &a) || !load(argv[2], &b)) return 72;
    void *of_a, *of_b, *none = NULL;
    MUST(a.allocate(&of_a, 11 * MiB));
    MUST(b.allocate(&of_b, 13 * MiB));
    // Only this copy has failed.
    hipError_t refused = b.allocate(&none, (size_t)1 << 50);
    printf("refused %d, last of a %d, last of b %d\n", refused, a.last(), b.last());
    MUST(b.release(of_b));
    MUST(a.release(of_a));
    puts(a.allocate == b.allocate ? "one function" : "two functions");
    return 0;
}
