// Physical memory that is mapped, unmapped and released on ROCm itself; then, with an argument, blocks until the card is full.
// Prints how much of it is gone and back by hipMemGetInfo: the output is the same in every run.
#include "../zoo/hip_min.h"

#define SIZE (256 * MiB)

static size_t free_bytes(void) {
    size_t free, total;
    MUST(hipMemGetInfo(&free, &total));
    return free;
}

static void map_and_give_back(void) {
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    hipMemAccessDesc access = {{1, 0}, 3};
    void *handle, *range;
    MUST(hipMemAddressReserve(&range, SIZE, 0, NULL, 0));
    MUST(hipMemCreate(&handle, SIZE, &properties, 0));
    MUST(hipMemMap(range, SIZE, 0, handle, 0));
    MUST(hipMemSetAccess(range, SIZE, &access, 1));
    MUST(hipMemUnmap(range, SIZE));
    MUST(hipMemRelease(handle));
    MUST(hipMemAddressFree(range, SIZE));
}

int main(int count, char **arguments) {
    (void)arguments;
    // Once before, so that what the runtime takes for itself is not counted.
    map_and_give_back();
    size_t before = free_bytes();
    map_and_give_back();
    printf("lost %zd\n", (ssize_t)(before - free_bytes()));
    int blocks = 0;
    for (void *block; count > 1 && hipMalloc(&block, 512 * MiB) == hipSuccess;) blocks++;
    printf("%d blocks\n", blocks);
    return 0;
}
