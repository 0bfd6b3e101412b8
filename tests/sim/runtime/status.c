#include "status.h"

#include "config.h"

// initial-exec: the default model allocates on a thread's first use, which a signal handler must not do.
static __thread struct sim_thread thread __attribute__((tls_model("initial-exec")));

struct sim_thread *sim_thread(void) { return &thread; }

const char *sim_enter(const char *api) {
    const char *enclosing = thread.api;
    if (!thread.self_call) thread.api = api;
    thread.self_call = false;
    return enclosing;
}

// The CUDA library is always sticky; ROCm became so with 7.0.
static bool sticky(void) {
#ifdef SIM_CUDA
    return true;
#else
    return sim_config()->sticky_last_error;
#endif
}

int sim_leave(const char *enclosing, int status) {
    thread.api = enclosing;
    thread.last_status = status;
    bool erases = status != SIM_SUCCESS && status != SIM_NOT_READY;
    if (erases || !sticky()) thread.last_error = status;
    return status;
}

int sim_GetLastError(void) {
    int status = thread.last_error;
    thread.last_error = SIM_SUCCESS;
    return status;
}

int sim_PeekAtLastError(void) { return thread.last_error; }

int sim_ExtGetLastError(void) {
    int status = thread.last_status;
    // What the other readers look at stays as it is: so does 6.4.3.
    thread.last_status = SIM_SUCCESS;
    return status;
}
