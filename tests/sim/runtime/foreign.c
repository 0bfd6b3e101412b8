// Memory that somebody else holds: other processes' (IPC handles, exported VMM handles) and other interfaces' (external
// memory). Nothing is charged for it here. It has pages of its own, so what the owner writes is not seen.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"

// What travels between processes, in an IPC handle or in a file
struct ticket {
    char magic[8];
    int process, device;
    uint64_t address, size;
};
static const char magic[8] = "SIMIPC\1";

static struct sim_block *imports;  // guarded by the lock

struct sim_block *sim_foreign_find_containing(uintptr_t address) {
    for (struct sim_block *block = imports; block; block = block->next)
        if (address - block->address < block->held) return block;
    return NULL;
}

static int import(void **pointer, int device, size_t size) {
    size_t held = sim_round_up(size, 4096);
    void *pages = mmap(NULL, held, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return SIM_OUT_OF_MEMORY;
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *block = sim_block_new();
    if (block) {
        *block = (struct sim_block){.next = imports, .address = (uintptr_t)pages, .requested = size, .held = held,
                                    .kind = SIM_KIND_IMPORTED, .device = device};
        imports = block;
        sim_log_block("import", block);
        *pointer = pages;
    }
    sim_unlock(&saved);
    return block ? SIM_SUCCESS : SIM_OUT_OF_MEMORY;
}

static int forget(void *pointer) {
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block **link = &imports;
    while (*link && (*link)->address != (uintptr_t)pointer) link = &(*link)->next;
    struct sim_block *block = *link;
    if (block) {
        *link = block->next;
        sim_log_block("close", block);
        munmap(pointer, block->held);
        sim_block_delete(block);
    }
    sim_unlock(&saved);
    return block ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

static void remember_export(uintptr_t address) {
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *block = sim_device_find_containing(address);
    if (block) block->exported = 1;
    sim_unlock(&saved);
}

int sim_IpcGetMemHandle(sim_ipc_handle *handle, void *pointer) {
    void *base;
    struct ticket ticket = {.process = (int)getpid(), .device = sim_thread()->device};
    if (!handle || sim_MemGetAddressRange(&base, &ticket.size, pointer) != SIM_SUCCESS) return SIM_INVALID_VALUE;
    ticket.address = (uint64_t)base;
    memcpy(ticket.magic, magic, sizeof magic);
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &ticket, sizeof ticket);
    remember_export((uintptr_t)base);
    return SIM_SUCCESS;
}

int sim_IpcOpenMemHandle(void **pointer, const sim_ipc_handle *handle) {
    struct ticket ticket;
    memcpy(&ticket, handle, sizeof ticket);
    if (!pointer || memcmp(ticket.magic, magic, sizeof magic) != 0) return SIM_INVALID_VALUE;
    // A process cannot open what it has exported itself.
    if (ticket.process == (int)getpid()) return SIM_INVALID_CONTEXT;
    return import(pointer, ticket.device, ticket.size);
}

int sim_IpcCloseMemHandle(void *pointer) { return forget(pointer); }

enum { FILE_DESCRIPTOR = 1 };

static int write_ticket(int *out, struct ticket *ticket) {
    memcpy(ticket->magic, magic, sizeof magic);
    int file = memfd_create("simulated device memory", MFD_CLOEXEC);
    if (file < 0) return SIM_OUT_OF_MEMORY;
    if (pwrite(file, ticket, sizeof *ticket, 0) != sizeof *ticket) {
        close(file);
        return SIM_OUT_OF_MEMORY;
    }
    *out = file;
    return SIM_SUCCESS;
}

static int read_ticket(struct ticket *ticket, int file) {
    if (pread(file, ticket, sizeof *ticket, 0) != sizeof *ticket) return SIM_INVALID_VALUE;
    return memcmp(ticket->magic, magic, sizeof magic) == 0 ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

int sim_MemExportToShareableHandle(void *out, void *handle, int type) {
    sim_allocation_properties properties;
    if (!out || sim_MemGetAllocationPropertiesFromHandle(&properties, handle) != SIM_SUCCESS) return SIM_INVALID_VALUE;
    if (type != FILE_DESCRIPTOR) return SIM_NOT_SUPPORTED;
    struct ticket ticket = {.process = (int)getpid(), .device = properties.location.id, .address = (uint64_t)handle,
                            .size = ((struct sim_block *)handle)->requested};
    return write_ticket(out, &ticket);
}

// The ticket stands for the pool as a whole; it has no memory of its own.
int sim_MemPoolExportToShareableHandle(void *out, void *pool, int type) {
    int device = sim_pool_device(pool);
    if (!out || device < 0) return SIM_INVALID_VALUE;
    if (type != FILE_DESCRIPTOR) return SIM_NOT_SUPPORTED;
    struct ticket ticket = {.process = (int)getpid(), .device = device, .address = (uint64_t)pool};
    return write_ticket(out, &ticket);
}

int sim_MemPoolExportPointer(void *data, void *pointer) {
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *block = sim_device_find((uintptr_t)pointer);
    bool is_pools = block && block->pool;
    sim_unlock(&saved);
    return is_pools ? sim_IpcGetMemHandle(data, pointer) : SIM_INVALID_VALUE;
}

int sim_export_memory(int *file, void *pointer) {
    void *base;
    struct ticket ticket = {.process = (int)getpid(), .device = sim_thread()->device};
    if (!file || sim_MemGetAddressRange(&base, &ticket.size, pointer) != SIM_SUCCESS) return SIM_INVALID_VALUE;
    ticket.address = (uint64_t)base;
    return write_ticket(file, &ticket);
}

int sim_MemImportFromShareableHandle(void **handle, void *os_handle, int type) {
    struct ticket ticket;
    if (!handle) return SIM_INVALID_VALUE;
    if (type != FILE_DESCRIPTOR) return SIM_NOT_SUPPORTED;
    if (read_ticket(&ticket, (int)(intptr_t)os_handle) != SIM_SUCCESS) return SIM_INVALID_VALUE;
    return sim_vmm_import(handle, ticket.device, ticket.size);
}

int sim_map_file(void **pointer, size_t *size, int file) {
    struct ticket ticket;
    if (!pointer || !size || read_ticket(&ticket, file) != SIM_SUCCESS) return SIM_INVALID_VALUE;
    *size = ticket.size;
    return import(pointer, ticket.device, ticket.size);
}

// External memory: the handle knows no more than its size.

int sim_ImportExternalMemory(void **memory, const struct external_memory_description *description) {
    if (!memory || !description || !description->size) return SIM_INVALID_VALUE;
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *object = sim_block_new();
    if (object) {
        *object = (struct sim_block){.address = (uintptr_t)object, .requested = description->size,
                                     .kind = SIM_KIND_IMPORTED, .device = sim_thread()->device};
        sim_log_block("import", object);
        *memory = object;
    }
    sim_unlock(&saved);
    return object ? SIM_SUCCESS : SIM_OUT_OF_MEMORY;
}

int sim_ExternalMemoryGetMappedBuffer(void **pointer, void *memory, const struct external_buffer_description *buffer) {
    const struct sim_block *object = memory;
    if (!pointer || !object || !buffer) return SIM_INVALID_VALUE;
    bool inside = buffer->size <= object->requested && buffer->offset <= object->requested - buffer->size;
    return inside ? import(pointer, object->device, buffer->size) : SIM_INVALID_VALUE;
}

int sim_DestroyExternalMemory(void *memory) {
    if (!memory) return SIM_INVALID_HANDLE;
    sigset_t saved;
    sim_lock(&saved);
    sim_log_block("close", memory);
    sim_block_delete(memory);
    sim_unlock(&saved);
    return SIM_SUCCESS;
}
