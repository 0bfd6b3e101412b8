// The main thread is refused 2 GiB and waits; another thread gets 512 MiB into the same variable, and the main thread works with it:
// by a memset of that block, or with "other" goes on with another one. With "trifle" the other thread gets 4 KiB for itself.
// The trace must say: dropped, gpu_work_continued, by what the main thread did alone. What the other thread got may have made up for it.
#include <pthread.h>
#include <string.h>

#include "hip_min.h"

hipError_t hipMemset(void *pointer, int value, size_t size);

static void *block, *trifle;
static const char *way = "";

static void *help(void *argument) {
    if (strcmp(way, "trifle") == 0) MUST(hipMalloc(&trifle, 4 * KiB));
    else MUST(hipMalloc(&block, 512 * MiB));
    return argument;
}

int main(int argc, char **argv) {
    pthread_t helper;
    void *own;
    if (argc > 1) way = argv[1];
    MUST(hipMalloc(&own, 16 * MiB));
    MUST_NOT_FIT(hipMalloc(&block, 2 * GiB));
    pthread_create(&helper, NULL, help, NULL);
    pthread_join(helper, NULL);
    if (strcmp(way, "") == 0) MUST(hipMemset(block, 0, 1 * MiB));
    else MUST(hipMemset(own, 0, 1 * MiB));
    return 0;
}
