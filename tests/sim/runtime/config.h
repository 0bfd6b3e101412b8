// Settings of the simulated runtime, read once from the environment.
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#define SIM_MAX_DEVICES 16

struct sim_config {
    size_t capacity;         // SIM_CAPACITY: bytes per device
    size_t granularity;      // SIM_GRANULARITY: each device allocation holds a multiple of this
    int devices;             // SIM_DEVICES
    char device_name[128];   // SIM_DEVICE_NAME
    int version;             // SIM_HIP_VERSION, in the form that hipRuntimeGetVersion answers
    int cuda_version;        // SIM_CUDA_VERSION, in the form that cuDriverGetVersion answers
    int compute_capability;  // SIM_COMPUTE_CAPABILITY of CUDA, as 86 for 8.6
    size_t context_bytes;    // SIM_CONTEXT_BYTES: each CUDA context takes this much for itself
    bool low_addresses;      // SIM_LOW_ADDRESSES: device memory below 4 GiB, for 32-bit device pointers
    long fail_at;            // SIM_FAIL_AT: this allocation call (1-based) is out of memory; 0 is never
    bool self_call;          // SIM_SELF_CALL: call exported functions through the PLT, as the real HIP does
    bool sticky_last_error;  // SIM_LAST_ERROR=rocm7: success does not erase the last error
    unsigned slow_us;        // SIM_SLOW_US: an allocation or device synchronisation sleeps this long
    long slow_at;            // SIM_SLOW_AT: only this one (1-based) of them does; 0 is each
    size_t copy_bytes;       // SIM_COPY_BYTES: at most this much of one copy or fill really moves
    char log_path[512];      // SIM_LOG: the ground truth is appended here; empty is no log
};

const struct sim_config *sim_config(void);

#endif
