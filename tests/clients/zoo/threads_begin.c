// Four threads make the first calls of the process at once, and stay for a moment.
#include <pthread.h>
#include <unistd.h>

#include "hip_min.h"

enum { THREADS = 4 };
static pthread_barrier_t all;

static void *work(void *unused) {
    (void)unused;
    void *pinned, *block;
    pthread_barrier_wait(&all);
    MUST(hipHostMalloc(&pinned, 1 * MiB, 0));
    MUST(hipMalloc(&block, 4 * MiB));
    usleep(100 * 1000);
    MUST(hipFree(block));
    MUST(hipHostFree(pinned));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
