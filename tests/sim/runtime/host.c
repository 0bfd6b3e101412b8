// Host memory: pinned memory of the library's own, and pages of the program that it pins.
#include <sys/mman.h>

#include "sim.h"

static struct sim_block *host_blocks;  // guarded by the device lock
static size_t host_bytes;              // likewise

static bool is_refused(size_t size) {
    size_t limit = sim_config()->limits.pinned;
    return limit && (size > limit || host_bytes > limit - size);
}

static struct sim_block **find(uintptr_t address, enum sim_kind kind) {
    struct sim_block **link = &host_blocks;
    while (*link && ((*link)->address != address || (*link)->kind != kind)) link = &(*link)->next;
    return link;
}

static struct sim_block *insert(uintptr_t address, size_t requested, size_t held, enum sim_kind kind) {
    struct sim_block *block = is_refused(held) ? NULL : sim_block_new();
    if (!block) return NULL;
    host_bytes += held;
    *block = (struct sim_block){.next = host_blocks, .address = address, .requested = requested, .held = held,
                                .kind = kind, .owner = sim_thread()->owner};
    return host_blocks = block;
}

struct sim_block *sim_host_find_containing(uintptr_t address) {
    for (struct sim_block *block = host_blocks; block; block = block->next)
        if (address - block->address < block->held) return block;
    return NULL;
}

static void forget(struct sim_block **link) {
    struct sim_block *block = *link;
    sim_log_block("free", block);
    *link = block->next;
    host_bytes -= block->held;
    if (block->kind == SIM_KIND_PINNED) munmap((void *)block->address, block->held);
    sim_block_delete(block);
}

void sim_host_release_owned(const void *owner) {
    for (struct sim_block **link = &host_blocks; *link;) {
        if ((*link)->owner == owner) forget(link);
        else link = &(*link)->next;
    }
}

static struct sim_block *pin_new_pages(size_t size) {
    size_t held = sim_round_up(size, 4096);
    void *pages = mmap(NULL, held, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    struct sim_block *block = insert((uintptr_t)pages, size, held, SIM_KIND_PINNED);
    if (!block) munmap(pages, held);
    return block;
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
    struct sim_block **link = find((uintptr_t)pointer, SIM_KIND_PINNED);
    bool known = *link;
    if (known) forget(link);
    sim_unlock(&saved);
    return known ? SIM_SUCCESS : SIM_INVALID_VALUE;
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
    struct sim_block **link = find((uintptr_t)pointer, SIM_KIND_REGISTERED);
    bool known = *link;
    if (known) forget(link);
    sim_unlock(&saved);
    return known ? SIM_SUCCESS : SIM_NOT_REGISTERED;
}

int sim_HostGetDevicePointer(void **device, void *host, unsigned flags) {
    (void)flags;
    if (!device || !host) return SIM_INVALID_VALUE;
    *device = host;  // one address space
    return SIM_SUCCESS;
}
