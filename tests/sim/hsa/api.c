// libhsa-runtime64.so.1: the exported functions. Signatures: ROCm/rocm-systems rocr-runtime inc/hsa.h,
// inc/hsa_ext_amd.h (7.x); those of virtual memory came with 6.1.
#include "front_end.h"
#include "roc.h"

// HSA has no last error; before hsa_init each function refuses.
#define HSA(name, parameters, call)                                  \
    EXPORT int name parameters {                                     \
        const char *enclosing = sim_enter(#name);                    \
        int status = roc_is_up() ? (call) : ROC_NOT_INITIALIZED;     \
        sim_leave(enclosing, SIM_SUCCESS);                           \
        return status;                                               \
    }

EXPORT int hsa_init(void) { return roc_init(); }
HSA(hsa_shut_down, (void), roc_shut_down())

typedef uint64_t agent, pool, handle, sig;

// The machine
HSA(hsa_iterate_agents, (roc_visit *v, void *d), roc_iterate_agents(v, d))
HSA(hsa_agent_get_info, (agent a, int attribute, void *value), roc_agent_get_info(a, attribute, value))
HSA(hsa_agent_iterate_regions, (agent a, roc_visit *v, void *d), roc_iterate_regions(a, v, d))
HSA(hsa_region_get_info, (handle r, int attribute, void *value), roc_region_get_info(r, attribute, value))
HSA(hsa_amd_agent_iterate_memory_pools, (agent a, roc_visit *v, void *d), roc_iterate_pools(a, v, d))
HSA(hsa_amd_memory_pool_get_info, (pool p, int attribute, void *value), roc_pool_get_info(p, attribute, value))

// Memory
HSA(hsa_amd_memory_pool_allocate, (pool p, size_t n, uint32_t f, void **out), roc_pool_allocate(p, n, out))
HSA(hsa_amd_memory_pool_free, (void *p), roc_free(p))
HSA(hsa_memory_allocate, (handle region, size_t n, void **out), roc_region_allocate(region, n, out))
HSA(hsa_memory_free, (void *p), roc_free(p))
HSA(hsa_amd_agents_allow_access, (uint32_t n, const agent *a, const uint32_t *f, const void *p),
    roc_allow_access(n, a, p))
HSA(hsa_amd_memory_lock, (void *host, size_t n, agent *a, int count, void **out), roc_lock(host, n, a, count, out))
HSA(hsa_amd_memory_lock_to_pool, (void *host, size_t n, agent *a, int count, pool p, uint32_t f, void **out),
    roc_lock_to_pool(host, n, a, count, p, out))
HSA(hsa_amd_memory_unlock, (void *host), roc_unlock(host))
HSA(hsa_memory_register, (void *host, size_t n), roc_register(host, n))
HSA(hsa_memory_deregister, (void *host, size_t n), roc_unlock(host))
HSA(hsa_amd_svm_attributes_set, (void *p, size_t n, struct roc_attribute *list, size_t count),
    roc_svm_set(p, n, list, count))
HSA(hsa_amd_svm_attributes_get, (void *p, size_t n, struct roc_attribute *list, size_t count),
    roc_svm_get(p, n, list, count))
HSA(hsa_amd_svm_prefetch_async, (void *p, size_t n, agent a, uint32_t count, const sig *after, sig done),
    roc_svm_prefetch(p, n, a, done))

// Virtual memory
HSA(hsa_amd_vmem_address_reserve, (void **out, size_t n, uint64_t wanted, uint64_t f), roc_reserve(out, n, 0))
HSA(hsa_amd_vmem_address_reserve_align, (void **out, size_t n, uint64_t wanted, uint64_t alignment, uint64_t f),
    roc_reserve(out, n, alignment))
HSA(hsa_amd_vmem_address_free, (void *p, size_t n), roc_unreserve(p, n))
HSA(hsa_amd_vmem_handle_create, (pool p, size_t n, int type, uint64_t f, handle *out), roc_create(p, n, type, out))
HSA(hsa_amd_vmem_handle_release, (handle h), roc_release(h))
HSA(hsa_amd_vmem_map, (void *p, size_t n, size_t offset, handle h, uint64_t f), roc_map(p, n, offset, h))
HSA(hsa_amd_vmem_unmap, (void *p, size_t n), roc_unmap(p, n))
HSA(hsa_amd_vmem_set_access, (void *p, size_t n, const struct roc_access *list, size_t count),
    roc_set_access(p, n, list, count))
HSA(hsa_amd_vmem_retain_alloc_handle, (handle *out, void *p), roc_retain(out, p))
HSA(hsa_amd_vmem_export_shareable_handle, (int *file, handle h, uint64_t f), sim_noted("export", (void *)h, roc_export(file, h)))
HSA(hsa_amd_vmem_import_shareable_handle, (int file, handle *out), roc_import(file, out))

// Memory of other processes and interfaces
HSA(hsa_amd_ipc_memory_create, (void *p, size_t n, struct roc_ipc *out), sim_noted("export", p, roc_ipc_create(p, n, out)))
HSA(hsa_amd_ipc_memory_attach, (const struct roc_ipc *h, size_t n, uint32_t count, const agent *a, void **out),
    roc_ipc_attach(h, n, out))
HSA(hsa_amd_ipc_memory_detach, (void *p), roc_ipc_detach(p))
HSA(hsa_amd_portable_export_dmabuf, (const void *p, size_t n, int *file, uint64_t *offset),
    sim_noted("export", p, roc_export_dmabuf(p, file, offset)))
HSA(hsa_amd_portable_export_dmabuf_v2, (const void *p, size_t n, int *file, uint64_t *offset, uint64_t flags),
    sim_noted("export", p, roc_export_dmabuf(p, file, offset)))
HSA(hsa_amd_interop_map_buffer,
    (uint32_t count, agent *a, int file, uint32_t f, size_t *n, void **out, size_t *extra, const void **data),
    roc_interop_map(count, a, file, n, out))
HSA(hsa_amd_interop_map_buffer_with_size,
    (uint32_t count, agent *a, int file, uint32_t f, size_t hint, size_t *n, void **out, size_t *extra,
     const void **data),
    roc_interop_map(count, a, file, n, out))
HSA(hsa_amd_interop_unmap_buffer, (void *p), roc_ipc_detach(p))

// Queues, signals, copies
HSA(hsa_queue_create,
    (agent a, uint32_t packets, uint32_t type, void (*callback)(int, void *, void *), void *data, uint32_t private,
     uint32_t group, struct roc_queue **out),
    roc_queue_create(a, packets, out))
HSA(hsa_queue_destroy, (struct roc_queue *q), roc_queue_destroy(q))
HSA(hsa_signal_create, (int64_t value, uint32_t n, const agent *consumers, sig *out), roc_signal_create(value, out))
HSA(hsa_signal_destroy, (sig s), roc_signal_destroy(s))
EXPORT int64_t hsa_signal_load_scacquire(sig s) { return __atomic_load_n((int64_t *)s, __ATOMIC_ACQUIRE); }
HSA(hsa_memory_copy, (void *to, const void *from, size_t n), roc_async_copy(to, from, n, 0))
HSA(hsa_amd_memory_fill, (void *to, uint32_t value, size_t count),
    roc_status(sim_MemsetPattern(to, &value, sizeof value, count), ROC_INVALID_ARGUMENT))
HSA(hsa_amd_memory_async_copy,
    (void *to, agent to_agent, const void *from, agent from_agent, size_t n, uint32_t count, const sig *after,
     sig done),
    roc_async_copy(to, from, n, done))
HSA(hsa_amd_memory_async_copy_on_engine,
    (void *to, agent to_agent, const void *from, agent from_agent, size_t n, uint32_t count, const sig *after,
     sig done, int engine, bool force),
    roc_async_copy(to, from, n, done))
HSA(hsa_amd_memory_async_copy_rect,
    (const struct roc_rect *to, const sim_dim3 *to_offset, const struct roc_rect *from, const sim_dim3 *from_offset,
     const sim_dim3 *range, agent a, int direction, uint32_t count, const sig *after, sig done),
    roc_copy_rect(to, from, range, done))
HSA(hsa_amd_memory_async_batch_copy, (const void *operations, uint32_t n, uint32_t count, const sig *after),
    roc_batch_copy(operations, n))

// Code
HSA(hsa_executable_create_alt, (int profile, int rounding, const char *options, handle *out), roc_executable_create(out))
HSA(hsa_executable_destroy, (handle e), roc_executable_destroy(e))
HSA(hsa_executable_freeze, (handle e, const char *options), roc_executable_freeze(e))
HSA(hsa_code_object_reader_create_from_memory, (const void *code, size_t n, handle *out),
    roc_reader_of_memory(code, n, out))
HSA(hsa_code_object_reader_create_from_file, (int file, handle *out), roc_reader_of_file(file, out))
HSA(hsa_code_object_reader_destroy, (handle reader), roc_reader_destroy(reader))
HSA(hsa_executable_load_agent_code_object, (handle e, agent a, handle reader, const char *options, handle *loaded),
    roc_load(e, a, reader))
HSA(hsa_executable_load_program_code_object, (handle e, handle reader, const char *options, handle *loaded),
    roc_load_program(e, reader))
HSA(hsa_executable_load_code_object, (handle e, agent a, handle code, const char *options), roc_load(e, a, code))

static const struct { int status; const char *text; } texts[] = {
    {ROC_SUCCESS, "HSA_STATUS_SUCCESS: The function has been executed successfully."},
    {ROC_OUT_OF_RESOURCES, "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources."},
};

// Works before hsa_init, too.
EXPORT int hsa_status_string(int status, const char **text) {
    for (size_t i = 0; text && i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].status != status) continue;
        *text = texts[i].text;
        return ROC_SUCCESS;
    }
    return ROC_INVALID_ARGUMENT;
}

void sim_report_failure(void) {}
