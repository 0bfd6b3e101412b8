// Threads have names. One has its name before its first call, one is renamed between its first call and a failure, and the main
// thread keeps what the program is called. The trace must say at each failure what the thread was called then.
#include <pthread.h>
#include <stdio.h>

#include "hip_min.h"

static void *early(void *unused) {
    (void)unused;
    void *held = NULL;
    pthread_setname_np(pthread_self(), "pt_data_pin");
    if (hipMalloc(&held, 1ull << 60) == hipSuccess) return NULL;
    puts("refused on pt_data_pin");
    return NULL;
}

static void *late(void *unused) {
    (void)unused;
    void *held = NULL;
    pthread_setname_np(pthread_self(), "before");
    MUST(hipMalloc(&held, MiB));
    pthread_setname_np(pthread_self(), "pt_autograd_0");
    void *more = NULL;
    if (hipMalloc(&more, 1ull << 60) == hipSuccess) return NULL;
    puts("refused on pt_autograd_0");
    MUST(hipFree(held));
    return NULL;
}

int main(void) {
    void *held = NULL;
    MUST(hipMalloc(&held, MiB));
    pthread_t thread;
    pthread_create(&thread, NULL, early, NULL);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, late, NULL);
    pthread_join(thread, NULL);
    if (hipMalloc(&held, 1ull << 60) != hipSuccess) puts("refused on the main thread");
    return 0;
}
