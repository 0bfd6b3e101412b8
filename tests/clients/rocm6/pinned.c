// Pins host memory until the kernel's compute driver gives no more (SIM_GTT), beside a block on the card.
#include "../zoo/hip_min.h"

int main(void) {
    void *block;
    int blocks = 0;
    MUST(hipMalloc(&block, 512 * MiB));
    while (hipHostMalloc(&block, 128 * MiB, 0) == hipSuccess) blocks++;
    printf("%d blocks\n", blocks);
    return 1;
}
