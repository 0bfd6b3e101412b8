// As Triton does it: the library is opened with local scope, hipGetProcAddress is taken by dlsym, and everything else comes
// from that. What the library lacks must not be found. The trace must show every allocation.
#include <dlfcn.h>
#include <stdint.h>

#include "hip_min.h"

typedef hipError_t (*get_proc)(const char *, void **, int, uint64_t, int *);

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
    get_proc find = library ? (get_proc)dlsym(library, "hipGetProcAddress") : NULL;
    if (!find) return 72;
    enum { VERSION = 60200000 };
    hipError_t (*allocate)(void **, size_t), (*pinned)(void **, size_t, unsigned), (*release)(void *), (*unpin)(void *);
    hipError_t (*copy)(void *, const void *, size_t, int), (*last)(void);
    void *nothing = &nothing, *found[6];
    const char *names[6] = {"hipMalloc", "hipHostMalloc", "hipFree", "hipHostFree", "hipMemcpy", "hipGetLastError"};
    int result;
    for (int i = 0; i < 6; i++) MUST(find(names[i], &found[i], VERSION, 0, &result));
    allocate = (hipError_t(*)(void **, size_t))found[0];
    pinned = (hipError_t(*)(void **, size_t, unsigned))found[1];
    release = (hipError_t(*)(void *))found[2];
    unpin = (hipError_t(*)(void *))found[3];
    copy = (hipError_t(*)(void *, const void *, size_t, int))found[4];
    last = (hipError_t(*)(void))found[5];
    hipError_t missing = find("hipNoSuchFunction", &nothing, VERSION, 0, &result);
    printf("missing: %d %d %d\n", missing, nothing == NULL, result);

    void *block, *host, *none = NULL;
    MUST(allocate(&block, 9 * MiB));
    MUST(pinned(&host, 3 * MiB, 0));
    MUST(copy(block, host, 4096, 1));
    hipError_t refused = allocate(&none, (size_t)1 << 50);
    printf("refused: %d, last: %d\n", refused, last());
    MUST(release(block));
    MUST(unpin(host));
    return 0;
}
