// The ground truth: what the simulated device really did, written by itself, for a recorder to be compared with.
#ifndef SIM_TRUTH_LOG_H
#define SIM_TRUTH_LOG_H

#include "device.h"

// One line; `event` is a word such as "alloc" or "free". Wants the device lock, so that lines stand in true order.
void sim_log_block(const char *event, const struct sim_block *block);
void sim_log_range(const char *event, const struct sim_block *block, uintptr_t address, size_t size);
// What is no memory and succeeded, and what a call has just made: one line, which takes the lock itself. Answers the status.
int sim_noted(const char *event, const void *address, int status);
int sim_noted_new(const char *event, void **made, int status);
void sim_log_failure(enum sim_kind kind, int device, size_t requested, int status);

#endif
