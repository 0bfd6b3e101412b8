// Two copies of the library in one process, as with a system ROCm and PyTorch's bundled one: each plugin is linked to
// its own. Compiled three times: -DPLUGIN once against each copy, and the main program.
// The trace must show all four allocations, and each free must reach the copy that allocated (else its status is 1).
#ifdef PLUGIN
#include "hip_min.h"

void *take(size_t size) {
    void *block;
    MUST(hipMalloc(&block, size));
    return block;
}

void give(void *block) { MUST(hipFree(block)); }
#else
#include <dlfcn.h>
#include <stdio.h>

struct plugin {
    void *(*take)(size_t);
    void (*give)(void *);
};

static int load(const char *path, struct plugin *plugin) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return 0;
    plugin->take = (void *(*)(size_t))dlsym(handle, "take");
    plugin->give = (void (*)(void *))dlsym(handle, "give");
    return plugin->take && plugin->give;
}

int main(int argc, char **argv) {
    struct plugin a, b;
    if (argc < 3 || !load(argv[1], &a) || !load(argv[2], &b)) {
        fprintf(stderr, "%s\n", dlerror());
        return 72;
    }
    void *of_a = a.take(11 << 20), *of_b = b.take(13 << 20);
    void *more_of_a = a.take(17 << 20), *more_of_b = b.take(19 << 20);
    b.give(of_b);
    a.give(of_a);
    a.give(more_of_a);
    b.give(more_of_b);
    puts("both copies served");
    return 0;
}
#endif
