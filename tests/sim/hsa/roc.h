// ROCr (libhsa-runtime64.so.1) over the device model of ../runtime: what its parts know of each other.
//
// `roc_X` is the body of `hsa_X` or `hsa_amd_X` and answers HSA's status codes; the model's own are translated by
// `roc_status`. Agents, pools, regions, handles and signals are structures of one u64, passed like one.
#ifndef ROC_H
#define ROC_H

#include "sim.h"

// hsa.h, hsa_ext_amd.h
enum {
    ROC_SUCCESS = 0,
    ROC_BREAK = 1,
    ROC_INVALID_POOL = 40,
    ROC_NOT_SUPPORTED = 47,
    ROC_ERROR = 0x1000,
    ROC_INVALID_ARGUMENT = 0x1001,
    ROC_INVALID_ALLOCATION = 0x1003,
    ROC_INVALID_AGENT = 0x1004,
    ROC_INVALID_REGION = 0x1005,
    ROC_INVALID_SIGNAL = 0x1006,
    ROC_INVALID_QUEUE = 0x1007,
    ROC_OUT_OF_RESOURCES = 0x1008,
    ROC_RESOURCE_FREE = 0x100A,
    ROC_NOT_INITIALIZED = 0x100B,
    ROC_INVALID_CODE_OBJECT = 0x1010,
    ROC_INVALID_EXECUTABLE = 0x1011,
    ROC_FROZEN_EXECUTABLE = 0x1012,
    ROC_INVALID_READER = 0x1021,
};

// What an agent, its pool and its region stand for.
struct holder { bool is_gpu; int device; };

typedef int roc_visit(uint64_t handle, void *data);
struct roc_access { int permissions; uint64_t agent; };
struct roc_attribute { uint64_t attribute, value; };
struct roc_ipc { uint32_t words[8]; };
struct roc_rect { void *base; size_t pitch, slice; };  // hsa_pitched_ptr_t
struct roc_queue {  // hsa_queue_t
    uint32_t type, features;
    void *base;
    uint64_t doorbell;
    uint32_t size, reserved;
    uint64_t id;
};

int roc_status(int status, int otherwise);  // of the model; `otherwise` for what is no lack of memory

// agents.c
bool roc_is_up(void);
int roc_init(void);
int roc_shut_down(void);
const struct holder *roc_agent(uint64_t agent);    // null where there is no such one
const struct holder *roc_pool(uint64_t pool);      // likewise
const struct holder *roc_region(uint64_t region);  // likewise
int roc_iterate_agents(roc_visit *visit, void *data);
int roc_iterate_pools(uint64_t agent, roc_visit *visit, void *data);
int roc_iterate_regions(uint64_t agent, roc_visit *visit, void *data);
int roc_agent_get_info(uint64_t agent, int attribute, void *value);
int roc_pool_get_info(uint64_t pool, int attribute, void *value);
int roc_region_get_info(uint64_t region, int attribute, void *value);

// memory.c
int roc_pool_allocate(uint64_t pool, size_t size, void **pointer);
int roc_region_allocate(uint64_t region, size_t size, void **pointer);
int roc_free(void *pointer);
int roc_allow_access(uint32_t count, const uint64_t *agents, const void *pointer);
int roc_lock(void *host, size_t size, const uint64_t *agents, int count, void **pointer);
int roc_lock_to_pool(void *host, size_t size, const uint64_t *agents, int count, uint64_t pool, void **pointer);
int roc_unlock(void *host);
int roc_register(void *host, size_t size);
int roc_svm_set(void *pointer, size_t size, const struct roc_attribute *list, size_t count);
int roc_svm_get(void *pointer, size_t size, struct roc_attribute *list, size_t count);
int roc_svm_prefetch(void *pointer, size_t size, uint64_t agent, uint64_t signal);

// vmem.c
int roc_reserve(void **pointer, size_t size, uint64_t alignment);
int roc_unreserve(void *pointer, size_t size);
int roc_create(uint64_t pool, size_t size, int type, uint64_t *handle);
int roc_release(uint64_t handle);
int roc_map(void *pointer, size_t size, size_t offset, uint64_t handle);
int roc_unmap(void *pointer, size_t size);
int roc_set_access(void *pointer, size_t size, const struct roc_access *access, size_t count);
int roc_retain(uint64_t *handle, void *pointer);
int roc_export(int *file, uint64_t handle);
int roc_import(int file, uint64_t *handle);
int roc_ipc_create(void *pointer, size_t size, struct roc_ipc *handle);
int roc_ipc_attach(const struct roc_ipc *handle, size_t size, void **pointer);
int roc_ipc_detach(void *pointer);
int roc_interop_map(uint32_t count, const uint64_t *agents, int file, size_t *size, void **pointer);
int roc_export_dmabuf(const void *pointer, int *file, uint64_t *offset);

// queue.c
int roc_queue_create(uint64_t agent, uint32_t packets, struct roc_queue **queue);
int roc_queue_destroy(struct roc_queue *queue);
int roc_signal_create(int64_t value, uint64_t *signal);
int roc_signal_destroy(uint64_t signal);
void roc_signal_subtract(uint64_t signal);
int roc_async_copy(void *to, const void *from, size_t size, uint64_t signal);
int roc_copy_rect(const struct roc_rect *to, const struct roc_rect *from, const sim_dim3 *range, uint64_t signal);
int roc_batch_copy(const void *operations, uint32_t count);

// code.c
int roc_executable_create(uint64_t *executable);
int roc_executable_destroy(uint64_t executable);
int roc_executable_freeze(uint64_t executable);
int roc_reader_of_memory(const void *code, size_t size, uint64_t *reader);
int roc_reader_of_file(int file, uint64_t *reader);
int roc_reader_destroy(uint64_t reader);
int roc_load(uint64_t executable, uint64_t agent, uint64_t reader);
int roc_load_program(uint64_t executable, uint64_t reader);

#endif
