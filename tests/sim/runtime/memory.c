// Device memory: what every kind of device allocation goes through, and the way back.
#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "sim.h"

// A driver call that takes its time. Nothing is held meanwhile: a signal handler may jump out of it.
void sim_pause(void) {
    static atomic_long pauses;
    unsigned slow_us = sim_config()->slow_us;
    if (!slow_us) return;
    long this_pause = atomic_fetch_add(&pauses, 1) + 1;
    if (sim_config()->slow_at && this_pause != sim_config()->slow_at) return;
    int kept_errno = errno;
    struct timespec left = {slow_us / 1000000, slow_us % 1000000 * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
    errno = kept_errno;
}

int sim_attempt_begin(struct sim_attempt *attempt) {
    static long calls;  // guarded by the lock
    sim_pause();
    sim_lock(&attempt->saved);
    if (attempt->device < 0 || attempt->device >= sim_config()->devices) {
        attempt->device = 0;
        return SIM_INVALID_DEVICE;
    }
    if (sim_allocation_forbidden(attempt->kind)) return SIM_CAPTURE_UNSUPPORTED;
    return ++calls == sim_config()->fail_at ? SIM_OUT_OF_MEMORY : SIM_SUCCESS;
}

int sim_attempt_end(struct sim_attempt *attempt, int status, struct sim_block *block, void **pointer) {
    if (!block && status == SIM_SUCCESS) status = SIM_OUT_OF_MEMORY;
    if (block) {
        *pointer = (void *)block->address;
        sim_log_block("alloc", block);
    } else {
        sim_log_failure(attempt->kind, attempt->device, attempt->requested, status);
    }
    sim_unlock(&attempt->saved);
    if (status == SIM_OUT_OF_MEMORY && sim_config()->self_call) sim_report_failure();
    return status;
}

int sim_allocate(void **pointer, enum sim_kind kind, size_t size) {
    if (!pointer) return SIM_INVALID_VALUE;
    if (size == 0) {
        *pointer = NULL;
        return SIM_SUCCESS;
    }
    struct sim_attempt attempt = {.kind = kind, .device = sim_thread()->device, .requested = size};
    int status = sim_attempt_begin(&attempt);
    struct sim_block *block = status == SIM_SUCCESS ? sim_device_take(attempt.device, kind, size) : NULL;
    return sim_attempt_end(&attempt, status, block, pointer);
}

int sim_release(void *pointer, enum sim_kind kind) {
    if (!pointer) return SIM_SUCCESS;
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *block = sim_device_find((uintptr_t)pointer);
    int status = block && block->kind == kind ? SIM_SUCCESS : SIM_INVALID_VALUE;
    if (status == SIM_SUCCESS) {
        sim_log_block("free", block);
        sim_device_give(block);
    }
    sim_unlock(&saved);
    return status;
}

int sim_Malloc(void **pointer, size_t size) {
    int status = sim_allocate(pointer, SIM_KIND_DEVICE, size);
#ifndef SIM_CUDA
    // HIP sets the pointer to null where the driver refuses, and leaves it alone where it refuses by itself.
    if (status == SIM_OUT_OF_MEMORY && size <= sim_device_total()) *pointer = NULL;
#endif
    return status;
}

int sim_ExtMallocWithFlags(void **pointer, size_t size, unsigned flags) {
    enum { SIGNAL_MEMORY = 2, LAST_FLAG = 4 };
    if (flags > LAST_FLAG) return SIM_INVALID_VALUE;
    if (flags != SIGNAL_MEMORY) return sim_allocate(pointer, SIM_KIND_DEVICE, size);
    return size == 8 ? sim_HostMalloc(pointer, size, 0) : SIM_INVALID_VALUE;
}

int sim_MallocManaged(void **pointer, size_t size, unsigned flags) {
    enum { ATTACH_GLOBAL = 1, ATTACH_HOST = 2 };
    if (flags != ATTACH_GLOBAL && flags != ATTACH_HOST) return SIM_INVALID_VALUE;
#ifndef SIM_CUDA
    if (size == 0) return SIM_INVALID_VALUE;
#endif
    return sim_allocate(pointer, SIM_KIND_MANAGED, size);
}

int sim_Free(void *pointer) {
    if (!pointer) return SIM_SUCCESS;
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *block = sim_device_find((uintptr_t)pointer);
    int status = block && block->kind != SIM_KIND_ARRAY ? SIM_SUCCESS : SIM_INVALID_VALUE;
    // Memory of a pool goes back to its pool, not to the device.
    if (status == SIM_SUCCESS && block->pool) status = sim_pool_take_back(block);
    else if (status == SIM_SUCCESS) {
        sim_log_block("free", block);
        sim_device_give(block);
    }
    sim_unlock(&saved);
    return status;
}

int sim_MemGetInfo(size_t *free, size_t *total) {
    sigset_t saved;
    sim_lock(&saved);
    size_t left = sim_device_free(sim_thread()->device);
    sim_unlock(&saved);
    const struct sim_limits *limits = &sim_config()->limits;
    size_t hidden = sim_config()->capacity - sim_device_total() + limits->under_reported;
    if (free) *free = (left > hidden ? left - hidden : 0) + limits->over_reported;
    if (total) *total = sim_device_total();
    return SIM_SUCCESS;
}

int sim_MemGetAddressRange(void **base, size_t *size, void *pointer) {
    sigset_t saved;
    sim_lock(&saved);
    struct sim_block *block = sim_device_find_containing((uintptr_t)pointer);
    if (block && base) *base = (void *)block->address;
    if (block && size) *size = block->requested;
    sim_unlock(&saved);
    return block ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

static void release_owned_on(int device, const void *owner) {
    struct sim_block *next;
    for (struct sim_block *block = sim_device_first(device); block; block = next) {
        next = block->next;
        // Memory of pools belongs to no context.
        if (block->owner != owner || block->pool) continue;
        sim_log_block("free", block);
        sim_device_give(block);
    }
}

void sim_release_owned(const void *owner) {
    for (int device = 0; device < sim_config()->devices; device++) release_owned_on(device, owner);
    sim_host_release_owned(owner);
}

int sim_DeviceReset(void) {
    int device = sim_thread()->device;
    sigset_t saved;
    sim_lock(&saved);
#ifdef SIM_CUDA
    // Pools and physical memory are the program's to give back; pinned host memory goes, too.
    release_owned_on(device, sim_thread()->owner);
    sim_host_release_owned(sim_thread()->owner);
#else
    sim_vmm_forget(device);
    sim_pools_forget(device);
    for (struct sim_block *block; (block = sim_device_first(device));) {
        sim_log_block("free", block);
        sim_device_give(block);
    }
#endif
    sim_unlock(&saved);
    return SIM_SUCCESS;
}
