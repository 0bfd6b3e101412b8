// Maps memory and releases the handle at once, as llama.cpp's pool does: the mapping keeps the memory. The program
// ends with one such mapping left and another one gone.
// The trace must count the memory until unmap, not until release, and the 32 GiB address range as nothing.
#include "hip_min.h"

static void map_and_release(void *at, size_t size) {
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    void *handle;
    MUST(hipMemCreate(&handle, size, &properties, 0));
    MUST(hipMemMap(at, size, 0, handle, 0));
    MUST(hipMemRelease(handle));
}

int main(void) {
    void *range;
    MUST(hipMemAddressReserve(&range, 32 * GiB, 0, NULL, 0));
    map_and_release(range, 64 * MiB);
    map_and_release((char *)range + 64 * MiB, 32 * MiB);
    MUST(hipMemUnmap(range, 64 * MiB));
    size_t free, total;
    MUST(hipMemGetInfo(&free, &total));
    printf("%zu in use\n", total - free);
    return 0;
}
