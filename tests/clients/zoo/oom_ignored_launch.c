// An allocation fails, the program does not look and launches a kernel; only then it reads the error.
// The trace must say: dropped, gpu_work_continued. The later reading does not make it better.
#include "hip_min.h"

int main(void) {
    void *block;
    (void)hipMalloc(&block, 4096 * GiB);
    (void)launch_kernel();
    (void)hipGetLastError();
    return 0;
}
