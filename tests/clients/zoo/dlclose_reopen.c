// Opens a plugin that needs the library, uses it, closes it so that the library is unmapped, and does all again.
// Compiled twice: -DPLUGIN is the plugin.
// The trace must show six allocations: what the recorder knew of the first copy is stale by then.
#ifdef PLUGIN
#include "hip_min.h"

int run(int round) {
    void *blocks[3];
    for (size_t i = 0; i < 3; i++) MUST(hipMalloc(&blocks[i], ((size_t)round * 3 + i + 1) * MiB));
    for (size_t i = 0; i < 3; i++) MUST(hipFree(blocks[i]));
    return 0;
}
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int worst = 0;
    for (int round = 0; round < 2; round++) {
        void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
        int (*run)(int) = plugin ? (int (*)(int))dlsym(plugin, "run") : NULL;
        if (!run) return 72;
        worst |= run(round);
        dlclose(plugin);
    }
    puts("twice");
    return worst;
}
#endif
