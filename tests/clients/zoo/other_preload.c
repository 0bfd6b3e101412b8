// Another preloaded library, with hooks of its own: on a function of the C library and on hipMalloc. It finds what lies
// behind itself with RTLD_NEXT, which looks at who calls dlsym. Compiled with -DPLUGIN it is that library, else the program.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "hip_min.h"

#ifdef PLUGIN
static int seen;

hipError_t hipMalloc(void **block, size_t size) {
    hipError_t (*next)(void **, size_t) = (hipError_t(*)(void **, size_t))dlsym(RTLD_NEXT, "hipMalloc");
    if (!next || next == hipMalloc || seen > 100) abort();
    seen++;
    return next(block, size);
}

int rand(void) {
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "rand");
    if (!next || next == rand) abort();
    return next() >= 0 ? 7 : 8;
}

int other_preload_saw(void) { return seen; }
#else
int main(void) {
    void *block;
    MUST(hipMalloc(&block, 3 * MiB));
    MUST(hipMalloc(&block, 5 * MiB));
    int (*saw)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "other_preload_saw");
    printf("rand %d, seen %d\n", rand(), saw ? saw() : -1);
    return 0;
}
#endif
