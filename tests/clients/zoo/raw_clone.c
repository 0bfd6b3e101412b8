// Forks by the bare clone system call, behind libc's back: no atfork handler runs.
// The child's allocation must be in a trace of its own, and the parent's trace must hold nothing of it.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip_min.h"

int main(void) {
    void *block;
    MUST(hipMalloc(&block, 10 * MiB));
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        void *own;
        _exit(hipMalloc(&own, 33 * MiB) == hipSuccess ? 0 : 1);
    }
    int status;
    waitpid((pid_t)pid, &status, 0);
    MUST(hipFree(block));
    printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
