// How the runtime reaches the driver: as NVIDIA's library does, shared or static. At the first use libcuda.so.1 is
// opened with local scope; by dlsym only two functions are asked for; everything else comes from cuGetProcAddress.
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "cudart.h"

static struct driver drivers[2];  // by stream_api
static int load_status;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static __thread int last_error __attribute__((tls_model("initial-exec")));

typedef int (*look_up_function)(const char *, void **, int, unsigned long long, int *);

static void look_up_all(look_up_function look_up, struct driver *driver, unsigned long long flags) {
    int found;
#define CALL(name, version, parameters) (void)look_up(#name, (void **)&driver->name, version, flags, &found);
#include "driver_calls.h"
#undef CALL
}

static int missing(void) { return SIM_NOT_SUPPORTED; }

__attribute__((weak)) int sim_cudart_major = 13;

// A driver older than this runtime lacks some.
static void fill_gaps(struct driver *driver) {
    void *functions[sizeof *driver / sizeof(void *)];
    memcpy(functions, driver, sizeof *driver);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!functions[i]) functions[i] = (void *)missing;
    memcpy(driver, functions, sizeof *driver);
}

static void load(void) {
    enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };
    load_status = INSUFFICIENT_DRIVER;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return;
    int (*version_of)(int *) = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
    look_up_function look_up = (look_up_function)dlsym(library, "cuGetProcAddress_v2");
    int version = 0, found;
    if (!version_of || !look_up || version_of(&version) != SIM_SUCCESS) return;
    if (version < RUNTIME_VERSION / 1000 * 1000) return;
    // As seen of NVIDIA's: a look-up of nothing, then the look-up itself in two versions, the newer of which goes on.
    void *ignored = NULL, *newer = NULL;
    (void)look_up("", &ignored, version, 0, &found);
    (void)look_up("cuGetProcAddress", &ignored, 11030, 0, &found);
    if (look_up("cuGetProcAddress", &newer, 12000, 0, &found) != SIM_SUCCESS || !newer) return;
    look_up_all((look_up_function)newer, &drivers[LEGACY], LEGACY_STREAM);
    look_up_all((look_up_function)newer, &drivers[PER_THREAD], PER_THREAD_STREAM);
    fill_gaps(&drivers[LEGACY]);
    fill_gaps(&drivers[PER_THREAD]);
    load_status = drivers[LEGACY].cuInit(0);
}

const struct driver *rt_driver(void) { return &drivers[LEGACY]; }

const struct driver *rt_begin(enum stream_api api, enum need need, int *status) {
    *status = SIM_SUCCESS;
    if (need == NEEDS_NOTHING) return &drivers[api];
    pthread_once(&loaded, load);
    *status = load_status;
    if (*status == SIM_SUCCESS && need == NEEDS_CONTEXT) *status = rt_use_context(&drivers[api]);
    return &drivers[api];
}

// Errors stay until they are read; success and "not ready" erase none.
int rt_end(int status) {
    if (status != SIM_SUCCESS && status != SIM_NOT_READY) last_error = status;
    return status;
}

__attribute__((visibility("default"))) int cudaPeekAtLastError(void) { return last_error; }

__attribute__((visibility("default"))) int cudaGetLastError(void) {
    int status = last_error;
    last_error = SIM_SUCCESS;
    return status;
}
