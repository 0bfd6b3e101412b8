// Virtual memory management: address ranges without memory, memory without addresses, and maps between the two.
// A mapping keeps its memory: the bytes come back when the handle is released and the last mapping is gone.
// Each mapping has pages of its own, so what is written through one is not seen through another.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"

// HIP answers a range of a bad size or alignment with "out of memory" although nothing is.
#ifdef SIM_CUDA
enum { BAD_SIZE = SIM_INVALID_VALUE };
#else
enum { BAD_SIZE = SIM_OUT_OF_MEMORY };
#endif

struct mapping {
    struct mapping *next;
    uintptr_t address;
    size_t size;
    struct sim_block *handle;
};
_Static_assert(sizeof(struct mapping) <= sizeof(struct sim_block), "mappings live in blocks from the common slabs");

// All guarded by the device lock.
static struct sim_block *handles;
static struct sim_block *reservations;
static struct mapping *mappings;

static struct sim_block **find(struct sim_block **list, uintptr_t address) {
    while (*list && (*list)->address != address) list = &(*list)->next;
    return list;
}

static bool is_refused(size_t size) {
    size_t limit = sim_config()->limits.reserved, reserved = 0;
    for (struct sim_block *range = reservations; range; range = range->next) reserved += range->held;
    return limit && (size > limit || reserved > limit - size);
}

static struct sim_block *find_reservation(uintptr_t address, size_t size) {
    for (struct sim_block *range = reservations; range; range = range->next)
        if (address >= range->address && size <= range->held && address - range->address <= range->held - size)
            return range;
    return NULL;
}

static void unlink_and_delete(struct sim_block **link) {
    struct sim_block *block = *link;
    *link = block->next;
    sim_block_delete(block);
}

// Of imported memory nothing is held here.
static void refund(const struct sim_block *handle) {
    if (handle->file) close(handle->file - 1);
    if (handle->kind == SIM_KIND_PHYSICAL && !sim_config()->limits.handles_stay) sim_device_refund(handle->device, handle->held);
}

static void forget_if_unused(struct sim_block *handle) {
    if (handle->references || handle->mappings) return;
    refund(handle);
    unlink_and_delete(find(&handles, handle->address));
}

int sim_MemGetAllocationGranularity(size_t *size, const sim_allocation_properties *properties, int option) {
    (void)option;
    if (!size || !properties) return SIM_INVALID_VALUE;
    *size = sim_config()->granularity;
    return SIM_SUCCESS;
}

// CUDA sets each range aside above the one before (measured on an H200, driver 580; the first at 0x302000000); HIP's simulator takes what mmap gives.
static void *set_aside(size_t size) {
    enum { PROTECTION = PROT_NONE, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };
#ifdef SIM_CUDA
    static uintptr_t next = 0x100000000000;  // the simulator holds its lock
    void *above = mmap((void *)next, size, PROTECTION, FLAGS | MAP_FIXED_NOREPLACE, -1, 0);
    if (above == (void *)next) {
        next += size;
        return above;
    }
    if (above != MAP_FAILED) munmap(above, size);
#endif
    return mmap(NULL, size, PROTECTION, FLAGS, -1, 0);
}

int sim_MemAddressReserve(void **pointer, size_t size, size_t alignment, void *hint, unsigned long long flags) {
    (void)hint, (void)flags;
    if (!pointer) return SIM_INVALID_VALUE;
    bool sane = size && size % sim_config()->granularity == 0 && (alignment & (alignment - 1)) == 0;
    sigset_t saved;
    sim_lock(&saved);
    void *pages = MAP_FAILED;
    if (sane && !is_refused(size)) pages = set_aside(size);
    struct sim_block *range = pages == MAP_FAILED ? NULL : sim_block_new();
    if (range) {
        *range = (struct sim_block){.next = reservations, .address = (uintptr_t)pages, .requested = size,
                                    .held = size, .kind = SIM_KIND_RESERVED, .device = sim_thread()->device};
        reservations = range;
        *pointer = pages;
        sim_log_block("reserve", range);
    } else {
        sim_log_failure(SIM_KIND_RESERVED, sim_thread()->device, size, sane ? SIM_OUT_OF_MEMORY : BAD_SIZE);
    }
    sim_unlock(&saved);
    if (range) return SIM_SUCCESS;
    return sane ? SIM_OUT_OF_MEMORY : BAD_SIZE;
}

