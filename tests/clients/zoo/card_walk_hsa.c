// The walk over HSA.
#include "card_walk.h"
#include "hsa_min.h"

int hsa_amd_memory_pool_get_info(pool p, int attribute, void *value);
int hsa_region_get_info(region r, int attribute, void *value);

enum { POOL, REGION, PHYSICAL, SORTS };
enum { SIZE = 2, LARGEST_OF_REGION = 4, GRANULE = 6 };
const int walk_sorts = SORTS;

static agent gpu;
static pool memory;
static region memory_region;

static int note_gpu(uint64_t found, void *data) {
    uint32_t type = 0;
    (void)data;
    hsa_agent_get_info(found, INFO_DEVICE, &type);
    if (type == DEVICE_GPU && !gpu) gpu = found;
    return 0;
}

static int note(uint64_t found, void *data) {
    uint64_t *place = data;
    if (!*place) *place = found;
    return 0;
}

static void must(int status) {
    if (status == 0) return;
    fprintf(stderr, "status %#x\n", status);
    exit(70);
}

static void begin(void) {
    if (gpu) return;
    must(hsa_init());
    must(hsa_iterate_agents(note_gpu, NULL));
    must(hsa_amd_agent_iterate_memory_pools(gpu, note, &memory));
    must(hsa_agent_iterate_regions(gpu, note, &memory_region));
}

static int take_physical(struct walk_block *block) {
    size_t granule;
    must(hsa_amd_memory_pool_get_info(memory, GRANULE, &granule));
    block->size = (block->size + granule - 1) / granule * granule;
    handle made;
    int status = hsa_amd_vmem_handle_create(memory, block->size, 0, 0, &made);
    if (status) return status;
    must(hsa_amd_vmem_address_reserve(&block->pointer, block->size, 0, 0));
    must(hsa_amd_vmem_map(block->pointer, block->size, 0, made, 0));
    must(hsa_amd_vmem_handle_release(made));
    return 0;
}

int walk_take(struct walk_block *block) {
    begin();
    switch (block->sort) {
        case POOL: return hsa_amd_memory_pool_allocate(memory, block->size, 0, &block->pointer);
        case REGION: return hsa_memory_allocate(memory_region, block->size, &block->pointer);
        default: return take_physical(block);
    }
}

int walk_give(struct walk_block *block) {
    if (block->sort == POOL) return hsa_amd_memory_pool_free(block->pointer);
    if (block->sort == REGION) return hsa_memory_free(block->pointer);
    int status = hsa_amd_vmem_unmap(block->pointer, block->size);
    must(hsa_amd_vmem_address_free(block->pointer, block->size));
    return status;
}

void walk_show(unsigned random) {
    size_t size, region_size, largest;
    uint64_t available;
    (void)random;
    begin();
    must(hsa_amd_memory_pool_get_info(memory, SIZE, &size));
    must(hsa_region_get_info(memory_region, SIZE, &region_size));
    must(hsa_region_get_info(memory_region, LARGEST_OF_REGION, &largest));
    must(hsa_agent_get_info(gpu, INFO_MEMORY_AVAILABLE, &available));
    printf(" free %zu of %zu, %zu, %zu", (size_t)available, size, region_size, largest);
}

void walk_end(void) {}
