// Stream-ordered allocation. A pool keeps what is freed and hands it out again; at a synchronisation it gives back to
// the device what lies above its release threshold (0 by default).
#include "sim.h"

enum { MAX_POOLS = 64 };

struct sim_pool {
    int alive, device;
    enum sim_kind kind;
    size_t max_size, release_threshold;
    size_t reserved, reserved_high, used, used_high;
    size_t padding;  // what the card's step takes beyond the blocks, which `reserved` sums up
};

static struct sim_pool pools[MAX_POOLS];           // the first SIM_MAX_DEVICES are the devices' default pools
static struct sim_pool *current[SIM_MAX_DEVICES];  // null: the default one

static struct sim_pool *default_pool(int device) {
    pools[device].alive = 1;
    pools[device].device = device;
    pools[device].kind = SIM_KIND_POOL;
    return &pools[device];
}

static struct sim_pool *current_pool(int device) { return current[device] ? current[device] : default_pool(device); }

static struct sim_pool *checked(void *handle) {
    struct sim_pool *pool = handle;
    return pool >= pools && pool < pools + MAX_POOLS && pool->alive ? pool : NULL;
}

int sim_pool_device(void *handle) {
    const struct sim_pool *pool = checked(handle);
    return pool ? pool->device : -1;
}

// A block that the program gave back stays in the device's list, marked as released.
// HIP 5.7.1 takes a block that is little larger than what was asked for, 6.4.3 any that is large enough (docs/rocm-versions.md; what
// lies between them was not tried).
static bool suits(size_t block, size_t held) {
#ifndef SIM_CUDA
    if (sim_config()->version >= 60000000) return block >= held;
#endif
    return block >= held && block <= held + held / 8;
}

static struct sim_block *find_cached(struct sim_pool *pool, size_t held) {
    for (struct sim_block *block = sim_device_first(pool->device); block; block = block->next)
        if (block->pool == pool && block->released == RELEASED && suits(block->held, held))
            return block;
    return NULL;
}

// Before the blocks of a pool change, and after that: it takes whole steps of the card.
static void unpad(struct sim_pool *pool) {
    if (pool->padding) sim_device_refund(pool->device, pool->padding);
    pool->padding = 0;
}

static bool pad(struct sim_pool *pool) {
    size_t step = sim_config()->card.pool_step;
    size_t padding = step && pool->kind == SIM_KIND_POOL ? sim_round_up(pool->reserved, step) - pool->reserved : 0;
    if (padding && !sim_device_charge(pool->device, padding)) return false;
    pool->padding = padding;
    return true;
}

// A real card counts what was asked for.
static size_t counted(const struct sim_block *block) {
    return sim_config()->card.pool_step ? block->requested : block->held;
}

static void release_idle(struct sim_pool *pool, size_t keep) {
    unpad(pool);
    struct sim_block *next;
    for (struct sim_block *block = sim_device_first(pool->device); block && pool->reserved > keep; block = next) {
        next = block->next;
        if (block->pool != pool || block->released != RELEASED) continue;
        pool->reserved -= block->held;
        sim_device_give(block);
    }
    pad(pool);
}

// Frees that waited for a synchronisation take effect.
static void end_waiting(struct sim_pool *pool) {
    for (struct sim_block *block = sim_device_first(pool->device); block; block = block->next)
        if (block->pool == pool && block->released == WAITS) block->released = RELEASED;
}

static bool is_refused(size_t held) {
    size_t limit = sim_config()->limits.pool, reserved = 0;
    for (int i = 0; i < MAX_POOLS; i++) reserved += pools[i].reserved;
    return limit && (held > limit || reserved > limit - held);
}

static struct sim_block *take_of_card(struct sim_pool *pool, size_t size) {
    unpad(pool);
    struct sim_block *block = sim_device_take(pool->device, pool->kind, size);
    if (block) pool->reserved += block->held;
    if (pad(pool) || !block) return block;
    pool->reserved -= block->held;
    sim_device_give(block);
    pad(pool);
    return NULL;
}

