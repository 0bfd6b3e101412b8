/* Internal interface of the simulated thunk: a libhsakmt.so.1 without a kernel driver.
 *
 * The real libhsa-runtime64 and libamdhip64 run on top of it. It owns a simulated card with a fixed
 * capacity, runs the queues the runtime creates, and writes what happens to memory to a log of its
 * own, which is the ground truth that a recorder in the same process is compared with.
 */
#ifndef GPUOOM_SIMTHUNK_H
#define GPUOOM_SIMTHUNK_H

#include "../engine/chips.h"
#include "../engine/engine.h"

#include <hsakmt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_CPU_NODE 0u
#define SIM_GPU_NODE 1u
#define SIM_NODE_COUNT 2u
#define SIM_PAGE_BYTES 4096ull
#define SIM_HUGE_PAGE_BYTES (2ull << 20)

struct settings {
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
    const struct chip *chip;
    const char *log_path;
};

/* settings.c: read once; returns false after one line on stderr when a value is not usable. */
bool settings_load(void);
extern struct settings sim;
uint64_t align_up(uint64_t bytes, uint64_t step_bytes);

/* log.c */
struct log_record {
    const char *op;
    const char *heap;
    const char *use;
    uint64_t handle;
    uint64_t address;
    uint64_t asked_bytes;
    uint64_t bytes;
    HSAKMT_STATUS status;
    uint64_t vram_bytes;
};
void log_open(void);
void log_write(const struct log_record *record);

/* ranges.c: address ranges ordered by start address. */
struct range {
    uint64_t start;
    uint64_t asked_bytes;
    uint64_t bytes; /* what the accounting charges for it */
    uint64_t handle;
    uint64_t gpu_start; /* where the GPU sees it */
    const char *heap;
    const char *use;
    HsaMemFlags flags;
    uint32_t node;
    uint32_t map_count;
    uint32_t registration_count;
    void *user_data;
};
struct range_table {
    struct range *items;
    size_t count, capacity;
};
bool range_insert(struct range_table *table, const struct range *range);
struct range *range_at(struct range_table *table, uint64_t start);
struct range *range_around(struct range_table *table, uint64_t address);
void range_remove(struct range_table *table, struct range *range);

/* memory.c: names ending in _locked want memory_lock held. */
extern pthread_mutex_t memory_lock;
extern struct range_table memory_allocations;
HSAKMT_STATUS memory_alloc(uint32_t node, uint64_t size_bytes, HsaMemFlags flags, const char *heap,
                           const char *use, void **address);
HSAKMT_STATUS memory_free(void *address);
void memory_log(const char *op, const char *heap, const char *use, uint64_t handle, const void *address,
                uint64_t bytes);
uint64_t memory_next_handle(void);
uint64_t memory_next_handle_locked(void);
HSAKMT_STATUS memory_charge_locked(const struct range *range);
void memory_discharge_locked(const struct range *range);
void memory_record_locked(const char *op, const struct range *range, HSAKMT_STATUS status);
void *memory_map_pages(uint64_t size_bytes, int protection);

/* scratch.c */
HSAKMT_STATUS scratch_reserve(uint64_t size_bytes, void **address);
bool scratch_holds_locked(uint64_t address);
HSAKMT_STATUS scratch_map_locked(uint64_t start, uint64_t size_bytes);
HSAKMT_STATUS scratch_unmap_locked(uint64_t start);
void scratch_release_locked(void);

#endif
