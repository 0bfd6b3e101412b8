// The first thread leaves by pthread_exit, which POSIX allows: the process goes on without it, and ends with exit(0) when its last
// thread has ended. What the exit handler finds then is printed: the program's descriptors, stack and signals.
//     first_thread_leaves alone|workers|chain|late|raw|child|signal|refused
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip_min.h"

enum { WORKERS = 3, LINKS = 3000 };

static void *first;
static volatile sig_atomic_t told;

// More than the recorder's own threads have.
__attribute__((noinline)) static size_t use_stack(void) {
    volatile char large[3 * MiB];
    for (size_t i = 0; i < sizeof large; i += 4096) large[i] = 1;
    return sizeof large / MiB;
}

static void at_exit(void) {
    sigset_t held;
    pthread_sigmask(SIG_BLOCK, NULL, &held);
    void *last;
    MUST(hipMalloc(&last, 5 * MiB));
    printf("handler: %zu MiB of stack, SIGTERM held %d, SIGUSR1 held %d\n", use_stack(), sigismember(&held, SIGTERM),
           sigismember(&held, SIGUSR1));
}

static void *work(void *number) {
    usleep((size_t)number * 120000);
    void *block;
    MUST(hipMalloc(&block, 3 * MiB));
    MUST(hipFree(block));
    printf("worker %zu\n", (size_t)number);
    return NULL;
}

static void start(void *(*run)(void *), size_t number) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, (void *)number);
    pthread_detach(thread);
}

// Each thread starts the next one and ends, so that there is one at nearly all times, and never the same.
static void *next_link(void *number) {
    if ((size_t)number == LINKS) puts("the last of the chain");
    else start(next_link, (size_t)number + 1);
    return NULL;
}

// The thread that forks is the child's first one. It leaves as well.
static void *fork_child(void *unused) {
    (void)unused;
    fflush(stdout);
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        MUST(hipMalloc(&first, 7 * MiB));
        start(work, 1);
        pthread_exit(NULL);
    }
    waitpid(child, &status, 0);
    printf("child: %d\n", status);
    return NULL;
}

static void tell(int signal) { told = signal; }

static void *wait_for_signal(void *unused) {
    (void)unused;
    usleep(300000);
    kill(getpid(), SIGTERM);
    while (!told) usleep(1000);
    printf("signal %d\n", (int)told);
    return NULL;
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "alone";
    // Where the vendor's library is hung it can't be called at exit.
    if (strcmp(what, "refused")) atexit(at_exit);
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &held, NULL);
    signal(SIGTERM, tell);
    if (strcmp(what, "late")) MUST(hipMalloc(&first, MiB));
    // What is written stays in the program's buffer until it exits.
    puts(what);
    if (!strcmp(what, "workers") || !strcmp(what, "late")) {
        for (size_t i = 1; i <= WORKERS; i++) start(work, i);
    }
    if (!strcmp(what, "chain")) start(next_link, 1);
    if (!strcmp(what, "refused")) {
        void *refused;
        printf("refused: %d\n", hipMalloc(&refused, 1024 * GiB));
        fflush(stdout);
    }
    if (!strcmp(what, "child")) start(fork_child, 0);
    if (!strcmp(what, "signal")) start(wait_for_signal, 0);
    if (!strcmp(what, "raw")) {
        start(work, 1);
        // Past the C library, which takes it for a thread that runs, and calls exit for nobody.
        syscall(SYS_exit, 0);
    }
    pthread_exit(NULL);
}
