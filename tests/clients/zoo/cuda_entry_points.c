// What PyTorch's expandable segments do: the runtime hands out the driver's VMM functions by name and version, and a
// segment grows chunk by chunk until the device is full; then some chunks are given up and one fits.
// The trace must show each chunk, which no symbol leads to; the failure is recovered; half of the chunks are live at
// the end.
#include "cuda_min.h"

enum { CHUNKS = 8, CUDA_12 = 12000 };
#define CHUNK (20 * MiB)

static int (*reserve)(void **, size_t, size_t, void *, unsigned long long);
static int (*create)(void **, size_t, const AllocationProperties *, unsigned long long);
static int (*map)(void *, size_t, size_t, void *, unsigned long long);
static int (*set_access)(void *, size_t, const AccessDescription *, size_t);
static int (*unmap)(void *, size_t);
static int (*release)(void *);

static void *entry_point(const char *name) {
    void *function = NULL;
    int found = -1;
    MUST(cudaGetDriverEntryPointByVersion(name, &function, CUDA_12, 0, &found));
    if (!function || found != 0) exit(72);
    return function;
}

static const AllocationProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};

static void *grow(char *segment, int chunk) {
    AccessDescription access = {{ON_DEVICE, 0}, READ_WRITE};
    void *handle;
    MUST(create(&handle, CHUNK, &properties, 0));
    MUST(map(segment + chunk * CHUNK, CHUNK, 0, handle, 0));
    MUST(set_access(segment + chunk * CHUNK, CHUNK, &access, 1));
    return handle;
}

int main(void) {
    void *segment, *handles[CHUNKS], *large, *missing = &missing;
    int found = -1;
    MUST(cudaSetDevice(0));
    reserve = (int (*)(void **, size_t, size_t, void *, unsigned long long))entry_point("cuMemAddressReserve");
    create = (int (*)(void **, size_t, const AllocationProperties *, unsigned long long))entry_point("cuMemCreate");
    map = (int (*)(void *, size_t, size_t, void *, unsigned long long))entry_point("cuMemMap");
    set_access = (int (*)(void *, size_t, const AccessDescription *, size_t))entry_point("cuMemSetAccess");
    unmap = (int (*)(void *, size_t))entry_point("cuMemUnmap");
    release = (int (*)(void *))entry_point("cuMemRelease");

    MUST(reserve(&segment, CHUNKS * CHUNK, 0, NULL, 0));
    for (int i = 0; i < CHUNKS; i++) handles[i] = grow(segment, i);
    MUST_NOT_FIT(create(&large, 3 * CHUNK, &properties, 0));
    MUST(unmap((char *)segment + 4 * CHUNK, 4 * CHUNK));
    for (int i = 4; i < CHUNKS; i++) MUST(release(handles[i]));
    MUST(create(&large, 3 * CHUNK, &properties, 0));
    MUST(release(large));

    MUST(cudaGetDriverEntryPoint("cuNoSuchFunction", &missing, 0, &found));
    printf("unknown: %s, found %d\n", missing ? "a function" : "null", found);
    return cudaGetDriverEntryPointByVersion("cuMemCreate", &missing, 10000, 0, &found) == SUCCESS && found == 2 ? 0 : 1;
}
