// A client that is linked to nothing and takes every function from dlsym on a handle, as JAX and Triton do. Arguments:
// the driver's path, and the runtime's.
// The trace must show both: the driver's calls as the program's own, and those inside the runtime's.
#include <dlfcn.h>

#include "cuda_min.h"

static void *open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) exit(73);
    return library;
}

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) exit(74);
    return found;
}

int main(int count, char **arguments) {
    if (count != 3) return 64;
    void *driver = open_library(arguments[1]), *runtime = open_library(arguments[2]);
    int (*init)(unsigned) = (int (*)(unsigned))function(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))function(driver, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = (int (*)(void *))function(driver, "cuCtxSetCurrent");
    int (*driver_alloc)(void **, size_t) = (int (*)(void **, size_t))function(driver, "cuMemAlloc_v2");
    int (*driver_free)(void *) = (int (*)(void *))function(driver, "cuMemFree_v2");
    int (*runtime_alloc)(void **, size_t) = (int (*)(void **, size_t))function(runtime, "cudaMalloc");
    int (*runtime_free)(void *) = (int (*)(void *))function(runtime, "cudaFree");
    void *context, *one, *other;
    MUST(init(0));
    MUST(retain(&context, 0));
    MUST(set_current(context));
    MUST(driver_alloc(&one, 17 * MiB));
    MUST(runtime_alloc(&other, 19 * MiB));
    // Memory is the driver's, whoever asked for it.
    MUST(driver_free(other));
    MUST(runtime_free(one));
    return 0;
}
