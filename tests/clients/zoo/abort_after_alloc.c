// Aborts right after an allocation: no exit handler and no destructor runs.
// The trace must hold both allocations and say that the process was ended by signal 6.
#include "hip_min.h"

int main(void) {
    void *first, *last;
    MUST(hipMalloc(&first, 31 * MiB));
    MUST(hipMalloc(&last, 32 * MiB));
    abort();
}
