/* Queues: their memory, their doorbells, and an engine each. */
#include "thunk.h"

#include <stdlib.h>

#define DOORBELL_COUNT 1024u
#define EOP_BYTES 4096ull
#define SAVE_HEADER_BYTES 40ull
#define LDS_BYTES_PER_UNIT 0x10000ull
#define SGPR_BYTES_PER_UNIT 0x4000ull
#define HARDWARE_REGISTER_BYTES_PER_UNIT 0x1000ull
#define DEBUGGER_BYTES_PER_WAVE 32ull

struct queue {
    struct engine engine;
    HSA_QUEUE_TYPE type;
    uint64_t handle;
    uint64_t *doorbell;
    void *control_page, *eop_buffer, *save_area;
    uint32_t doorbell_slot;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *doorbells;
static bool doorbell_taken[DOORBELL_COUNT];

/* One page of doorbells per process, mapped with the first queue. */
static bool take_doorbell(struct queue *queue)
{
    pthread_mutex_lock(&lock);
    if (!doorbells) {
        HsaMemFlags flags = {.ui32 = {.NonPaged = 1, .HostAccess = 1}};
        void *page = NULL;
        if (!memory_alloc(SIM_GPU_NODE, DOORBELL_COUNT * sizeof *doorbells, flags, "doorbell", "doorbell", &page))
            doorbells = page;
    }
    for (uint32_t slot = 0; doorbells && slot < DOORBELL_COUNT && !queue->doorbell; slot++) {
        if (!doorbell_taken[slot]) {
            doorbell_taken[slot] = true;
            queue->doorbell_slot = slot;
            queue->doorbell = &doorbells[slot];
        }
    }
    pthread_mutex_unlock(&lock);
    return queue->doorbell != NULL;
}

static void give_doorbell_back(struct queue *queue)
{
    pthread_mutex_lock(&lock);
    if (queue->doorbell)
        doorbell_taken[queue->doorbell_slot] = false;
    pthread_mutex_unlock(&lock);
}

/* What the real thunk takes for saving the state of preempted waves: registers and LDS of every unit. */
static uint64_t save_area_bytes(void)
{
    const struct chip *chip = sim.chip;
    bool rdna = chip->gfx_major >= 10;
    uint64_t units = chip->compute_units;
    uint64_t waves = units * (rdna ? 32 : 40);
    uint64_t engine_waves = chip->shader_engines / chip->arrays_per_engine * 512;
    if (!rdna && waves > engine_waves)
        waves = engine_waves;
    uint64_t stack_bytes = align_up(SAVE_HEADER_BYTES + waves * (rdna ? 12 : 8) + 8, SIM_PAGE_BYTES);
    if (rdna && stack_bytes > 0x7000)
        stack_bytes = 0x7000;
    uint64_t unit_bytes = chip->vgpr_bytes_per_unit + SGPR_BYTES_PER_UNIT + LDS_BYTES_PER_UNIT
                          + HARDWARE_REGISTER_BYTES_PER_UNIT;
    return align_up(stack_bytes + units * unit_bytes + waves * DEBUGGER_BYTES_PER_WAVE, SIM_PAGE_BYTES);
}

/* The memory that a queue costs on a real system and that no API above the thunk shows. */
static HSAKMT_STATUS take_memory(struct queue *queue)
{
    HsaMemFlags system = {.ui32 = {.HostAccess = 1, .ExecuteAccess = 1}};
    HsaMemFlags local = {.ui32 = {.NonPaged = 1, .ExecuteAccess = 1, .CoarseGrain = 1}};
    HSAKMT_STATUS status =
        memory_alloc(SIM_CPU_NODE, SIM_PAGE_BYTES, system, "userptr", "queue", &queue->control_page);
    if (status || queue->type != HSA_QUEUE_COMPUTE_AQL)
        return status;
    status = memory_alloc(SIM_GPU_NODE, EOP_BYTES, local, "vram", "queue", &queue->eop_buffer);
    if (status)
        return status;
    return memory_alloc(SIM_CPU_NODE, save_area_bytes(), system, "userptr", "queue", &queue->save_area);
}

static void free_queue(struct queue *queue)
{
    give_doorbell_back(queue);
    if (queue->eop_buffer)
        memory_free(queue->eop_buffer);
    if (queue->save_area)
        memory_free(queue->save_area);
    if (queue->control_page)
        memory_free(queue->control_page);
    free(queue);
}

/* AQL queues bring their own indexes; for SDMA queues the thunk provides them. */
static void connect_indexes(struct queue *queue, HsaQueueResource *resource)
{
    if (queue->type != HSA_QUEUE_COMPUTE_AQL) {
        HSAuint64 *page = queue->control_page;
        resource->Queue_read_ptr_aql = &page[0];
        resource->Queue_write_ptr_aql = &page[8];
    }
    queue->engine.read_index = (_Atomic uint64_t *)resource->Queue_read_ptr_aql;
    queue->engine.write_index = (_Atomic uint64_t *)resource->Queue_write_ptr_aql;
    resource->QueueId = (HSA_QUEUEID)(uintptr_t)queue;
    resource->Queue_DoorBell_aql = queue->doorbell;
}

HSAKMT_STATUS hsaKmtCreateQueue(HSAuint32 node, HSA_QUEUE_TYPE type, HSAuint32 percentage,
                                HSA_QUEUE_PRIORITY priority, void *ring, HSAuint64 ring_bytes, HsaEvent *event,
                                HsaQueueResource *resource)
{
    (void)percentage, (void)priority, (void)event;
    if (node != SIM_GPU_NODE)
        return HSAKMT_STATUS_INVALID_NODE_UNIT;
    if (type != HSA_QUEUE_COMPUTE_AQL && type != HSA_QUEUE_SDMA && type != HSA_QUEUE_SDMA_XGMI)
        return HSAKMT_STATUS_INVALID_PARAMETER;
    struct queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return HSAKMT_STATUS_NO_MEMORY;
    *queue = (struct queue){
        .engine = {.step = type == HSA_QUEUE_COMPUTE_AQL ? aql_step : sdma_step, .ring = ring, .ring_bytes = ring_bytes},
        .type = type,
    };
    queue->handle = memory_next_handle();
    HSAKMT_STATUS status = take_memory(queue);
    if (!status && !take_doorbell(queue))
        status = HSAKMT_STATUS_ERROR;
    if (!status) {
        connect_indexes(queue, resource);
        status = engine_start(&queue->engine) ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_ERROR;
    }
    if (status) {
        free_queue(queue);
        return status;
    }
    memory_log("queue_create", "queue", type == HSA_QUEUE_COMPUTE_AQL ? "aql" : "sdma", queue->handle, ring,
               ring_bytes);
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtDestroyQueue(HSA_QUEUEID id)
{
    struct queue *queue = (struct queue *)(uintptr_t)id;
    if (!queue)
        return HSAKMT_STATUS_INVALID_PARAMETER;
    engine_stop(&queue->engine);
    memory_log("queue_destroy", "queue", queue->type == HSA_QUEUE_COMPUTE_AQL ? "aql" : "sdma", queue->handle,
               queue->engine.ring, queue->engine.ring_bytes);
    free_queue(queue);
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtUpdateQueue(HSA_QUEUEID id, HSAuint32 percentage, HSA_QUEUE_PRIORITY priority, void *ring,
                                HSAuint64 ring_bytes, HsaEvent *event)
{
    (void)priority, (void)ring, (void)ring_bytes, (void)event;
    struct queue *queue = (struct queue *)(uintptr_t)id;
    if (!queue)
        return HSAKMT_STATUS_INVALID_PARAMETER;
    atomic_store(&queue->engine.paused, percentage == 0);
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtSetQueueCUMask(HSA_QUEUEID id, HSAuint32 bit_count, HSAuint32 *mask)
{
    (void)id;
    return mask && bit_count && bit_count % 32 == 0 ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_INVALID_PARAMETER;
}
