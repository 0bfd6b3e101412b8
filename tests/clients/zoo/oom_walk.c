// Failures and what may make up for them, in an order that the argument draws: requests that are refused, from several places
// and into several variables, memory of several kinds and sizes, errors that are read or reported, and GPU work. Run with
// SIM_CAPACITY=1G.
// The last words on stderr must count the same outcomes as the report: both sides judge by the same rules.
#include "hip_min.h"

enum { STEPS = 120, VARIABLES = 3 };

static uint64_t state;

static unsigned drawn(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static void *variables[VARIABLES];

static __attribute__((noinline)) int here(size_t size) { return hipMalloc(&variables[drawn(VARIABLES)], size); }
static __attribute__((noinline)) int there(size_t size) { return hipMalloc(&variables[drawn(VARIABLES)], size); }
static __attribute__((noinline)) int wrapped(size_t size) { return drawn(2) ? here(size) : there(size); }

static int ask(size_t size) {
    switch (drawn(3)) {
        case 0: return here(size);
        case 1: return there(size);
        default: return wrapped(size);
    }
}

static void give(void) {
    void *block = NULL;
    size_t size = (256 * MiB) >> drawn(18);
    if (drawn(3) == 0) {
        MUST(hipHostMalloc(&block, size, 0));
        MUST(hipHostFree(block));
    } else if (ask(size) == hipSuccess) {
        for (int i = 0; i < VARIABLES; i++) {
            (void)hipFree(variables[i]);
            variables[i] = NULL;
        }
    }
}

static void step(void) {
    static char data[64];
    switch (drawn(14)) {
        case 0: MUST(launch_kernel()); break;
        case 1: (void)hipMemcpy(variables[0], data, drawn(2) ? sizeof data : 0, hipMemcpyHostToDevice); break;
        case 2:
        case 3: (void)hipGetLastError(); break;
        case 4: (void)hipGetErrorString(hipErrorOutOfMemory); break;
        case 5: (void)hipGetErrorString(hipErrorInvalidValue); break;
        case 6: MUST(hipDeviceSynchronize()); break;
        case 7:
        case 8: give(); break;
        default: MUST_NOT_FIT(ask((4096 * GiB) >> drawn(11)));
    }
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    for (int i = 0; i < STEPS; i++) step();
    return (int)drawn(2);
}
