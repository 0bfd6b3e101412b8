/* What a look-up by dlsym costs over the C library's own, for names that are none of the recorder's, in turns in one
 * process. Output: one line of JSON, medians over all rounds, in nanoseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BURST = 2000, ROUNDS = 400 };

typedef void *(*look_up)(void *, const char *);

static double burst(look_up find, const char *name) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int n = 0; n < BURST; n++) {
        if (!find(RTLD_DEFAULT, name)) abort();
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / BURST;
}

static int compare(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values) {
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

int main(void) {
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    look_up hooked = dlsym, direct = (look_up)dlvsym(libc, "dlsym", "GLIBC_2.2.5");
    // One that begins like none of ours, one that begins like some.
    const char *names[] = {"getpid", "malloc"};
    double results[2], real[2];
    for (int name = 0; name < 2; name++) {
        static double with[ROUNDS], without[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            with[round] = burst(hooked, names[name]);
            without[round] = burst(direct, names[name]);
        }
        real[name] = median(without);
        results[name] = median(with) - real[name];
    }
    printf("{\"hooked\": %d, \"other_ns\": %.2f, \"similar_ns\": %.2f, \"real_ns\": %.2f}\n", hooked != direct, results[0],
           results[1], real[0]);
    return 0;
}
