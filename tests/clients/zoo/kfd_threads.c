// Eight threads that take and give back at the same time: the driver hands each handle out again at once, so a trace in a
// wrong order has one twice.
#define _GNU_SOURCE
#include <pthread.h>

#include "kernel_requests.h"

static int kfd;

static void *work(void *number) {
    uint64_t held[4] = {0};
    for (unsigned i = 0; i < 400; i++) {
        uint64_t *place = &held[(i * 7 + (uintptr_t)number) % 4];
        if (*place) kfd_free(kfd, *place);
        *place = kfd_alloc(kfd, GPU0, (1 + (i + (uintptr_t)number) % 5) * MiB, i % 3 ? VRAM : GTT);
    }
    for (int i = 0; i < 4; i++) kfd_free(kfd, held[i]);
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    kfd = open("/dev/kfd", O_RDWR);
    for (uintptr_t i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
