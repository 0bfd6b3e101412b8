// Allocates from stacks of every sort, and prints for each what glibc's backtrace() says: the size in MiB, then the return
// addresses. Compiled without frame pointers. Compiled twice: -DPLUGIN is a plugin, which stacks_other.c makes in another
// build with other frames; both are loaded one after the other, so that the second may come to the first one's addresses.
// The trace must have the same stacks; only the innermost return address lies elsewhere in the same function.
#pragma GCC optimize("O2", "omit-frame-pointer")
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "hip_min.h"

#define NOINLINE __attribute__((noinline, noipa))

static inline __attribute__((always_inline)) void take(size_t mebibytes) {
    void *frames[256], *block;
    int count = backtrace(frames, 256);
    char line[256 * 20], *end = line + sprintf(line, "%zu", mebibytes);
    for (int i = 0; i < count; i++) end += sprintf(end, " %p", frames[i]);
    *end++ = '\n';
    if (write(1, line, (size_t)(end - line)) < 0) abort();
    MUST(hipMalloc(&block, mebibytes * MiB));
    MUST(hipFree(block));
}

#ifndef FRAME_BYTES
#define FRAME_BYTES 200
#endif

NOINLINE int run(size_t mebibytes) {
    volatile char frame[FRAME_BYTES];
    frame[0] = 1;
    take(mebibytes);
    return frame[0];
}

#ifndef PLUGIN
NOINLINE static void down(int depth, size_t mebibytes) {
    volatile char frame[24];
    frame[depth % 24] = 1;
    if (depth == 0) take(mebibytes);
    else down(depth - 1, mebibytes);
    frame[depth % 24] += 1;
}

NOINLINE static void aligned(size_t mebibytes, size_t more) {
    volatile char wide[64] __attribute__((aligned(64)));
    volatile char *grown = alloca(more);
    wide[0] = grown[0] = 1;
    take(mebibytes);
    wide[1] += grown[0] + wide[0];
}

static int compare(const void *a, const void *b) {
    static int done;
    if (!done++) take(9);
    return *(const int *)a - *(const int *)b;
}

static void *thread(void *argument) {
    down(3, (size_t)argument);
    return argument;
}

static size_t in_handler;

static void handler(int signal) {
    (void)signal;
    down(2, in_handler);
}

NOINLINE static void by_signal(size_t mebibytes, int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
    in_handler = mebibytes;
    raise(SIGUSR1);
}

static ucontext_t outside, fiber;

static void on_fiber(void) {
    down(4, 14);
    swapcontext(&fiber, &outside);
    down(4, 15);
}

static void fibers(void) {
    size_t size = 128 * KiB;
    void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = stack;
    fiber.uc_stack.ss_size = size;
    fiber.uc_link = &outside;
    makecontext(&fiber, on_fiber, 0);
    swapcontext(&outside, &fiber);
    take(16);
    swapcontext(&outside, &fiber);
    munmap(stack, size);
    take(17);
}

static void plugins(char **paths) {
    for (size_t round = 0; round < 4; round++) {
        void *plugin = dlopen(paths[round % 2], RTLD_NOW | RTLD_LOCAL);
        int (*run)(size_t) = plugin ? (int (*)(size_t))dlsym(plugin, "run") : NULL;
        if (!run) abort();
        printf("plugin %p\n", (void *)run);
        fflush(stdout);
        run(20 + round);
        dlclose(plugin);
    }
}

int main(int argc, char **argv) {
    static char alternate[256 * KiB];
    pthread_t other;
    void *warm[4];
    backtrace(warm, 4);
    run(1);
    for (volatile int again = 0; again < 3; again++) down(0, 2);
    down(30, 3);
    down(90, 4);
    down(400, 5);
    aligned(6, 100);
    aligned(7, 5000);
    pthread_create(&other, NULL, thread, (void *)8);
    pthread_join(other, NULL);
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof numbers[0], compare);
    by_signal(10, 0);
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    by_signal(11, SA_ONSTACK);
    down(30, 12);
    pid_t child = fork();
    if (child == 0) {
        down(30, 13);
        pthread_create(&other, NULL, thread, (void *)18);
        pthread_join(other, NULL);
        fibers();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    fibers();
    if (argc == 3) plugins(argv + 1);
    return 0;
}
#endif
