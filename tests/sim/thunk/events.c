/* Events: what the GPU's interrupts wake.
 *
 * As in the kernel, setting an auto-reset event wakes everybody who waits at that moment, and is kept for
 * the next one only when nobody waits. ROCr relies on it: two threads share one event per queue.
 */
#include "thunk.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define EVENT_LIMIT 4096u /* the kernel's limit per process */

struct sim_event {
    HsaEvent shown; /* first, because the runtime holds a pointer to it */
    bool auto_reset;
    bool signaled;
    uint64_t times_set;
    unsigned waiters;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sim_event *events[EVENT_LIMIT];
static uint64_t *mailboxes;

static void initialise(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
}

/* The page the GPU writes event ids to; the real thunk takes it from GTT with the first event. */
static bool make_mailboxes(void)
{
    if (mailboxes)
        return true;
    HsaMemFlags flags = {.ui32 = {.NonPaged = 1, .HostAccess = 1, .ExecuteAccess = 1, .Uncached = 1}};
    void *page = NULL;
    if (memory_alloc(SIM_CPU_NODE, EVENT_LIMIT * sizeof *mailboxes, flags, "gtt", "events", &page))
        return false;
    mailboxes = page;
    return true;
}

/* Slot 0 stays empty: an id of 0 in a signal means that it has no event. */
static uint32_t free_slot(void)
{
    for (uint32_t id = 1; id < EVENT_LIMIT; id++) {
        if (!events[id])
            return id;
    }
    return 0;
}

HSAKMT_STATUS hsaKmtCreateEvent(HsaEventDescriptor *descriptor, bool manual_reset, bool signaled,
                                HsaEvent **event)
{
    pthread_once(&once, initialise);
    *event = NULL;
    pthread_mutex_lock(&lock);
    uint32_t id = free_slot();
    struct sim_event *created = id && make_mailboxes() ? calloc(1, sizeof *created) : NULL;
    if (created) {
        created->auto_reset = !manual_reset;
        created->signaled = signaled;
        created->shown.EventId = id;
        created->shown.EventData.EventType = descriptor->EventType;
        created->shown.EventData.EventData.SyncVar = descriptor->SyncVar;
        created->shown.EventData.HWData1 = id;
        created->shown.EventData.HWData2 = (uintptr_t)&mailboxes[id];
        created->shown.EventData.HWData3 = id;
        events[id] = created;
        *event = &created->shown;
    }
    pthread_mutex_unlock(&lock);
    return created ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_ERROR;
}

HSAKMT_STATUS hsaKmtDestroyEvent(HsaEvent *event)
{
    if (!event)
        return HSAKMT_STATUS_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    events[event->EventId] = NULL;
    pthread_mutex_unlock(&lock);
    free(event);
    return HSAKMT_STATUS_SUCCESS;
}

void event_raise(uint32_t event_id)
{
    pthread_mutex_lock(&lock);
    struct sim_event *event = event_id < EVENT_LIMIT ? events[event_id] : NULL;
    if (event) {
        event->times_set++;
        event->signaled = !event->auto_reset || event->waiters == 0;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
}

HSAKMT_STATUS hsaKmtSetEvent(HsaEvent *event)
{
    if (!event)
        return HSAKMT_STATUS_INVALID_HANDLE;
    event_raise(event->EventId);
    return HSAKMT_STATUS_SUCCESS;
}

/* Takes a kept signal at the start of a wait. */
static bool take(struct sim_event *event)
{
    bool signaled = event->signaled;
    if (signaled && event->auto_reset)
        event->signaled = false;
    return signaled;
}

static struct timespec deadline_after(uint32_t milliseconds)
{
    uint64_t at_ns = monotonic_ns() + milliseconds * 1000000ull;
    return (struct timespec){.tv_sec = (time_t)(at_ns / 1000000000ull), .tv_nsec = (long)(at_ns % 1000000000ull)};
}

static bool satisfied(HsaEvent *waited[], uint32_t count, bool for_all, bool taken[], const uint64_t before[])
{
    uint32_t met = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sim_event *event = (struct sim_event *)waited[i];
        met += taken[i] || event->times_set != before[i];
    }
    return for_all ? met == count : met > 0;
}

HSAKMT_STATUS hsaKmtWaitOnMultipleEvents(HsaEvent *waited[], HSAuint32 count, bool for_all,
                                         HSAuint32 milliseconds)
{
    if (!waited || count == 0 || count > EVENT_LIMIT)
        return HSAKMT_STATUS_INVALID_HANDLE;
    bool taken[count];
    uint64_t before[count];
    struct timespec deadline = deadline_after(milliseconds);
    int timed_out = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++) {
        struct sim_event *event = (struct sim_event *)waited[i];
        taken[i] = take(event);
        before[i] = event->times_set;
        event->waiters++;
    }
    bool met;
    while (!(met = satisfied(waited, count, for_all, taken, before)) && timed_out != ETIMEDOUT) {
        if (milliseconds == HSA_EVENTTIMEOUT_INFINITE)
            pthread_cond_wait(&changed, &lock);
        else
            timed_out = pthread_cond_timedwait(&changed, &lock, &deadline);
    }
    for (uint32_t i = 0; i < count; i++)
        ((struct sim_event *)waited[i])->waiters--;
    pthread_mutex_unlock(&lock);
    return met ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_WAIT_TIMEOUT;
}

HSAKMT_STATUS hsaKmtWaitOnEvent(HsaEvent *event, HSAuint32 milliseconds)
{
    return event ? hsaKmtWaitOnMultipleEvents(&event, 1, true, milliseconds) : HSAKMT_STATUS_INVALID_HANDLE;
}
