// A handle that is asked for by an address holds the memory, too: it lives until both references and the mapping are gone.
// What is in use is printed after each step.
#include "hip_min.h"

static void say(const char *when) {
    size_t free, total;
    MUST(hipMemGetInfo(&free, &total));
    printf("%s %zu\n", when, total - free);
}

int main(void) {
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    size_t size = 64 * MiB;
    void *range, *handle, *again;
    MUST(hipMemAddressReserve(&range, size, 0, NULL, 0));
    MUST(hipMemCreate(&handle, size, &properties, 0));
    MUST(hipMemMap(range, size, 0, handle, 0));
    MUST(hipMemRelease(handle));
    MUST(hipMemRetainAllocationHandle(&again, (char *)range + size / 2));
    MUST(hipMemUnmap(range, size));
    say("retained");
    MUST(hipMemMap(range, size, 0, again, 0));
    MUST(hipMemRelease(again));
    say("mapped");
    MUST(hipMemUnmap(range, size));
    say("neither");
    MUST(hipMemAddressFree(range, size));
    return 0;
}
