// Memory of pools and regions, host memory that is locked, and shared virtual memory.
#include "roc.h"

static int allocate(const struct holder *holder, size_t size, void **pointer) {
    if (!pointer || !size) return ROC_INVALID_ARGUMENT;
    sim_thread()->device = holder->is_gpu ? holder->device : 0;
    int status = holder->is_gpu ? sim_allocate(pointer, SIM_KIND_DEVICE, size) : sim_HostMalloc(pointer, size, 0);
    return roc_status(status, ROC_ERROR);
}

int roc_pool_allocate(uint64_t pool, size_t size, void **pointer) {
    const struct holder *holder = roc_pool(pool);
    return holder ? allocate(holder, size, pointer) : ROC_INVALID_POOL;
}

int roc_region_allocate(uint64_t region, size_t size, void **pointer) {
    const struct holder *holder = roc_region(region);
    return holder ? allocate(holder, size, pointer) : ROC_INVALID_REGION;
}

int roc_free(void *pointer) {
    if (sim_release(pointer, SIM_KIND_DEVICE) == SIM_SUCCESS) return ROC_SUCCESS;
    return roc_status(sim_HostFree(pointer), ROC_INVALID_ALLOCATION);
}

int roc_allow_access(uint32_t count, const uint64_t *agents, const void *pointer) {
    return count && agents && pointer ? ROC_SUCCESS : ROC_INVALID_ARGUMENT;
}

// The same memory may be pinned several times, and is unpinned by the last unlock (libhsakmt fmm.c, registration_count).
enum { MAX_PINS = 64 };
static struct pin { const void *host; size_t size; int again; } pins[MAX_PINS];  // guarded by the lock

static struct pin *pin_at(const void *host) {
    for (int i = 0; i < MAX_PINS; i++)
        if (pins[i].host == host) return &pins[i];
    return NULL;
}

static int pin(void *host, size_t size, int bad) {
    sigset_t saved;
    sim_lock(&saved);
    struct pin *known = pin_at(host);
    bool again = known && known->size == size;
    if (again) known->again++;
    sim_unlock(&saved);
    if (again) return ROC_SUCCESS;
    sim_thread()->device = 0;
    int status = roc_status(sim_HostRegister(host, size, 0), bad);
    sim_lock(&saved);
    struct pin *place = status == ROC_SUCCESS ? pin_at(NULL) : NULL;
    if (place) *place = (struct pin){host, size, 0};
    sim_unlock(&saved);
    return status;
}

int roc_unlock(void *host) {
    sigset_t saved;
    sim_lock(&saved);
    struct pin *known = host ? pin_at(host) : NULL;
    bool stays = known && known->again;
    if (stays) known->again--;
    else if (known) known->host = NULL;
    sim_unlock(&saved);
    return stays ? ROC_SUCCESS : roc_status(sim_HostUnregister(host), ROC_ERROR);
}

int roc_lock(void *host, size_t size, const uint64_t *agents, int count, void **pointer) {
    if (!host || !size || !pointer || (count != 0) != (agents != NULL)) return ROC_INVALID_ARGUMENT;
    int status = pin(host, size, ROC_ERROR);
    if (status == ROC_SUCCESS) *pointer = host;  // one address space
    return status;
}

int roc_lock_to_pool(void *host, size_t size, const uint64_t *agents, int count, uint64_t pool, void **pointer) {
    const struct holder *holder = roc_pool(pool);
    if (!holder || holder->is_gpu) return ROC_INVALID_POOL;
    return roc_lock(host, size, agents, count, pointer);
}

int roc_register(void *host, size_t size) {
    return host && size ? pin(host, size, ROC_INVALID_ARGUMENT) : ROC_INVALID_ARGUMENT;
}

// Shared virtual memory: where the pages of a range are to lie. Nothing moves, so no device holds anything for it.
enum { MAX_RANGES = 64, PREFERRED = 4, PREFETCHED = 5, LAST_ATTRIBUTE = 0x2001 };

static struct range { uintptr_t address; size_t size; uint64_t preferred, prefetched; } ranges[MAX_RANGES];

static struct range *range_at(void *pointer, size_t size) {
    int free = -1;
    for (int i = 0; i < MAX_RANGES; i++) {
        if (ranges[i].size == size && ranges[i].address == (uintptr_t)pointer) return &ranges[i];
        if (free < 0 && !ranges[i].size) free = i;
    }
    if (free < 0) return NULL;
    ranges[free] = (struct range){.address = (uintptr_t)pointer, .size = size};
    return &ranges[free];
}

static int set(struct range *range, const struct roc_attribute *pair) {
    if (pair->attribute > LAST_ATTRIBUTE) return ROC_INVALID_ARGUMENT;
    if (pair->attribute != PREFERRED && pair->attribute != PREFETCHED) return ROC_SUCCESS;
    if (pair->value && !roc_agent(pair->value)) return ROC_INVALID_AGENT;
    *(pair->attribute == PREFERRED ? &range->preferred : &range->prefetched) = pair->value;
    return ROC_SUCCESS;
}

int roc_svm_set(void *pointer, size_t size, const struct roc_attribute *list, size_t count) {
    if (!pointer || !size || !list || !count) return ROC_INVALID_ARGUMENT;
    sigset_t saved;
    sim_lock(&saved);
    struct range *range = range_at(pointer, size);
    int status = range ? ROC_SUCCESS : ROC_OUT_OF_RESOURCES;
    for (size_t i = 0; i < count && status == ROC_SUCCESS; i++) status = set(range, &list[i]);
    sim_unlock(&saved);
    return status;
}

int roc_svm_get(void *pointer, size_t size, struct roc_attribute *list, size_t count) {
    if (!pointer || !size || !list || !count) return ROC_INVALID_ARGUMENT;
    sigset_t saved;
    sim_lock(&saved);
    struct range *range = range_at(pointer, size);
    for (size_t i = 0; range && i < count; i++)
        list[i].value = list[i].attribute == PREFERRED ? range->preferred
                        : list[i].attribute == PREFETCHED ? range->prefetched : 0;
    sim_unlock(&saved);
    return range ? ROC_SUCCESS : ROC_OUT_OF_RESOURCES;
}

int roc_svm_prefetch(void *pointer, size_t size, uint64_t agent, uint64_t signal) {
    if (!roc_agent(agent)) return ROC_INVALID_AGENT;
    int status = roc_svm_set(pointer, size, &(struct roc_attribute){PREFETCHED, agent}, 1);
    if (status == ROC_SUCCESS) roc_signal_subtract(signal);
    return status;
}
