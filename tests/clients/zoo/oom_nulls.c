// A null pointer goes into GPU work after an allocation failed: of that call, or of something else. Run with SIM_CAPACITY=1G and
// SIM_PINNED_LIMIT=1G; the argument says what happens.
// The trace must say:
//   launch, text, pinned: dropped, failed_pointer_used, of the one call whose variable holds the null
//   two: both dropped, gpu_work_continued: one null may be of either
//   refilled: the first dropped, gpu_work_continued, without a pointer, since its variable has got another block, too late for a retry;
//     the second dropped, failed_pointer_used
//   host, host2d: dropped, gpu_work_continued: the source of a copy from the host is nothing that a card's allocation left behind
//   again: recovered, fell_back: the failed call's variable holds what a later call wrote to it
//   shrunk: the first dropped, failed_pointer_used, and not for sure; the others, which were for another variable, recovered, fell_back
//   wrapper, copied: dropped, failed_pointer_used, and not for sure: other memory came, or the variable holds something else
#include <string.h>
#include <unistd.h>

#include "hip_min.h"

hipError_t hipMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind);

static __attribute__((noinline)) void *get(size_t size) {
    void *pointer = NULL;
    (void)hipMalloc(&pointer, size);
    return pointer;
}

static void used(const char *way, void *held) {
    void *wanted = NULL, *other = NULL;
    char data[4096];
    if (strcmp(way, "wrapper") == 0) {
        void *first = get(600 * MiB);
        other = get(300 * MiB);
        MUST(launch_kernel());
        (void)hipMemset(first, 0, 4096);
        return;
    }
    if (strcmp(way, "pinned") == 0) {
        MUST_NOT_FIT(hipHostMalloc(&wanted, 4096 * GiB, 0));
        (void)hipMemcpy(wanted, held, sizeof data, hipMemcpyDeviceToHost);
        return;
    }
    MUST_NOT_FIT(hipMalloc(&wanted, 600 * MiB));
    if (strcmp(way, "launch") == 0) {
        MUST(launch_kernel());
        (void)hipMemcpy(data, wanted, sizeof data, hipMemcpyDeviceToHost);
    }
    if (strcmp(way, "text") == 0) {
        (void)hipGetErrorString(hipErrorOutOfMemory);
        MUST(launch_kernel());
        (void)hipMemset(wanted, 0, 4096);
    }
    if (strcmp(way, "two") == 0) {
        MUST_NOT_FIT(hipMalloc(&other, 8192 * GiB));
        (void)hipMemset(other, 0, 4096);
    }
    if (strcmp(way, "refilled") == 0) {
        MUST_NOT_FIT(hipMalloc(&other, 8192 * GiB));
        usleep(1300000);
        MUST(hipMalloc(&wanted, MiB));
        (void)hipMemset(other, 0, 4096);
        (void)hipMemset(wanted, 0, 4096);
    }
    if (strcmp(way, "shrunk") == 0) {
        size_t size = 560 * MiB;
        while (hipMalloc(&other, size) != hipSuccess) size -= 70 * MiB;
        MUST(launch_kernel());
        (void)hipMemset(other, 0, 4096);
        (void)hipMemset(wanted, 0, 4096);
    }
    if (strcmp(way, "host") == 0) (void)hipMemcpy(held, NULL, sizeof data, hipMemcpyHostToDevice);
    if (strcmp(way, "host2d") == 0) (void)hipMemcpy2D(held, 64, NULL, 64, 64, 64, hipMemcpyHostToDevice);
    if (strcmp(way, "again") == 0) {
        MUST(hipMalloc(&wanted, 300 * MiB));
        MUST(launch_kernel());
        (void)hipMemset(NULL, 0, 4096);
    }
    if (strcmp(way, "copied") == 0) {
        MUST(hipMalloc(&other, 300 * MiB));
        wanted = other;
        __asm__ volatile("" : : "r"(&wanted) : "memory");
        (void)hipMemset(NULL, 0, 4096);
    }
}

int main(int argc, char **argv) {
    void *held;
    MUST(hipMalloc(&held, 600 * MiB));
    used(argc > 1 ? argv[1] : "", held);
    return 0;
}