static struct sim_block *grow(struct sim_pool *pool, size_t size, size_t held) {
    if (pool->max_size && (held > pool->max_size || pool->reserved > pool->max_size - held)) return NULL;
    if (is_refused(held)) return NULL;
    struct sim_block *block = take_of_card(pool, size);
    if (!block) {
        release_idle(pool, 0);
        block = take_of_card(pool, size);
    }
    if (!block) return NULL;
    block->pool = pool;
    size_t reserved = pool->reserved + pool->padding;
    if (reserved > pool->reserved_high) pool->reserved_high = reserved;
    return block;
}

static struct sim_block *take(struct sim_pool *pool, size_t size) {
    size_t step = sim_config()->card.step, held = sim_round_up(size, step ? step : sim_config()->granularity);
    struct sim_block *block = find_cached(pool, held);
    if (!block) block = grow(pool, size, held);
    if (!block) {
        sim_device_charge(pool->device, sim_config()->limits.lost_per_failure);
        return NULL;
    }
    block->requested = size;
    block->released = IN_USE;
    block->owner = sim_thread()->owner;
    pool->used += counted(block);
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    return block;
}

// Success and null, where there is no memory: HIP 5.2.3 answers so, and 5.7.1 still does for a pool that is named (which of those
// between them do was not tried).
static int refusal_of_pool(int status, void **pointer, bool is_named) {
#ifndef SIM_CUDA
    int version = sim_config()->version;
    if (status == SIM_OUT_OF_MEMORY && (version < 50700000 || (version < 60000000 && is_named))) {
        *pointer = NULL;
        return SIM_SUCCESS;
    }
#endif
    (void)pointer, (void)is_named;
    return status;
}

static int allocate(void **pointer, size_t size, void *handle) {
    struct sim_pool *pool = checked(handle);
    if (!pointer || !pool) return SIM_INVALID_VALUE;
    if (size == 0) {
        *pointer = NULL;
        return SIM_SUCCESS;
    }
    struct sim_attempt attempt = {.kind = pool->kind, .device = pool->device, .requested = size};
    int status = sim_attempt_begin(&attempt);
    return sim_attempt_end(&attempt, status, status == SIM_SUCCESS ? take(pool, size) : NULL, pointer);
}

int sim_MallocFromPoolAsync(void **pointer, size_t size, void *handle, void *stream) {
    (void)stream;
    return refusal_of_pool(allocate(pointer, size, handle), pointer, true);
}

int sim_MallocAsync(void **pointer, size_t size, void *stream) {
    (void)stream;
    return refusal_of_pool(allocate(pointer, size, current_pool(sim_thread()->device)), pointer, false);
}

int sim_pool_take_back(struct sim_block *block) {
    if (block->released) return SIM_INVALID_VALUE;
    sim_log_block("free", block);
    block->released = sim_config()->limits.frees_wait ? WAITS : RELEASED;
    block->pool->used -= counted(block);
    return SIM_SUCCESS;
}

int sim_FreeAsync(void *pointer, void *stream) {
    (void)stream;
    // Unlike hipFree, this one refuses null.
    return pointer ? sim_Free(pointer) : SIM_INVALID_VALUE;
}

void sim_pools_release_idle(void) {
    for (int i = 0; i < MAX_POOLS; i++) {
        if (!pools[i].alive) continue;
        end_waiting(&pools[i]);
        release_idle(&pools[i], pools[i].release_threshold);
    }
}

void sim_pools_forget(int device) {
    for (int i = 0; i < MAX_POOLS; i++)
        if (pools[i].alive && pools[i].device == device) {
            end_waiting(&pools[i]);
            release_idle(&pools[i], 0);
            unpad(&pools[i]);
            pools[i] = (struct sim_pool){.alive = i >= SIM_MAX_DEVICES, .device = device, .kind = pools[i].kind};
        }
}

enum { ALLOCATION_MANAGED = 2, LOCATION_DEVICE = 1 };

