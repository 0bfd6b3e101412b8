// Physical memory of the host, mapped like that of the card, and more of it than the card has. Its handle is released while it is mapped,
// as most programs do.
#include "hip_min.h"

enum { PINNED = 1, ON_DEVICE_LOCATION = 1, ON_HOST = 2 };

static void *map(size_t size, int place, int keeps_handle) {
    hipMemAllocationProp properties = {.type = PINNED, .location = {place, 0}};
    void *handle, *range;
    MUST(hipMemCreate(&handle, size, &properties, 0));
    MUST(hipMemAddressReserve(&range, size, 0, NULL, 0));
    MUST(hipMemMap(range, size, 0, handle, 0));
    if (!keeps_handle) MUST(hipMemRelease(handle));
    return range;
}

int main(int count, char **arguments) {
    void *refused, *host[4];
    for (int i = 0; i < 4; i++) host[i] = map(1024 * MiB, ON_HOST, i == 3);
    map(512 * MiB, ON_DEVICE_LOCATION, 0);
    MUST_NOT_FIT(hipMalloc(&refused, 2048 * MiB));
    (void)arguments;
    if (count > 1) MUST(hipMemUnmap(host[0], 1024 * MiB));
    puts("done");
    return 0;
}
