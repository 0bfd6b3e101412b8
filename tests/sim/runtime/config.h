// Settings of the simulated runtime, read once from the environment.
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#define SIM_MAX_DEVICES 16

// What makes an allocation fail although the card has room, or not fail although it has none. A size of 0 is no limit.
struct sim_limits {
    size_t others;             // SIM_OTHERS: bytes of each device that other processes hold
    size_t hidden;             // SIM_HIDDEN: bytes of each device that the runtime holds for this process
    size_t hidden_per_module;  // SIM_HIDDEN_PER_MODULE: loading a module takes so much, and unloading gives nothing back
    size_t reported_capacity;  // SIM_REPORTED_CAPACITY: said to be the size of the device, which really has more
    size_t over_reported;      // SIM_OVER_REPORTED: so much more is said to be free than there is
    size_t under_reported;     // SIM_UNDER_REPORTED: so much less
    size_t largest_request;    // SIM_LARGEST_REQUEST: a larger one is refused
    size_t process;            // SIM_PROCESS_LIMIT: device memory that this process may hold
    size_t pinned;             // SIM_PINNED_LIMIT: pinned and registered host memory that it may hold
    size_t reserved;           // SIM_RESERVED_LIMIT: addresses that it may reserve
    size_t pool;               // SIM_POOL_LIMIT: memory of pools
    size_t managed;            // SIM_MANAGED_LIMIT: managed memory lies in RAM, and may be so much; 0: it lies on the device
    size_t lost_per_failure;   // SIM_POOL_LOSES: a refused stream-ordered allocation takes so much for ever
    bool frees_wait;           // SIM_FREES_WAIT: a stream-ordered free takes effect at the next synchronisation
    bool handles_stay;         // SIM_HANDLES_STAY: releasing a handle of virtual memory gives nothing back
    bool exports_stay;         // SIM_EXPORTS_STAY: memory that was exported to other processes stays in use when it is freed
    bool handle_files;         // SIM_HANDLE_FILES: each handle of virtual memory takes a descriptor
    bool real_mappings;        // SIM_REAL_MAPPINGS: each block of device memory takes a mapping of the process
    bool real_addresses;       // SIM_REAL_ADDRESSES: and as many of its addresses as the block is large
    bool maps_hang;            // SIM_MAPS_HANG: mapping virtual memory never returns
    bool access_fails;         // SIM_ACCESS_FAILS: setting the access of virtual memory is an invalid value
};

// How a real card hands memory out (SIM_CARD=h200: as measured on an H200, tests/clients/gpu/h200). All 0: it takes what is asked
// for in whole granules, at once, down to the last byte. The measures go with the usual granularity, and contexts with the driver
// library: the runtime that has its device in itself has none. Not here: the memory of modules, the local memory of kernels, and
// what stays of managed memory that was freed.
struct sim_card {
    size_t start;               // the first cuInit of a process takes so much
    size_t context;             // a context takes so much; no log of allocations says so
    size_t kept_back;           // the last bytes, which are free and can't be had
    size_t shared_below;        // smaller plain blocks share granules
    size_t step;                // where they begin there, and what a pool's blocks are rounded to
    size_t pool_step;           // what pools and graphs take is a multiple of this
    bool managed_when_touched;  // managed memory takes nothing until the card works on it
    bool graphs_stay_used;      // memory of graphs counts as used until a trim
};

// Where the kernel's counters of the first device are kept up to date, as the real driver does. Empty: nowhere.
struct sim_sysfs {
    char root[384];        // SIM_SYSFS: what stands for /
    char card[16];         // SIM_SYSFS_CARD: `card1`
    char gpu[16];          // SIM_SYSFS_GPU: KFD's number of it
    char pci_bus_ids[256]; // SIM_PCI_BUS_ID: where the devices are on the bus, with commas between them; `-` is not told
};

struct sim_config {
    size_t capacity;         // SIM_CAPACITY: bytes per device
    size_t granularity;      // SIM_GRANULARITY: each device allocation holds a multiple of this
    size_t alignment;        // SIM_ALIGNMENT: where blocks begin, a multiple of the granularity; no memory is lost by it
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
    struct sim_limits limits;
    struct sim_card card;
    struct sim_sysfs sysfs;
    char card_file[384];     // SIM_CARD_FILE: what the processes that share the devices hold of them; empty: nobody else does
    char log_path[512];      // SIM_LOG: the ground truth is appended here; empty is no log
};

const struct sim_config *sim_config(void);

#endif
