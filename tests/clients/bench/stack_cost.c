/* What an allocation costs below a stack of 30 frames of this program, in a process that a recorder may watch.
 *
 *   stack_cost known|new       (or measure(), from a library: compiled with -shared)
 *
 * known: always the same stack. new: each allocation has a stack that was never there before, made of functions that were:
 * each of its frames calls the next from one of two places, by a bit of a counter. Allocates by hipMalloc (-DHIP), by malloc, or
 * tells of a block as PyTorch's allocator does (-DTORCH, on null_c10.c). Output: nanoseconds of this thread's processor time per allocation, the median of all rounds, with the way down
 * and up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef HIP
int hipMalloc(void **out, size_t size_bytes);
int hipFree(void *pointer);
static void *take(void) {
    void *block = NULL;
    hipMalloc(&block, 4096);
    return block;
}
static void give(void *block) { hipFree(block); }
#elif defined TORCH
int hipMalloc(void **out, size_t size_bytes);
void report(void *block, int64_t change, size_t allocated, size_t reserved, uint16_t device)
    __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
enum { BLOCK = 4096, CUDA_DEVICE_0 = 1 };
static size_t allocated, reserved = (size_t)1 << 30;
static char *segment, *next;
static void *take(void) {
    /* Nothing is recorded before the first call for memory. */
    if (!segment) {
        hipMalloc((void **)&segment, reserved);
        next = segment;
    }
    next = next == segment + reserved ? segment : next;
    void *block = next;
    next += BLOCK;
    allocated += BLOCK;
    report(block, BLOCK, allocated, reserved, CUDA_DEVICE_0);
    return block;
}
static void give(void *block) {
    allocated -= BLOCK;
    report(block, -BLOCK, allocated, reserved, CUDA_DEVICE_0);
}
#else
static void *take(void) { return malloc(100); }
static void give(void *block) { free(block); }
#endif

/* A round of new stacks fits a quarter of the ring; all rounds together fit the table of sites. */
enum { FRAMES = 30, BURST = 1500, ROUNDS = 25 };

static void *blocks[BURST];

__attribute__((noinline, noipa)) static void *down(int depth, uint32_t path) {
    void *block;
    if (depth == 0) {
        block = take();
    } else if (path & 1) {
        block = down(depth - 1, path >> 1);
        __asm__ volatile("# one place" ::: "memory");
    } else {
        block = down(depth - 1, path >> 1);
        __asm__ volatile("# the other" ::: "memory");
    }
    return block;
}

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measure(int is_new) {
    int (*flush_trace)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "gpuoom_flush");
    double rounds[ROUNDS];
    uint32_t path = 0;
    /* Each place is met once before. */
    give(down(FRAMES - 2, 0));
    give(down(FRAMES - 2, ~0u));
    for (int round = 0; round < ROUNDS; round++) {
        double began = now_ns();
        for (int n = 0; n < BURST; n++) blocks[n] = down(FRAMES - 2, is_new ? ++path * 2654435761u : 0);
        rounds[round] = (now_ns() - began) / BURST;
        for (int n = 0; n < BURST; n++) give(blocks[n]);
        if (flush_trace) flush_trace();
    }
    qsort(rounds, ROUNDS, sizeof rounds[0], compare);
    return rounds[ROUNDS / 2];
}

int main(int argc, char **argv) {
    printf("%.1f\n", measure(argc > 1 && strcmp(argv[1], "new") == 0));
    return 0;
}
