// NVIDIA's unified memory, after open-gpu-kernel-modules uvm_ioctl.h: ranges, mappings, migrations. The structures' sizes
// are the driver's: some depend on its version. The status is in the payload, the request itself succeeds.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { OK = 0, INVALID_ADDRESS = 0x1E, INVALID_OBJECT = 0x33, NO_MEMORY = 0x51 };
enum { ATTRIBUTES = 36, PAGE = 4096 };

static struct piece ranges[SIM_MAX_OBJECTS];

// SIM_NVIDIA_VERSION: where the lists of cards end, and where two statuses lie.
static void version(size_t *cards, size_t *preferred_status, size_t *free_status) {
    unsigned a = 595, b = 0, c = 0;
    const char *text = getenv("SIM_NVIDIA_VERSION");
    if (text) sscanf(text, "%u.%u.%u", &a, &b, &c);
    unsigned long number = a * 1000000ul + b * 1000 + c;
    *cards = number < 550040053ul ? 32 : 256;
    *preferred_status = number < 550040007ul ? 32 : 36;
    *free_status = number < 590044001ul ? 16 : 8;
}

static struct piece *range_at(uint64_t base) {
    for (int i = 0; i < SIM_MAX_OBJECTS; i++) {
        if (ranges[i].lives && ranges[i].key == base) return &ranges[i];
    }
    return NULL;
}

// `parent` of a range is its length.
static bool lies_in_range(uint64_t base, uint64_t length) {
    for (int i = 0; i < SIM_MAX_OBJECTS; i++) {
        const struct piece *range = &ranges[i];
        if (range->lives && base >= range->key && length <= range->parent && base - range->key <= range->parent - length) return true;
    }
    return false;
}

static void note(const char *event, const char *api, const char *kind, uint64_t address, uint64_t bytes) {
    log_line(&(struct line){event, api, kind, -1, address, bytes, 0, OK});
}

static uint32_t add(const char *event, const char *api, const char *kind, enum place place, const unsigned char *payload) {
    uint64_t base = get64(payload), length = get64(payload + 8);
    if (base == 0 || length == 0 || base % PAGE || length % PAGE || range_at(base)) return INVALID_ADDRESS;
    int index = 0;
    struct piece *range = piece_new(ranges, 0, place, 0, place == HOST ? length : 0, &index);
    if (!range) {
        log_line(&(struct line){"failed", api, kind, -1, base, length, 0, NO_MEMORY});
        return NO_MEMORY;
    }
    range->key = base;
    range->parent = length;
    note(event, api, kind, base, length);
    return OK;
}

static uint32_t map(const char *event, const char *api, const unsigned char *payload, uint64_t object) {
    if (!lies_in_range(get64(payload), get64(payload + 8))) return INVALID_ADDRESS;
    if (object && !nvidia_has(object)) return INVALID_OBJECT;
    note(event, api, "device", get64(payload), get64(payload + 8));
    return OK;
}

static uint32_t drop(uint64_t base) {
    struct piece *range = range_at(base);
    if (!range) return INVALID_ADDRESS;
    note("free", "UVM_FREE", "reserved", base, 0);
    piece_drop(range);
    return OK;
}

static uint32_t move(const char *event, const char *api, const unsigned char *payload) {
    if (get64(payload + 8) == 0) return INVALID_ADDRESS;
    note(event, api, "managed", get64(payload), get64(payload + 8));
    return OK;
}

static uint64_t object_at(const unsigned char *at) { return (uint64_t)get32(at) << 32 | get32(at + 4); }

// The bytes of a request's structure and where its status lies; 0 where there is no such request.
static size_t shape(unsigned number, size_t *status) {
    size_t cards, free_status;
    version(&cards, status, &free_status);
    size_t list = ATTRIBUTES * cards;
    switch (number) {
        case 33: return *status = 24 + list + 20, 24 + list + 24;
        case 34: return *status = free_status, free_status + 8;
        case 42: return 40;
        case 51: return *status = 72, 80;
        case 53: return *status = 24, 32;
        case 65: return *status = 32, 40;
        case 66: return *status = 32, 40;
        case 68: return *status = 16 + list + 8, 16 + list + 16;
        case 72: return *status = 16, 24;
        case 73: return *status = 16, 24;
        case 78: return *status = 52, 56;
        default: return 0;
    }
}

static uint32_t answer(unsigned number, const unsigned char *payload, size_t status) {
    switch (number) {
        case 33: return map("map", "UVM_MAP_EXTERNAL_ALLOCATION", payload, object_at(payload + status - 8));
        case 34: return drop(get64(payload));
        case 42: return move("prefer", "UVM_SET_PREFERRED_LOCATION", payload);
        case 51: return move("prefetch", "UVM_MIGRATE", payload);
        case 53: return note("prefetch", "UVM_MIGRATE_RANGE_GROUP", "managed", 0, 0), OK;
        case 65: return add("reserve", "UVM_MAP_DYNAMIC_PARALLELISM_REGION", "reserved", NOWHERE, payload);
        case 66: return map("unmap", "UVM_UNMAP_EXTERNAL", payload, 0);
        case 68: return add("alloc", "UVM_ALLOC_SEMAPHORE_POOL", "host-pinned", HOST, payload);
        case 72: return range_at(get64(payload)) ? OK : INVALID_ADDRESS;
        case 73: return add("reserve", "UVM_CREATE_EXTERNAL_RANGE", "reserved", NOWHERE, payload);
        default: return map("map", "UVM_ALLOC_DEVICE_P2P", payload, object_at(payload + 44));
    }
}

int uvm_request(unsigned number, uint64_t argument) {
    static unsigned char payload[1 << 14];
    size_t status = 0, size = shape(number, &status);
    if (size == 0) return -EINVAL;
    if (!copy_in(payload, argument, size)) return -EFAULT;
    put32(payload + status, answer(number, payload, status));
    return copy_out(argument, payload, size) ? 0 : -EFAULT;
}
