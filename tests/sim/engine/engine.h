/* What executes a simulated card's work: compute and copy queues, and the events that they raise.
 *
 * It knows packets and memory, and neither thunk nor kernel: who links it says where an address lies.
 */
#ifndef GPUOOM_ENGINE_H
#define GPUOOM_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* run.c */
struct engine {
    bool (*step)(struct engine *engine); /* aql_step or sdma_step */
    uint8_t *ring;
    uint64_t ring_bytes;
    _Atomic uint64_t *read_index;
    _Atomic uint64_t *write_index;
    pthread_t thread;
    atomic_bool stop;
    atomic_bool paused;
};
bool engine_start(struct engine *engine);
void engine_stop(struct engine *engine);
static inline bool engine_stopping(struct engine *engine)
{
    return atomic_load_explicit(&engine->stop, memory_order_acquire);
}
uint64_t monotonic_ns(void);

/* Sleeps longer the longer nothing has happened; a doorbell is plain memory and wakes nobody. */
struct idle {
    unsigned rounds;
};
void idle_wait(struct idle *idle);

/* aql.c, sdma.c: execute one packet; false when there is none to execute. */
bool aql_step(struct engine *engine);
bool sdma_step(struct engine *engine);

/* Of whoever links the engine: where in this process the bytes of a GPU address are. */
void *mapping_resolve(const void *gpu_address);

/* events.c: numbers from 1 on; 0 is none.
 *
 * As in the kernel, setting an auto-reset event wakes everybody who waits at that moment, and is kept for
 * the next one only when nobody waits. ROCr relies on it: two threads share one event per queue.
 */
#define EVENT_LIMIT 4096u /* the kernel's limit per process */
#define EVENT_WAIT_FOREVER 0xffffffffu
enum event_wait { EVENT_MET, EVENT_TIMED_OUT, EVENT_UNKNOWN };
uint32_t event_create(bool auto_reset, bool signaled);
bool event_destroy(uint32_t event_id);
bool event_raise(uint32_t event_id);
bool event_reset(uint32_t event_id);
/* `ages` may be NULL. Where an age is not 0 and not the event's, the event counts as set; the ages are brought
 * up to date. `milliseconds` as in the kernel's request. */
enum event_wait event_wait(const uint32_t event_ids[], uint64_t ages[], uint32_t count, bool for_all,
                           uint32_t milliseconds);

#endif
