// Each failure is treated in another way: what a gauntlet is to tell apart. The sizes fall, so that none makes up for another.
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "hip_min.h"

static void *block;

static void retried(void) {
    if (hipMalloc(&block, 6 * MiB) != hipSuccess) MUST(hipMalloc(&block, 6 * MiB));
}

static void reported(void) {
    int status = hipMalloc(&block, 5 * MiB);
    if (status) fprintf(stderr, "%s\n", hipGetErrorString(status));
}

static void ignored(void) {
    hipMalloc(&block, 4 * MiB);
    MUST(launch_kernel());
}

static void crashes(void) {
    int *host = NULL;
    hipHostMalloc((void **)&host, 3 * MiB, 0);
    *(volatile int *)host = 1;
}

static void hangs(void) {
    while (hipMalloc(&block, 2 * MiB) != hipSuccess)
        for (;;) pause();
}

static void *in_a_thread(void *unused) {
    (void)unused;
    if (hipMalloc(&block, MiB) != hipSuccess) exit(6);
    return NULL;
}

int main(void) {
    pthread_t thread;
    retried();
    reported();
    ignored();
    crashes();
    hangs();
    pthread_create(&thread, NULL, in_a_thread, NULL);
    pthread_join(thread, NULL);
    MUST(hipDeviceSynchronize());
    return 0;
}
