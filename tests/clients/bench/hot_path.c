/* What a recorded event costs beside a floor, and a watched call beside the direct one, all in one process and in turns.
 *
 * The floor of an event is two reads of the monotonic clock, one claim by fetch_add, and a 64-byte publish into a shared
 * mapping of a file of the default ring's size. The same with the cycle counter is printed beside it. Bursts are shorter
 * than a quarter of the ring, with a flush in between, so that the drainer is not part of the figure.
 *
 * Output: one line of JSON with medians over all rounds, in nanoseconds and as ratios. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

int hipMalloc(void **out, size_t size_bytes);
int hipFree(void *pointer);
int hipMemcpyAsync(void *to, const void *from, size_t size_bytes, int kind, void *stream);

enum { BURST = 6000, ROUNDS = 400, SLOTS = 1 << 16, MAX_THREADS = 2 };

typedef struct {
    _Atomic uint64_t commit;
    uint64_t words[7];
} slot;

static slot *ring;
static _Alignas(128) _Atomic uint64_t head;
static int (*flush_trace)(void);
static int (*direct_memcpy)(void *, const void *, size_t, int, void *);
static int (*direct_malloc)(void **, size_t);
static int (*direct_free)(void *);
static pthread_barrier_t barrier;
static void *pointers[MAX_THREADS][BURST];

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline void publish(uint64_t at, uint64_t end) {
    uint64_t seq = atomic_fetch_add_explicit(&head, 1, memory_order_relaxed);
    slot *to = &ring[seq & (SLOTS - 1)];
    to->words[0] = at;
    to->words[1] = end - at;
    for (int word = 2; word < 7; word++) to->words[word] = seq;
    atomic_store_explicit(&to->commit, seq + 1, memory_order_release);
}

static void floor_clock(int thread) {
    (void)thread;
    for (int n = 0; n < BURST; n++) {
        uint64_t at = now_ns();
        publish(at, now_ns());
    }
}

static void floor_cycles(int thread) {
    (void)thread;
    for (int n = 0; n < BURST; n++) {
        uint64_t at = __rdtsc();
        publish(at, __rdtsc());
    }
}

static void hooked_malloc(int thread) {
    for (int n = 0; n < BURST; n++) hipMalloc(&pointers[thread][n], 1 << 20);
}
static void plain_malloc(int thread) {
    for (int n = 0; n < BURST; n++) direct_malloc(&pointers[thread][n], 1 << 20);
}
static void hooked_free(int thread) {
    for (int n = 0; n < BURST; n++) hipFree(pointers[thread][n]);
}
static void plain_free(int thread) {
    for (int n = 0; n < BURST; n++) direct_free(pointers[thread][n]);
}
static void hooked_copy(int thread) {
    for (int n = 0; n < BURST; n++) hipMemcpyAsync(&pointers[thread], pointers, 64, n, NULL);
}
static void plain_copy(int thread) {
    for (int n = 0; n < BURST; n++) direct_memcpy(&pointers[thread], pointers, 64, n, NULL);
}

typedef struct {
    const char *name;
    void (*run)(int thread);
    double samples[ROUNDS];
} measure;

static measure measures[] = {
    {"floor", floor_clock, {0}},          {"floor_cycles", floor_cycles, {0}}, {"malloc", hooked_malloc, {0}},
    {"malloc_direct", plain_malloc, {0}}, {"free", hooked_free, {0}},          {"free_direct", plain_free, {0}},
    {"copy", hooked_copy, {0}},           {"copy_direct", plain_copy, {0}},
};
enum { MEASURES = sizeof measures / sizeof measures[0] };

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(const char *name) {
    for (int m = 0; m < MEASURES; m++)
        if (strcmp(measures[m].name, name) == 0) {
            qsort(measures[m].samples, ROUNDS, sizeof(double), compare);
            return measures[m].samples[ROUNDS / 2];
        }
    return 0;
}

static void *worker(void *argument) {
    int thread = (int)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++)
        for (int m = 0; m < MEASURES; m++) {
            if (thread == 0 && flush_trace) flush_trace();
            pthread_barrier_wait(&barrier);
            uint64_t begin = now_ns();
            measures[m].run(thread);
            uint64_t end = now_ns();
            pthread_barrier_wait(&barrier);
            if (thread == 0) measures[m].samples[round] = (double)(end - begin) / BURST;
        }
    return NULL;
}

static slot *map_ring(void) {
    char path[] = "floor-XXXXXX";
    int descriptor = mkstemp(path);
    unlink(path);
    size_t length = SLOTS * sizeof(slot);
    if (descriptor < 0 || posix_fallocate(descriptor, 0, (off_t)length) != 0) exit(2);
    void *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
    if (base == MAP_FAILED) exit(2);
    memset(base, 0, length);
    return base;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    if (threads < 1 || threads > MAX_THREADS) return 2;
    void *library = dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return 2;
    direct_malloc = (int (*)(void **, size_t))dlsym(library, "direct_malloc");
    direct_free = (int (*)(void *))dlsym(library, "direct_free");
    direct_memcpy = (int (*)(void *, const void *, size_t, int, void *))dlsym(library, "direct_memcpy");
    flush_trace = (int (*)(void))dlsym(RTLD_DEFAULT, "gpuoom_flush");
    ring = map_ring();
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    pthread_t second;
    if (threads == 2) pthread_create(&second, NULL, worker, (void *)1);
    worker((void *)0);
    if (threads == 2) pthread_join(second, NULL);
    double floor_ns = median("floor"), cycles_ns = median("floor_cycles");
    double malloc_ns = median("malloc") - median("malloc_direct"), free_ns = median("free") - median("free_direct");
    printf("{\"threads\":%d,\"floor_ns\":%.2f,\"floor_cycles_ns\":%.2f,\"malloc_event_ns\":%.2f,\"free_event_ns\":%.2f,"
           "\"malloc_to_floor\":%.3f,\"free_to_floor\":%.3f,\"malloc_to_floor_cycles\":%.3f,\"watched_over_direct_ns\":%.2f}\n",
           threads, floor_ns, cycles_ns, malloc_ns, free_ns, malloc_ns / floor_ns, free_ns / floor_ns,
           malloc_ns / cycles_ns, median("copy") - median("copy_direct"));
    return 0;
}
