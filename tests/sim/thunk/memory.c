/* Memory of the simulated card and of the host, backed by mmap, charged as the kernel driver would.
 *
 * VRAM is ordinary memory of this process at the address the GPU would use, so that the simulated copy
 * engine can move real bytes; pages nobody touches cost nothing.
 */
#include "thunk.h"

#include <sys/mman.h>

pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
struct range_table memory_allocations;
static uint64_t vram_bytes;
static uint64_t last_handle;

/* Under the lock, so that the running total in the log follows the order of its lines. */
void memory_record_locked(const char *op, const struct range *range, HSAKMT_STATUS status)
{
    log_write(&(struct log_record){.op = op, .heap = range->heap, .use = range->use, .handle = range->handle,
                                   .address = range->start, .asked_bytes = range->asked_bytes,
                                   .bytes = range->bytes, .status = status, .vram_bytes = vram_bytes});
}

void memory_log(const char *op, const char *heap, const char *use, uint64_t handle, const void *address,
                uint64_t bytes)
{
    pthread_mutex_lock(&memory_lock);
    memory_record_locked(op, &(struct range){.start = (uintptr_t)address, .asked_bytes = bytes, .bytes = bytes,
                                             .handle = handle, .heap = heap, .use = use},
                         HSAKMT_STATUS_SUCCESS);
    pthread_mutex_unlock(&memory_lock);
}

/* Never used twice, unlike addresses. */
uint64_t memory_next_handle_locked(void)
{
    return ++last_handle;
}

uint64_t memory_next_handle(void)
{
    pthread_mutex_lock(&memory_lock);
    uint64_t handle = memory_next_handle_locked();
    pthread_mutex_unlock(&memory_lock);
    return handle;
}

static bool is_vram(const struct range *range)
{
    return range->heap[0] == 'v';
}

HSAKMT_STATUS memory_charge_locked(const struct range *range)
{
    if (!is_vram(range))
        return HSAKMT_STATUS_SUCCESS;
    if (range->bytes > sim.capacity_bytes - vram_bytes)
        return HSAKMT_STATUS_NO_MEMORY;
    vram_bytes += range->bytes;
    return HSAKMT_STATUS_SUCCESS;
}

void memory_discharge_locked(const struct range *range)
{
    if (is_vram(range))
        vram_bytes -= range->bytes;
}

/* Aligned as the real thunk aligns: large buffers to a huge page. */
void *memory_map_pages(uint64_t size_bytes, int protection)
{
    uint64_t alignment_bytes = size_bytes >= SIM_HUGE_PAGE_BYTES ? SIM_HUGE_PAGE_BYTES : SIM_PAGE_BYTES;
    uint64_t padded_bytes = size_bytes + alignment_bytes - SIM_PAGE_BYTES;
    uint8_t *base = mmap(NULL, padded_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    uint8_t *start = (uint8_t *)align_up((uintptr_t)base, alignment_bytes);
    uint64_t before_bytes = (uint64_t)(start - base), after_bytes = padded_bytes - before_bytes - size_bytes;
    if (before_bytes)
        munmap(base, before_bytes);
    if (after_bytes)
        munmap(start + size_bytes, after_bytes);
    return start;
}

static void *back_with_pages(uint64_t size_bytes, HsaMemFlags flags, void *wanted)
{
    void *start;
    if (flags.ui32.FixedAddress) {
        start = mmap(wanted, size_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (start == MAP_FAILED)
            return NULL;
    } else {
        start = memory_map_pages(size_bytes, PROT_READ | PROT_WRITE);
    }
    /* As the real thunk does: a child must not keep copies of the card's memory. */
    if (start)
        madvise(start, size_bytes, MADV_DONTFORK);
    return start;
}

HSAKMT_STATUS memory_alloc(uint32_t node, uint64_t size_bytes, HsaMemFlags flags, const char *heap,
                           const char *use, void **address)
{
    struct range range = {.asked_bytes = size_bytes, .heap = heap, .use = use, .flags = flags, .node = node};
    range.bytes = align_up(size_bytes, is_vram(&range) ? sim.granularity_bytes : SIM_PAGE_BYTES);
    pthread_mutex_lock(&memory_lock);
    range.handle = memory_next_handle_locked();
    HSAKMT_STATUS status = memory_charge_locked(&range);
    if (status == HSAKMT_STATUS_SUCCESS) {
        range.start = (uintptr_t)back_with_pages(align_up(size_bytes, SIM_PAGE_BYTES), flags, *address);
        range.gpu_start = range.start;
        if (!range.start || !range_insert(&memory_allocations, &range)) {
            memory_discharge_locked(&range);
            status = HSAKMT_STATUS_ERROR;
        }
    }
    if (status == HSAKMT_STATUS_SUCCESS)
        *address = (void *)range.start;
    memory_record_locked("alloc", &range, status);
    pthread_mutex_unlock(&memory_lock);
    return status;
}

HSAKMT_STATUS hsaKmtAllocMemory(HSAuint32 node, HSAuint64 size_bytes, HsaMemFlags flags, void **address)
{
    if (node >= SIM_NODE_COUNT)
        return HSAKMT_STATUS_INVALID_NODE_UNIT;
    if (!address || size_bytes == 0 || size_bytes % SIM_PAGE_BYTES)
        return HSAKMT_STATUS_INVALID_PARAMETER;
    if (flags.ui32.Scratch)
        return scratch_reserve(size_bytes, address);
    /* The three places a KFD buffer can be; paged system memory is a userptr buffer there. */
    const char *heap = "userptr";
    if (flags.ui32.NonPaged)
        heap = node == SIM_GPU_NODE ? "vram" : "gtt";
    return memory_alloc(node, size_bytes, flags, heap, "data", address);
}

HSAKMT_STATUS memory_free(void *address)
{
    HSAKMT_STATUS status = HSAKMT_STATUS_SUCCESS;
    pthread_mutex_lock(&memory_lock);
    struct range *range = range_at(&memory_allocations, (uintptr_t)address);
    if (range) {
        memory_discharge_locked(range);
        memory_record_locked("free", range, status);
        munmap(address, align_up(range->asked_bytes, SIM_PAGE_BYTES));
        range_remove(&memory_allocations, range);
    } else if (scratch_holds_locked((uintptr_t)address)) {
        scratch_release_locked();
    } else {
        status = HSAKMT_STATUS_MEMORY_NOT_REGISTERED;
        memory_record_locked("free", &(struct range){.start = (uintptr_t)address, .heap = "unknown",
                                                     .use = "data"}, status);
    }
    pthread_mutex_unlock(&memory_lock);
    return status;
}

HSAKMT_STATUS hsaKmtFreeMemory(void *address, HSAuint64 size_bytes)
{
    (void)size_bytes; /* The real one goes by the address alone. */
    return address ? memory_free(address) : HSAKMT_STATUS_ERROR;
}