int sim_MemAddressFree(void *pointer, size_t size) {
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block **link = find(&reservations, (uintptr_t)pointer);
    int status = *link && (*link)->held == size ? SIM_SUCCESS : SIM_INVALID_VALUE;
    for (struct mapping *mapping = mappings; mapping && status == SIM_SUCCESS; mapping = mapping->next)
        if (find_reservation(mapping->address, mapping->size) == *link) status = SIM_INVALID_VALUE;
    if (status == SIM_SUCCESS) {
        sim_log_block("unreserve", *link);
        munmap(pointer, size);
        unlink_and_delete(link);
    }
    sim_unlock(&saved);
    return status;
}

static struct sim_block *insert(int device, size_t size, enum sim_kind kind) {
    struct sim_block *handle = sim_block_new();
    if (!handle) return NULL;
    *handle = (struct sim_block){.next = handles, .address = (uintptr_t)handle, .requested = size, .held = size,
                                 .kind = kind, .device = device, .references = 1};
    return handles = handle;
}

// As the recorder writes it.
enum { NO_DEVICE = 255 };

static struct sim_block *create(int device, size_t size, enum sim_kind kind) {
    int file = sim_config()->limits.handle_files ? eventfd(0, EFD_CLOEXEC) : -1;
    if (file < 0 && sim_config()->limits.handle_files) return NULL;
    bool in_ram = kind == SIM_KIND_PHYSICAL_IN_RAM, charged = !in_ram && sim_device_charge(device, size);
    struct sim_block *handle = charged || in_ram ? insert(in_ram ? NO_DEVICE : device, size, kind) : NULL;
    if (handle) {
        handle->file = file + 1;
        return handle;
    }
    if (charged) sim_device_refund(device, size);
    if (file >= 0) close(file);
    return NULL;
}

int sim_vmm_import(void **pointer, int device, size_t size) {
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *handle = insert(device, size, SIM_KIND_IMPORTED);
    if (handle) {
        *pointer = handle;
        sim_log_block("import", handle);
    }
    sim_unlock(&saved);
    return handle ? SIM_SUCCESS : SIM_OUT_OF_MEMORY;
}

int sim_MemCreate(void **handle, size_t size, const sim_allocation_properties *properties, unsigned long long flags) {
    (void)flags;
    if (!handle || !properties) return SIM_INVALID_VALUE;
    enum { ON_DEVICE = 1 };
    bool in_ram = properties->location.type > ON_DEVICE;
    struct sim_attempt attempt = {.kind = in_ram ? SIM_KIND_PHYSICAL_IN_RAM : SIM_KIND_PHYSICAL,
                                  .device = in_ram ? 0 : properties->location.id, .requested = size};
    int status = sim_attempt_begin(&attempt);
    if (status == SIM_SUCCESS && (size == 0 || size % sim_config()->granularity)) status = SIM_INVALID_VALUE;
    return sim_attempt_end(&attempt, status, status == SIM_SUCCESS ? create(attempt.device, size, attempt.kind) : NULL, handle);
}

int sim_MemRelease(void *pointer) {
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *handle = *find(&handles, (uintptr_t)pointer);
    int status = handle && handle->references ? SIM_SUCCESS : SIM_INVALID_VALUE;
    if (status == SIM_SUCCESS) {
        sim_log_block("free", handle);
        handle->references--;
        forget_if_unused(handle);
    }
    sim_unlock(&saved);
    return status;
}

