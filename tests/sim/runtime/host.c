// Host memory: pinned memory of the library's own, and pages of the program that it pins.
#include <sys/mman.h>

#include "sim.h"

static struct sim_block *host_blocks;  // guarded by the device lock

static struct sim_block **find(uintptr_t address, enum sim_kind kind) {
    struct sim_block **link = &host_blocks;
    while (*link && ((*link)->address != address || (*link)->kind != kind)) link = &(*link)->next;
    return link;
}

static struct sim_block *insert(uintptr_t address, size_t requested, size_t held, enum sim_kind kind) {
    struct sim_block *block = sim_block_new();
    if (!block) return NULL;
    *block = (struct sim_block){.next = host_blocks, .address = address, .requested = requested, .held = held,
                                .kind = kind};
    return host_blocks = block;
}

static struct sim_block *pin_new_pages(size_t size) {
    size_t held = sim_round_up(size, 4096);
    void *pages = mmap(NULL, held, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pages == MAP_FAILED ? NULL : insert((uintptr_t)pages, size, held, SIM_KIND_PINNED);
}

int sim_HostMalloc(void **pointer, size_t size, unsigned flags) {
    (void)flags;
    if (!pointer) return SIM_INVALID_VALUE;
    if (size == 0) {
        *pointer = NULL;
        return SIM_SUCCESS;
    }
    struct sim_attempt attempt = {.kind = SIM_KIND_PINNED, .device = sim_thread()->device, .requested = size};
    int status = sim_attempt_begin(&attempt);
    return sim_attempt_end(&attempt, status, status == SIM_SUCCESS ? pin_new_pages(size) : NULL, pointer);
}

int sim_HostFree(void *pointer) {
    if (!pointer) return SIM_SUCCESS;
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block **link = find((uintptr_t)pointer, SIM_KIND_PINNED), *block = *link;
    if (block) {
        sim_log_block("free", block);
        *link = block->next;
        munmap(pointer, block->held);
        sim_block_delete(block);
    }
    sim_unlock(&saved);
    return block ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

int sim_HostRegister(void *pointer, size_t size, unsigned flags) {
    (void)flags;
    if (!pointer || size == 0) return SIM_INVALID_VALUE;
    struct sim_attempt attempt = {.kind = SIM_KIND_REGISTERED, .device = sim_thread()->device, .requested = size};
    int status = sim_attempt_begin(&attempt);
    if (status == SIM_SUCCESS && *find((uintptr_t)pointer, SIM_KIND_REGISTERED)) status = SIM_ALREADY_REGISTERED;
    struct sim_block *block =
        status == SIM_SUCCESS ? insert((uintptr_t)pointer, size, size, SIM_KIND_REGISTERED) : NULL;
    void *same;
    return sim_attempt_end(&attempt, status, block, &same);
}

int sim_HostUnregister(void *pointer) {
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block **link = find((uintptr_t)pointer, SIM_KIND_REGISTERED), *block = *link;
    if (block) {
        sim_log_block("free", block);
        *link = block->next;
        sim_block_delete(block);
    }
    sim_unlock(&saved);
    return block ? SIM_SUCCESS : SIM_NOT_REGISTERED;
}

int sim_HostGetDevicePointer(void **device, void *host, unsigned flags) {
    (void)flags;
    if (!device || !host) return SIM_INVALID_VALUE;
    *device = host;  // one address space
    return SIM_SUCCESS;
}
