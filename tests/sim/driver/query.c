// What a program can ask about devices, versions and statuses.
#include <stdio.h>
#include <string.h>

#include "driver.h"

static bool valid_device(int device) { return device >= 0 && device < sim_config()->devices; }

// For the simulated NVML, which has no driver below it to ask.
__attribute__((visibility("default"))) size_t sim_cuda_used_bytes(int device) {
    if (!valid_device(device)) return 0;
    sigset_t saved;
    sim_lock(&saved);
    size_t bytes = sim_device_used(device);
    sim_unlock(&saved);
    return bytes;
}

int drv_zero(unsigned *value) {
    if (!value) return SIM_INVALID_VALUE;
    *value = 0;
    return SIM_SUCCESS;
}

// Modules and libraries, kernels and functions are one here.
int drv_same(void **out, void *handle) {
    if (!out || !handle) return SIM_INVALID_VALUE;
    *out = handle;
    return SIM_SUCCESS;
}

int drv_DriverGetVersion(int *version) {
    if (!version) return SIM_INVALID_VALUE;
    *version = sim_config()->cuda_version;
    return SIM_SUCCESS;
}

int drv_GetErrorString(int status, const char **text) {
    if (!text) return SIM_INVALID_VALUE;
    *text = sim_status_text(status);
    return *text ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

int drv_GetErrorName(int status, const char **name) {
    if (!name) return SIM_INVALID_VALUE;
    *name = sim_status_name(status, SIM_CUDA_DRIVER);
    return *name ? SIM_SUCCESS : SIM_INVALID_VALUE;
}

// Private tables: nobody outside of NVIDIA knows what stands in them.
int drv_GetExportTable(const void **table) {
    if (table) *table = NULL;
    return SIM_NOT_FOUND;
}

int drv_DeviceGetUuid(void *id, int device) {
    if (!id) return SIM_INVALID_VALUE;
    if (!valid_device(device)) return SIM_INVALID_DEVICE;
    memcpy(id, "simulated GPU   ", 16);
    ((char *)id)[15] = (char)device;
    return SIM_SUCCESS;
}

int drv_DeviceTotalMem_v1(unsigned *bytes, int device) {
    if (!bytes) return SIM_INVALID_VALUE;
    if (!valid_device(device)) return SIM_INVALID_DEVICE;
    size_t capacity = sim_config()->capacity;
    *bytes = capacity > UINT32_MAX ? UINT32_MAX : (unsigned)capacity;
    return SIM_SUCCESS;
}

// Of a card with compute capability 8.6, in round numbers. What is not here is 0.
static const struct { int attribute, value; } attributes[] = {
    {1, 1024},          // threads per block
    {2, 1024}, {3, 1024}, {4, 64},         // block
    {5, 0x7fffffff}, {6, 65535}, {7, 65535},  // grid
    {8, 49152},         // shared memory per block
    {9, 65536},         // constant memory
    {10, 32},           // warp size
    {11, 0x7fffffff},   // pitch
    {12, 65536},        // registers per block
    {13, 1500000},      // clock, kHz
    {14, 512},          // texture alignment
    {15, 1},            // copies overlap with kernels
    {16, 64},           // multiprocessors
    {19, 1},            // host memory can be mapped
    {21, 131072}, {22, 131072}, {23, 65536}, {24, 16384}, {25, 16384}, {26, 16384},  // textures
    {30, 512},          // surface alignment
    {31, 1},            // concurrent kernels
    {34, 0},            // PCI device
    {36, 8000000},      // memory clock, kHz
    {37, 256},          // memory bus, bits
    {38, 4 << 20},      // L2
    {39, 2048},         // threads per multiprocessor
    {40, 2},            // copy engines
    {41, 1},            // unified addresses
    {51, 32},           // texture pitch alignment
    {78, 1},            // stream priorities
    {79, 1}, {80, 1},   // L1
    {81, 102400},       // shared memory per multiprocessor
    {82, 65536},        // registers per multiprocessor
    {83, 1},            // managed memory
    {87, 32},           // single to double precision
    {89, 1},            // concurrent managed access
    {90, 1},            // preemption
    {91, 1},            // registered memory under its host address
    {95, 1},            // cooperative launch
    {97, 101376},       // shared memory per block, opted in
    {99, 1},            // host memory can be registered
    {102, 1},           // virtual memory management
    {103, 1},           // its handles as file descriptors
    {106, 16},          // blocks per multiprocessor
    {111, 1024},        // reserved shared memory
    {115, 1},           // memory pools
    {122, 1}, {123, 1}, // stream memory operations
    {129, 1},           // unified function pointers
    {130, 0},           // NUMA configuration
    {131, -1},          // NUMA node
    {134, -1},          // NUMA node of the host
};

int drv_DeviceGetAttribute(int *value, int attribute, int device) {
    enum { PCI_BUS = 33, PCI_DOMAIN = 50, MAJOR = 75, MINOR = 76 };
    if (!value) return SIM_INVALID_VALUE;
    if (!valid_device(device)) return SIM_INVALID_DEVICE;
    *value = 0;
    switch (attribute) {
        case MAJOR: *value = sim_config()->compute_capability / 10; return SIM_SUCCESS;
        case MINOR: *value = sim_config()->compute_capability % 10; return SIM_SUCCESS;
        case PCI_BUS: *value = device + 1; return SIM_SUCCESS;
        case PCI_DOMAIN: *value = 0xfa5e; return SIM_SUCCESS;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].attribute == attribute) *value = attributes[i].value;
    return SIM_SUCCESS;
}

int drv_DeviceComputeCapability(int *major, int *minor, int device) {
    if (!major || !minor) return SIM_INVALID_VALUE;
    if (!valid_device(device)) return SIM_INVALID_DEVICE;
    *major = sim_config()->compute_capability / 10;
    *minor = sim_config()->compute_capability % 10;
    return SIM_SUCCESS;
}

int drv_DeviceGetByPCIBusId(int *device, const char *text) {
    unsigned domain, bus;
    if (!device || !text || sscanf(text, "%x:%x:", &domain, &bus) != 2) return SIM_INVALID_VALUE;
    if (domain != 0xfa5e || !valid_device((int)bus - 1)) return SIM_INVALID_DEVICE;
    *device = (int)bus - 1;
    return SIM_SUCCESS;
}

int drv_DeviceCanAccessPeer(int *can, int device, int peer) {
    if (!can) return SIM_INVALID_VALUE;
    if (!valid_device(device) || !valid_device(peer)) return SIM_INVALID_DEVICE;
    *can = device != peer;
    return SIM_SUCCESS;
}

int drv_DeviceGetP2PAttribute(int *value, int device, int peer) {
    if (!value) return SIM_INVALID_VALUE;
    if (!valid_device(device) || !valid_device(peer) || device == peer) return SIM_INVALID_DEVICE;
    *value = 0;
    return SIM_SUCCESS;
}
