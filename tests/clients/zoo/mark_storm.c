// Labels the timeline 300,000 times as fast as it can, on one thread and with nothing in between. A label takes several
// slots of the ring, so this is more than the ring holds many times over.
// The trace must hold every label: records with a payload push back on the program like all others.
#define _GNU_SOURCE
#include <dlfcn.h>

#include "hip_min.h"

enum { MARKS = 300000 };

int main(void) {
    void *block;
    MUST(hipMalloc(&block, 2 * MiB));
    void (*mark)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "gpuoom_mark");
    for (int n = 0; mark && n < MARKS; n++) mark("the label of a step that is long enough to take more than one further slot");
    MUST(hipFree(block));
    puts("marked");
    return 0;
}
