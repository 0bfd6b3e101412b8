// Becomes a daemon the old way: two forks, a session of its own, every descriptor closed, /dev/null on the first three,
// the root as directory. The daemon allocates; so did the parent, before.
// There must be a trace of the parent with one allocation and one of the daemon with five.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip_min.h"

static void serve(void) {
    void *blocks[5];
    closefrom(0);
    open("/dev/null", O_RDWR);
    if (dup(0) != 1 || dup(0) != 2 || chdir("/") != 0) _exit(76);
    for (size_t i = 0; i < 5; i++) MUST(hipMalloc(&blocks[i], (i + 1) * 2 * MiB));
    for (size_t i = 0; i < 5; i++) MUST(hipFree(blocks[i]));
    exit(0);
}

int main(void) {
    void *block;
    // The orphaned daemon becomes this process's child, so that its end can be waited for.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    MUST(hipMalloc(&block, 40 * MiB));
    if (fork() == 0) {
        setsid();
        if (fork() == 0) serve();
        _exit(0);
    }
    int status, worst = 0;
    while (wait(&status) > 0)
        if (status > worst) worst = status;
    MUST(hipFree(block));
    printf("daemon ended with %d\n", worst);
    return 0;
}
