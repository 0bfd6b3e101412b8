// Memory mappings run out while the recorder's threads begin: each block of the simulated device takes one. The program counts what it
// was given and ends well; nothing may end it before.
#include <stdlib.h>
#include <sys/mman.h>

#include "hip_min.h"

int main(int count, char **arguments) {
    long left = count > 1 ? atol(arguments[1]) : 40, made = 0;
    static void *mapped[1 << 17];
    // Neighbours with other rights are never made one.
    for (; made < 1 << 17; made++) {
        int rights = made & 1 ? PROT_READ : PROT_READ | PROT_WRITE;
        mapped[made] = mmap(0, 4096, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped[made] == MAP_FAILED) break;
    }
    for (long number = 0; number < left && number < made; number++) munmap(mapped[made - 1 - number], 4096);
    hipError_t status = 0;
    void *block;
    while (status == 0) status = hipMalloc(&block, 2 * MiB);
    printf("refused: %d\n", status);
    return 0;
}
