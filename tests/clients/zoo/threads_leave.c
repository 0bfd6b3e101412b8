// Threads allocate and end while holding memory; the main thread frees half of it and leaves the rest.
// The trace must show six live allocations at the end, and frees by a thread that did not allocate.
#include <pthread.h>

#include "hip_min.h"

enum { THREADS = 6 };

static void *blocks[THREADS][2];

static void *work(void *argument) {
    size_t number = (size_t)argument;
    MUST(hipMalloc(&blocks[number][0], 3 * MiB));
    MUST(hipMalloc(&blocks[number][1], 4 * MiB));
    if (number % 2) pthread_exit(NULL);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++) MUST(hipFree(blocks[i][0]));
    puts("done");
    return 0;
}
