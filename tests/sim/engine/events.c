/* Events: what the GPU's interrupts wake. */
#include "engine.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

struct event {
    bool lives;
    bool auto_reset;
    bool signaled;
    uint64_t age; /* how often it was set, from 1 on: to the kernel's callers 0 means that they don't care */
    unsigned waiters;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct event events[EVENT_LIMIT];

static void initialise(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
}

static struct event *find_locked(uint32_t event_id)
{
    return event_id > 0 && event_id < EVENT_LIMIT && events[event_id].lives ? &events[event_id] : NULL;
}

uint32_t event_create(bool auto_reset, bool signaled)
{
    uint32_t id = 1;
    pthread_once(&once, initialise);
    pthread_mutex_lock(&lock);
    while (id < EVENT_LIMIT && events[id].lives)
        id++;
    if (id < EVENT_LIMIT)
        events[id] = (struct event){.lives = true, .auto_reset = auto_reset, .signaled = signaled, .age = 1};
    pthread_mutex_unlock(&lock);
    return id < EVENT_LIMIT ? id : 0;
}

bool event_destroy(uint32_t event_id)
{
    pthread_mutex_lock(&lock);
    struct event *event = find_locked(event_id);
    if (event)
        event->lives = false;
    pthread_mutex_unlock(&lock);
    return event != NULL;
}

bool event_raise(uint32_t event_id)
{
    pthread_mutex_lock(&lock);
    struct event *event = find_locked(event_id);
    if (event) {
        event->age++;
        event->signaled = !event->auto_reset || event->waiters == 0;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return event != NULL;
}

bool event_reset(uint32_t event_id)
{
    pthread_mutex_lock(&lock);
    struct event *event = find_locked(event_id);
    if (event)
        event->signaled = false;
    pthread_mutex_unlock(&lock);
    return event != NULL;
}

static struct timespec deadline_after(uint32_t milliseconds)
{
    uint64_t at_ns = monotonic_ns() + milliseconds * 1000000ull;
    return (struct timespec){.tv_sec = (time_t)(at_ns / 1000000000ull), .tv_nsec = (long)(at_ns % 1000000000ull)};
}

/* What a waiter remembers of one event: whether it was set at the start, and how old it was then. */
struct seen {
    bool taken;
    uint64_t age;
};

/* Takes a kept signal at the start of a wait. */
static struct seen start_locked(struct event *event, uint64_t wanted_age)
{
    struct seen seen = {.taken = event->signaled || (wanted_age != 0 && wanted_age != event->age), .age = event->age};
    if (event->signaled && event->auto_reset)
        event->signaled = false;
    event->waiters++;
    return seen;
}

static bool met_locked(const uint32_t event_ids[], uint32_t count, bool for_all, const struct seen seen[])
{
    uint32_t met = 0;
    for (uint32_t i = 0; i < count; i++)
        met += seen[i].taken || events[event_ids[i]].age != seen[i].age;
    return for_all ? met == count : met > 0;
}

static bool sleep_until_met_locked(const uint32_t event_ids[], uint32_t count, bool for_all,
                                   const struct seen seen[], uint32_t milliseconds)
{
    struct timespec deadline = deadline_after(milliseconds);
    int timed_out = milliseconds == 0 ? ETIMEDOUT : 0;
    bool met;
    while (!(met = met_locked(event_ids, count, for_all, seen)) && timed_out != ETIMEDOUT) {
        if (milliseconds == EVENT_WAIT_FOREVER)
            pthread_cond_wait(&changed, &lock);
        else
            timed_out = pthread_cond_timedwait(&changed, &lock, &deadline);
    }
    return met;
}

enum event_wait event_wait(const uint32_t event_ids[], uint64_t ages[], uint32_t count, bool for_all,
                           uint32_t milliseconds)
{
    if (count == 0 || count > EVENT_LIMIT)
        return EVENT_UNKNOWN;
    struct seen seen[count];
    bool known = true;
    pthread_once(&once, initialise);
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++)
        known = known && find_locked(event_ids[i]) != NULL;
    if (!known) {
        pthread_mutex_unlock(&lock);
        return EVENT_UNKNOWN;
    }
    for (uint32_t i = 0; i < count; i++)
        seen[i] = start_locked(&events[event_ids[i]], ages ? ages[i] : 0);
    bool met = sleep_until_met_locked(event_ids, count, for_all, seen, milliseconds);
    for (uint32_t i = 0; i < count; i++) {
        struct event *event = &events[event_ids[i]];
        event->waiters--;
        if (ages && ages[i] != 0)
            ages[i] = event->age;
    }
    pthread_mutex_unlock(&lock);
    return met ? EVENT_MET : EVENT_TIMED_OUT;
}
