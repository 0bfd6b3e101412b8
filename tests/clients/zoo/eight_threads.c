// Eight threads allocate and free at once, each 200 times, never more than three blocks each.
// The trace must show all 1600 allocations with the thread that made them; per address, allocation and free alternate.
#include <pthread.h>

#include "hip_min.h"

enum { THREADS = 8, ROUNDS = 200, HELD = 3 };

static void *work(void *argument) {
    size_t number = (size_t)argument;
    void *held[HELD] = {NULL};
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t slot = round % HELD;
        MUST(hipFree(held[slot]));
        MUST(hipMalloc(&held[slot], (number + 1) * MiB + round));
    }
    for (size_t slot = 0; slot < HELD; slot++) MUST(hipFree(held[slot]));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
