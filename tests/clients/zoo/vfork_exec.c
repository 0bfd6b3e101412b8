// vfork and exec of a program without GPU between two allocations: the child shares the parent's memory until exec.
// There must be one trace, the parent's, with both allocations; the exec'ed program leaves no file.
#include <sys/wait.h>
#include <unistd.h>

#include "hip_min.h"

int main(void) {
    void *first, *second;
    MUST(hipMalloc(&first, 8 * MiB));
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 5", (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(pid, &status, 0);
    MUST(hipMalloc(&second, 9 * MiB));
    MUST(hipFree(first));
    MUST(hipFree(second));
    printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
