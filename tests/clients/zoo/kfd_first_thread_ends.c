// The first thread ends by pthread_exit, and another goes on: the process has no memory to show under its own number then.
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel_requests.h"

// Waits until the kernel calls the first thread a zombie.
static void wait_for_its_end(void) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", getpid(), getpid());
    for (;;) {
        FILE *stat = fopen(path, "r");
        size_t length = stat ? fread(text, 1, sizeof text - 1, stat) : 0;
        text[length] = 0;
        if (stat) fclose(stat);
        char *name_end = strrchr(text, ')');
        if (name_end && name_end[2] == 'Z') return;
        usleep(1000);
    }
}

static void *work(void *unused) {
    (void)unused;
    wait_for_its_end();
    int kfd = open("/dev/kfd", O_RDWR);
    for (int i = 0; i < 5; i++) kfd_alloc(kfd, GPU0, (1 + i) * MiB, i % 2 ? GTT : VRAM);
    show("too much", kfd_alloc(kfd, GPU0, 1024 * MiB, VRAM) ? 0 : -1);
    puts("done");
    exit(0);
}

int main(int count, char **arguments) {
    (void)arguments;
    // With an argument the recording begins before the first thread ends.
    if (count > 1) kfd_alloc(open("/dev/kfd", O_RDWR), GPU0, MiB, VRAM);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_exit(NULL);
}
