// Threads take physical memory and memory of pools, a little at a time, while the main thread asks once for more than the card has: what
// the recorder then tries for must not be missing to any of them. With an argument all take of pools: HIP 5.7 gives no physical memory back.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../zoo/hip_min.h"

enum { WORKERS = 4 };

static atomic_int stops, refused;

static void *takes_physical(void *unused) {
    (void)unused;
    hipMemAllocationProp properties = {.type = 1, .location = {1, 0}};
    while (!stops) {
        void *handle;
        if (hipMemCreate(&handle, 64 * MiB, &properties, 0)) refused++;
        else hipMemRelease(handle);
    }
    return NULL;
}

static void *takes_of_pool(void *unused) {
    (void)unused;
    hipStream_t stream;
    MUST(hipStreamCreate(&stream));
    while (!stops) {
        void *block = NULL;
        if (hipMallocAsync(&block, 64 * MiB, stream) || !block) refused++;
        else hipFreeAsync(block, stream);
        hipStreamSynchronize(stream);
    }
    return NULL;
}

int main(int count, char **arguments) {
    (void)arguments;
    void *held, *large;
    pthread_t workers[WORKERS];
    MUST(hipMalloc(&held, 1 * GiB));
    for (int i = 0; i < WORKERS; i++) pthread_create(&workers[i], NULL, i % 2 && count < 2 ? takes_physical : takes_of_pool, NULL);
    usleep(300000);
    hipError_t error = hipMalloc(&large, 20 * GiB);
    usleep(100000);
    stops = 1;
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    printf("%s; refused to others: %d\n", hipGetErrorString(error), refused);
    return refused != 0;
}
