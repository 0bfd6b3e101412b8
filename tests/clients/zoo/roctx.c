// ROCTX's ranges around allocations, before and after the first one, from two threads. Compiled twice: -DPLUGIN is the same as a
// library that is opened with local scope. The library of ROCTX prints each call; what it answers is printed here.
#include <pthread.h>

#include "hip_min.h"

void roctxMarkA(const char *message);
int roctxRangePushA(const char *message);
int roctxRangePop(void);
uint64_t roctxRangeStartA(const char *message);
void roctxRangeStop(uint64_t number);

static uint64_t number;

static void *other(void *unused) {
    printf("%d\n", roctxRangePushA("other thread"));
    roctxRangeStop(number);
    printf("%d\n", roctxRangePop());
    return unused;
}

int run(void) {
    void *block;
    roctxMarkA("before all");
    printf("%d\n", roctxRangePushA("set up"));
    printf("%d\n", roctxRangePushA("over before the first call"));
    printf("%d\n", roctxRangePop());
    uint64_t closed = roctxRangeStartA("over as well");
    number = roctxRangeStartA("load");
    printf("%llu %llu\n", (unsigned long long)closed, (unsigned long long)number);
    roctxRangeStop(closed);
    MUST(hipMalloc(&block, 20 * MiB));
    printf("%d\n", roctxRangePushA("step"));
    pthread_t thread;
    pthread_create(&thread, NULL, other, NULL);
    pthread_join(thread, NULL);
    printf("%d\n", roctxRangePushA(NULL));
    printf("%d\n", roctxRangePop());
    roctxMarkA("inside");
    for (int n = 0; n < 3; n++) printf("%d\n", roctxRangePop());
    MUST(hipFree(block));
    return 0;
}

#ifndef PLUGIN
int main(void) { return run(); }
#endif
