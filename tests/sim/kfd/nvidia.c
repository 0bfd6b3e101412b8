// NVIDIA's resource manager, after open-gpu-kernel-modules nv_escape.h and nvos.h: clients, devices, memory. The status is
// in the payload, the request itself succeeds.
#include <errno.h>
#include <string.h>

#include "kernel.h"

enum { OK = 0, NO_MEMORY = 0x51, INVALID = 0x1F };
enum { ROOT = 0x41, DEVICE_CLASS = 0x80, SYSTEM = 0x3E, LOCAL = 0x40, OS_DESCRIPTOR = 0x71, VIRTUAL = 0x50A0 };
#define GRANULE ((uint64_t)64 << 10)

static struct piece objects[SIM_MAX_OBJECTS];

static uint64_t key(uint32_t root, uint32_t handle) { return (uint64_t)root << 32 | handle; }

static struct piece *find(uint64_t key) {
    for (int i = 0; i < SIM_MAX_OBJECTS; i++) {
        if (objects[i].lives && objects[i].key == key) return &objects[i];
    }
    return NULL;
}

bool nvidia_has(uint64_t key) { return find(key) != NULL; }

// Makes an object; a handle of 0 asks for one.
static uint32_t make(const char *api, uint32_t class, uint32_t root, uint32_t parent, uint32_t *handle, uint64_t *size, uint32_t attr) {
    static uint32_t next = 0xCAF00000;
    bool local = class == LOCAL && (attr >> 25 & 3) != 1;
    enum place place = local ? DEVICE : class == OS_DESCRIPTOR ? REGISTERED : class == LOCAL || class == SYSTEM ? HOST : NOWHERE;
    const char *kinds[] = {"device", "host-pinned", "registered", "reserved"};
    struct line line = {class == VIRTUAL ? "reserve" : "alloc", api, kinds[place], 0, 0, 0, 0, OK};
    struct piece *above = find(key(root, parent));
    if (class != ROOT && !above) return INVALID;
    int index = 0;
    uint64_t held = class == OS_DESCRIPTOR ? *size : (*size + GRANULE - 1) / GRANULE * GRANULE;
    line.card = class == DEVICE_CLASS ? (int)attr : above ? above->card : 0;
    struct piece *piece = piece_new(objects, 0, place, line.card, held, &index);
    if (!piece) {
        line.event = "failed";
        line.requested = *size;
        line.status = NO_MEMORY;
        log_line(&line);
        return NO_MEMORY;
    }
    if (*handle == 0) *handle = ++next;
    piece->key = key(class == ROOT ? *handle : root, *handle);
    piece->parent = class == ROOT ? 0 : key(root, parent);
    line.address = piece->key;
    line.requested = line.held = *size = held;
    if (class != ROOT && class != DEVICE_CLASS) log_line(&line);
    return OK;
}

static uint32_t rm_alloc(unsigned char *payload) {
    uint32_t root = get32(payload), parent = get32(payload + 4), handle = get32(payload + 8), class = get32(payload + 12);
    uint64_t parameters_at = get64(payload + 16), size = 0;
    unsigned char parameters[128] = {0};
    bool is_memory = class == SYSTEM || class == LOCAL || class == VIRTUAL;
    if (is_memory || class == OS_DESCRIPTOR || class == DEVICE_CLASS) {
        if (!copy_in(parameters, parameters_at, is_memory ? 128 : class == DEVICE_CLASS ? 4 : 40)) return INVALID;
        size = is_memory ? get64(parameters + 64) : class == OS_DESCRIPTOR ? get64(parameters + 24) + 1 : 0;
    }
    uint32_t attr = class == DEVICE_CLASS ? get32(parameters) : is_memory ? get32(parameters + 24) : 0;
    uint32_t status = make("NV_ESC_RM_ALLOC", class, root, parent, &handle, &size, attr);
    if (status != OK) return status;
    put32(payload + 8, handle);
    if (class == ROOT) put32(payload, handle);
    put64(parameters + 64, size);
    if (is_memory && !copy_out(parameters_at, parameters, 128)) return INVALID;
    return OK;
}

