// Lives under RLIMIT_FSIZE of 64 KiB, set before the first GPU call (argument early) or after it (late). A store or a
// write beyond the limit would raise SIGXFSZ, whose default is death.
// The program must end as without the recorder, and its own file must be whole.
#include <string.h>
#include <sys/resource.h>

#include "hip_min.h"

static void limit(void) {
    struct rlimit small = {64 * KiB, 64 * KiB};
    setrlimit(RLIMIT_FSIZE, &small);
}

int main(int argc, char **argv) {
    int late = argc > 1 && strcmp(argv[1], "late") == 0;
    void *block;
    if (!late) limit();
    MUST(hipMalloc(&block, 2 * MiB));
    MUST(hipFree(block));
    if (late) limit();
    FILE *own = fopen("own.txt", "w");
    for (int i = 0; i < 3000; i++) {
        MUST(hipMalloc(&block, 3 * MiB));
        MUST(hipFree(block));
        if (i % 100 == 0) fprintf(own, "%d\n", i);
    }
    fclose(own);
    puts("done");
    return 0;
}
