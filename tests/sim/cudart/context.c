// The primary context of the device that a thread has chosen.
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

int rt_GetDriverEntryPoint(const struct driver *d, enum stream_api api, const char *name, void **function,
                           unsigned version, unsigned long long flags, int *found) {
    enum { DEFAULT, PER_THREAD_STREAM = 2 };
    if (flags == DEFAULT && api == PER_THREAD) flags = PER_THREAD_STREAM;
    return d->cuGetProcAddress(name, function, (int)version, flags, found);
}
