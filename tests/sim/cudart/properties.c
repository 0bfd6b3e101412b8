// cudaDeviceProp, whose layout is that of the runtime's major version: CUDA 13 took fields out, and CUDA 12 added some at its end.
#include <string.h>

#include "cudart.h"

enum { NAME = 0, NAME_SIZE = 256, UUID = 256, TOTAL = 288 };

// Of each field, the driver's attribute, its size, and where it stands in CUDA 13, and in CUDA 11 and 12.
static const struct { unsigned short attribute, size, now, before; } fields[] = {
    {8, 8, 296, 296},    // shared memory per block
    {12, 4, 304, 304},   // registers per block
    {10, 4, 308, 308},   // warp size
    {11, 8, 312, 312},   // pitch
    {1, 4, 320, 320},    // threads per block
    {2, 4, 324, 324}, {3, 4, 328, 328}, {4, 4, 332, 332},  // block
    {5, 4, 336, 336}, {6, 4, 340, 340}, {7, 4, 344, 344},  // grid
    {9, 8, 352, 352},    // constant memory
    {75, 4, 360, 360}, {76, 4, 364, 364},                  // compute capability
    {14, 8, 368, 368},   // texture alignment
    {51, 8, 376, 376},   // texture pitch alignment
    {16, 4, 384, 388},   // multiprocessors
    {18, 4, 388, 396},   // integrated
    {19, 4, 392, 400},   // host memory can be mapped
    {21, 4, 396, 408},   // 1D textures
    {31, 4, 560, 576},   // concurrent kernels
    {32, 4, 564, 580},   // ECC
    {33, 4, 568, 584}, {34, 4, 572, 588}, {50, 4, 576, 592},  // PCI bus, device, domain
    {40, 4, 584, 600},   // copy engines
    {41, 4, 588, 604},   // unified addresses
    {37, 4, 592, 612},   // memory bus
    {38, 4, 596, 616},   // L2
    {39, 4, 604, 624},   // threads per multiprocessor
    {78, 4, 608, 628},   // stream priorities
    {79, 4, 612, 632}, {80, 4, 616, 636},                  // L1
    {81, 8, 624, 640},   // shared memory per multiprocessor
    {82, 4, 632, 648},   // registers per multiprocessor
    {83, 4, 636, 652},   // managed memory
    {89, 4, 656, 676},   // concurrent managed access
    {90, 4, 660, 680},   // preemption
    {91, 4, 664, 684},   // registered memory under its host address
    {95, 4, 668, 688},   // cooperative launch
    {97, 8, 672, 696},   // shared memory per block, opted in
    {106, 4, 688, 712},  // blocks per multiprocessor
    {111, 8, 696, 720},  // reserved shared memory
    {99, 4, 704, 728},   // host memory can be registered
    {115, 4, 720, 744},  // memory pools
    {120, 4, 748, 772},  // clusters
    {129, 4, 752, 776},  // unified function pointers
};

static size_t size_of_properties(int major) {
    return major >= 13 ? 1008 : major == 12 ? 1032 : 728;
}

int rt_GetDeviceProperties(const struct driver *d, void *properties, int device) {
    if (!properties) return SIM_INVALID_VALUE;
    char *bytes = properties;
    size_t total, size = size_of_properties(sim_cudart_major);
    int status = d->cuDeviceTotalMem(&total, device);
    if (status != SIM_SUCCESS) return status;
    memset(bytes, 0, size);
    memcpy(bytes + TOTAL, &total, sizeof total);
    (void)d->cuDeviceGetName(bytes + NAME, NAME_SIZE, device);
    (void)d->cuDeviceGetUuid(bytes + UUID, device);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        size_t offset = sim_cudart_major >= 13 ? fields[i].now : fields[i].before;
        if (offset + fields[i].size > size) continue;
        int value = 0;
        (void)d->cuDeviceGetAttribute(&value, fields[i].attribute, device);
        uint64_t wide = (unsigned)value;
        memcpy(bytes + offset, &wide, fields[i].size);  // little-endian
    }
    return SIM_SUCCESS;
}
