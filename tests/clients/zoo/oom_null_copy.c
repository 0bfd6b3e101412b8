// An allocation fails, the program does not look and copies to the pointer that it did not get.
// The trace must say: dropped, failed_pointer_used.
#include "hip_min.h"

int main(void) {
    static char data[4096];
    void *block = NULL;
    (void)hipMalloc(&block, 4096 * GiB);
    (void)hipMemcpy(block, data, sizeof data, hipMemcpyHostToDevice);
    return 0;
}
