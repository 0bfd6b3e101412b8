// Uses the two functions that the recorder offers, if it is there: gpuoom_mark and gpuoom_flush. A flush must answer 0
// and everything recorded so far must be in the file even though the program is killed right after.
// The trace must show two marks around one allocation.
#include <signal.h>

#include "hip_min.h"

__attribute__((weak)) void gpuoom_mark(const char *label);
__attribute__((weak)) int gpuoom_flush(void);

int main(void) {
    void *block;
    if (gpuoom_mark) gpuoom_mark("before");
    MUST(hipMalloc(&block, 34 * MiB));
    if (gpuoom_mark) gpuoom_mark("after");
    printf("flush %d\n", gpuoom_flush ? gpuoom_flush() : 0);
    fflush(stdout);
    raise(SIGKILL);
    return 0;
}
