// The KFD's events, on the engine's.
#include <errno.h>

#include "../engine/engine.h"
#include "amdgpu.h"

#define EVENT_PAGE ((uint64_t)2 << 62)
enum { WAIT_EVENTS = 0x0C };

// struct kfd_event_data: what happened (for a signal: its age), 40 bytes; then the event's number.
struct waited {
    uint64_t age, rest[4];
    uint32_t event_id, pad;
};

// struct kfd_ioctl_wait_events_args.
struct wait_request {
    uint64_t events_at;
    uint32_t count, for_all, milliseconds, result;
};

// {u64 page, u32 trigger, u32 type, u32 auto_reset, u32 node, u32 number, u32 slot}: the page is the thunk's own, and its
// slots are the numbers. The thunk gives an event a slot only where it is told of a page.
int create_event(unsigned char *payload) {
    uint32_t id = event_create(get32(payload + 16) != 0, false);
    if (id == 0) return -ENOSPC;
    put64(payload, EVENT_PAGE);
    put32(payload + 8, id);
    put32(payload + 24, id);
    put32(payload + 28, id);
    return 0;
}

// Pointers are used as they are: only ROCm's thunk asks for this, with its own.
static int wait_events(struct wait_request *request) {
    struct waited *waited = (struct waited *)request->events_at;
    if (request->count == 0 || request->count > EVENT_LIMIT) return -EINVAL;
    uint32_t ids[request->count];
    uint64_t ages[request->count];
    for (uint32_t i = 0; i < request->count; i++) {
        ids[i] = waited[i].event_id;
        ages[i] = waited[i].age;
    }
    enum event_wait met = event_wait(ids, ages, request->count, request->for_all != 0, request->milliseconds);
    if (met == EVENT_UNKNOWN) return -EINVAL;
    for (uint32_t i = 0; i < request->count; i++) waited[i].age = ages[i];
    request->result = met == EVENT_MET ? 0 : 1;
    return 0;
}

bool behind_sleeps(unsigned number, uint64_t argument, int *result) {
    if (number != WAIT_EVENTS) return false;
    *result = wait_events((struct wait_request *)argument);
    return true;
}
