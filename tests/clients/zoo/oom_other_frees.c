// An allocation fails, another thread gives memory back, and the same request succeeds. Run with SIM_CAPACITY=1G.
// The trace must say: recovered, retry_succeeded, and that the other thread has freed in between.
#include <pthread.h>

#include "hip_min.h"

static void *give_back(void *block) {
    MUST(hipFree(block));
    return NULL;
}

int main(void) {
    void *cache, *block;
    pthread_t thread;
    MUST(hipMalloc(&cache, 600 * MiB));
    MUST_NOT_FIT(hipMalloc(&block, 700 * MiB));
    pthread_create(&thread, NULL, give_back, cache);
    pthread_join(thread, NULL);
    MUST(hipMalloc(&block, 700 * MiB));
    MUST(launch_kernel());
    return 0;
}
