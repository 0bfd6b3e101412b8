// A device that is reset and left alone for a while: whoever asks its runtime for anything then makes a new context.
#include <unistd.h>

#include "cuda_min.h"

int main(void) {
    void *block;
    for (int i = 0; i < 2; i++) {
        MUST(cudaMalloc(&block, 4 * MiB));
        usleep(30000);
        MUST(cudaDeviceReset());
        usleep(60000);
    }
    puts("done");
    return 0;
}
