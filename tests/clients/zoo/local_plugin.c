// The library comes in through a plugin that is opened with RTLD_LOCAL, as Python, ollama and Triton do: RTLD_NEXT
// finds nothing then. The main program is not linked to it. Compiled twice: -DPLUGIN is the plugin.
// The trace must show the plugin's three allocations; a recorder that trusts RTLD_NEXT breaks the program.
#ifdef PLUGIN
#include "hip_min.h"

int run(void) {
    void *blocks[3];
    for (size_t i = 0; i < 3; i++) MUST(hipMalloc(&blocks[i], (i + 1) * 10 * MiB));
    MUST(launch_kernel());
    for (size_t i = 0; i < 3; i++) MUST(hipFree(blocks[i]));
    return 0;
}
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "run") : NULL;
    if (!run) {
        fprintf(stderr, "%s\n", dlerror());
        return 72;
    }
    int status = run();
    puts("plugin done");
    return status;
}
#endif
