// Forks ten times while four threads are inside the library; each child allocates once and leaves by _exit.
// Nothing may hang, and each child must have a trace of its own with one allocation.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip_min.h"

enum { THREADS = 4, CHILDREN = 10 };

static atomic_bool stop;

static void *work(void *argument) {
    while (!atomic_load(&stop)) {
        void *block;
        MUST(hipMalloc(&block, 2 * MiB));
        MUST(hipFree(block));
        usleep(100);
    }
    return argument;
}

static void child(size_t number) {
    void *block;
    MUST(hipMalloc(&block, (number + 1) * 7 * MiB));
    _exit(0);
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    int good = 0;
    for (size_t i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        if (pid == 0) child(i);
        int status;
        waitpid(pid, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%d children\n", good);
    return 0;
}
