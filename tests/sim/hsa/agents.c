// The machine as HSA shows it: a processor and the GPUs, each with one pool and one region.
#include <string.h>

#include "roc.h"

enum { AGENTS = SIM_MAX_DEVICES + 1, PAGE = 4096 };
enum { COARSE = 4, FINE = 2 };

static struct holder agents[AGENTS], pools[AGENTS], regions[AGENTS];  // the first is the processor's
static unsigned ups;                                                  // guarded by the lock

int roc_status(int status, int otherwise) {
    switch (status) {
        case SIM_SUCCESS: return ROC_SUCCESS;
        case SIM_OUT_OF_MEMORY: return ROC_OUT_OF_RESOURCES;
        default: return otherwise;
    }
}

bool roc_is_up(void) { return __atomic_load_n(&ups, __ATOMIC_ACQUIRE) != 0; }

int roc_init(void) {
    sigset_t saved;
    sim_lock(&saved);
    for (int i = 0; i < AGENTS; i++) agents[i] = pools[i] = regions[i] = (struct holder){i > 0, i - 1};
    __atomic_add_fetch(&ups, 1, __ATOMIC_RELEASE);
    sim_unlock(&saved);
    return ROC_SUCCESS;
}

int roc_shut_down(void) {
    __atomic_sub_fetch(&ups, 1, __ATOMIC_RELEASE);
    return ROC_SUCCESS;
}

static int count(void) { return sim_config()->devices + 1; }

static const struct holder *checked(const struct holder *all, uint64_t handle) {
    const struct holder *holder = (const struct holder *)handle;
    return holder >= all && holder < all + count() ? holder : NULL;
}

const struct holder *roc_agent(uint64_t agent) { return checked(agents, agent); }
const struct holder *roc_pool(uint64_t pool) { return checked(pools, pool); }
const struct holder *roc_region(uint64_t region) { return checked(regions, region); }

int roc_iterate_agents(roc_visit *visit, void *data) {
    if (!visit) return ROC_INVALID_ARGUMENT;
    int status = ROC_SUCCESS;
    for (int i = 0; i < count() && status == ROC_SUCCESS; i++) status = visit((uint64_t)&agents[i], data);
    return status;
}

static int visit_one(const struct holder *of_all, uint64_t agent, roc_visit *visit, void *data) {
    const struct holder *holder = roc_agent(agent);
    if (!visit) return ROC_INVALID_ARGUMENT;
    return holder ? visit((uint64_t)&of_all[holder - agents], data) : ROC_INVALID_AGENT;
}

int roc_iterate_pools(uint64_t agent, roc_visit *visit, void *data) { return visit_one(pools, agent, visit, data); }

int roc_iterate_regions(uint64_t agent, roc_visit *visit, void *data) {
    return visit_one(regions, agent, visit, data);
}

static size_t available(int device) {
    sigset_t saved;
    sim_lock(&saved);
    size_t used = sim_device_used(device);
    sim_unlock(&saved);
    return sim_config()->capacity - used;
}

int roc_agent_get_info(uint64_t agent, int attribute, void *value) {
    enum { NAME = 0, NAME_BYTES = 64, DEVICE = 17, MEMORY_AVAILABLE = 0xA015 };
    const struct holder *holder = roc_agent(agent);
    if (!holder) return ROC_INVALID_AGENT;
    if (!value) return ROC_INVALID_ARGUMENT;
    switch (attribute) {
        case NAME: strncpy(value, holder->is_gpu ? "gfx1100" : "cpu", NAME_BYTES); break;
        case DEVICE: *(uint32_t *)value = holder->is_gpu; break;
        case MEMORY_AVAILABLE:
            if (!holder->is_gpu) return ROC_INVALID_ARGUMENT;
            *(uint64_t *)value = available(holder->device);
            break;
        default: return ROC_INVALID_ARGUMENT;
    }
    return ROC_SUCCESS;
}

int roc_pool_get_info(uint64_t pool, int attribute, void *value) {
    enum { SEGMENT, FLAGS, SIZE, ALLOWED = 5, GRANULE, ALIGNMENT, RECOMMENDED = 18 };
    const struct holder *holder = roc_pool(pool);
    if (!holder) return ROC_INVALID_POOL;
    if (!value) return ROC_INVALID_ARGUMENT;
    switch (attribute) {
        case SEGMENT: *(uint32_t *)value = 0; break;
        case FLAGS: *(uint32_t *)value = holder->is_gpu ? COARSE : FINE; break;
        case SIZE: *(size_t *)value = sim_config()->capacity; break;
        case ALLOWED: *(bool *)value = true; break;
        case GRANULE:
        case RECOMMENDED: *(size_t *)value = holder->is_gpu ? sim_config()->granularity : PAGE; break;
        case ALIGNMENT: *(size_t *)value = PAGE; break;
        default: return ROC_INVALID_ARGUMENT;
    }
    return ROC_SUCCESS;
}

int roc_region_get_info(uint64_t region, int attribute, void *value) {
    enum { ALLOC_MAX = 4 };
    const struct holder *holder = roc_region(region);
    if (!holder) return ROC_INVALID_REGION;
    if (attribute == ALLOC_MAX && value) *(size_t *)value = sim_config()->capacity;
    return attribute == ALLOC_MAX ? ROC_SUCCESS : roc_pool_get_info((uint64_t)&pools[holder - regions], attribute, value);
}
