// An allocation fails, and the program sets its size to 0 and goes on: it copies and fills nothing, and the null pointers that it
// passes stand for "none". The trace must say: unresolved, trace_ended. Nothing was used, and no work went on.
#include "hip_min.h"

int main(void) {
    void *block = NULL;
    (void)hipMalloc(&block, 4096 * GiB);
    (void)hipMemcpy(block, NULL, 0, hipMemcpyHostToDevice);
    (void)hipMemset(block, 0, 0);
    return 0;
}
