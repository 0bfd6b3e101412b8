// Forks without exec, as PyTorch's data loader does; parent and child both allocate afterwards.
// There must be two traces: the parent's with its two allocations, the child's with its three, one given back.
#include <sys/wait.h>
#include <unistd.h>

#include "hip_min.h"

static int child(void) {
    void *blocks[3];
    for (size_t i = 0; i < 3; i++) MUST(hipMalloc(&blocks[i], (i + 5) * MiB));
    MUST(hipFree(blocks[1]));
    return 0;
}

int main(void) {
    void *before, *after;
    MUST(hipMalloc(&before, 100 * MiB));
    pid_t pid = fork();
    if (pid == 0) return child();
    int status;
    waitpid(pid, &status, 0);
    MUST(hipMalloc(&after, 200 * MiB));
    MUST(hipFree(after));
    MUST(hipFree(before));
    printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
