// A library with ggml's names, loaded with local scope, finds no memory and aborts as ggml does. Compiled twice: -DPLUGIN is the
// library. The program must end by the same signal with the same words.
#ifdef PLUGIN
#include <stdarg.h>

#include "hip_min.h"

__attribute__((noreturn)) void ggml_abort(const char *file, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

int run(void) {
    void *block;
    if (hipMalloc(&block, 4096 * GiB) != hipSuccess)
        ggml_abort("ggml-cuda.cu", 98, "GGML_ASSERT(%s) failed: %d of %zu, %s %.1f", "block != NULL", -3, 4096 * GiB, "then", 0.5);
    return 0;
}
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(void) = library ? (int (*)(void))dlsym(library, "run") : NULL;
    if (!run) return 72;
    return run();
}
#endif
