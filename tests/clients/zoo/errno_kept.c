// Sets errno before each kind of call and prints it afterwards.
// The output must be the same with and without the recorder: a hook leaves errno as the real call left it.
#include <errno.h>

#include "hip_min.h"

#define SHOW(call)                                \
    do {                                          \
        errno = 4711;                             \
        (void)(call);                             \
        printf("%s: errno %d\n", #call, errno);   \
    } while (0)

int main(void) {
    static char data[64];
    void *block = NULL, *too_big = NULL, *pinned = NULL;
    SHOW(hipMalloc(&block, 26 * MiB));
    SHOW(hipMalloc(&too_big, 4096 * GiB));
    SHOW(hipGetLastError());
    SHOW(hipGetErrorString(hipErrorOutOfMemory));
    SHOW(hipMemcpy(block, data, sizeof data, hipMemcpyHostToDevice));
    SHOW(launch_kernel());
    SHOW(hipDeviceSynchronize());
    SHOW(hipHostMalloc(&pinned, MiB, 0));
    SHOW(hipHostFree(pinned));
    SHOW(hipFree(block));
    SHOW(hipFree(NULL));
    return 0;
}
