// Threads that end while they tell of blocks with their allocator's lock held, and inside calls of the runtime. The lock is a robust one,
// so that the program itself can go on. Compiled twice: -DPLUGIN is the library.
//     killed_threads PLUGIN deferred|asynchronous|exit|raw|runtime
// A thread that lives on tells of BLOCKS blocks meanwhile; each of them has to be in the trace.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#ifdef PLUGIN
#include <cerrno>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
#include "hip_min.h"
}

#include "c10_min.h"

static pthread_mutex_t lock;
static char *segment;
static size_t allocated;

extern "C" int begin(void) {
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&lock, &robust);
    return hipMalloc((void **)&segment, 512 * MiB);
}

static void take(void) {
    if (pthread_mutex_lock(&lock) == EOWNERDEAD) pthread_mutex_consistent(&lock);
}

// The depth of the stack is the caller's choice: another stack each time is walked, a known one only compared.
__attribute__((noinline)) static void tell(size_t place, unsigned depth) {
    if (depth > 0) {
        tell(place, depth - 1);
        __asm__ volatile("");
        return;
    }
    c10::reportMemoryUsageToProfiler(segment + 512 * place, 512, allocated += 512, 512 * MiB, {1, 0});
    c10::reportMemoryUsageToProfiler(segment + 512 * place, -512, allocated -= 512, 512 * MiB, {1, 0});
}

extern "C" void tell_locked(size_t place, unsigned depth) {
    take();
    tell(place, depth);
    pthread_mutex_unlock(&lock);
}

// Goes on until its thread is ended, or ends it: 'e' as the C library does, 'r' past it, 'd' where it may be cancelled.
extern "C" void tell_and_end(size_t place, char how) {
    take();
    for (unsigned round = 0;; round++) {
        tell(place, round % 17);
        if (how == 'e' && round == 5) pthread_exit(nullptr);
        if (how == 'r' && round == 5) syscall(SYS_exit, 0);
        if (how == 'd') pthread_testcancel();
    }
}

// A runtime may hold a lock of its own, so it must not be left by cancellation; a recorder that allows it in there makes this hang.
extern "C" void in_runtime(void) {
    for (;;) {
        int before;
        void *block;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
        if (hipMalloc(&block, MiB) == hipSuccess) hipFree(block);
        if (hipMalloc(&block, 4096 * GiB) == hipSuccess) hipFree(block);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
        pthread_testcancel();
    }
}
#else
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static void (*tell_locked)(size_t, unsigned);
static void (*tell_and_end)(size_t, char);
static void (*in_runtime)(void);
static const char *what;
static std::atomic<int> began;

enum { BLOCKS = 2000, KILLED = 60 };

static void *survive(void *) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        tell_locked(1, i % 9);
        if (i % 20 == 0) usleep(100);
    }
    return nullptr;
}

static void *die(void *) {
    int before;
    if (!strcmp(what, "asynchronous")) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    began++;
    if (!strcmp(what, "runtime")) in_runtime();
    else tell_and_end(2, what[0]);
    return nullptr;
}

int main(int argc, char **argv) {
    void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library) return 72;
    what = argv[2];
    tell_locked = (void (*)(size_t, unsigned))dlsym(library, "tell_locked");
    tell_and_end = (void (*)(size_t, char))dlsym(library, "tell_and_end");
    in_runtime = (void (*)(void))dlsym(library, "in_runtime");
    if (((int (*)(void))dlsym(library, "begin"))() != 0) return 73;
    pthread_t survivor;
    pthread_create(&survivor, nullptr, survive, nullptr);
    bool is_cancelled = what[0] == 'd' || what[0] == 'a' || !strcmp(what, "runtime");
    for (int i = 0; i < KILLED; i++) {
        pthread_t victim;
        pthread_create(&victim, nullptr, die, nullptr);
        while (began <= i) usleep(10);
        usleep((useconds_t)(i * 37 % 400));
        if (is_cancelled) pthread_cancel(victim);
        pthread_join(victim, nullptr);
    }
    pthread_join(survivor, nullptr);
    puts("all told");
    return 0;
}
#endif
