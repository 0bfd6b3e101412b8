// Requests to NVIDIA's drivers by their real numbers and layouts (open-gpu-kernel-modules nv_escape.h, nvos.h, uvm_ioctl.h):
// our own declarations, so that no header of theirs is needed.
#ifndef NVIDIA_REQUESTS_H
#define NVIDIA_REQUESTS_H

#include "kernel_requests.h"

struct rm_alloc { uint32_t root, parent, object, class; uint64_t parameters, rights; uint32_t size, flags, status, pad; };
struct rm_alloc_short { uint32_t root, parent, object, class; uint64_t parameters; uint32_t size, status; };
struct rm_free { uint32_t root, parent, object, status; };
struct rm_dup { uint32_t root, parent, object, source_root, source, flags, status; };
struct transfer { uint32_t number, size; uint64_t pointer; };
struct memory { uint32_t owner, type, flags, width, height, pitch, attr, attr2, more[8]; uint64_t size, rest[7]; };
struct pages { uint32_t type, flags, attr, attr2; uint64_t descriptor, limit; uint32_t kind, tag; };
struct heap {
    uint32_t root, parent, function, space, ivc, status;
    uint64_t total, free;
    uint32_t owner, memory, type, flags, attr, format, covg[2], stride, width, height, pad;
    uint64_t size, rest[11];
};

#define REQUEST(number, type) (0xC0004600ul | (unsigned long)sizeof(type) << 16 | (number))
enum { ALLOC = 0x2B, FREE = 0x29, DUP = 0x34, HEAP = 0x4A, TRANSFER = 0xD3 };
enum { ROOT = 0x41, DEVICE = 0x80, SYSTEM = 0x3E, LOCAL = 0x40, PAGES = 0x71, VIRTUAL = 0x50A0 };

// What the driver of this version has: lists for 32 or 256 cards, a NUMA node before one status, a length before another.
struct uvm_driver { size_t cards; int has_node, has_length; };
static inline struct uvm_driver uvm_driver(void) {
    unsigned a = 595, b = 0, c = 0;
    const char *text = getenv("SIM_NVIDIA_VERSION");
    if (text) sscanf(text, "%u.%u.%u", &a, &b, &c);
    unsigned long number = a * 1000000ul + b * 1000 + c;
    return (struct uvm_driver){number < 550040053ul ? 32 : 256, number >= 550040007ul, number < 590044001ul};
}

struct uvm_range { uint64_t base, length; uint32_t status; };
struct uvm_free { uint64_t base; uint32_t status; };
struct uvm_free_old { uint64_t base, length; uint32_t status; };
struct uvm_on_card { uint64_t base, length; uint8_t uuid[16]; uint32_t status; };
struct uvm_p2p { uint64_t base, length, offset; uint8_t uuid[16]; int32_t fd; uint32_t client, memory, status; };
struct uvm_attributes { uint8_t uuid[16]; uint32_t rest[5]; };
struct uvm_map_32 {
    uint64_t base, length, offset;
    struct uvm_attributes list[32];
    uint64_t count;
    int32_t fd;
    uint32_t client, memory, status;
};
struct uvm_map_256 {
    uint64_t base, length, offset;
    struct uvm_attributes list[256];
    uint64_t count;
    int32_t fd;
    uint32_t client, memory, status;
};
struct uvm_pool_32 { uint64_t base, length; struct uvm_attributes list[32]; uint64_t count; uint32_t status; };
struct uvm_pool_256 { uint64_t base, length; struct uvm_attributes list[256]; uint64_t count; uint32_t status; };
struct uvm_prefer_old { uint64_t base, length; uint8_t uuid[16]; uint32_t status; };
struct uvm_prefer_new { uint64_t base, length; uint8_t uuid[16]; int32_t node; uint32_t status; };
struct uvm_migrate {
    uint64_t base, length;
    uint8_t uuid[16];
    uint32_t flags;
    uint64_t semaphore;
    uint32_t payload;
    int32_t node;
    uint64_t start, left;
    uint32_t status;
};
struct uvm_migrate_group { uint64_t group; uint8_t uuid[16]; uint32_t status; };

enum {
    UVM_MAP_EXTERNAL_ALLOCATION = 33,
    UVM_FREE = 34,
    UVM_SET_PREFERRED_LOCATION = 42,
    UVM_MIGRATE = 51,
    UVM_MIGRATE_RANGE_GROUP = 53,
    UVM_MAP_DYNAMIC_PARALLELISM_REGION = 65,
    UVM_UNMAP_EXTERNAL = 66,
    UVM_ALLOC_SEMAPHORE_POOL = 68,
    UVM_VALIDATE_VA_RANGE = 72,
    UVM_CREATE_EXTERNAL_RANGE = 73,
    UVM_ALLOC_DEVICE_P2P = 78,
};
#define UVM_INITIALIZE 0x30000001ul

#endif