// A second handle of an object, of this client or another: memory is there until the last handle of it is gone.
static uint32_t duplicate(unsigned char *payload) {
    static uint32_t next = 0xD0B00000;
    static uint64_t memories;
    uint32_t root = get32(payload), parent = get32(payload + 4), handle = get32(payload + 8);
    struct piece *source = find(key(get32(payload + 12), get32(payload + 16))), *above = find(key(root, parent));
    int index = 0;
    if (!source || !above || (handle && find(key(root, handle)))) return INVALID;
    struct piece *piece = piece_new(objects, 0, NOWHERE, above->card, 0, &index);
    if (!piece) return NO_MEMORY;
    if (handle == 0) handle = ++next;
    piece->key = key(root, handle);
    piece->parent = key(root, parent);
    if (source->memory == 0) source->memory = ++memories;
    piece->memory = source->memory;
    put32(payload + 8, handle);
    log_line(&(struct line){"import", "NV_ESC_RM_DUP_OBJECT", "imported", piece->card, piece->key, 0, 0, OK});
    return OK;
}

// Whoever else has the memory of a handle that goes has all of it then.
static void pass_on(struct piece *piece) {
    for (int i = 0; piece->memory && piece->place != NOWHERE && i < SIM_MAX_OBJECTS; i++) {
        struct piece *other = &objects[i];
        if (!other->lives || other == piece || other->memory != piece->memory) continue;
        other->place = piece->place;
        other->card = piece->card;
        other->held = piece->held;
        piece->place = NOWHERE;
        piece->held = 0;
    }
}

static uint32_t heap(unsigned char *payload) {
    uint32_t root = get32(payload), handle = get32(payload + 44);
    if (get32(payload + 8) == 2) {
        uint64_t size = get64(payload + 88);
        uint32_t status = make("NV_ESC_RM_VID_HEAP_CONTROL", LOCAL, root, get32(payload + 4), &handle, &size, get32(payload + 56));
        put32(payload + 44, handle);
        put64(payload + 88, size);
        return status;
    }
    struct piece *piece = get32(payload + 8) == 3 ? find(key(root, handle)) : NULL;
    if (!piece) return INVALID;
    log_line(&(struct line){"free", "NV_ESC_RM_VID_HEAP_CONTROL", "device", piece->card, piece->key, 0, piece->held, OK});
    pass_on(piece);
    piece_drop(piece);
    return OK;
}

// An object takes its children along; each is logged.
static void drop(struct piece *object, bool asked) {
    uint64_t gone = object->key;
    log_line(&(struct line){asked ? "free" : "goes along", "NV_ESC_RM_FREE", "device", object->card, gone, 0, object->held, OK});
    pass_on(object);
    piece_drop(object);
    for (int i = 0; i < SIM_MAX_OBJECTS; i++) {
        if (objects[i].lives && objects[i].parent == gone) drop(&objects[i], false);
    }
}

static uint32_t rm_free(unsigned char *payload) {
    struct piece *object = find(key(get32(payload), get32(payload + 8)));
    if (!object) return INVALID;
    drop(object, true);
    return OK;
}

int nvidia_request(unsigned number, size_t size, unsigned char *payload) {
    unsigned char inner[256] = {0};
    if (number == 0xD3) {
        uint64_t at = get64(payload + 8);
        size_t inner_size = get32(payload + 4);
        if (size != 16 || inner_size > sizeof inner || get32(payload) == 0xD3) return -EINVAL;
        if (!copy_in(inner, at, inner_size)) return -EFAULT;
        int result = nvidia_request(get32(payload), inner_size, inner);
        return copy_out(at, inner, inner_size) ? result : -EFAULT;
    }
    if (number == 0x2B && (size == 48 || size == 32)) return put32(payload + (size == 48 ? 40 : 28), rm_alloc(payload)), 0;
    if (number == 0x29 && size == 16) return put32(payload + 12, rm_free(payload)), 0;
    if (number == 0x34 && size == 28) return put32(payload + 24, duplicate(payload)), 0;
    if (number == 0x4A && size == 184) return put32(payload + 20, heap(payload)), 0;
    return -EINVAL;
}
