// Status codes, and what a thread remembers between calls: its device, its last error, the call it is in.
#ifndef SIM_STATUS_H
#define SIM_STATUS_H

#include <stdbool.h>

// HIP and CUDA agree on every value used here.
enum {
    SIM_SUCCESS = 0,
    SIM_INVALID_VALUE = 1,
    SIM_OUT_OF_MEMORY = 2,
    SIM_NOT_INITIALIZED = 3,
    SIM_NO_DEVICE = 100,
    SIM_INVALID_DEVICE = 101,
    SIM_INVALID_CONTEXT = 201,
    SIM_INVALID_HANDLE = 400,
    SIM_NOT_FOUND = 500,
    SIM_NOT_READY = 600,
    SIM_CONTEXT_IS_DESTROYED = 709,
    SIM_ALREADY_REGISTERED = 712,
    SIM_NOT_REGISTERED = 713,
    SIM_NOT_SUPPORTED = 801,
    SIM_CAPTURE_UNSUPPORTED = 900,
    SIM_CAPTURE_INVALIDATED = 901,
    SIM_CAPTURE_UNMATCHED = 903,
};

struct sim_thread {
    int device;       // set by hipSetDevice; in CUDA, the device of the current context
    void *owner;      // the current CUDA context
    int last_error;   // what hipGetLastError answers
    int last_status;  // status of the last call, for hipExtGetLastError
    const char *api;  // the function under way that the program called
    bool self_call;   // the next exported function is called by the library itself, not by the program
    int capture;      // capture mode + 1 while a stream capture forbids allocation on this thread
};

struct sim_thread *sim_thread(void);

// Bracket of every exported function. `sim_enter` answers the enclosing call's name, `sim_leave` takes it back. A call
// from a signal handler that interrupted another one is the program's own; one announced by `self_call` is not.
const char *sim_enter(const char *api);
int sim_leave(const char *enclosing, int status);

int sim_GetLastError(void);
int sim_PeekAtLastError(void);
int sim_ExtGetLastError(void);

enum sim_dialect { SIM_HIP, SIM_CUDA_RUNTIME, SIM_CUDA_DRIVER };
const char *sim_status_name(int status, enum sim_dialect dialect);  // null where there is no such status
const char *sim_status_text(int status);                            // likewise

#endif
