// The HSA functions that the programs of the zoo use: our own declarations, so that no ROCm header is needed. Agents,
// pools, regions, signals and handles are structures of one u64, passed like one.
#ifndef HSA_MIN_H
#define HSA_MIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MiB ((size_t)1 << 20)

enum { OUT_OF_RESOURCES = 0x1008 };
enum { INFO_DEVICE = 17, DEVICE_GPU = 1, INFO_MEMORY_AVAILABLE = 0xA015 };
enum { PREFERRED_LOCATION = 4, PREFETCH_LOCATION = 5, READ_WRITE = 3 };

typedef uint64_t agent, pool, region, sig, handle;
typedef int visit(uint64_t found, void *data);
typedef struct { uint64_t attribute, value; } attribute;
typedef struct { int permissions; agent who; } access_description;
typedef struct { uint32_t words[8]; } ipc_memory;
typedef struct { void *base; size_t pitch, slice; } pitched;
typedef struct { uint32_t x, y, z; } dim3;

int hsa_init(void);
int hsa_shut_down(void);
int hsa_status_string(int status, const char **text);
int hsa_iterate_agents(visit *visit, void *data);
int hsa_agent_get_info(agent a, int attribute, void *value);
int hsa_agent_iterate_regions(agent a, visit *visit, void *data);
int hsa_amd_agent_iterate_memory_pools(agent a, visit *visit, void *data);

int hsa_amd_memory_pool_allocate(pool p, size_t size, uint32_t flags, void **out);
int hsa_amd_memory_pool_free(void *pointer);
int hsa_memory_allocate(region r, size_t size, void **out);
int hsa_memory_free(void *pointer);
int hsa_amd_agents_allow_access(uint32_t count, const agent *agents, const uint32_t *flags, const void *pointer);
int hsa_amd_memory_lock(void *host, size_t size, agent *agents, int count, void **out);
int hsa_amd_memory_lock_to_pool(void *host, size_t size, agent *agents, int count, pool p, uint32_t flags, void **out);
int hsa_amd_memory_unlock(void *host);
int hsa_memory_register(void *host, size_t size);
int hsa_memory_deregister(void *host, size_t size);
int hsa_amd_svm_attributes_set(void *pointer, size_t size, attribute *list, size_t count);
int hsa_amd_svm_attributes_get(void *pointer, size_t size, attribute *list, size_t count);
int hsa_amd_svm_prefetch_async(void *pointer, size_t size, agent a, uint32_t count, const sig *after, sig done);

int hsa_amd_vmem_address_reserve(void **out, size_t size, uint64_t wanted, uint64_t flags);
int hsa_amd_vmem_address_reserve_align(void **out, size_t size, uint64_t wanted, uint64_t alignment, uint64_t flags);
int hsa_amd_vmem_address_free(void *pointer, size_t size);
int hsa_amd_vmem_handle_create(pool p, size_t size, int type, uint64_t flags, handle *out);
int hsa_amd_vmem_handle_release(handle h);
int hsa_amd_vmem_map(void *pointer, size_t size, size_t offset, handle h, uint64_t flags);
int hsa_amd_vmem_unmap(void *pointer, size_t size);
int hsa_amd_vmem_set_access(void *pointer, size_t size, const access_description *list, size_t count);
int hsa_amd_vmem_retain_alloc_handle(handle *out, void *pointer);
int hsa_amd_vmem_export_shareable_handle(int *file, handle h, uint64_t flags);
int hsa_amd_vmem_import_shareable_handle(int file, handle *out);

int hsa_amd_ipc_memory_create(void *pointer, size_t size, ipc_memory *out);
int hsa_amd_ipc_memory_attach(const ipc_memory *h, size_t size, uint32_t count, const agent *agents, void **out);
int hsa_amd_ipc_memory_detach(void *pointer);
int hsa_amd_portable_export_dmabuf(const void *pointer, size_t size, int *file, uint64_t *offset);
int hsa_amd_portable_export_dmabuf_v2(const void *pointer, size_t size, int *file, uint64_t *offset, uint64_t flags);
int hsa_amd_interop_map_buffer(uint32_t count, agent *agents, int file, uint32_t flags, size_t *size, void **out,
                               size_t *metadata_size, const void **metadata);
int hsa_amd_interop_map_buffer_with_size(uint32_t count, agent *agents, int file, uint32_t flags, size_t hint,
                                         size_t *size, void **out, size_t *metadata_size, const void **metadata);
int hsa_amd_interop_unmap_buffer(void *pointer);

int hsa_queue_create(agent a, uint32_t packets, uint32_t type, void (*callback)(int, void *, void *), void *data,
                     uint32_t private_size, uint32_t group_size, void **out);
int hsa_queue_destroy(void *queue);
int hsa_signal_create(int64_t value, uint32_t count, const agent *consumers, sig *out);
int hsa_signal_destroy(sig s);
int64_t hsa_signal_load_scacquire(sig s);
int hsa_memory_copy(void *to, const void *from, size_t size);
int hsa_amd_memory_fill(void *to, uint32_t value, size_t count);
int hsa_amd_memory_async_copy(void *to, agent to_agent, const void *from, agent from_agent, size_t size, uint32_t count,
                              const sig *after, sig done);
int hsa_amd_memory_async_copy_on_engine(void *to, agent to_agent, const void *from, agent from_agent, size_t size,
                                        uint32_t count, const sig *after, sig done, int engine, bool force);
int hsa_amd_memory_async_copy_rect(const pitched *to, const dim3 *to_offset, const pitched *from,
                                   const dim3 *from_offset, const dim3 *range, agent a, int direction, uint32_t count,
                                   const sig *after, sig done);
int hsa_amd_memory_async_batch_copy(const void *operations, uint32_t count, uint32_t after_count, const sig *after);

int hsa_executable_create_alt(int profile, int rounding, const char *options, handle *out);
int hsa_executable_destroy(handle executable);
int hsa_executable_freeze(handle executable, const char *options);
int hsa_code_object_reader_create_from_memory(const void *code, size_t size, handle *out);
int hsa_code_object_reader_create_from_file(int file, handle *out);
int hsa_code_object_reader_destroy(handle reader);
int hsa_executable_load_agent_code_object(handle executable, agent a, handle reader, const char *options, handle *loaded);
int hsa_executable_load_program_code_object(handle executable, handle reader, const char *options, handle *loaded);
int hsa_executable_load_code_object(handle executable, agent a, handle code, const char *options);

// Every call that must not fail.
#define MUST(call)                                                             \
    do {                                                                       \
        int status_ = (call);                                                  \
        if (status_ != 0) {                                                    \
            fprintf(stderr, "%s:%d: %#x from %s\n", __FILE__, __LINE__, (unsigned)status_, #call); \
            exit(70);                                                          \
        }                                                                      \
    } while (0)

// A call that must be refused: says how.
#define REFUSED(what, call)                                     \
    do {                                                        \
        int status_ = (call);                                   \
        if (status_ == 0) exit(71);                             \
        printf("%s: %#x\n", what, (unsigned)status_);           \
    } while (0)

#endif
