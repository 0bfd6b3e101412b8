/* Makes so many events of the heap: half are allocations, half frees, of 64 sizes, with 4096 blocks live. For a recording of
 * heaptrack's, beside which a trace of as many events is read. */
#include <stdlib.h>

int main(int argc, char **argv) {
    enum { LIVE = 4096 };
    static void *volatile blocks[LIVE];
    long events = argc > 1 ? atol(argv[1]) : 0;
    unsigned random = 1;
    for (long event = 0; event < events; event += 2) {
        random = random * 1664525 + 1013904223;
        unsigned place = random >> 20;
        free(blocks[place]);
        blocks[place] = malloc(16 + (random >> 8 & 63) * 48);
    }
    return 0;
}
