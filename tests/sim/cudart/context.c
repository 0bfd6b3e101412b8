// Devices, and the primary context of the one that a thread has chosen.
#include <pthread.h>
#include <string.h>

#include "cudart.h"

enum { MAX_DEVICES = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *primary[MAX_DEVICES];  // null: not retained; guarded by the mutex
static __thread int chosen __attribute__((tls_model("initial-exec")));

static int retain(const struct driver *d, int device, void **context) {
    if (device < 0 || device >= MAX_DEVICES) return SIM_INVALID_DEVICE;
    int status = SIM_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (!primary[device]) status = d->cuDevicePrimaryCtxRetain(&primary[device], device);
    *context = primary[device];
    pthread_mutex_unlock(&mutex);
    return status;
}

static int use(const struct driver *d, int device) {
    void *context;
    int status = retain(d, device, &context);
    return status == SIM_SUCCESS ? d->cuCtxSetCurrent(context) : status;
}

int rt_use_context(const struct driver *d) {
    void *context = NULL;
    int status = d->cuCtxGetCurrent(&context);
    if (status != SIM_SUCCESS) return status;
    // A context that the program made itself is used as it is.
    return context ? SIM_SUCCESS : use(d, chosen);
}

int rt_SetDevice(const struct driver *d, int device) {
    int count = 0, status = d->cuDeviceGetCount(&count);
    if (status != SIM_SUCCESS) return status;
    if (device < 0 || device >= count) return SIM_INVALID_DEVICE;
    chosen = device;
    return use(d, device);
}

int rt_GetDevice(const struct driver *d, int *device) {
    void *context = NULL;
    if (!device) return SIM_INVALID_VALUE;
    *device = chosen;
    int status = d->cuCtxGetCurrent(&context);
    return status == SIM_SUCCESS && context ? d->cuCtxGetDevice(device) : status;
}

int rt_DeviceReset(const struct driver *d) {
    int device, status = d->cuCtxGetDevice(&device);
    if (status != SIM_SUCCESS) return status;
    void *context = NULL;
    (void)d->cuCtxGetCurrent(&context);
    pthread_mutex_lock(&mutex);
    bool is_primary = context == primary[device];
    if (is_primary) primary[device] = NULL;
    pthread_mutex_unlock(&mutex);
    // In a context of the program's own there is nothing but what the runtime knows of it.
    if (!is_primary) return SIM_SUCCESS;
    status = d->cuDevicePrimaryCtxReset(device);
    (void)d->cuDevicePrimaryCtxRelease(device);
    // The next call makes a new one.
    (void)d->cuCtxSetCurrent(NULL);
    return status;
}

int rt_EnablePeerAccess(const struct driver *d, int peer) {
    void *context;
    int status = retain(d, peer, &context);
    return status == SIM_SUCCESS ? d->cuCtxEnablePeerAccess(context, 0) : status;
}

int rt_DisablePeerAccess(const struct driver *d, int peer) {
    void *context;
    int status = retain(d, peer, &context);
    return status == SIM_SUCCESS ? d->cuCtxDisablePeerAccess(context) : status;
}

// cudaDeviceProp of CUDA 13: where the answers to which questions of the driver stand
enum { PROPERTIES_SIZE = 1008, NAME = 0, NAME_SIZE = 256, UUID = 256, TOTAL = 288 };
static const struct { unsigned short offset, attribute; unsigned char size; } fields[] = {
    {296, 8, 8},    // shared memory per block
    {304, 12, 4},   // registers per block
    {308, 10, 4},   // warp size
    {312, 11, 8},   // pitch
    {320, 1, 4},    // threads per block
    {324, 2, 4}, {328, 3, 4}, {332, 4, 4},  // block
    {336, 5, 4}, {340, 6, 4}, {344, 7, 4},  // grid
    {352, 9, 8},    // constant memory
    {360, 75, 4}, {364, 76, 4},             // compute capability
    {368, 14, 8},   // texture alignment
    {376, 51, 8},   // texture pitch alignment
    {384, 16, 4},   // multiprocessors
    {388, 18, 4},   // integrated
    {392, 19, 4},   // host memory can be mapped
    {396, 21, 4},   // 1D textures
    {560, 31, 4},   // concurrent kernels
    {564, 32, 4},   // ECC
    {568, 33, 4}, {572, 34, 4}, {576, 50, 4},  // PCI bus, device, domain
    {584, 40, 4},   // copy engines
    {588, 41, 4},   // unified addresses
    {592, 37, 4},   // memory bus
    {596, 38, 4},   // L2
    {604, 39, 4},   // threads per multiprocessor
    {608, 78, 4},   // stream priorities
    {612, 79, 4}, {616, 80, 4},             // L1
    {624, 81, 8},   // shared memory per multiprocessor
    {632, 82, 4},   // registers per multiprocessor
    {636, 83, 4},   // managed memory
    {656, 89, 4},   // concurrent managed access
    {660, 90, 4},   // preemption
    {664, 91, 4},   // registered memory under its host address
    {668, 95, 4},   // cooperative launch
    {672, 97, 8},   // shared memory per block, opted in
    {688, 106, 4},  // blocks per multiprocessor
    {696, 111, 8},  // reserved shared memory
    {704, 99, 4},   // host memory can be registered
    {720, 115, 4},  // memory pools
    {748, 120, 4},  // clusters
    {752, 129, 4},  // unified function pointers
};

int rt_GetDeviceProperties(const struct driver *d, void *properties, int device) {
    if (!properties) return SIM_INVALID_VALUE;
    char *bytes = properties;
    size_t total;
    int status = d->cuDeviceTotalMem(&total, device);
    if (status != SIM_SUCCESS) return status;
    memset(bytes, 0, PROPERTIES_SIZE);
    memcpy(bytes + TOTAL, &total, sizeof total);
    (void)d->cuDeviceGetName(bytes + NAME, NAME_SIZE, device);
    (void)d->cuDeviceGetUuid(bytes + UUID, device);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        int value = 0;
        (void)d->cuDeviceGetAttribute(&value, fields[i].attribute, device);
        uint64_t wide = (unsigned)value;
        memcpy(bytes + fields[i].offset, &wide, fields[i].size);  // little-endian
    }
    return SIM_SUCCESS;
}

int rt_GetDriverEntryPoint(const struct driver *d, enum stream_api api, const char *name, void **function,
                           unsigned version, unsigned long long flags, int *found) {
    enum { DEFAULT, PER_THREAD_STREAM = 2 };
    if (flags == DEFAULT && api == PER_THREAD) flags = PER_THREAD_STREAM;
    return d->cuGetProcAddress(name, function, (int)version, flags, found);
}
