// The KFD's queues: a doorbell that nobody looks at, and an engine each.
#include <errno.h>
#include <stdlib.h>

#include "../engine/engine.h"
#include "amdgpu.h"

enum { SDMA = 1, COMPUTE_AQL = 2, SDMA_XGMI = 3, SDMA_BY_ENGINE = 4 };
enum { MAX_QUEUES = 512 };

static struct engine *queues[MAX_QUEUES];

// struct kfd_ioctl_create_queue_args.
int behind_queue(unsigned char *payload, int index) {
    uint32_t type = get32(payload + 40);
    if (type != COMPUTE_AQL && type != SDMA && type != SDMA_XGMI && type != SDMA_BY_ENGINE) return -EINVAL;
    struct engine *engine = index < MAX_QUEUES ? calloc(1, sizeof *engine) : NULL;
    if (!engine) return -ENOMEM;
    engine->step = type == COMPUTE_AQL ? aql_step : sdma_step;
    engine->ring = mapping_resolve((void *)get64(payload));
    engine->ring_bytes = get32(payload + 32);
    engine->write_index = mapping_resolve((void *)get64(payload + 8));
    engine->read_index = mapping_resolve((void *)get64(payload + 16));
    put64(payload + 24, (uint64_t)3 << 62 | (uint64_t)index * 8);
    if (!engine_start(engine)) return free(engine), -ENOMEM;
    queues[index] = engine;
    return 0;
}

void behind_queue_gone(int index) {
    engine_stop(queues[index]);
    free(queues[index]);
    queues[index] = NULL;
}

// {u64 ring, u32 number, u32 size, u32 percentage, u32 priority}: at 0 percent a queue stands still.
int update_queue(const unsigned char *payload) {
    uint32_t index = get32(payload + 8);
    if (index >= MAX_QUEUES || !queues[index]) return -EINVAL;
    atomic_store(&queues[index]->paused, get32(payload + 16) == 0);
    return 0;
}
