// A signal handler jumps (siglongjmp) out of a slow hipMalloc or hipDeviceSynchronize, over the recorder's hook; the
// program goes on. Argument: malloc or sync. Run with SIM_SLOW_AT=2 and a long SIM_SLOW_US.
// In the trace, the ten allocations that follow must stand on their own: not enclosed by the call that never returned.
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "hip_min.h"

static sigjmp_buf out;

static void jump(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

int main(int argc, char **argv) {
    void *first, *never, *blocks[10];
    signal(SIGALRM, jump);
    MUST(hipMalloc(&first, 12 * MiB));
    if (sigsetjmp(out, 1) == 0) {
        struct itimerval soon = {.it_value = {.tv_usec = 50000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        if (argc > 1 && strcmp(argv[1], "sync") == 0) MUST(hipDeviceSynchronize());
        else MUST(hipMalloc(&never, 13 * MiB));
        return 74;
    }
    for (size_t i = 0; i < 10; i++) MUST(hipMalloc(&blocks[i], (20 + i) * MiB));
    for (size_t i = 0; i < 10; i++) MUST(hipFree(blocks[i]));
    MUST(hipFree(first));
    puts("done");
    return 0;
}
