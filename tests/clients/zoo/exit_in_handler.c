// A signal handler calls exit while its thread is inside a slow hipMalloc. Run with SIM_SLOW_AT=2 and a long
// SIM_SLOW_US.
// The trace must be readable, hold the first allocation, and say exit status 3. Nothing may hang.
#include <signal.h>
#include <sys/time.h>

#include "hip_min.h"

static void leave(int signal) {
    (void)signal;
    exit(3);
}

int main(void) {
    void *first, *second;
    signal(SIGALRM, leave);
    MUST(hipMalloc(&first, 12 * MiB));
    puts("first");
    fflush(stdout);
    struct itimerval soon = {.it_value = {.tv_usec = 50000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    MUST(hipMalloc(&second, 13 * MiB));
    return 74;
}
