// NVML: one description per simulated card. Nothing links to this library, programs load it by name.
//
// The real one asks the kernel driver. Here it asks the simulated driver of the same process, past its exported
// functions, so that no recorder takes the question for the program's.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../stub.h"

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, MAX_DEVICES = 16 };

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

static char devices[MAX_DEVICES];  // a device's handle points to its place here

static size_t number_of(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    size_t value = strtoull(text, &end, 10);
    const char *units = "KMGT", *unit = *end ? strchr(units, *end) : NULL;
    return unit ? value << (10 * (unit - units + 1)) : value;
}

static unsigned count(void) { return (unsigned)number_of("SIM_DEVICES", 1); }
static size_t total(void) { return number_of("SIM_CAPACITY", (size_t)16 << 30); }

static size_t used(void *device) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!driver) return 0;
    size_t (*ask)(int) = (size_t (*)(int))dlsym(driver, "sim_cuda_used_bytes");
    size_t bytes = ask ? ask((int)((char *)device - devices)) : 0;
    dlclose(driver);
    return bytes;
}

DONE(nvmlInit)
DONE(nvmlInit_v2)
DONE(nvmlInitWithFlags)
DONE(nvmlShutdown)

EXPORT const char *nvmlErrorString(int status) { return status ? "a failure of the simulated NVML" : "Success"; }

static int text(char *into, unsigned length, const char *value) {
    return (unsigned)snprintf(into, length, "%s", value) < length ? SUCCESS : INSUFFICIENT_SIZE;
}

EXPORT int nvmlSystemGetDriverVersion(char *into, unsigned length) { return text(into, length, "595.45"); }
EXPORT int nvmlSystemGetNVMLVersion(char *into, unsigned length) { return text(into, length, "13.595.45"); }

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13020;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *devices_found) {
    *devices_found = count();
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= count()) return INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
}

// The simulated driver numbers the cards by their bus: fa5e:01:00.0, fa5e:02:00.0, ...
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    unsigned domain, bus;
    if (sscanf(bus_id, "%x:%x:", &domain, &bus) != 2 || bus == 0) return INVALID_ARGUMENT;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, device);
}

EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    const char *chosen = getenv("SIM_DEVICE_NAME");
    return text(name, length, chosen && *chosen ? chosen : "Simulated GPU");
}

// With what SIM_OTHERS says that other processes hold: these numbers are of the whole card.
static size_t all_used(void *device) {
    size_t in_use = used(device) + number_of("SIM_OTHERS", 0);
    return in_use < total() ? in_use : total();
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    size_t in_use = all_used(device);
    *memory = (struct memory){total(), total() - in_use, in_use};
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    size_t in_use = all_used(device);
    *memory = (struct memory_v2){memory->version, total(), 0, total() - in_use, in_use};
    return SUCCESS;
}

// This process alone: others are a number here, and no processes.
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *length, struct process *processes) {
    if (*length < 1) {
        *length = 1;
        return INSUFFICIENT_SIZE;
    }
    *length = 1;
    processes[0] = (struct process){(unsigned)getpid(), used(device), ~0u, ~0u};
    return SUCCESS;
}

struct old_process { unsigned pid; unsigned long long used; };

EXPORT int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *length, struct old_process *processes) {
    struct process process;
    int status = nvmlDeviceGetComputeRunningProcesses_v3(device, length, &process);
    if (status == SUCCESS) processes[0] = (struct old_process){process.pid, process.used};
    return status;
}

struct fabric { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; };

// No NVLink fabric.
EXPORT int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric *fabric) {
    (void)device;
    fabric->status = NOT_SUPPORTED;
    fabric->state = 0;
    return SUCCESS;
}

STUB(nvmlDeviceGetNvLinkRemoteDeviceType, NOT_SUPPORTED)
STUB(nvmlDeviceGetNvLinkRemotePciInfo_v2, NOT_SUPPORTED)
