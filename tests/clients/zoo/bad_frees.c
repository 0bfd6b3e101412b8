// Frees what must not be freed: null (allowed), twice the same, an address on the stack, one inside a block.
// The trace must keep one allocation live at the end and no count may go below zero.
#include "hip_min.h"

int main(void) {
    int on_stack;
    void *kept, *freed;
    MUST(hipMalloc(&kept, 29 * MiB));
    MUST(hipMalloc(&freed, 30 * MiB));
    printf("null: %d\n", hipFree(NULL));
    printf("once: %d\n", hipFree(freed));
    printf("twice: %d\n", hipFree(freed));
    printf("stack: %d\n", hipFree(&on_stack));
    printf("inside: %d\n", hipFree((char *)kept + 2 * MiB));
    printf("host: %d\n", hipHostFree(kept));
    return 0;
}
