// An allocation fails, and the program copies and fills nothing: the null pointers that it passes stand for "none".
// The trace must say: dropped, gpu_work_continued. No failed pointer was used.
#include "hip_min.h"

int main(void) {
    void *block = NULL;
    (void)hipMalloc(&block, 4096 * GiB);
    (void)hipMemcpy(NULL, NULL, 0, hipMemcpyHostToDevice);
    return 0;
}
