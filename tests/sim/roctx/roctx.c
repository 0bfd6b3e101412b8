// ROCTX as a profiler's library has it: it prints what it is told, so that a test sees that each call arrives.
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

static _Thread_local int level;
static uint64_t last;

EXPORT void roctxMarkA(const char *message) { printf("roctx: mark %s\n", message ? message : "(null)"); }

EXPORT int roctxRangePushA(const char *message) {
    printf("roctx: push %s\n", message ? message : "(null)");
    return level++;
}

EXPORT int roctxRangePop(void) {
    printf("roctx: pop\n");
    return level ? --level : -1;
}

EXPORT uint64_t roctxRangeStartA(const char *message) {
    printf("roctx: start %s\n", message ? message : "(null)");
    return ++last;
}

EXPORT void roctxRangeStop(uint64_t number) { printf("roctx: stop %llu\n", (unsigned long long)number); }
