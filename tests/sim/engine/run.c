/* One thread per queue, because a packet may wait for another queue; a shared thread would deadlock. */
#include "engine.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void idle_wait(struct idle *idle)
{
    idle->rounds++;
    if (idle->rounds < 100) {
        sched_yield();
        return;
    }
    long pause_ns = idle->rounds < 500 ? 20000 : 300000;
    nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
}

static void *run(void *argument)
{
    struct engine *engine = argument;
    struct idle idle = {0};
    while (!engine_stopping(engine)) {
        if (!atomic_load(&engine->paused) && engine->step(engine))
            idle.rounds = 0;
        else
            idle_wait(&idle);
    }
    return NULL;
}

/* The program's signals are none of this thread's business. */
bool engine_start(struct engine *engine)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&engine->thread, NULL, run, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

void engine_stop(struct engine *engine)
{
    atomic_store_explicit(&engine->stop, true, memory_order_release);
    pthread_join(engine->thread, NULL);
}
