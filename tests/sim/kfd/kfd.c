// /dev/kfd, after Linux include/uapi/linux/kfd_ioctl.h.
#include <errno.h>
#include <string.h>

#include "kernel.h"

enum { AQL_QUEUE_MEM = 1 << 27 };
#define BLOCK ((uint64_t)2 << 20)

static struct piece memory[SIM_MAX_OBJECTS], queues[SIM_MAX_OBJECTS];

uint32_t kfd_gpu_id(int card) { return 0x5A00u + (uint32_t)card * 0x111u; }

static int card_of(uint32_t gpu_id) {
    for (int card = 0; card < settings()->cards; card++) {
        if (kfd_gpu_id(card) == gpu_id) return card;
    }
    return -1;
}

static struct piece *find(struct piece *table, uint64_t key) {
    for (int i = 0; i < SIM_MAX_OBJECTS; i++) {
        if (table[i].lives && table[i].key == key) return &table[i];
    }
    return NULL;
}

struct piece *kfd_memory(uint64_t handle) { return find(memory, handle); }

static bool was_asked;

bool kfd_counts(int card, uint64_t *bytes) {
    *bytes = 0;
    for (int i = 0; i < SIM_MAX_OBJECTS; i++) {
        if (memory[i].lives && memory[i].place == DEVICE && memory[i].card == card) *bytes += memory[i].held;
    }
    return was_asked;
}

static int add(struct line *line, enum place place, uint64_t held, unsigned char *handle_at) {
    int index = 0;
    struct piece *piece = piece_new(memory, 0, place, line->card, held, &index);
    if (!piece) {
        line->event = "failed";
        line->status = ENOMEM;
        log_line(line);
        return -ENOMEM;
    }
    piece->key = (uint64_t)kfd_gpu_id(line->card) << 32 | (uint32_t)index;
    put64(handle_at, piece->key);
    line->address = piece->key;
    line->held = held;
    log_line(line);
    return 0;
}

// Counts the memory by where it is, and writes the log's line.
static int account(unsigned char *payload) {
    uint64_t size = get64(payload + 8);
    uint32_t flags = get32(payload + 36);
    int card = card_of(get32(payload + 32));
    if (card < 0 || size == 0 || size > (uint64_t)1 << 47) return -EINVAL;
    struct line line = {"alloc", "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", "device", card, 0, size, 0, 0};
    uint64_t storage = flags & AQL_QUEUE_MEM ? size / 2 : size;
    if (flags & MEMORY_VRAM) return add(&line, DEVICE, (storage + BLOCK - 1) / BLOCK * BLOCK, payload + 16);
    line.kind = "host-pinned";
    if (flags & MEMORY_GTT) return add(&line, HOST, storage, payload + 16);
    line.kind = "registered";
    if (flags & MEMORY_USERPTR) return add(&line, REGISTERED, storage, payload + 16);
    line.event = "registers";
    return flags & (MEMORY_DOORBELL | MEMORY_MMIO) ? add(&line, NOWHERE, 0, payload + 16) : -EINVAL;
}

static int alloc(unsigned char *payload) {
    int result = account(payload);
    if (result != 0) return result;
    struct piece *piece = find(memory, get64(payload + 16));
    piece->size = get64(payload + 8);
    piece->offset = behind_memory(piece->size, get32(payload + 36), get64(payload), get64(payload + 24));
    put64(payload + 24, piece->offset);
    return 0;
}

static int free_memory(unsigned char *payload) {
    struct piece *piece = find(memory, get64(payload));
    if (!piece) return -EINVAL;
    struct line line = {"free", "AMDKFD_IOC_FREE_MEMORY_OF_GPU", "device", piece->card, piece->key, 0, piece->held, 0};
    behind_free(piece);
    piece_drop(piece);
    log_line(&line);
    return 0;
}

static int import(const char *api, uint32_t gpu_id, unsigned char *handle_at) {
    struct line line = {"import", api, "imported", card_of(gpu_id), 0, 0, 0, 0};
    return line.card < 0 ? -EINVAL : add(&line, NOWHERE, 0, handle_at);
}

