/* Registered host memory, and what the GPU can reach.
 *
 * The GPU sees registered memory at an address of its own, as on a real card without SVM: HIP 5.2 counts on
 * the two being different when it unregisters. Nothing is mapped at that address in this process, so the
 * copy engine asks mapping_resolve() where the bytes are.
 */
#include "thunk.h"

#include <sys/mman.h>

static struct range_table registrations;
static const HSAuint32 GPU_NODES[] = {SIM_GPU_NODE};

static uint64_t page_offset(uint64_t address)
{
    return address % SIM_PAGE_BYTES;
}

/* The registration that the GPU sees at this address. */
static struct range *seen_at(uint64_t gpu_address)
{
    for (size_t i = 0; i < registrations.count; i++) {
        struct range *range = &registrations.items[i];
        if (gpu_address - range->gpu_start < range->asked_bytes)
            return range;
    }
    return NULL;
}

/* Finds an allocation or a registration by either of its addresses. */
static struct range *find_locked(uint64_t address)
{
    struct range *range = range_around(&memory_allocations, address);
    if (!range)
        range = range_around(&registrations, address);
    return range ? range : seen_at(address);
}

static struct range *registered_before(uint64_t start, uint64_t size_bytes)
{
    for (size_t i = 0; i < registrations.count; i++) {
        struct range *range = &registrations.items[i];
        if (range->start == start && range->asked_bytes == size_bytes)
            return range;
    }
    return NULL;
}

static HSAKMT_STATUS register_locked(struct range *range)
{
    range->gpu_start = (uintptr_t)memory_map_pages(range->bytes, PROT_NONE);
    if (!range->gpu_start)
        return HSAKMT_STATUS_ERROR;
    range->gpu_start += page_offset(range->start);
    return range_insert(&registrations, range) ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_ERROR;
}

HSAKMT_STATUS hsaKmtRegisterMemoryWithFlags(void *address, HSAuint64 size_bytes, HsaMemFlags flags)
{
    if (!flags.ui32.HostAccess || flags.ui32.NonPaged)
        return HSAKMT_STATUS_NOT_SUPPORTED;
    struct range range = {.start = (uintptr_t)address, .asked_bytes = size_bytes, .heap = "userptr",
                          .use = "registered", .flags = flags, .node = SIM_CPU_NODE, .registration_count = 1};
    range.bytes = align_up(page_offset(range.start) + size_bytes, SIM_PAGE_BYTES);
    HSAKMT_STATUS status = HSAKMT_STATUS_SUCCESS;
    pthread_mutex_lock(&memory_lock);
    struct range *earlier = registered_before(range.start, size_bytes);
    if (earlier) {
        earlier->registration_count++;
        range.handle = earlier->handle;
    } else {
        range.handle = memory_next_handle_locked();
        status = register_locked(&range);
    }
    memory_record_locked("register", &range, status);
    pthread_mutex_unlock(&memory_lock);
    return status;
}

HSAKMT_STATUS hsaKmtDeregisterMemory(void *address)
{
    HSAKMT_STATUS status = HSAKMT_STATUS_MEMORY_NOT_REGISTERED;
    pthread_mutex_lock(&memory_lock);
    struct range *range = range_at(&registrations, (uintptr_t)address);
    if (!range)
        range = seen_at((uintptr_t)address);
    if (range) {
        status = HSAKMT_STATUS_SUCCESS;
        memory_record_locked("deregister", range, status);
        if (--range->registration_count == 0) {
            munmap((void *)(range->gpu_start - page_offset(range->gpu_start)), range->bytes);
            range_remove(&registrations, range);
        }
    }
    pthread_mutex_unlock(&memory_lock);
    return status;
}

HSAKMT_STATUS hsaKmtMapMemoryToGPU(void *address, HSAuint64 size_bytes, HSAuint64 *gpu_address)
{
    HSAKMT_STATUS status = HSAKMT_STATUS_ERROR;
    uint64_t start = (uintptr_t)address, seen_start = start;
    pthread_mutex_lock(&memory_lock);
    if (scratch_holds_locked(start)) {
        status = scratch_map_locked(start, size_bytes);
    } else {
        struct range *range = find_locked(start);
        if (range) {
            status = HSAKMT_STATUS_SUCCESS;
            range->map_count++;
            seen_start = range->gpu_start + (start - range->start);
            memory_record_locked("map", range, status);
        }
    }
    pthread_mutex_unlock(&memory_lock);
    if (gpu_address && status == HSAKMT_STATUS_SUCCESS)
        *gpu_address = seen_start;
    return status;
}

HSAKMT_STATUS hsaKmtMapMemoryToGPUNodes(void *address, HSAuint64 size_bytes, HSAuint64 *gpu_address,
                                        HsaMemMapFlags flags, HSAuint64 node_count, HSAuint32 *nodes)
{
    (void)flags;
    for (uint64_t i = 0; i < node_count; i++) {
        if (nodes[i] != SIM_GPU_NODE)
            return HSAKMT_STATUS_INVALID_NODE_UNIT;
    }
    return hsaKmtMapMemoryToGPU(address, size_bytes, gpu_address);
}

HSAKMT_STATUS hsaKmtUnmapMemoryToGPU(void *address)
{
    HSAKMT_STATUS status = HSAKMT_STATUS_ERROR;
    uint64_t start = (uintptr_t)address;
    pthread_mutex_lock(&memory_lock);
    if (scratch_holds_locked(start)) {
        status = scratch_unmap_locked(start);
    } else {
        struct range *range = find_locked(start);
        if (range) {
            status = HSAKMT_STATUS_SUCCESS;
            range->map_count -= range->map_count > 0;
            memory_record_locked("unmap", range, status);
        }
    }
    pthread_mutex_unlock(&memory_lock);
    return status;
}

HSAKMT_STATUS hsaKmtQueryPointerInfo(const void *pointer, HsaPointerInfo *info)
{
    *info = (HsaPointerInfo){.Type = HSA_POINTER_UNKNOWN};
    pthread_mutex_lock(&memory_lock);
    struct range *range = find_locked((uintptr_t)pointer);
    if (range) {
        info->Type = range->registration_count ? HSA_POINTER_REGISTERED_USER : HSA_POINTER_ALLOCATED;
        info->Node = range->node;
        info->MemFlags = range->flags;
        info->CPUAddress = (void *)range->start;
        info->GPUAddress = range->gpu_start;
        info->SizeInBytes = range->asked_bytes;
        info->NMappedNodes = range->map_count ? 1 : 0;
        info->MappedNodes = GPU_NODES;
        info->UserData = range->user_data;
    }
    pthread_mutex_unlock(&memory_lock);
    return range ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_ERROR;
}

HSAKMT_STATUS hsaKmtSetMemoryUserData(const void *pointer, void *user_data)
{
    pthread_mutex_lock(&memory_lock);
    struct range *range = find_locked((uintptr_t)pointer);
    if (range)
        range->user_data = user_data;
    pthread_mutex_unlock(&memory_lock);
    return range ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_ERROR;
}

void *mapping_resolve(const void *gpu_address)
{
    uint64_t address = (uintptr_t)gpu_address;
    pthread_mutex_lock(&memory_lock);
    struct range *range = seen_at(address);
    if (range)
        address = range->start + (address - range->gpu_start);
    pthread_mutex_unlock(&memory_lock);
    return (void *)address;
}