int sim_MemPoolCreate(void **handle, const sim_pool_properties *properties) {
    if (!handle || !properties) return SIM_INVALID_VALUE;
    bool in_ram = properties->type == ALLOCATION_MANAGED || properties->location.type > LOCATION_DEVICE;
    int device = properties->location.type > LOCATION_DEVICE ? 0 : properties->location.id;
    if (device < 0 || device >= sim_config()->devices) return SIM_INVALID_DEVICE;
    sigset_t saved;
    sim_lock(&saved);
    int slot = SIM_MAX_DEVICES;
    while (slot < MAX_POOLS && pools[slot].alive) slot++;
    if (slot < MAX_POOLS) {
        pools[slot] = (struct sim_pool){.alive = 1, .device = device, .max_size = properties->max_size,
                                        .kind = in_ram ? SIM_KIND_POOL_IN_RAM : SIM_KIND_POOL};
        *handle = &pools[slot];
    }
    sim_unlock(&saved);
    return slot < MAX_POOLS ? SIM_SUCCESS : SIM_OUT_OF_MEMORY;
}

int sim_MemPoolDestroy(void *handle) {
    struct sim_pool *pool = checked(handle);
    if (!pool || pool < pools + SIM_MAX_DEVICES) return SIM_INVALID_VALUE;
    sigset_t saved;
    sim_lock(&saved);
    end_waiting(pool);
    release_idle(pool, 0);
    if (current[pool->device] == pool) current[pool->device] = NULL;
    // The slot lives on while a block of it does: the block's free still comes.
    pool->alive = pool->used > 0;
    sim_unlock(&saved);
    return SIM_SUCCESS;
}

int sim_MemPoolTrimTo(void *handle, size_t keep) {
    struct sim_pool *pool = checked(handle);
    if (!pool) return SIM_INVALID_VALUE;
    sigset_t saved;
    sim_lock(&saved);
    release_idle(pool, keep);
    sim_unlock(&saved);
    return SIM_SUCCESS;
}

enum { RELEASE_THRESHOLD = 4, RESERVED_NOW, RESERVED_HIGH, USED_NOW, USED_HIGH };

int sim_MemPoolSetAttribute(void *handle, int attribute, void *value) {
    struct sim_pool *pool = checked(handle);
    if (!pool || !value) return SIM_INVALID_VALUE;
    if (attribute == RELEASE_THRESHOLD) pool->release_threshold = *(uint64_t *)value;
    else if (attribute == RESERVED_HIGH) pool->reserved_high = pool->reserved + pool->padding;
    else if (attribute == USED_HIGH) pool->used_high = pool->used;
    return SIM_SUCCESS;
}

int sim_MemPoolGetAttribute(void *handle, int attribute, void *value) {
    struct sim_pool *pool = checked(handle);
    if (!pool || !value) return SIM_INVALID_VALUE;
    switch (attribute) {
        case RELEASE_THRESHOLD: *(uint64_t *)value = pool->release_threshold; break;
        case RESERVED_NOW: *(uint64_t *)value = pool->reserved + pool->padding; break;
        case RESERVED_HIGH: *(uint64_t *)value = pool->reserved_high; break;
        case USED_NOW: *(uint64_t *)value = pool->used; break;
        case USED_HIGH: *(uint64_t *)value = pool->used_high; break;
        default: *(int *)value = 1;  // the reuse policies: all on
    }
    return SIM_SUCCESS;
}

static int valid_device(int device) { return device >= 0 && device < sim_config()->devices; }

int sim_DeviceGetDefaultMemPool(void **pool, int device) {
    if (!pool || !valid_device(device)) return SIM_INVALID_VALUE;
    *pool = default_pool(device);
    return SIM_SUCCESS;
}

int sim_DeviceGetMemPool(void **pool, int device) {
    if (!pool || !valid_device(device)) return SIM_INVALID_VALUE;
    *pool = current_pool(device);
    return SIM_SUCCESS;
}

int sim_DeviceSetMemPool(int device, void *pool) {
    if (!valid_device(device) || !checked(pool)) return SIM_INVALID_VALUE;
    current[device] = pool;
    return SIM_SUCCESS;
}
