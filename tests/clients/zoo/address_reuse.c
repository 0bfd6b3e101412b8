// Threads pass the same few addresses around: the card hands out the lowest free one, so a thread gets the address that
// another has just given back.
// In the trace, allocations and frees of each address must alternate strictly: a free is recorded before the real call
// and an allocation after it, or they would appear the wrong way round.
#include <pthread.h>

#include "hip_min.h"

enum { THREADS = 4, ROUNDS = 500 };

static void *work(void *argument) {
    for (int round = 0; round < ROUNDS; round++) {
        void *block;
        MUST(hipMalloc(&block, 2 * MiB));
        MUST(hipFree(block));
    }
    return argument;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
