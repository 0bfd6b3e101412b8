// A card that is full: how much of it blocks of 1 GiB can take, and then blocks of 2 MiB; what is refused then, and how; what holes
// between blocks do to a larger one. Says of each refusal how large the largest block was at that moment.
#include "card.h"

enum { LARGE = 512, SMALL = 1024 };

int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);

static void *large[LARGE], *small[SMALL];
static int large_count, small_count;

static void fill(void) {
    begin("fill");
    while (large_count < LARGE && CALL(cuMemAlloc_v2, (&large[large_count], GiB), GiB, large[large_count]) == SUCCESS) large_count++;
    say("blocks of 1 GiB", large_count);
    say("largest block", (long long)largest_block());
    say("free beside it", (long long)free_bytes());
    while (small_count < SMALL && cuMemAlloc_v2(&small[small_count], 2 * MiB) == SUCCESS) small_count++;
    say("blocks of 2 MiB", small_count);
    say("free with nothing left to have", (long long)free_bytes());
}

static const char code[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 16 .b8 table[67108864];\n";

static void refused_when_full(void) {
    const AllocationProperties properties = {.type = PINNED_MEMORY, .location = {ON_DEVICE, 0}};
    void *got = NULL;
    begin("refused when full");
    CALL(cuMemAlloc_v2, (&got, 4 * KiB), 4 * KiB, got);
    CALL(cuMemCreate, (&got, 2 * MiB, &properties, 0), 2 * MiB, got);
    CALL(cuMemAllocAsync, (&got, 64 * MiB, NULL), 64 * MiB, got);
    if (CALL(cuModuleLoadData, (&got, code), 0, NULL) == SUCCESS) cuModuleUnload(got);
    void *popped;
    if (CALL(cuCtxCreate_v2, (&got, 0, 0), 0, NULL) == SUCCESS) {
        cuCtxPopCurrent_v2(&popped);
        cuCtxDestroy_v2(got);
    }
}

// Every second block goes; then one that no single hole holds.
static void holes(void) {
    void *block;
    begin("holes");
    for (int i = 0; i < small_count; i++) MUST(cuMemFree_v2(small[i]));
    for (int i = 0; i < large_count; i += 2) MUST(cuMemFree_v2(large[i]));
    say("free", (long long)free_bytes());
    say("largest block", (long long)largest_block());
    if (CALL(cuMemAlloc_v2, (&block, 3 * GiB), 3 * GiB, block) == SUCCESS) MUST(cuMemFree_v2(block));
    size_t more_than_free = (free_bytes() / GiB + 1) * GiB;
    CALL(cuMemAlloc_v2, (&block, more_than_free), more_than_free, NULL);
    for (int i = 1; i < large_count; i += 2) MUST(cuMemFree_v2(large[i]));
}

int main(void) {
    void *context;
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    say("total", (long long)total_bytes());
    say("free", (long long)free_bytes());
    say_nvml("empty");
    fill();
    say_nvml("full");
    refused_when_full();
    holes();
    say("free", (long long)free_bytes());
    return 0;
}
