// An allocation fails and the process ends well, without another call: nobody can tell what it made of the failure.
// The trace must say: unresolved, trace_ended.
#include "hip_min.h"

int main(void) {
    void *block;
    MUST_NOT_FIT(hipMalloc(&block, 4096 * GiB));
    return 0;
}
