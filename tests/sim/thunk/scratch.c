/* Scratch: an address range at first, device memory only for the pieces of it that are mapped. */
#include "thunk.h"

#include <sys/mman.h>

#define SCRATCH_ALIGNMENT_BYTES 0x10000ull

static struct range_table pieces;
static uint64_t scratch_start, scratch_bytes;

static struct range whole(uint64_t asked_bytes)
{
    return (struct range){.start = scratch_start, .asked_bytes = asked_bytes, .heap = "scratch",
                          .use = "scratch", .node = SIM_GPU_NODE};
}

/* One per process, as in the real thunk. */
HSAKMT_STATUS scratch_reserve(uint64_t size_bytes, void **address)
{
    HSAKMT_STATUS status = HSAKMT_STATUS_NO_MEMORY;
    uint64_t aligned_bytes = align_up(size_bytes, SCRATCH_ALIGNMENT_BYTES);
    pthread_mutex_lock(&memory_lock);
    if (scratch_bytes == 0 && (*address = memory_map_pages(aligned_bytes, PROT_NONE)) != NULL) {
        scratch_start = (uintptr_t)*address;
        scratch_bytes = aligned_bytes;
        status = HSAKMT_STATUS_SUCCESS;
    }
    struct range range = whole(size_bytes);
    memory_record_locked("reserve", &range, status);
    pthread_mutex_unlock(&memory_lock);
    return status;
}

bool scratch_holds_locked(uint64_t address)
{
    return address - scratch_start < scratch_bytes;
}

HSAKMT_STATUS scratch_map_locked(uint64_t start, uint64_t size_bytes)
{
    struct range piece = {.start = start, .asked_bytes = size_bytes, .heap = "vram", .use = "scratch",
                          .node = SIM_GPU_NODE, .bytes = align_up(size_bytes, sim.granularity_bytes),
                          .handle = memory_next_handle_locked()};
    HSAKMT_STATUS status = memory_charge_locked(&piece);
    if (status == HSAKMT_STATUS_SUCCESS && !range_insert(&pieces, &piece)) {
        memory_discharge_locked(&piece);
        status = HSAKMT_STATUS_ERROR;
    }
    memory_record_locked("alloc", &piece, status);
    return status;
}

static void free_piece(struct range *piece)
{
    memory_discharge_locked(piece);
    memory_record_locked("free", piece, HSAKMT_STATUS_SUCCESS);
    range_remove(&pieces, piece);
}

HSAKMT_STATUS scratch_unmap_locked(uint64_t start)
{
    struct range *piece = range_at(&pieces, start);
    if (!piece)
        return HSAKMT_STATUS_ERROR;
    free_piece(piece);
    return HSAKMT_STATUS_SUCCESS;
}

void scratch_release_locked(void)
{
    while (pieces.count)
        free_piece(&pieces.items[0]);
    struct range range = whole(scratch_bytes);
    memory_record_locked("release", &range, HSAKMT_STATUS_SUCCESS);
    munmap((void *)scratch_start, scratch_bytes);
    scratch_start = scratch_bytes = 0;
}
