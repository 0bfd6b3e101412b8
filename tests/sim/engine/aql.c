/* The compute engine: takes AQL packets in order. A kernel dispatch does nothing but complete. */
#include "engine.h"

#include <hsa/amd_hsa_signal.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <string.h>

#define AQL_PACKET_BYTES 64u
#define BARRIER_SIGNALS 5u

/* Every packet type has its completion signal at the same place. */
union packet {
    uint8_t bytes[AQL_PACKET_BYTES];
    uint16_t header;
    hsa_kernel_dispatch_packet_t dispatch;
    hsa_barrier_and_packet_t barrier;
    hsa_amd_barrier_value_packet_t barrier_value;
};
_Static_assert(sizeof(union packet) == AQL_PACKET_BYTES, "an AQL packet is 64 bytes");

static int64_t signal_value(uint64_t handle)
{
    const amd_signal_t *signal = (const amd_signal_t *)(uintptr_t)handle;
    return __atomic_load_n(&signal->value, __ATOMIC_ACQUIRE);
}

/* Signals are met at 0; a barrier without any signal is met at once. */
static bool barrier_met(const hsa_barrier_and_packet_t *barrier, bool any)
{
    unsigned present = 0, reached = 0;
    for (unsigned i = 0; i < BARRIER_SIGNALS; i++) {
        if (barrier->dep_signal[i].handle == 0)
            continue;
        present++;
        reached += signal_value(barrier->dep_signal[i].handle) == 0;
    }
    return present == 0 || (any ? reached > 0 : reached == present);
}

static bool value_met(const hsa_amd_barrier_value_packet_t *barrier)
{
    if (barrier->signal.handle == 0)
        return true;
    int64_t value = signal_value(barrier->signal.handle) & barrier->mask;
    switch (barrier->cond) {
    case HSA_SIGNAL_CONDITION_EQ: return value == barrier->value;
    case HSA_SIGNAL_CONDITION_NE: return value != barrier->value;
    case HSA_SIGNAL_CONDITION_LT: return value < barrier->value;
    default: return value >= barrier->value;
    }
}

static bool packet_ready(const union packet *packet)
{
    switch (packet->header & 0xff) {
    case HSA_PACKET_TYPE_BARRIER_AND: return barrier_met(&packet->barrier, false);
    case HSA_PACKET_TYPE_BARRIER_OR: return barrier_met(&packet->barrier, true);
    case HSA_PACKET_TYPE_VENDOR_SPECIFIC:
        /* The other vendor packet, a PM4 buffer, only invalidates caches. */
        return packet->barrier_value.header.AmdFormat != HSA_AMD_PACKET_TYPE_BARRIER_VALUE
               || value_met(&packet->barrier_value);
    default: return true;
    }
}

static void complete(uint64_t handle, uint64_t started_at_ns)
{
    if (handle == 0)
        return;
    amd_signal_t *signal = (amd_signal_t *)(uintptr_t)handle;
    uint64_t mailbox = signal->event_mailbox_ptr;
    uint32_t event_id = signal->event_id;
    signal->start_ts = started_at_ns;
    signal->end_ts = monotonic_ns();
    /* After this the owner may free the signal: nothing of it is read below. */
    __atomic_sub_fetch(&signal->value, 1, __ATOMIC_ACQ_REL);
    if (mailbox) {
        __atomic_store_n((uint64_t *)(uintptr_t)mailbox, event_id, __ATOMIC_RELEASE);
        event_raise(event_id);
    }
}

bool aql_step(struct engine *engine)
{
    uint64_t index = atomic_load_explicit(engine->read_index, memory_order_relaxed);
    uint8_t *slot = engine->ring + index * AQL_PACKET_BYTES % engine->ring_bytes;
    uint16_t header = __atomic_load_n((uint16_t *)slot, __ATOMIC_ACQUIRE);
    if ((header & 0xff) == HSA_PACKET_TYPE_INVALID)
        return false;
    union packet packet;
    memcpy(packet.bytes, slot, sizeof packet);
    uint64_t started_at_ns = monotonic_ns();
    for (struct idle idle = {0}; !packet_ready(&packet);) {
        if (engine_stopping(engine))
            return false;
        idle_wait(&idle);
    }
    /* The slot belongs to the producer again once the index has moved, so it is cleared before. */
    __atomic_store_n((uint16_t *)slot, HSA_PACKET_TYPE_INVALID, __ATOMIC_RELEASE);
    atomic_store_explicit(engine->read_index, index + 1, memory_order_release);
    complete(packet.dispatch.completion_signal.handle, started_at_ns);
    return true;
}
