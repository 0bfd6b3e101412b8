// Looks names up in the global scope, before and after a library with them is there. A recorder exports the same names:
// what the program would not find without it, it must not find with it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/ioctl.h>

static void ask(const char *when, const char *name) {
    dlerror();
    void *by_default = dlsym(RTLD_DEFAULT, name);
    int message = dlerror() != NULL;
    void *program = dlopen(NULL, RTLD_NOW);
    void *by_handle = dlsym(program, name);
    printf("%s %s: %d %d, message %d %d\n", when, name, by_default != NULL, by_handle != NULL, message,
           dlerror() != NULL);
    dlclose(program);
}

int main(int argc, char **argv) {
    if (argc < 2) return 72;
    const char *names[] = {"hipMalloc", "hipMemcpy", "cudaMalloc", "cuGetProcAddress_v2", "ioctl", "malloc"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) ask("before", names[i]);
    void *local = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) ask("local", names[i]);
    if (!local || !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) return 72;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) ask("global", names[i]);
    return 0;
}
