/* Threads that allocate and free as fast as they can for a while, then print how many events that made. The trace must
 * hold every one of them: the ring pushes back when the disk is slower than the program. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int hipMalloc(void **out, size_t size_bytes);
int hipFree(void *pointer);

static double seconds = 10;
static uint64_t events[8];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *work(void *argument) {
    uint64_t *count = argument;
    uint64_t random = (uintptr_t)argument | 1;
    void *live[64] = {0};
    for (double end = now() + seconds; now() < end;)
        for (int n = 0; n < 4096; n++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            int place = (int)(random >> 58);
            if (live[place]) {
                hipFree(live[place]);
                live[place] = NULL;
            } else {
                hipMalloc(&live[place], (random >> 20 & 0xffffff) + 1);
            }
            ++*count;
        }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    if (argc > 2) seconds = atof(argv[2]);
    if (threads < 1 || threads > 8) return 2;
    pthread_t ids[8];
    for (int n = 0; n < threads; n++) pthread_create(&ids[n], NULL, work, &events[n]);
    uint64_t total = 0;
    for (int n = 0; n < threads; n++) {
        pthread_join(ids[n], NULL);
        total += events[n];
    }
    printf("%llu\n", (unsigned long long)total);
    return 0;
}
