// Launches, streams, events, graphs, modules: a device that has finished each piece of work before the call returns.
#include <stdlib.h>

#include "sim.h"

static char object;  // what every stream, event and graph handle points to

int sim_done(void) { return SIM_SUCCESS; }

int sim_unsupported(void) { return SIM_NOT_SUPPORTED; }

int sim_Launch(const void *function) { return function ? SIM_SUCCESS : SIM_INVALID_VALUE; }

int sim_StreamSynchronize(void) {
    sigset_t saved;
    sim_lock(&saved);
    sim_pools_release_idle();
    sim_unlock(&saved);
    return SIM_SUCCESS;
}

int sim_DeviceSynchronize(void) {
    sim_pause();
    return sim_StreamSynchronize();
}

int sim_handle_create(void **handle) {
    if (!handle) return SIM_INVALID_VALUE;
    *handle = &object;
    return SIM_SUCCESS;
}

int sim_object_create(void **handle) {
    void *made = handle ? malloc(1) : NULL;
    if (!made) return handle ? SIM_OUT_OF_MEMORY : SIM_INVALID_VALUE;
    *handle = made;
    return SIM_SUCCESS;
}

int sim_object_destroy(void *handle) {
    free(handle);
    return handle ? SIM_SUCCESS : SIM_INVALID_HANDLE;
}

int sim_module_load(void **handle) {
    sigset_t saved;
    sim_lock(&saved);
    size_t size = sim_config()->limits.hidden_per_module;
    if (size) sim_device_hide(sim_thread()->device, size);
    sim_unlock(&saved);
    return sim_object_create(handle);
}

int sim_handle_use(void *handle) { return handle ? SIM_SUCCESS : SIM_INVALID_HANDLE; }

int sim_EventElapsedTime(float *milliseconds, void *start, void *stop) {
    if (!milliseconds || !start || !stop) return SIM_INVALID_VALUE;
    *milliseconds = 0.001f;
    return SIM_SUCCESS;
}
