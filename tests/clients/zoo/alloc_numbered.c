// Twenty allocations of 1 MiB, 2 MiB and so on; prints the numbers of those that fail. Host memory counts, too.
#include "hip_min.h"

int main(void) {
    for (int number = 1; number <= 20; number++) {
        void *block = NULL;
        int status = number % 5 == 0 ? hipHostMalloc(&block, (size_t)number * MiB, 0)
                                     : hipMalloc(&block, (size_t)number * MiB);
        if (status) printf("%d:%d ", number, status);
    }
    printf("\n");
    return 0;
}