// {u64 address, u64 handle, u32 card, u32 descriptor}
static int import_dmabuf(unsigned char *payload) {
    int result = import("AMDKFD_IOC_IMPORT_DMABUF", get32(payload + 16), payload + 8);
    if (result == 0) find(memory, get64(payload + 8))->offset = behind_import_at((int)get32(payload + 20), get64(payload));
    return result;
}

// The size of the request must be that of the attributes; locations are logged.
static int svm(size_t size, unsigned char *payload) {
    uint32_t operation = get32(payload + 16), count = get32(payload + 20);
    if (count > 1000 || size != 24 + 8 * (size_t)count) return -EINVAL;
    if (operation != 0) return 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t type = get32(payload + 24 + 8 * i), location = get32(payload + 28 + 8 * i);
        if (type > 1) continue;
        const char *event = type == 1 ? "prefetch" : "prefer";
        log_line(&(struct line){event, "AMDKFD_IOC_SVM", "managed", card_of(location), get64(payload), get64(payload + 8), 0, 0});
    }
    return 0;
}

static int create_queue(unsigned char *payload) {
    int index = 0, card = card_of(get32(payload + 36));
    if (card < 0) return -EINVAL;
    struct piece *queue = piece_new(queues, 0, NOWHERE, card, 0, &index);
    if (!queue) return -ENOMEM;
    queue->key = (uint64_t)index;
    put32(payload + 52, (uint32_t)index);
    int result = behind_queue(payload, index);
    if (result != 0) return piece_drop(queue), result;
    log_line(&(struct line){"create_queue", "AMDKFD_IOC_CREATE_QUEUE", "queue", card, queue->key, get32(payload + 32), 0, 0});
    return 0;
}

static int destroy_queue(unsigned char *payload) {
    struct piece *queue = find(queues, get32(payload));
    if (!queue) return -EINVAL;
    log_line(&(struct line){"destroy_queue", "AMDKFD_IOC_DESTROY_QUEUE", "queue", queue->card, queue->key, 0, 0, 0});
    behind_queue_gone((int)queue->key);
    piece_drop(queue);
    return 0;
}

// The cards lie in an array of the caller's; each must be there.
static int map(const char *event, const char *api, unsigned char *payload) {
    struct piece *piece = find(memory, get64(payload));
    uint32_t ids[SIM_MAX_CARDS], count = get32(payload + 16);
    if (!piece || count == 0 || count > SIM_MAX_CARDS) return -EINVAL;
    if (!copy_in(ids, get64(payload + 8), count * sizeof *ids)) return -EFAULT;
    for (uint32_t i = 0; i < count; i++) {
        if (card_of(ids[i]) < 0) return -EINVAL;
    }
    put32(payload + 20, count);
    log_line(&(struct line){event, api, "device", piece->card, piece->key, 0, piece->held, 0});
    return 0;
}

static int scratch(unsigned char *payload) {
    int card = card_of(get32(payload + 8));
    if (card < 0) return -EINVAL;
    log_line(&(struct line){"scratch", "AMDKFD_IOC_SET_SCRATCH_BACKING_VA", "scratch", card, get64(payload), 0, 0, 0});
    return 0;
}

static int available(unsigned char *payload) {
    int card = card_of(get32(payload + 8));
    if (card < 0) return -EINVAL;
    put64(payload, settings()->capacity - device_used(card));
    return 0;
}

int kfd_request(unsigned number, size_t size, unsigned char *payload) {
    was_asked = true;
    switch (number) {
        case 0x01: put32(payload, 1); put32(payload + 4, 17); return 0;
        case 0x02: return create_queue(payload);
        case 0x03: return destroy_queue(payload);
        case 0x11: return scratch(payload);
        case 0x15: return card_of(get32(payload + 4)) < 0 ? -EINVAL : 0;
        case 0x16: return alloc(payload);
        case 0x17: return free_memory(payload);
        case 0x18: return map("map", "AMDKFD_IOC_MAP_MEMORY_TO_GPU", payload);
        case 0x19: return map("unmap", "AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU", payload);
        case 0x1D: return import_dmabuf(payload);
        case 0x20: return svm(size, payload);
        case 0x23: return available(payload);
        case 0x80: return import("AMDKFD_IOC_IPC_IMPORT_HANDLE", get32(payload + 40), payload);
        default: return behind_kfd(number, size, payload);
    }
}