int sim_MemRetainAllocationHandle(void **handle, void *pointer) {
    if (!handle) return SIM_INVALID_VALUE;
    sigset_t saved;
    sim_lock(&saved);
    uintptr_t base;
    size_t size;
    struct sim_block *found = sim_vmm_find_containing((uintptr_t)pointer, &base, &size);
    if (found) {
        found->references++;
        *handle = found;
        sim_log_block("retain", found);
    }
    sim_unlock(&saved);
    return found ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

int sim_MemGetAllocationPropertiesFromHandle(sim_allocation_properties *properties, void *pointer) {
    enum { PINNED = 1, DEVICE = 1 };
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *handle = *find(&handles, (uintptr_t)pointer);
    if (handle && properties)
        *properties = (sim_allocation_properties){.type = PINNED, .location = {DEVICE, handle->device}};
    sim_unlock(&saved);
    return handle && properties ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

struct sim_block *sim_vmm_find_containing(uintptr_t address, uintptr_t *base, size_t *size) {
    for (struct mapping *mapping = mappings; mapping; mapping = mapping->next) {
        if (address - mapping->address >= mapping->size) continue;
        *base = mapping->address;
        *size = mapping->size;
        return mapping->handle;
    }
    return NULL;
}

static int add_mapping(uintptr_t address, size_t size, struct sim_block *handle) {
    struct mapping *mapping = (struct mapping *)sim_block_new();
    if (!mapping) return SIM_OUT_OF_MEMORY;
    *mapping = (struct mapping){mappings, address, size, handle};
    mappings = mapping;
    handle->mappings++;
    mprotect((void *)address, size, PROT_READ | PROT_WRITE);
    sim_log_range("map", handle, address, size);
    return SIM_SUCCESS;
}

int sim_MemMap(void *pointer, size_t size, size_t offset, void *handle_pointer, unsigned long long flags) {
    (void)flags;
    while (sim_config()->limits.maps_hang) pause();
    sigset_t saved;
    sim_lock(&saved);
    uintptr_t address = (uintptr_t)pointer;
    struct sim_block *handle = *find(&handles, (uintptr_t)handle_pointer);
    int status = handle && offset == 0 && size && size <= handle->held ? SIM_SUCCESS : SIM_INVALID_VALUE;
    if (status == SIM_SUCCESS && !find_reservation(address, size)) status = SIM_INVALID_VALUE;
    for (struct mapping *mapping = mappings; mapping && status == SIM_SUCCESS; mapping = mapping->next)
        if (address < mapping->address + mapping->size && mapping->address < address + size) status = SIM_INVALID_VALUE;
    if (status == SIM_SUCCESS) status = add_mapping(address, size, handle);
    sim_unlock(&saved);
    return status;
}

static void remove_mapping(struct mapping **link) {
    struct mapping *mapping = *link;
    *link = mapping->next;
    sim_log_range("unmap", mapping->handle, mapping->address, mapping->size);
    madvise((void *)mapping->address, mapping->size, MADV_DONTNEED);
    mprotect((void *)mapping->address, mapping->size, PROT_NONE);
    mapping->handle->mappings--;
    forget_if_unused(mapping->handle);
    sim_block_delete((struct sim_block *)mapping);
}

int sim_MemUnmap(void *pointer, size_t size) {
    sigset_t saved;
    sim_lock(&saved);
    uintptr_t address = (uintptr_t)pointer;
    int removed = 0;
    for (struct mapping **link = &mappings; *link;) {
        if ((*link)->address >= address && (*link)->address + (*link)->size <= address + size) {
            remove_mapping(link);
            removed++;
        } else {
            link = &(*link)->next;
        }
    }
    sim_unlock(&saved);
    return removed ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

int sim_MemSetAccess(void *pointer, size_t size, const void *descriptors, size_t count) {
    if (!descriptors || !count || sim_config()->limits.access_fails) return SIM_INVALID_VALUE;
    sigset_t saved;
    sim_lock(&saved);
    int known = find_reservation((uintptr_t)pointer, size) != NULL;
    sim_unlock(&saved);
    return known ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

void sim_vmm_forget(int device) {
    for (struct mapping **link = &mappings; *link;) {
        if ((*link)->handle->device == device) remove_mapping(link);
        else link = &(*link)->next;
    }
    for (struct sim_block **link = &handles; *link;) {
        if ((*link)->device != device) {
            link = &(*link)->next;
            continue;
        }
        sim_log_block("free", *link);
        refund(*link);
        unlink_and_delete(link);
    }
}
