// What lies at an address.
#include <string.h>

#include "driver.h"

struct found {
    enum sim_kind kind;
    uintptr_t base;
    size_t size;
    int device;
    void *owner;
    uint64_t id;
};

static bool find(const void *pointer, struct found *found) {
    uintptr_t address = (uintptr_t)pointer, base = 0;
    size_t size = 0;
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *block = sim_device_find_containing(address);
    if (!block) block = sim_host_find_containing(address);
    if (!block) block = sim_foreign_find_containing(address);
    if (block) {
        base = block->address;
        size = block->requested;
    } else {
        block = sim_vmm_find_containing(address, &base, &size);
    }
    if (block) *found = (struct found){block->kind, base, size, block->device, block->owner, base};
    sim_unlock(&saved);
    return block;
}

static bool is_host(const struct found *found) {
    return found->kind == SIM_KIND_PINNED || found->kind == SIM_KIND_REGISTERED;
}

int drv_MemGetAddressRange(void **base, size_t *size, void *pointer) {
    struct found found;
    if (!find(pointer, &found)) return SIM_INVALID_VALUE;
    if (base) *base = (void *)found.base;
    if (size) *size = found.size;
    return SIM_SUCCESS;
}

int drv_MemGetAddressRange_v1(unsigned *base, unsigned *size, unsigned pointer) {
    struct found found;
    if (!find((void *)(uintptr_t)pointer, &found)) return SIM_INVALID_VALUE;
    if (base) *base = (unsigned)found.base;
    if (size) *size = (unsigned)found.size;
    return SIM_SUCCESS;
}

int drv_MemHostGetDevicePointer(void **device, void *host) {
    struct found found;
    if (!device || !find(host, &found) || !is_host(&found)) return SIM_INVALID_VALUE;
    *device = host;  // one address space
    return SIM_SUCCESS;
}

int drv_MemHostGetFlags(unsigned *flags, void *pointer) {
    struct found found;
    if (!flags || !find(pointer, &found) || !is_host(&found)) return SIM_INVALID_VALUE;
    *flags = 0;
    return SIM_SUCCESS;
}

int drv_MemGetAccess(unsigned long long *flags, const sim_location *location, void *pointer) {
    enum { READ_WRITE = 3 };
    struct found found;
    if (!flags || !location || !find(pointer, &found)) return SIM_INVALID_VALUE;
    *flags = READ_WRITE;
    return SIM_SUCCESS;
}

enum {
    CONTEXT = 1, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, SYNC_MEMOPS = 6, BUFFER_ID, IS_MANAGED, DEVICE_ORDINAL,
    IS_IPC_CAPABLE, RANGE_START, RANGE_SIZE, MAPPED,
};

static void put_int(void *data, unsigned value) { memcpy(data, &value, sizeof value); }
static void put_word(void *data, uint64_t value) { memcpy(data, &value, sizeof value); }

static int put(void *data, int attribute, const struct found *found, uint64_t pointer) {
    bool reachable = is_host(found) || found->kind == SIM_KIND_MANAGED;
    bool is_array = found->kind == SIM_KIND_ARRAY;
    switch (attribute) {
        case CONTEXT: put_word(data, (uint64_t)found->owner); break;
        case MEMORY_TYPE: put_int(data, is_host(found) ? MEMORY_HOST : is_array ? MEMORY_ARRAY : MEMORY_DEVICE); break;
        case DEVICE_POINTER: put_word(data, pointer); break;
        case HOST_POINTER: put_word(data, reachable ? pointer : 0); return reachable ? SIM_SUCCESS : SIM_INVALID_VALUE;
        case SYNC_MEMOPS: put_int(data, 0); break;
        case BUFFER_ID: put_word(data, found->id); break;
        case IS_MANAGED: put_int(data, found->kind == SIM_KIND_MANAGED); break;
        case DEVICE_ORDINAL: put_int(data, (unsigned)found->device); break;
        case IS_IPC_CAPABLE: put_int(data, found->kind == SIM_KIND_DEVICE); break;
        case RANGE_START: put_word(data, found->base); break;
        case RANGE_SIZE: put_word(data, found->size); break;
        case MAPPED: put_int(data, 1); break;
        default: return SIM_NOT_SUPPORTED;
    }
    return SIM_SUCCESS;
}

int drv_PointerGetAttribute(void *data, int attribute, void *pointer) {
    struct found found;
    if (!data || !find(pointer, &found)) return SIM_INVALID_VALUE;
    return put(data, attribute, &found, (uint64_t)pointer);
}

// Unlike the single question, this one answers zeroes for memory that it does not know.
static void put_unknown(void *data, int attribute) {
    switch (attribute) {
        case CONTEXT: case DEVICE_POINTER: case HOST_POINTER: case BUFFER_ID: case RANGE_START: case RANGE_SIZE:
            put_word(data, 0);
            break;
        case DEVICE_ORDINAL: put_int(data, (unsigned)-2); break;
        default: put_int(data, 0);
    }
}

int drv_PointerGetAttributes(unsigned count, const int *attributes, void **data, void *pointer) {
    if (!count || !attributes || !data) return SIM_INVALID_VALUE;
    struct found found;
    bool known = find(pointer, &found);
    for (unsigned i = 0; i < count; i++) {
        if (known) (void)put(data[i], attributes[i], &found, (uint64_t)pointer);
        else put_unknown(data[i], attributes[i]);
    }
    return SIM_SUCCESS;
}
