// NVIDIA's management library over the simulated cards: what all processes that share them hold, and which ones they are.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../sim/runtime/shared.h"

enum { OK = 0, INVALID = 2, NOT_FOUND = 6, TOO_SMALL = 7 };

struct memory { uint32_t version; uint64_t total, reserved, free, used; };
struct process { uint32_t pid; uint64_t bytes; uint32_t instances[2]; };

static char cards[SIM_MAX_DEVICES];

static const struct shared_row *rows(void) {
    static const struct shared_row *mapped;
    const char *path = getenv("SIM_CARD_FILE");
    int file = mapped || !path ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return mapped;
    void *pages = mmap(NULL, SHARED_PROCESSES * sizeof *mapped, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return mapped = pages == MAP_FAILED ? NULL : pages;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    const char *first = getenv("SIM_PCI_BUS_ID");
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        char own[16];
        snprintf(own, sizeof own, "fa5e:%02x:00.0", i + 1);
        if (strcmp(bus_id, i == 0 && first && *first ? first : own) != 0) continue;
        *device = &cards[i];
        return OK;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    const char *capacity = getenv("SIM_CAPACITY");
    size_t card = (size_t)((char *)device - cards), used = 0;
    if (!rows() || !capacity || card >= SIM_MAX_DEVICES || memory->version != 0x02000028) return INVALID;
    for (int i = 0; i < SHARED_PROCESSES; i++) used += rows()[i].held[card];
    uint64_t total = strtoull(capacity, NULL, 10);
    *memory = (struct memory){memory->version, total, 0, total - used, used};
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    size_t card = (size_t)((char *)device - cards);
    unsigned found = 0;
    if (!rows() || card >= SIM_MAX_DEVICES) return INVALID;
    for (int i = 0; i < SHARED_PROCESSES; i++) {
        if (!rows()[i].process || !rows()[i].held[card]) continue;
        if (found == *count) return TOO_SMALL;
        processes[found++] = (struct process){(uint32_t)rows()[i].process, rows()[i].held[card], {0, 0}};
    }
    *count = found;
    return OK;
}
