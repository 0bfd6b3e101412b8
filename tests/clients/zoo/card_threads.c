// Eight threads take and free blocks of one granule on a card with room for twelve, each block held for a moment. Two
// rules of a card hold whatever the order: never more than twelve live, and a request is refused only if all are taken
// at some moment of it. At the end everything is free.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "hip_min.h"

enum { THREADS = 8, ROUNDS = 400, HELD = 3, ROOM = 12 };
static atomic_int live, most, refused;

static void *work(void *unused) {
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        void *blocks[HELD] = {NULL};
        for (int i = 0; i < HELD; i++) {
            if (hipMalloc(&blocks[i], 2 * MiB) != hipSuccess) {
                atomic_fetch_add(&refused, 1);
                continue;
            }
            int now = atomic_fetch_add(&live, 1) + 1;
            for (int known = most; now > known && !atomic_compare_exchange_weak(&most, &known, now);) continue;
        }
        for (int i = 0; i < HELD; i++) {
            if (!blocks[i]) continue;
            atomic_fetch_sub(&live, 1);
            MUST(hipFree(blocks[i]));
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    size_t free, total;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    MUST(hipMemGetInfo(&free, &total));
    // Whoever is refused has seen twelve blocks that were taken or being given back, never fewer.
    printf("%s, free %zu of %zu\n", most <= ROOM ? "never more than there is" : "too many", free, total);
    fflush(stdout);
    if (fork() == 0) {
        // A child has a card of its own, empty, and counts from one.
        void *blocks[ROOM + 1];
        int count = 0;
        while (count < ROOM + 1 && hipMalloc(&blocks[count], 2 * MiB) == hipSuccess) count++;
        MUST(hipMemGetInfo(&free, &total));
        printf("child: %d, free %zu of %zu\n", count, free, total);
        fflush(stdout);
        _exit(0);
    }
    sleep(1);
    return 0;
}
