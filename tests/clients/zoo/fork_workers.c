// Workers that are forked and never exec, as PyTorch's data loader has them, all alive at the same time. Each takes memory
// of its own and leaves without giving it back; after they are gone, three more come one after the other and take more.
// There must be a trace for each process, with the parent as the parent. Together they hold most (10 + 20 + 40 + 60 MiB)
// while the first three live; those who have ended hold nothing.
#include <sys/wait.h>
#include <unistd.h>

#include "hip_min.h"

static void work(size_t size, int ready, int leave) {
    char word;
    void *block;
    MUST(hipMalloc(&block, size));
    if (write(ready, "r", 1) != 1) _exit(72);
    // Until the parent closes its end.
    if (read(leave, &word, 1) != 0) _exit(73);
    _exit(0);
}

static void run_workers(int count, size_t size_step, size_t least) {
    int ready[2], leave[2], status;
    char word;
    if (pipe(ready) || pipe(leave)) exit(74);
    for (int i = 0; i < count; i++) {
        if (fork() == 0) {
            close(leave[1]);
            work(least + (size_t)(i + 1) * size_step, ready[1], leave[0]);
        }
    }
    for (int i = 0; i < count; i++)
        if (read(ready[0], &word, 1) != 1) exit(75);
    close(leave[1]);
    for (int i = 0; i < count; i++) {
        wait(&status);
        printf("worker %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    close(leave[0]);
    close(ready[0]);
    close(ready[1]);
}

int main(void) {
    void *block;
    MUST(hipMalloc(&block, 10 * MiB));
    // What stands in the buffer would be written by every child that exits.
    fflush(stdout);
    run_workers(3, 20 * MiB, 0);
    for (size_t i = 0; i < 3; i++) {
        fflush(stdout);
        run_workers(1, 0, 50 * MiB);
    }
    MUST(hipFree(block));
    return 0;
}
