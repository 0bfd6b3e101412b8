// An allocation fails on a thread that does nothing more; the main thread, which knows nothing, goes on with GPU work.
// The trace must say: unresolved, trace_ended. Another thread's work is not the reaction of the one that failed. With an
// argument the program ends with status 1: propagated, process_exited.
#include <pthread.h>

#include "hip_min.h"

static void *fail(void *argument) {
    void *block;
    MUST_NOT_FIT(hipMalloc(&block, 4096 * GiB));
    return argument;
}

int main(int argc, char **argv) {
    (void)argv;
    pthread_t thread;
    pthread_create(&thread, NULL, fail, NULL);
    pthread_join(thread, NULL);
    MUST(launch_kernel());
    MUST(hipDeviceSynchronize());
    puts("went on");
    return argc > 1;
}
