// A plugin loaded with RTLD_DEEPBIND: its calls go to the library that it depends on, past everything preloaded.
// Compiled with -DPLUGIN it is the plugin. With "too" the program also calls by itself. The recorder can't see the
// plugin's calls; it must say so.
#define _GNU_SOURCE
#include <dlfcn.h>

#include "hip_min.h"

#ifdef PLUGIN
int run(void) {
    void *block;
    MUST(hipMalloc(&block, 64 * MiB));
    MUST(hipFree(block));
    return 0;
}
#else
int main(int argc, char **argv) {
    if (argc < 3) return 72;
    void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (argc > 3) {
        hipError_t (*allocate)(void **, size_t) = (hipError_t(*)(void **, size_t))dlsym(library, "hipMalloc");
        void *block;
        if (!allocate) return 72;
        MUST(allocate(&block, 3 * MiB));
    }
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "run") : NULL;
    if (!run) return 72;
    return run();
}
#endif
