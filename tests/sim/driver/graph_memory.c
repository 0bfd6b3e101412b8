// The memory of allocation nodes: its address is known when the node is made, its bytes are taken at a launch. After
// its free the device keeps them for the next launch, until a trim.
#include <sys/mman.h>

#include "driver.h"

struct graph_memory {
    struct sim_block block;  // what the log says about it
    struct graph_memory *next;
    bool taken;  // holds bytes of the device
    bool live;   // between allocation and free
};
_Static_assert(sizeof(struct graph_memory) < 4096, "one page holds it");

// Guarded by the lock.
static struct graph_memory *all;
static size_t used_high[SIM_MAX_DEVICES], reserved_high[SIM_MAX_DEVICES];

static size_t sum(int device, bool live_only) {
    size_t bytes = 0;
    for (struct graph_memory *memory = all; memory; memory = memory->next)
        if (memory->block.device == device && memory->taken && (memory->live || !live_only))
            bytes += memory->block.held;
    return bytes;
}

// One page in front of the address range describes it.
struct graph_memory *drv_graph_memory_new(int device, size_t size) {
    size_t step = sim_config()->card.pool_step, page = 4096;
    size_t held = sim_round_up(size, step ? step : sim_config()->granularity);
    if (held > SIZE_MAX - page) return NULL;
    char *pages =
        mmap(NULL, held + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    struct graph_memory *memory = (struct graph_memory *)pages;
    memory->block = (struct sim_block){.address = (uintptr_t)pages + page, .requested = size, .held = held,
                                       .kind = SIM_KIND_GRAPH, .device = device};
    sigset_t saved;
    sim_lock(&saved);
    memory->next = all;
    all = memory;
    sim_unlock(&saved);
    return memory;
}

struct graph_memory *drv_graph_memory_find(const void *pointer) {
    sigset_t saved;
    sim_lock(&saved);
    struct graph_memory *memory = all;
    while (memory && memory->block.address != (uintptr_t)pointer) memory = memory->next;
    sim_unlock(&saved);
    return memory;
}

void *drv_graph_memory_address(const struct graph_memory *memory) { return (void *)memory->block.address; }

bool drv_graph_memory_is_live(const struct graph_memory *memory) { return memory->live; }

int drv_graph_memory_take(struct graph_memory *memory) {
    struct sim_block *block = &memory->block;
    int status = SIM_SUCCESS;
    sigset_t saved;
    sim_lock(&saved);
    if (memory->live) status = SIM_INVALID_VALUE;  // a second launch before the free
    else if (!memory->taken && !sim_device_charge(block->device, block->held)) status = SIM_OUT_OF_MEMORY;
    if (status == SIM_SUCCESS) {
        memory->taken = memory->live = true;
        size_t used = sum(block->device, true), reserved = sum(block->device, false);
        if (used > used_high[block->device]) used_high[block->device] = used;
        if (reserved > reserved_high[block->device]) reserved_high[block->device] = reserved;
        sim_log_block("alloc", block);
    } else {
        sim_log_failure(SIM_KIND_GRAPH, block->device, block->requested, status);
    }
    sim_unlock(&saved);
    return status;
}

int drv_graph_memory_free(struct graph_memory *memory) {
    sigset_t saved;
    sim_lock(&saved);
    bool was_live = memory->live;
    if (was_live) sim_log_block("free", &memory->block);
    memory->live = false;
    sim_unlock(&saved);
    return was_live ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

int drv_GraphMemTrim(int device) {
    if (device < 0 || device >= sim_config()->devices) return SIM_INVALID_DEVICE;
    sigset_t saved;
    sim_lock(&saved);
    for (struct graph_memory *memory = all; memory; memory = memory->next) {
        if (memory->block.device != device || !memory->taken || memory->live) continue;
        sim_device_refund(device, memory->block.held);
        madvise((void *)memory->block.address, memory->block.held, MADV_DONTNEED);
        memory->taken = false;
    }
    sim_unlock(&saved);
    return SIM_SUCCESS;
}

int drv_GetGraphMemAttribute(int device, int attribute, uint64_t *value) {
    enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };
    if (!value || attribute < USED || attribute > RESERVED_HIGH) return SIM_INVALID_VALUE;
    if (device < 0 || device >= sim_config()->devices) return SIM_INVALID_DEVICE;
    sigset_t saved;
    sim_lock(&saved);
    switch (attribute) {
        case USED: *value = sum(device, !sim_config()->card.graphs_stay_used); break;
        case USED_HIGH: *value = used_high[device]; break;
        case RESERVED: *value = sum(device, false); break;
        default: *value = reserved_high[device];
    }
    sim_unlock(&saved);
    return SIM_SUCCESS;
}
