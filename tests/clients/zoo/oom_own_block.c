// CUDA leaves the variable of a failed call alone. A program that tries to enlarge a block still has the old one in it, and
// works on that; with an argument the variable held a number that is no block.
// The trace must say: dropped, gpu_work_continued; with "garbage": dropped, failed_pointer_used; with "cleared", which reads
// the last error first: unresolved, error_read.
#include <string.h>

#include "cuda_min.h"

int cudaMemset(void *pointer, int value, size_t size);
int cudaMemPrefetchAsync(const void *pointer, size_t size, int device, void *stream);

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    void *block, *own;
    MUST(cudaMalloc(&own, 16 * MiB));
    block = strcmp(way, "garbage") == 0 ? (void *)0x7ead0000beef000 : own;
    MUST_NOT_FIT(cudaMalloc(&block, 4096 * GiB));
    if (strcmp(way, "cleared") == 0) (void)cudaGetLastError();
    // What is no block must not be written to.
    if (strcmp(way, "garbage") == 0) (void)cudaMemPrefetchAsync(block, 1 * MiB, 0, NULL);
    else (void)cudaMemset(block, 0, 1 * MiB);
    return 0;
}
