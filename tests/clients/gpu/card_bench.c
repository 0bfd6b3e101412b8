// What calls take on a card, in nanoseconds each: blocks taken and given back, the same of a pool, and launches of a kernel that
// does nothing. Run in turn with and without the recorder (card_bench.py).
#include <time.h>

#include "card.h"

int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuMemPoolSetAttribute(void *pool, int attribute, void *value);
int cuDeviceGetDefaultMemPool(void **pool, int device);
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **arguments, void **extra);

static const char code[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
static void *function;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void blocks(int count, size_t size) {
    void *block;
    for (int i = 0; i < count; i++) {
        MUST(cuMemAlloc_v2(&block, size));
        MUST(cuMemFree_v2(block));
    }
}

static void small(int count) { blocks(count, 4 * KiB); }
static void large(int count) { blocks(count, 64 * MiB); }

static void pooled(int count) {
    void *block;
    for (int i = 0; i < count; i++) {
        MUST(cuMemAllocAsync(&block, MiB, NULL));
        MUST(cuMemFreeAsync(block, NULL));
    }
    MUST(cuStreamSynchronize(NULL));
}

// Fewer at once than the card's queue takes: a full queue would hide what a call costs.
static void launches(int count) {
    for (int i = 0; i < count; i++) {
        MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        if (i % 500 == 499) MUST(cuStreamSynchronize(NULL));
    }
}

static const struct { const char *name; void (*run)(int); int count; } measures[] = {
    {"cuMemAlloc_v2 and cuMemFree_v2 of 4 KiB", small, 20000},
    {"cuMemAlloc_v2 and cuMemFree_v2 of 64 MiB", large, 400},
    {"cuMemAllocAsync and cuMemFreeAsync of 1 MiB", pooled, 40000},
    {"cuLaunchKernel", launches, 60000},
};

int main(void) {
    void *context, *module, *pool;
    uint64_t keep = UINT64_MAX;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, code));
    MUST(cuModuleGetFunction(&function, module, "nothing"));
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemPoolSetAttribute(pool, 4, &keep));
    for (size_t i = 0; i < sizeof measures / sizeof measures[0]; i++) {
        measures[i].run(measures[i].count / 10);
        double before = seconds();
        measures[i].run(measures[i].count);
        printf("{\"measure\": \"%s\", \"each_ns\": %.1f}\n", measures[i].name, (seconds() - before) / measures[i].count * 1e9);
    }
    return 0;
}
