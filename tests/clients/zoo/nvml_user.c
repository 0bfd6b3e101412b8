// A program that has NVIDIA's management library loaded (the plugin half), as PyTorch has. The recorder may ask it, for the
// program's card and for nothing else.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MiB ((uint64_t)1 << 20)

#ifdef PLUGIN

struct memory { uint32_t version; uint64_t total, reserved, free, used; };
struct process { uint32_t pid; uint64_t bytes; uint32_t instances[2]; };
static char card;

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    if (strcmp(bus_id, "fa5e:01:00.0") != 0) return 6;
    *device = &card;
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    if (device != &card || memory->version != 0x02000028) return 2;
    *memory = (struct memory){memory->version, 1024 * MiB, 24 * MiB, 300 * MiB, 724 * MiB};
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    if (device != &card || *count < 2) return 7;
    processes[0] = (struct process){1, 55 * MiB, {0, 0}};
    processes[1] = (struct process){(uint32_t)getpid(), 7 * MiB, {0, 0}};
    *count = 2;
    return 0;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    if (device != &card || *count < 1) return 7;
    processes[0] = (struct process){2, 11 * MiB, {0, 0}};
    *count = 1;
    return 0;
}

#else

int cudaMalloc(void **pointer, size_t size);

int main(int argc, char **argv) {
    void *pointer;
    if (argc > 1 && !dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) return 1;
    printf("%d\n", cudaMalloc(&pointer, MiB));
    printf("%d\n", cudaMalloc(&pointer, 2048 * MiB));
    return 0;
}

#endif
