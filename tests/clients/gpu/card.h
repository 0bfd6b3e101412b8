// What the programs for a real card share. Each call that takes or gives memory stands between two readings of the driver's
// own count of free memory, and a JSON line says all three: the account that a trace is held against.
#ifndef CARD_H
#define CARD_H

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "../zoo/cuda_min.h"

// Free bytes as the driver counts them; the error state of the runtime stays as it is.
static inline size_t free_bytes(void) {
    size_t free = 0, total = 0;
    return cuMemGetInfo_v2(&free, &total) == SUCCESS ? free : 0;
}

static inline size_t total_bytes(void) {
    size_t free = 0, total = 0;
    return cuMemGetInfo_v2(&free, &total) == SUCCESS ? total : 0;
}

static inline int told(const char *api, size_t size, int status, size_t before, const void *address) {
    size_t after = free_bytes();
    printf("{\"call\": \"%s\", \"size_bytes\": %zu, \"status\": %d, \"taken_bytes\": %lld, \"free_bytes\": %zu, \"address\": \"%p\"}\n",
           api, size, status, (long long)before - (long long)after, after, status == SUCCESS ? address : NULL);
    return status;
}

// CALL(name, its arguments in parentheses, the bytes asked for, where the address is afterwards)
#define CALL(api, arguments, size, address)                               \
    ({                                                                    \
        size_t free_before = free_bytes();                                \
        int call_status = api arguments;                                  \
        told(#api, (size_t)(size), call_status, free_before, (address));  \
    })

// One number under a name.
static inline void say(const char *name, long long value) { printf("{\"figure\": \"%s\", \"value\": %lld}\n", name, value); }

static inline void begin(const char *section) { printf("{\"section\": \"%s\"}\n", section); }

// NVIDIA's management library, asked directly: what is in use on the card by everybody, and by this process.
typedef struct { uint32_t version; uint64_t total, reserved, free, used; } NvmlMemory;
typedef struct { uint32_t pid; uint64_t bytes; uint32_t instances[2]; } NvmlProcess;

static inline void say_nvml(const char *moment) {
    static void *library, *card;
    if (!library) {
        library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library) return;
        int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
        int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
        if (!init || !by_index || init() != 0 || by_index(0, &card) != 0) card = NULL;
    }
    int (*memory_of)(void *, NvmlMemory *) = (int (*)(void *, NvmlMemory *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    int (*processes_of)(void *, unsigned *, NvmlProcess *) =
        (int (*)(void *, unsigned *, NvmlProcess *))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    NvmlMemory memory = {.version = sizeof memory | 2u << 24};
    NvmlProcess processes[16] = {0};
    unsigned count = 16;
    long long own = -1;
    if (!card || !memory_of || memory_of(card, &memory) != 0) return;
    if (processes_of && processes_of(card, &count, processes) == 0) {
        for (unsigned i = 0; i < count && i < 16; i++) {
            if (processes[i].pid == (uint32_t)getpid()) own = (long long)processes[i].bytes;
        }
    }
    printf("{\"nvml\": \"%s\", \"total_bytes\": %llu, \"reserved_bytes\": %llu, \"free_bytes\": %llu, \"used_bytes\": %llu, "
           "\"own_bytes\": %lld}\n", moment, (unsigned long long)memory.total, (unsigned long long)memory.reserved,
           (unsigned long long)memory.free, (unsigned long long)memory.used, own);
}

// The largest block that can be had now, to the granule, by asking for it.
static inline size_t largest_block(void) {
    size_t granule = 2 * MiB, had = 0, refused = total_bytes() / granule + 1;
    while (refused - had > 1) {
        size_t middle = had + (refused - had) / 2;
        void *block = NULL;
        if (cuMemAlloc_v2(&block, middle * granule) == SUCCESS) {
            cuMemFree_v2(block);
            had = middle;
        } else {
            refused = middle;
        }
    }
    return had * granule;
}

#endif
