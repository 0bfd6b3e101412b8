// A thread storms the main one with three kinds of signals; their handler allocates and frees, nested up to three deep,
// while the main thread does the same. It ends when 300 handlers have run.
// The trace must hold every allocation that the card made, in an order in which each address alternates.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "hip_min.h"

static pthread_t main_thread;
static atomic_int handled;
static atomic_bool stop;
static volatile sig_atomic_t depth;

static void handler(int signal) {
    (void)signal;
    if (depth >= 3) return;
    depth++;
    void *block;
    if (hipMalloc(&block, 4 * MiB) == hipSuccess) (void)hipFree(block);
    atomic_fetch_add(&handled, 1);
    depth--;
}

static void *storm(void *argument) {
    while (!atomic_load(&stop)) {
        pthread_kill(main_thread, SIGUSR1);
        pthread_kill(main_thread, SIGUSR2);
        pthread_kill(main_thread, SIGURG);
        usleep(50);
    }
    return argument;
}

int main(void) {
    pthread_t sender;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGURG, &action, NULL);
    main_thread = pthread_self();
    pthread_create(&sender, NULL, storm, NULL);
    while (atomic_load(&handled) < 300) {
        void *block;
        MUST(hipMalloc(&block, 2 * MiB));
        MUST(hipFree(block));
    }
    atomic_store(&stop, true);
    pthread_join(sender, NULL);
    puts("weathered");
    return 0;
}
