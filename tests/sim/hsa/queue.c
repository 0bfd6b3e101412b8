// Queues and signals. What is sent to a queue goes nowhere; copies are done before the call returns.
#include <stdlib.h>
#include <sys/mman.h>

#include "roc.h"

enum { PACKET_BYTES = 64, MAX_QUEUES = 8 };

static struct roc_queue queues[MAX_QUEUES];  // guarded by the lock; without a base they are free

static struct roc_queue *free_queue(void) {
    for (int i = 0; i < MAX_QUEUES; i++)
        if (!queues[i].base) return &queues[i];
    return NULL;
}

int roc_queue_create(uint64_t agent, uint32_t packets, struct roc_queue **queue) {
    const struct holder *holder = roc_agent(agent);
    if (!holder || !holder->is_gpu) return ROC_INVALID_AGENT;
    if (!queue || !packets || (packets & (packets - 1))) return ROC_INVALID_ARGUMENT;
    sigset_t saved;
    sim_lock(&saved);
    struct roc_queue *found = free_queue();
    size_t size = (size_t)packets * PACKET_BYTES;
    void *ring = MAP_FAILED;
    if (found) ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ring != MAP_FAILED) {
        *found = (struct roc_queue){.base = ring, .size = packets, .id = (uint64_t)(found - queues)};
        *queue = found;
    }
    sim_unlock(&saved);
    return ring == MAP_FAILED ? ROC_OUT_OF_RESOURCES : ROC_SUCCESS;
}

int roc_queue_destroy(struct roc_queue *queue) {
    sigset_t saved;
    sim_lock(&saved);
    bool known = queue >= queues && queue < queues + MAX_QUEUES && queue->base;
    if (known) {
        munmap(queue->base, (size_t)queue->size * PACKET_BYTES);
        queue->base = NULL;
    }
    sim_unlock(&saved);
    return known ? ROC_SUCCESS : ROC_INVALID_QUEUE;
}

int roc_signal_create(int64_t value, uint64_t *signal) {
    int64_t *made = signal ? malloc(sizeof *made) : NULL;
    if (!signal) return ROC_INVALID_ARGUMENT;
    if (!made) return ROC_OUT_OF_RESOURCES;
    *made = value;
    *signal = (uint64_t)made;
    return ROC_SUCCESS;
}

int roc_signal_destroy(uint64_t signal) {
    free((void *)signal);
    return signal ? ROC_SUCCESS : ROC_INVALID_SIGNAL;
}

void roc_signal_subtract(uint64_t signal) {
    if (signal) __atomic_sub_fetch((int64_t *)signal, 1, __ATOMIC_RELEASE);
}

int roc_async_copy(void *to, const void *from, size_t size, uint64_t signal) {
    int status = roc_status(sim_Memcpy(to, from, size), ROC_INVALID_ARGUMENT);
    if (status == ROC_SUCCESS) roc_signal_subtract(signal);
    return status;
}

// Only from the corner of both.
int roc_copy_rect(const struct roc_rect *to, const struct roc_rect *from, const sim_dim3 *range, uint64_t signal) {
    if (!to || !from || !range) return ROC_INVALID_ARGUMENT;
    int status = sim_Memcpy2D(to->base, to->pitch, from->base, from->pitch, range->x, range->y);
    if (status == SIM_SUCCESS) roc_signal_subtract(signal);
    return roc_status(status, ROC_INVALID_ARGUMENT);
}

// What the operations ask for is not simulated.
int roc_batch_copy(const void *operations, uint32_t count) {
    return operations && count ? ROC_SUCCESS : ROC_INVALID_ARGUMENT;
}
