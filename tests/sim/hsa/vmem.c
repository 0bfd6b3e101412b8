// Virtual memory, and memory that travels between processes. A handle's memory lives until it is released and unmapped.
#include <string.h>

#include "roc.h"

enum { FILE_DESCRIPTOR = 1, ON_DEVICE = 1 };

int roc_reserve(void **pointer, size_t size, uint64_t alignment) {
    if (!pointer || !size) return ROC_INVALID_ARGUMENT;
    return roc_status(sim_MemAddressReserve(pointer, size, alignment, NULL, 0), ROC_INVALID_ARGUMENT);
}

int roc_unreserve(void *pointer, size_t size) {
    uintptr_t base;
    size_t mapped;
    sigset_t saved;
    sim_lock(&saved);
    bool in_use = sim_vmm_find_containing((uintptr_t)pointer, &base, &mapped);
    sim_unlock(&saved);
    return in_use ? ROC_RESOURCE_FREE : roc_status(sim_MemAddressFree(pointer, size), ROC_INVALID_ALLOCATION);
}

int roc_create(uint64_t pool, size_t size, int type, uint64_t *handle) {
    const struct holder *holder = roc_pool(pool);
    if (!holder) return ROC_INVALID_POOL;
    if (!handle || (type != 0 && type != 1)) return ROC_INVALID_ARGUMENT;
    if (!holder->is_gpu) return ROC_INVALID_ALLOCATION;
    sim_allocation_properties properties = {.location = {ON_DEVICE, holder->device}};
    return roc_status(sim_MemCreate((void **)handle, size, &properties, 0), ROC_INVALID_ARGUMENT);
}

int roc_release(uint64_t handle) { return roc_status(sim_MemRelease((void *)handle), ROC_INVALID_ALLOCATION); }

int roc_map(void *pointer, size_t size, size_t offset, uint64_t handle) {
    return roc_status(sim_MemMap(pointer, size, offset, (void *)handle, 0), ROC_INVALID_ARGUMENT);
}

int roc_unmap(void *pointer, size_t size) { return roc_status(sim_MemUnmap(pointer, size), ROC_INVALID_ALLOCATION); }

int roc_set_access(void *pointer, size_t size, const struct roc_access *access, size_t count) {
    for (size_t i = 0; access && i < count; i++)
        if (!roc_agent(access[i].agent)) return ROC_INVALID_AGENT;
    return roc_status(sim_MemSetAccess(pointer, size, access, count), ROC_INVALID_ARGUMENT);
}

int roc_retain(uint64_t *handle, void *pointer) {
    return roc_status(sim_MemRetainAllocationHandle((void **)handle, pointer), ROC_INVALID_ALLOCATION);
}

int roc_export(int *file, uint64_t handle) {
    int status = sim_MemExportToShareableHandle(file, (void *)handle, FILE_DESCRIPTOR);
    return roc_status(status, ROC_INVALID_ALLOCATION);
}

int roc_import(int file, uint64_t *handle) {
    int status = sim_MemImportFromShareableHandle((void **)handle, (void *)(intptr_t)file, FILE_DESCRIPTOR);
    return roc_status(status, ROC_INVALID_ALLOCATION);
}

// HSA's handle has room for just what the model writes into its own.
int roc_ipc_create(void *pointer, size_t size, struct roc_ipc *handle) {
    sim_ipc_handle whole;
    if (!handle || !size || sim_IpcGetMemHandle(&whole, pointer) != SIM_SUCCESS) return ROC_INVALID_ARGUMENT;
    memcpy(handle, &whole, sizeof *handle);
    return ROC_SUCCESS;
}

int roc_ipc_attach(const struct roc_ipc *handle, size_t size, void **pointer) {
    sim_ipc_handle whole = {0};
    if (!handle || !size) return ROC_INVALID_ARGUMENT;
    memcpy(&whole, handle, sizeof *handle);
    return roc_status(sim_IpcOpenMemHandle(pointer, &whole), ROC_INVALID_ARGUMENT);
}

int roc_ipc_detach(void *pointer) { return roc_status(sim_IpcCloseMemHandle(pointer), ROC_INVALID_ARGUMENT); }

int roc_interop_map(uint32_t count, const uint64_t *agents, int file, size_t *size, void **pointer) {
    if (!count || !agents) return ROC_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < count; i++)
        if (!roc_agent(agents[i])) return ROC_INVALID_AGENT;
    return roc_status(sim_map_file(pointer, size, file), ROC_INVALID_ARGUMENT);
}

int roc_export_dmabuf(const void *pointer, int *file, uint64_t *offset) {
    int status = roc_status(sim_export_memory(file, (void *)pointer), ROC_INVALID_ALLOCATION);
    if (status == ROC_SUCCESS && offset) *offset = 0;
    return status;
}
