// Weak references to ROCTX, which is not there: without the recorder they are null. With it they lead to its hooks, and the
// program must get on.
#include "hip_min.h"

__attribute__((weak)) int roctxRangePushA(const char *message);
__attribute__((weak)) int roctxRangePop(void);

int main(void) {
    void *block;
    MUST(hipMalloc(&block, 20 * MiB));
    for (int n = 0; n < 1000; n++) {
        if (roctxRangePushA) roctxRangePushA("step");
        if (roctxRangePop) roctxRangePop();
    }
    MUST(hipFree(block));
    puts("done");
    return 0;
}
