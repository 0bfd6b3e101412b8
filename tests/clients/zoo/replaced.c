// Loads one plugin, lets it allocate, unloads it, and loads another one in its place, again and again. -DPLUGIN is the first
// plugin; replaced_other.c makes the other: the same code with another function, so that each return address of the one is
// one of the other, too. The last call, of the other plugin, asks for more than there is.
#include <dlfcn.h>

#include "hip_min.h"

#ifdef PLUGIN
#ifndef ALLOCATES
#define ALLOCATES first_plugin_allocates
#endif

__attribute__((noinline, noipa)) int ALLOCATES(size_t bytes) {
    void *kept, *freed;
    hipError_t error = hipMalloc(&kept, bytes);
    if (error == 0 && hipMalloc(&freed, bytes) == 0) hipFree(freed);
    return (int)error;
}

int run(size_t bytes) { return ALLOCATES(bytes) + 0; }
#else
int main(int argc, char **argv) {
    const size_t mebibytes[] = {1, 2, 4, 8, 16, 1 << 20};
    if (argc != 3) return 1;
    for (int round = 0; round < 6; round++) {
        void *plugin = dlopen(argv[1 + round % 2], RTLD_NOW | RTLD_LOCAL);
        int (*run)(size_t) = plugin ? (int (*)(size_t))dlsym(plugin, "run") : NULL;
        if (!run) return 2;
        printf("%p %d\n", (void *)run, run(mebibytes[round] * MiB));
        dlclose(plugin);
    }
    return 0;
}
#endif
