/* Events of the thunk: handles over the engine's numbers, and the page that the GPU writes event ids to. */
#include "thunk.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *mailboxes;

/* The real thunk takes it from GTT with the first event. */
static bool make_mailboxes(void)
{
    pthread_mutex_lock(&lock);
    if (!mailboxes) {
        HsaMemFlags flags = {.ui32 = {.NonPaged = 1, .HostAccess = 1, .ExecuteAccess = 1, .Uncached = 1}};
        void *page = NULL;
        if (!memory_alloc(SIM_CPU_NODE, EVENT_LIMIT * sizeof *mailboxes, flags, "gtt", "events", &page))
            mailboxes = page;
    }
    pthread_mutex_unlock(&lock);
    return mailboxes != NULL;
}

HSAKMT_STATUS hsaKmtCreateEvent(HsaEventDescriptor *descriptor, bool manual_reset, bool signaled,
                                HsaEvent **event)
{
    *event = NULL;
    uint32_t id = make_mailboxes() ? event_create(!manual_reset, signaled) : 0;
    HsaEvent *created = id ? calloc(1, sizeof *created) : NULL;
    if (!created)
        return HSAKMT_STATUS_ERROR;
    created->EventId = id;
    created->EventData.EventType = descriptor->EventType;
    created->EventData.EventData.SyncVar = descriptor->SyncVar;
    created->EventData.HWData1 = id;
    created->EventData.HWData2 = (uintptr_t)&mailboxes[id];
    created->EventData.HWData3 = id;
    *event = created;
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtDestroyEvent(HsaEvent *event)
{
    if (!event)
        return HSAKMT_STATUS_INVALID_HANDLE;
    event_destroy(event->EventId);
    free(event);
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtSetEvent(HsaEvent *event)
{
    if (!event)
        return HSAKMT_STATUS_INVALID_HANDLE;
    event_raise(event->EventId);
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtWaitOnMultipleEvents(HsaEvent *waited[], HSAuint32 count, bool for_all,
                                         HSAuint32 milliseconds)
{
    if (!waited || count == 0 || count > EVENT_LIMIT)
        return HSAKMT_STATUS_INVALID_HANDLE;
    uint32_t ids[count];
    for (uint32_t i = 0; i < count; i++)
        ids[i] = waited[i]->EventId;
    switch (event_wait(ids, NULL, count, for_all, milliseconds)) {
    case EVENT_MET: return HSAKMT_STATUS_SUCCESS;
    case EVENT_TIMED_OUT: return HSAKMT_STATUS_WAIT_TIMEOUT;
    default: return HSAKMT_STATUS_INVALID_HANDLE;
    }
}

HSAKMT_STATUS hsaKmtWaitOnEvent(HsaEvent *event, HSAuint32 milliseconds)
{
    return event ? hsaKmtWaitOnMultipleEvents(&event, 1, true, milliseconds) : HSAKMT_STATUS_INVALID_HANDLE;
}
