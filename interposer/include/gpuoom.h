/* What a program may tell gpuoom. All functions are weak: without libgpuoom.so in the process their addresses are null, so
 * a program calls the macros below, or tests the address. None of them changes errno, waits for the disk, or fails. */
#ifndef GPUOOM_H
#define GPUOOM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A label on the timeline. */
void gpuoom_mark(const char *label) __attribute__((weak));

/* 0 once all recorded events are in the trace file. */
int gpuoom_flush(void) __attribute__((weak));

/* A pool of your own gives out `bytes` at `address`, or takes back what it gave out there. Call these in the order of the
 * pool's own changes: with its lock held, or from one thread. `pool` and `name` are kept up to 128 bytes. */
void gpuoom_pool_alloc(const char *pool, const char *name, const void *address, size_t bytes) __attribute__((weak));
void gpuoom_pool_free(const char *pool, const void *address) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#define GPUOOM_MARK(label) ((void)(gpuoom_mark ? gpuoom_mark(label) : (void)0))
#define GPUOOM_POOL_ALLOC(pool, name, address, bytes) \
    ((void)(gpuoom_pool_alloc ? gpuoom_pool_alloc(pool, name, address, bytes) : (void)0))
#define GPUOOM_POOL_FREE(pool, address) ((void)(gpuoom_pool_free ? gpuoom_pool_free(pool, address) : (void)0))

#endif
