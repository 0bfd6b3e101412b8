// Eight threads whose first calls are the process's first, so that the runtime's search for the driver is a race; then
// each allocates and frees through runtime, stream-ordered functions, and the driver's own by name.
// The trace must show each call of the device once, on its thread.
#include <pthread.h>

#include "cuda_min.h"

enum { THREADS = 8, ROUNDS = 200 };

static pthread_barrier_t start;

static void *work(void *argument) {
    size_t size = (size_t)(uintptr_t)argument * 4 * KiB;
    void *function, *device, *pinned, *ordered, *by_name;
    int found;
    pthread_barrier_wait(&start);
    MUST(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 12000, 0, &found));
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))function;
    for (int i = 0; i < ROUNDS; i++) {
        MUST(cudaMalloc(&device, size + (size_t)i));
        MUST(cudaMallocAsync(&ordered, size, NULL));
        MUST(allocate(&by_name, size));
        if (i % 16 == 0) {
            MUST(cudaMallocHost(&pinned, size));
            MUST(cudaFreeHost(pinned));
        }
        MUST(cudaFree(by_name));
        MUST(cudaFreeAsync(ordered, NULL));
        MUST(cudaFree(device));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(i + 1)) != 0) return 77;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
